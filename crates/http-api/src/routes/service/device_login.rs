//! Device login (RFC 8628): programs begin it and poll, and a person confirms or denies their code in a browser. The web application has a
//! page for the code; the service's own page serves where there is no web application.

use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT, CACHE_CONTROL};
use actix_web::{HttpRequest, HttpResponse, post, web};
use application::device_login::DeviceAnswer;
use domain::user::device_login::DEVICE_KEY_TTL;
use secrecy::ExposeSecret as _;
use serde_json::json;
use web_console::{DeviceDecision, DevicePage, device_page};

use super::login_redirect::login_redirect;
use super::own_page::{html, login_client, refusal};
use crate::browser_session;
use crate::extract::{
    Actor, Anonymous, ApiCall, Application, AuditOrigin, Caller, FormFields, KeyPurpose,
    received_at, session_user, state_of,
};
use crate::problem::Problem;

/// The page for the code, in the web application and here.
pub(super) const VERIFICATION_PAGE: &str = "/oauth/device/verify";
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Seconds between two polls.
const POLL_SECONDS: u32 = 5;

pub(crate) fn register(config: &mut web::ServiceConfig) {
    config.service(authorize).service(token).service(verify);
}

#[post("/oauth/device/authorize")]
async fn authorize(
    req: HttpRequest,
    app: Application,
    ApiCall(_, ()): ApiCall<Anonymous, ()>,
) -> Result<HttpResponse, Problem> {
    let client = login_client(&req);
    let begun = app.device_logins.begin(client.network).await?;
    let state = state_of(&req)?;
    let login = begun.login;
    let page = format!("{}{VERIFICATION_PAGE}", state.addresses.public());
    let left = login.expires_at.since(received_at(&req, state));
    Ok(no_store(StatusCode::OK).json(json!({
        "device_code": begun.token.expose_secret(),
        "user_code": login.code.as_str(),
        "verification_uri": page,
        "verification_uri_complete": format!("{page}?user_code={}", login.code),
        "expires_in": left.as_secs(),
        "interval": POLL_SECONDS,
    })))
}

#[post("/oauth/device/token")]
async fn token(
    req: HttpRequest,
    app: Application,
    ApiCall(_, form): ApiCall<Anonymous, FormFields>,
) -> Result<HttpResponse, Problem> {
    if form.text("grant_type") != GRANT_TYPE {
        return Ok(refused("unsupported_grant_type"));
    }
    let origin = AuditOrigin::of(&req).with_status(StatusCode::OK);
    let (code, client) = (form.secret("device_code"), login_client(&req));
    let answer = app.device_logins.redeem(origin, &code, client.network);
    Ok(match answer.await? {
        DeviceAnswer::Pending => refused("authorization_pending"),
        DeviceAnswer::SlowDown => refused("slow_down"),
        DeviceAnswer::Expired => refused("expired_token"),
        DeviceAnswer::Denied => refused("access_denied"),
        DeviceAnswer::Issued(key) => no_store(StatusCode::OK).json(json!({
            "access_token": key.expose_secret(),
            "token_type": "Bearer",
            "expires_in": DEVICE_KEY_TTL.as_secs(),
        })),
    })
}

fn refused(error: &str) -> HttpResponse {
    no_store(StatusCode::BAD_REQUEST).json(json!({"error": error}))
}

fn no_store(status: StatusCode) -> actix_web::HttpResponseBuilder {
    let mut answer = HttpResponse::build(status);
    answer.insert_header((CACHE_CONTROL, "no-store"));
    answer
}

/// A person who is signed in, on a page of this service. An API key neither confirms nor denies.
struct SignedIn(Actor);

impl Caller for SignedIn {
    const KEY_PURPOSE: Option<KeyPurpose> = None;

    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        browser_session::check_same_origin(req)?;
        let found = session_user(req).await?;
        found.map(Self).ok_or_else(Problem::unauthorized)
    }
}

#[post("/oauth/device/verify-authenticated")]
async fn verify(
    req: HttpRequest,
    app: Application,
    ApiCall(SignedIn(actor), form): ApiCall<SignedIn, FormFields>,
) -> Result<HttpResponse, Problem> {
    let code = form.text("user_code");
    let origin = AuditOrigin::of(&req).with_status(StatusCode::OK);
    let network = login_client(&req).network;
    let logins = &app.device_logins;
    let decision = decision(&form)?;
    let decided = match decision {
        DeviceDecision::Confirm => logins.confirm(&origin, &actor, &code, network).await,
        DeviceDecision::Deny => logins.deny(&origin, &actor, &code, network).await,
    };
    if !wants_page(&req) {
        decided?;
        return Ok(no_store(StatusCode::OK).json(json!({"success": true})));
    }
    let page = DevicePage {
        prefix: state_of(&req)?.addresses.prefix(),
        user: actor.user.as_str(),
        code: &code,
        message: None,
        decision: Some(decision),
    };
    match decided {
        Ok(()) => Ok(html(StatusCode::OK, device_page(&page))),
        Err(error) => refusal(error, |message| {
            device_page(&DevicePage {
                message: Some(message),
                decision: None,
                ..page
            })
        }),
    }
}

/// The button of the form. The page of the web application has none, and confirms.
fn decision(form: &FormFields) -> Result<DeviceDecision, Problem> {
    match form.text("decision").as_str() {
        "" | "confirm" => Ok(DeviceDecision::Confirm),
        "deny" => Ok(DeviceDecision::Deny),
        _ => Err(Problem::bad_request(
            "`decision` must be `confirm` or `deny`",
        )),
    }
}

/// Whether a form was sent, and not a request of a script.
fn wants_page(req: &HttpRequest) -> bool {
    let accepted = req.headers().get(ACCEPT);
    accepted.is_some_and(|value| value.to_str().is_ok_and(|text| text.contains("text/html")))
}

#[derive(Default, serde::Deserialize)]
struct CodeQuery {
    #[serde(default)]
    user_code: String,
}

/// The service's own page for the code; `None` for another path, and where users do not sign in. Opening it decides nothing.
pub(super) async fn own_page(req: &HttpRequest) -> Result<Option<HttpResponse>, Problem> {
    let state = state_of(req)?;
    if req.path() != VERIFICATION_PAGE || state.browser_sessions.is_none() {
        return Ok(None);
    }
    if let Some(login) = login_redirect(req).await? {
        return Ok(Some(login));
    }
    let actor = session_user(req).await?;
    let query = web::Query::<CodeQuery>::from_query(req.query_string());
    let query = query.map(web::Query::into_inner).unwrap_or_default();
    let page = device_page(&DevicePage {
        prefix: state.addresses.prefix(),
        user: actor.as_ref().map_or("", |actor| actor.user.as_str()),
        code: &query.user_code,
        message: None,
        decision: None,
    });
    Ok(Some(html(StatusCode::OK, page)))
}
