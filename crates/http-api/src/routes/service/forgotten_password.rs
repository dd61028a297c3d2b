//! The page on which a person who forgot the password asks for a link by mail. It exists where the service sends mail, and says
//! the same whether there is such an account or not.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, post, route, web};
use web_console::{ForgottenPasswordPage, forgotten_password_page};

use super::own_page::{OwnPage, html, login_client, refusal};
use crate::browser_session;
use crate::extract::{ApiCall, Application, AuditOrigin, FormFields, state_of};
use crate::problem::Problem;

pub(crate) fn register(config: &mut web::ServiceConfig) {
    config.service(request_form).service(request_link);
}

#[route("/password/forgot", method = "GET", method = "HEAD")]
async fn request_form(req: HttpRequest, app: Application) -> Result<HttpResponse, Problem> {
    browser_session::sessions_of(&req)?;
    if !app.sign_in.mails_links() {
        return Err(Problem::not_found());
    }
    let page = forgotten_password_page(&ForgottenPasswordPage {
        prefix: state_of(&req)?.addresses.prefix(),
        ..ForgottenPasswordPage::default()
    });
    Ok(html(StatusCode::OK, page))
}

#[post("/password/forgot")]
async fn request_link(
    req: HttpRequest,
    app: Application,
    ApiCall(_page, form): ApiCall<OwnPage, FormFields>,
) -> Result<HttpResponse, Problem> {
    let addresses = &state_of(&req)?.addresses;
    let name = form.text("name").trim().to_owned();
    let page = |message: Option<&str>| {
        forgotten_password_page(&ForgottenPasswordPage {
            prefix: addresses.prefix(),
            name: &name,
            message,
            is_taken: message.is_none(),
        })
    };
    let origin = AuditOrigin::of(&req).with_status(StatusCode::OK);
    let set_password = format!("{}/password", addresses.public());
    let network = login_client(&req).network;
    match app.sign_in.mail_link(origin, &name, network, set_password) {
        Ok(()) => Ok(html(StatusCode::OK, page(None))),
        Err(error) => refusal(error, |message| page(Some(message))),
    }
}
