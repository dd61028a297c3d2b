//! The pages on which people sign in and set a password. They exist where users sign in (`auth.mode = "accounts"`), and work
//! without JavaScript. Every form must come from a page of this service.

use actix_web::http::StatusCode;
use actix_web::http::header::{LOCATION, SET_COOKIE};
use actix_web::{HttpRequest, HttpResponse, post, route, web};
use application::AppError;
use domain::error::Classify as _;
use secrecy::ExposeSecret as _;
use web_console::{LoginPage, ProviderButton, login_page, password_page};

use super::own_page::{OwnPage, html, login_client, open_session, refusal};
use crate::browser_session::{self, safe_return_to};
use crate::extract::{ApiCall, Application, AuditOrigin, FormFields, state_of};
use crate::problem::Problem;

/// The query of the login page.
#[derive(Debug, serde::Deserialize)]
struct LoginQuery {
    #[serde(rename = "returnTo", default)]
    return_to: String,
}

pub(crate) fn register(config: &mut web::ServiceConfig) {
    config
        .service(login_form)
        .service(log_in)
        .service(log_out)
        .service(password_form)
        .service(set_password)
        .configure(super::forgotten_password::register)
        .configure(super::invite::register);
}

#[route("/login", method = "GET", method = "HEAD")]
async fn login_form(req: HttpRequest, app: Application) -> Result<HttpResponse, Problem> {
    browser_session::sessions_of(&req)?;
    let query = web::Query::<LoginQuery>::from_query(req.query_string());
    let return_to = query.map_or_else(|_| String::new(), |query| query.into_inner().return_to);
    let page = login_page_of(&req, &app, safe_return_to(&return_to), "", None)?;
    Ok(html(StatusCode::OK, page))
}

fn login_page_of(
    req: &HttpRequest,
    app: &Application,
    return_to: Option<&str>,
    name: &str,
    message: Option<&str>,
) -> Result<String, Problem> {
    let providers = app.single_sign_on.providers().into_iter();
    let buttons = providers.map(|provider| ProviderButton {
        name: provider.name.to_string(),
        label: provider.label,
    });
    Ok(login_page(&LoginPage {
        prefix: state_of(req)?.addresses.prefix(),
        return_to: return_to.unwrap_or_default(),
        name,
        message,
        providers: &buttons.collect::<Vec<_>>(),
        mails_links: app.sign_in.mails_links(),
    }))
}

/// Shows the login page with the reason of a refusal.
pub(super) fn login_refusal(
    req: &HttpRequest,
    app: &Application,
    error: AppError,
    return_to: Option<&str>,
    name: &str,
) -> Result<HttpResponse, Problem> {
    let message = error.public().into_owned();
    let page = login_page_of(req, app, return_to, name, Some(&message))?;
    refusal(error, |_| page)
}

#[post("/login")]
async fn log_in(
    req: HttpRequest,
    app: Application,
    ApiCall(_page, form): ApiCall<OwnPage, FormFields>,
) -> Result<HttpResponse, Problem> {
    // Names have no spaces; keyboards of telephones add some.
    let name = form.text("name").trim().to_owned();
    let return_to = form.text("returnTo");
    let origin = AuditOrigin::of(&req).with_status(StatusCode::SEE_OTHER);
    let (password, client) = (form.secret("password"), login_client(&req));
    let begun = app.sign_in.log_in(origin, &name, &password, &client).await;
    let return_to = safe_return_to(&return_to);
    match begun {
        Ok(begun) => open_session(&req, &begun, return_to),
        Err(error) => login_refusal(&req, &app, error, return_to, &name),
    }
}

#[post("/logout")]
async fn log_out(
    req: HttpRequest,
    app: Application,
    ApiCall(_page, ()): ApiCall<OwnPage, ()>,
) -> Result<HttpResponse, Problem> {
    if let Some(token) = browser_session::token_of(&req) {
        let origin = AuditOrigin::of(&req).with_status(StatusCode::SEE_OTHER);
        app.sign_in.log_out(origin, &token).await?;
    }
    let state = state_of(&req)?;
    Ok(HttpResponse::SeeOther()
        .insert_header((LOCATION, format!("{}/login", state.addresses.prefix())))
        .insert_header((
            SET_COOKIE,
            browser_session::sessions_of(&req)?.clear_cookie(),
        ))
        .finish())
}

/// The page for a one-time link. It does not use the link: programs open links to look at them.
#[route("/password", method = "GET", method = "HEAD")]
async fn password_form(req: HttpRequest) -> Result<HttpResponse, Problem> {
    browser_session::sessions_of(&req)?;
    let prefix = state_of(&req)?.addresses.prefix();
    Ok(html(StatusCode::OK, password_page(prefix, "", None)))
}

#[post("/password")]
async fn set_password(
    req: HttpRequest,
    app: Application,
    ApiCall(_page, form): ApiCall<OwnPage, FormFields>,
) -> Result<HttpResponse, Problem> {
    let token = form.text("token");
    let prefix = state_of(&req)?.addresses.prefix();
    let page = |message: &str| password_page(prefix, &token, Some(message));
    let password = form.secret("password");
    if password.expose_secret() != form.secret("repeat").expose_secret() {
        let page = page("The two passwords differ.");
        return Ok(html(StatusCode::BAD_REQUEST, page));
    }
    let origin = AuditOrigin::of(&req).with_status(StatusCode::SEE_OTHER);
    let client = login_client(&req);
    // The code may be pasted with the rest of the link.
    let code = token.trim();
    let code = code.rsplit_once('#').map_or(code, |(_, code)| code);
    let begun = app.sign_in.redeem_link(origin, code, &password, &client);
    match begun.await {
        Ok(begun) => open_session(&req, &begun, None),
        Err(error) => refusal(error, page),
    }
}
