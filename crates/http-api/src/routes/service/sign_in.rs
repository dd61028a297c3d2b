//! The pages on which people sign in and set a password. They exist where users sign in (`auth.mode = "accounts"`), and work
//! without JavaScript. Every form must come from a page of this service.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, LOCATION, REFERRER_POLICY, SET_COOKIE, USER_AGENT};
use actix_web::{HttpRequest, HttpResponse, post, route, web};
use application::AppError;
use application::sign_in::{LoginClient, NewSession};
use domain::error::{Classify as _, ErrorClass};
use secrecy::ExposeSecret as _;
use web_console::{LoginPage, ProviderButton, SIGN_IN_SECURITY_POLICY, login_page, password_page};

use crate::browser_session::{self, safe_return_to};
use crate::extract::{
    ApiCall, Application, AuditOrigin, Caller, ClientAddress, FormFields, KeyPurpose, received_at,
    state_of,
};
use crate::page_security;
use crate::problem::Problem;
use crate::rate_limit::client_network;

/// A browser that shows a page of this service.
pub(crate) struct OwnPage;

impl Caller for OwnPage {
    const KEY_PURPOSE: Option<KeyPurpose> = None;

    /// Not only with a cookie: a page of another origin could otherwise sign a visitor in under another account.
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        browser_session::check_same_origin(req)?;
        Ok(Self)
    }
}

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

/// Sends the browser on, with the cookie of its new session.
pub(super) fn open_session(
    req: &HttpRequest,
    NewSession { token, session }: &NewSession,
    return_to: Option<&str>,
) -> Result<HttpResponse, Problem> {
    let state = state_of(req)?;
    let now = received_at(req, state);
    let cookie = browser_session::sessions_of(req)?.set_cookie(token, now, session.expires_at)?;
    let start = format!("{}/", state.addresses.prefix());
    Ok(HttpResponse::SeeOther()
        .insert_header((LOCATION, return_to.unwrap_or(&start)))
        .insert_header((SET_COOKIE, cookie))
        .finish())
}

/// Shows the form again, with the reason.
pub(super) fn refusal(
    error: AppError,
    page: impl FnOnce(&str) -> String,
) -> Result<HttpResponse, Problem> {
    let message = error.public().into_owned();
    let status = match error.class() {
        ErrorClass::Invalid => StatusCode::BAD_REQUEST,
        ErrorClass::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorClass::Forbidden => StatusCode::FORBIDDEN,
        ErrorClass::Conflict => StatusCode::CONFLICT,
        ErrorClass::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorClass::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => return Err(error.into()),
    };
    Ok(html(status, page(&message)))
}

pub(super) fn login_client(req: &HttpRequest) -> LoginClient {
    let address = ClientAddress::of(req).address;
    let agent = req.headers().get(USER_AGENT);
    LoginClient {
        network: address.map(client_network),
        address,
        user_agent: agent.and_then(|value| value.to_str().map(str::to_owned).ok()),
    }
}

pub(super) fn html(status: StatusCode, page: String) -> HttpResponse {
    let mut answer = HttpResponse::build(status);
    page_security::add(&mut answer, SIGN_IN_SECURITY_POLICY);
    // With `no-referrer`, browsers name `null` as the origin of the form.
    answer.insert_header((REFERRER_POLICY, HeaderValue::from_static("same-origin")));
    answer.content_type("text/html; charset=utf-8").body(page)
}
