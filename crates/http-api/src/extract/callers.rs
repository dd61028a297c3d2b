//! The callers of routes, and how their keys identify them.

use std::future::Future;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::HeaderName;
use application::keyed_semaphore::KeyedPermit;
use application::secrets::may_read_secrets;
use domain::audit::AuditActor;
use domain::id::{ApiKeyId, OrganizationId};
use domain::sandbox::Sandbox;
use domain::user::identity::Role;
use secrecy::{ExposeSecret, SecretString};

use super::automation_routes::check_automation_route;
use super::key_attempts::{self, received_at};
use super::keys::{bearer_text, key_of, key_text};
use crate::audit::AuditContext;
use crate::browser_session;
use crate::decode::{ErrorFormat, FieldError, FieldErrors, Path};
use crate::problem::Problem;
use crate::rate_limit::KeyPurpose;
use crate::state::{Application, Listener, state_of};

/// The header with the organization in which a request acts.
static ORGANIZATION_HEADER: HeaderName = HeaderName::from_static("x-org-id");
/// The header as the documentation writes it.
const KEY_HEADER_TEXT: &str = "X-Session-API-Key";
/// A user.
pub use application::authenticate::AuthenticatedUser as Actor;

/// An administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin(pub Actor);

impl Caller for Admin {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let actor = Actor::identify(req).await?;
        match actor.role {
            Role::Admin => Ok(Self(actor)),
            Role::User => Err(Problem::forbidden("Only administrators may do this")),
        }
    }
}

/// The agent server of a sandbox.
#[derive(Debug, Clone)]
pub struct SandboxCaller(pub Sandbox);

/// The agent server of a sandbox that sends a webhook report. Holds one of the sandbox's permits until it is dropped.
#[derive(Debug)]
pub struct Reporter(
    pub Arc<Sandbox>,
    #[expect(dead_code, reason = "held")] KeyedPermit,
);

/// A kind of caller that a route accepts.
pub trait Caller: Sized {
    /// The form of errors for these callers.
    const ERROR_FORMAT: ErrorFormat = ErrorFormat::V1;
    /// The purpose for which keys are tried; `None` if no key is needed.
    const KEY_PURPOSE: Option<KeyPurpose> = Some(KeyPurpose::Call);
    /// Identifies the caller. An error is the whole response.
    fn identify(req: &HttpRequest) -> impl Future<Output = Result<Self, Problem>>;
}

/// No identification: health, documentation, public routes.
#[derive(Debug, Clone, Copy)]
pub struct Anonymous;

impl Caller for Anonymous {
    const KEY_PURPOSE: Option<KeyPurpose> = None;

    async fn identify(_: &HttpRequest) -> Result<Self, Problem> {
        Ok(Self)
    }
}

/// The user with this key, if the rate limit admits the request, acting in the organization of the request.
pub(crate) async fn user_of(
    req: &HttpRequest,
    key: Option<&str>,
) -> Result<Option<Actor>, Problem> {
    let found = unplaced_user_of(req, key).await?;
    acting_in_header(req, found).await
}

/// The user with this key, acting where the key does without a header.
async fn unplaced_user_of(req: &HttpRequest, key: Option<&str>) -> Result<Option<Actor>, Problem> {
    let state = state_of(req)?;
    let key_secret = key.map(SecretString::from);
    let authenticator = &state.ports.authenticator;
    let found = match (state.listener, &key_secret) {
        (Listener::Public | Listener::Metrics, key) => authenticator.user(key.as_ref()).await?,
        (Listener::Callback | Listener::Automations, Some(key)) => {
            authenticator.automation_user(key).await?
        }
        (Listener::Callback | Listener::Automations, None) => None,
    };
    if let Some(actor) = &found {
        if actor.is_automation {
            check_automation_route(req)?;
        }
        let sender = AuditActor::User(actor.user.clone());
        admit(req, key, sender, actor.key).await?;
    }
    Ok(found)
}

/// The organization that the header names.
pub(crate) fn named_organization(req: &HttpRequest) -> Result<Option<OrganizationId>, Problem> {
    let Some(value) = req.headers().get(&ORGANIZATION_HEADER) else {
        return Ok(None);
    };
    let named = value.to_str().ok().and_then(|text| text.parse().ok());
    let refusal = || Problem::bad_request("X-Org-Id must be the UUID of an organization");
    named.map(Some).ok_or_else(refusal)
}

/// The caller, acting in the organization that the header names, if there is one.
async fn acting_in_header(
    req: &HttpRequest,
    found: Option<Actor>,
) -> Result<Option<Actor>, Problem> {
    let (Some(actor), Some(id)) = (&found, named_organization(req)?) else {
        return Ok(found);
    };
    let refusal = match actor.bound_to {
        Some(_) => "This API key is bound to another organization than X-Org-Id names",
        None => "You are no member of the organization that X-Org-Id names",
    };
    let authenticator = &state_of(req)?.ports.authenticator;
    let placed = match found {
        Some(actor) => authenticator.act_in(actor, id).await?,
        None => None,
    };
    placed.map(Some).ok_or_else(|| Problem::forbidden(refusal))
}

/// The user whose session cookie the request has. A request that may change something must come from a page of this service.
/// Routes of sandboxes never ask for this.
pub(crate) async fn session_user(req: &HttpRequest) -> Result<Option<Actor>, Problem> {
    let found = unplaced_session_user(req).await?;
    acting_in_header(req, found).await
}

async fn unplaced_session_user(req: &HttpRequest) -> Result<Option<Actor>, Problem> {
    let Some(token) = browser_session::token_of(req) else {
        return Ok(None);
    };
    browser_session::check_sender(req)?;
    let text = token.expose_secret();
    key_attempts::check_key_attempts(req, std::iter::once(text), KeyPurpose::Call)?;
    let found = state_of(req)?.ports.authenticator.session(&token).await?;
    let Some(actor) = found else {
        key_attempts::count_wrong_keys(req, std::iter::once(&token), KeyPurpose::Call);
        return Ok(None);
    };
    let sender = AuditActor::User(actor.user.clone());
    admit(req, Some(text), sender, None).await?;
    AuditContext::set_session(req, actor.session);
    Ok(Some(actor))
}

/// The user with this key, or without a key the user whose session it is. A wrong key is never replaced by the session.
async fn user_of_key_or_session(
    req: &HttpRequest,
    key: Option<&str>,
) -> Result<Option<Actor>, Problem> {
    let found = unplaced_user_of_key_or_session(req, key).await?;
    acting_in_header(req, found).await
}

async fn unplaced_user_of_key_or_session(
    req: &HttpRequest,
    key: Option<&str>,
) -> Result<Option<Actor>, Problem> {
    let found = unplaced_user_of(req, key).await?;
    match (&found, key) {
        (None, None) => unplaced_session_user(req).await,
        _ => Ok(found),
    }
}

/// Records the sender of a request, remembers its key and counts the request. A refusal may be held for a while.
async fn admit(
    req: &HttpRequest,
    key: Option<&str>,
    sender: AuditActor,
    key_id: Option<ApiKeyId>,
) -> Result<(), Problem> {
    let state = state_of(req)?;
    let now = received_at(req, state);
    AuditContext::set_actor(req, sender.clone(), key_id);
    let limit_status = state.rate.count_request(&sender, key_id, now);
    let admitted = key_attempts::accept_key(req, key, limit_status);
    if admitted.is_err()
        && let Some(held) = state.rate.hold_refusal(&sender, now)
    {
        held.wait().await;
    }
    admitted
}

impl Caller for Actor {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let found = unplaced_actor(req).await?;
        let placed = acting_in_header(req, Some(found)).await?;
        placed.ok_or_else(Problem::unauthorized)
    }
}

/// The user of a request, whatever organization it names.
pub(crate) async fn unplaced_actor(req: &HttpRequest) -> Result<Actor, Problem> {
    let key = key_text(req);
    if let Some(found) = unplaced_user_of_key_or_session(req, key).await? {
        return Ok(found);
    }
    // The SDK sends its sandbox's key in `X-Session-API-Key`, and the user's key as a bearer token.
    let bearer = key.and_then(|_| bearer_text(req));
    let found = match bearer {
        Some(_) => unplaced_user_of(req, bearer).await?,
        None => None,
    };
    found.ok_or_else(Problem::unauthorized)
}

/// A user on one of the two legacy operations, whose errors have another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyActor(pub Actor);

impl Caller for LegacyActor {
    const ERROR_FORMAT: ErrorFormat = ErrorFormat::Legacy;

    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let key = key_text(req);
        let found = user_of_key_or_session(req, key).await?;
        found.map(Self).ok_or_else(|| {
            let fault = match key {
                None => FieldError::missing(),
                Some(_) => FieldError::new("invalid_api_key", "Invalid API key"),
            };
            let mut errors = FieldErrors::new();
            errors.push_silent(&Path::header().key(KEY_HEADER_TEXT), fault);
            let shape = Problem::invalid(&errors, ErrorFormat::Legacy);
            Problem::with_body(StatusCode::UNAUTHORIZED, shape.body().clone())
        })
    }
}

fn session_key_of(req: &HttpRequest) -> Result<SecretString, Problem> {
    let refusal = "X-Session-API-Key header is required";
    key_of(req).ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, refusal))
}

fn invalid_session_key() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "Invalid session API key")
}

/// The keys that identify a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SandboxKeyKind {
    Session,
    /// Its callback token or its session key.
    Callback,
}

/// The sandbox with this key, if the rate limit admits the request.
async fn sandbox_of(
    req: &HttpRequest,
    key: &SecretString,
    keys: SandboxKeyKind,
) -> Result<Option<Sandbox>, Problem> {
    let authenticator = &state_of(req)?.ports.authenticator;
    let found = match keys {
        SandboxKeyKind::Session => authenticator.sandbox(key).await?,
        SandboxKeyKind::Callback => authenticator.callback(key).await?,
    };
    if let Some(sandbox) = &found {
        let sender = AuditActor::Sandbox(sandbox.id.clone());
        admit(req, Some(key.expose_secret()), sender, None).await?;
    }
    Ok(found)
}

impl Caller for SandboxCaller {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let key = session_key_of(req)?;
        let found = sandbox_of(req, &key, SandboxKeyKind::Session).await?;
        found.map(Self).ok_or_else(invalid_session_key)
    }
}

/// The sandbox with the callback token or session key of a request. Conversations store the addresses of the routes that take
/// it.
pub(crate) async fn callback_sandbox(req: &HttpRequest) -> Result<Sandbox, Problem> {
    let key = session_key_of(req)?;
    let found = sandbox_of(req, &key, SandboxKeyKind::Callback).await?;
    found.ok_or_else(invalid_session_key)
}

/// Refuses a sandbox that neither runs nor starts.
pub(crate) fn require_active(sandbox: &Sandbox) -> Result<(), Problem> {
    if may_read_secrets(sandbox) {
        return Ok(());
    }
    let refusal = "Sandbox is not running";
    Err(Problem::new(StatusCode::UNAUTHORIZED, refusal))
}

impl Caller for Reporter {
    const KEY_PURPOSE: Option<KeyPurpose> = Some(KeyPurpose::Report);

    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let key = session_key_of(req)?;
        let state = state_of(req)?;
        let found = state.ports.authenticator.reporter(&key).await?;
        let sandbox = found.ok_or_else(invalid_session_key)?;
        AuditContext::set_actor(req, AuditActor::Sandbox(sandbox.id.clone()), None);
        key_attempts::accept_key(req, Some(key.expose_secret()), None)?;
        let turn = state.intake.acquire(&sandbox.id).await?;
        Ok(Self(sandbox, turn))
    }
}

/// A [`Reporter`] of events that has not exceeded its rate. The rate is checked before the body is read.
#[derive(Debug)]
pub struct EventReporter(pub Reporter);

impl Caller for EventReporter {
    const KEY_PURPOSE: Option<KeyPurpose> = Reporter::KEY_PURPOSE;

    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let reporter = Reporter::identify(req).await?;
        let app = req.app_data::<Application>();
        let app = app.ok_or_else(|| Problem::internal("the application is not registered"))?;
        app.webhooks.check_rate(&reporter.0)?;
        Ok(Self(reporter))
    }
}

/// A user, or a sandbox that acts for its owner.
#[derive(Debug, Clone)]
pub enum UserOrSandbox {
    /// Identified by a user's key.
    User(Actor),
    /// Identified by a sandbox's key.
    Sandbox(Box<Sandbox>),
}

impl UserOrSandbox {
    /// A user, or a sandbox with its callback token or session key.
    pub(crate) async fn by_callback(req: &HttpRequest) -> Result<Self, Problem> {
        Self::by_key(req, SandboxKeyKind::Callback).await
    }

    async fn by_key(req: &HttpRequest, keys: SandboxKeyKind) -> Result<Self, Problem> {
        if let Some(key) = key_of(req)
            && let Some(sandbox) = sandbox_of(req, &key, keys).await?
        {
            return Ok(Self::Sandbox(Box::new(sandbox)));
        }
        let user = user_of(req, key_text(req)).await?;
        user.map(Self::User).ok_or_else(Problem::unauthorized)
    }
}

impl Caller for UserOrSandbox {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let key = key_text(req);
        if key.is_none()
            && let Some(actor) = session_user(req).await?
        {
            return Ok(Self::User(actor));
        }
        Self::by_key(req, SandboxKeyKind::Session).await
    }
}
