//! The page on which a person accepts an invitation to an organization, with an account or by creating one. Its link has the
//! code in the fragment, and opening it uses nothing up: programs open links to look at them.

use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::{HttpRequest, HttpResponse, post, route, web};
use secrecy::ExposeSecret as _;
use web_console::{InvitePage, invite_page};

use super::own_page::{OwnPage, html, login_client, open_session, refusal};
use crate::browser_session;
use crate::extract::{
    Actor, ApiCall, Application, AuditOrigin, FormFields, session_user, state_of,
};
use crate::problem::Problem;

pub(crate) fn register(config: &mut web::ServiceConfig) {
    config.service(invitation_form).service(accept);
}

#[route("/invite", method = "GET", method = "HEAD")]
async fn invitation_form(req: HttpRequest) -> Result<HttpResponse, Problem> {
    browser_session::sessions_of(&req)?;
    let actor = session_user(&req).await?;
    let page = invite_page(&InvitePage {
        prefix: state_of(&req)?.addresses.prefix(),
        user: actor.as_ref().map(|actor| actor.user.as_str()),
        ..InvitePage::default()
    });
    Ok(html(StatusCode::OK, page))
}

#[post("/invite")]
async fn accept(
    req: HttpRequest,
    app: Application,
    ApiCall(_page, form): ApiCall<OwnPage, FormFields>,
) -> Result<HttpResponse, Problem> {
    let token = form.text("token");
    // The code may be pasted with the rest of the link.
    let code = token.trim();
    let code = code.rsplit_once('#').map_or(code, |(_, code)| code);
    match session_user(&req).await? {
        Some(actor) => join(&req, &app, &actor, code).await,
        None => enrol(&req, &app, &form, code).await,
    }
}

/// Makes the person who is signed in a member.
async fn join(
    req: &HttpRequest,
    app: &Application,
    actor: &Actor,
    code: &str,
) -> Result<HttpResponse, Problem> {
    let prefix = state_of(req)?.addresses.prefix();
    let origin = AuditOrigin::of(req).with_status(StatusCode::SEE_OTHER);
    match app.organizations.accept(&origin, &actor.user, code).await {
        Ok(_) => Ok(HttpResponse::SeeOther()
            .insert_header((LOCATION, format!("{prefix}/")))
            .finish()),
        Err(error) => refusal(error, |message| {
            invite_page(&InvitePage {
                prefix,
                token: code,
                user: Some(actor.user.as_str()),
                message: Some(message),
                ..InvitePage::default()
            })
        }),
    }
}

/// Creates an account that is a member, and begins a session.
async fn enrol(
    req: &HttpRequest,
    app: &Application,
    form: &FormFields,
    code: &str,
) -> Result<HttpResponse, Problem> {
    let prefix = state_of(req)?.addresses.prefix();
    let name = form.text("name").trim().to_owned();
    let page = |message: &str| {
        invite_page(&InvitePage {
            prefix,
            token: code,
            name: &name,
            message: Some(message),
            ..InvitePage::default()
        })
    };
    let password = form.secret("password");
    if password.expose_secret() != form.secret("repeat").expose_secret() {
        let page = page("The two passwords differ.");
        return Ok(html(StatusCode::BAD_REQUEST, page));
    }
    let origin = AuditOrigin::of(req).with_status(StatusCode::SEE_OTHER);
    let client = login_client(req);
    let account = (name.as_str(), &password);
    match app.sign_in.enrol(origin, code, account, &client).await {
        Ok(begun) => open_session(req, &begun, None),
        Err(error) => refusal(error, page),
    }
}
