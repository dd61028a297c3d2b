//! Writes requests to the audit log, in one place at the edge, for all present and future routes:
//!
//! * Requests of users that change something, whatever their outcome; no reads.
//! * Secrets that sandboxes read, and what they do with a user's token.
//! * Requests without a valid key, and requests that the user may not make.
//!
//! An entry never contains a body, a query, or a header other than the request id. Routes about users and keys take
//! [`AuditOrigin`]: their success is logged together with the change itself, and here only their failure.

use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::HeaderValue;
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpMessage as _, HttpRequest};
use application::administration;
use application::idempotency::IdempotentResult;
use domain::audit::{AuditActor, AuditOutcome, sanitize_text};
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, SessionId};

use crate::extract::client::ClientAddress;
use crate::state::Application;

/// Routes on which a sandbox reads its owner's data or acts in the owner's name.
const AUDITED_SANDBOX_ROUTES: [&str; 5] = [
    "/api/v1/sandboxes/{sandbox_id}/settings/secrets",
    "/api/v1/sandboxes/{sandbox_id}/settings/secrets/{secret_name}",
    "/api/v1/webhooks/secrets",
    "/api/v1/users/me",
    "/mcp/mcp",
];

/// What the audit log needs of a request, stored in its extensions as one value: each extension is an allocation of its own.
#[derive(Debug, Default)]
pub(crate) struct AuditContext {
    id: Option<HeaderValue>,
    received_at: Option<Timestamp>,
    /// The actor, once authentication has identified one.
    who: Option<(AuditActor, Option<ApiKeyId>)>,
    session: Option<SessionId>,
}

impl AuditContext {
    pub(crate) fn begin(req: &ServiceRequest, id: HeaderValue, received_at: Timestamp) {
        let noted = Self {
            id: Some(id),
            received_at: Some(received_at),
            who: None,
            session: None,
        };
        req.extensions_mut().insert(noted);
    }

    pub(crate) fn received_at(req: &HttpRequest) -> Option<Timestamp> {
        req.extensions().get::<Self>()?.received_at
    }

    /// The session that identified the actor.
    pub(crate) fn set_session(req: &HttpRequest, session: Option<SessionId>) {
        if let Some(noted) = req.extensions_mut().get_mut::<Self>() {
            noted.session = session;
        }
    }

    /// The id that the response and the log have.
    pub(crate) fn request_id(req: &HttpRequest) -> HeaderValue {
        let extensions = req.extensions();
        let id = extensions
            .get::<Self>()
            .and_then(|context| context.id.clone());
        id.unwrap_or_else(|| HeaderValue::from_static(""))
    }

    /// The actor and the key that identified it.
    pub(crate) fn set_actor(req: &HttpRequest, actor: AuditActor, key: Option<ApiKeyId>) {
        let mut kept = req.extensions_mut();
        if let Some(noted) = kept.get_mut::<Self>() {
            noted.who = Some((actor, key));
        } else {
            kept.insert(Self {
                who: Some((actor, key)),
                ..Self::default()
            });
        }
    }
}

/// The resource that a request has created or decided about, where its path does not name it. Stored in the response's
/// extensions.
#[derive(Debug, Clone)]
pub(crate) struct CreatedResource(pub(crate) String);

impl CreatedResource {
    /// Names the resource that this request has created, for example `sandbox:1a2b`; `None` for a replayed response.
    pub(crate) fn of<T>(
        answer: &IdempotentResult<T>,
        name: impl FnOnce(&T) -> String,
    ) -> Option<Self> {
        match answer {
            IdempotentResult::New(made) => Some(Self(name(made))),
            IdempotentResult::Repeated(_) => None,
        }
    }
}

/// Marks a request whose success is not written here: its route writes its own audit entry, or it changes nothing.
struct AlreadyAudited;

/// Leaves the success of a request out of the audit log, although its method is one that changes something.
#[derive(Debug)]
pub(crate) struct Unaudited;

impl Unaudited {
    pub(crate) fn of(req: &HttpRequest) -> Self {
        req.extensions_mut().insert(AlreadyAudited);
        Self
    }
}

/// The actor and source of a change to users or keys.
#[derive(Debug, Clone)]
pub struct AuditOrigin(pub administration::Origin);

impl AuditOrigin {
    /// For routes that extract no parts.
    pub(crate) fn of(req: &HttpRequest) -> Self {
        req.extensions_mut().insert(AlreadyAudited);
        Self(origin(req))
    }

    /// Sets the status that the response has on success.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> administration::Origin {
        self.0.status = Some(status.as_u16());
        self.0
    }
}

/// The origin of a request, without a status.
fn origin(req: &HttpRequest) -> administration::Origin {
    let (actor, key) = actor_of(req);
    let pattern = req.match_pattern();
    let pattern = pattern.as_deref().unwrap_or("(no route)");
    let kept = req.extensions();
    let context = kept.get::<AuditContext>();
    let session = context.and_then(|context| context.session);
    let id = context.and_then(|context| context.id.as_ref());
    let id = id.and_then(|value| value.to_str().map(str::to_owned).ok());
    drop(kept);
    administration::Origin {
        actor,
        key,
        session,
        action: sanitize_text(&format!("{} {pattern}", req.method())),
        source: ClientAddress::of(req)
            .address
            .map(|address| address.to_string()),
        request_id: id,
        status: None,
    }
}

/// The actor and the key that identified it.
pub(crate) fn actor_of(req: &HttpRequest) -> (AuditActor, Option<ApiKeyId>) {
    let found = req
        .extensions()
        .get::<AuditContext>()
        .and_then(|context| context.who.clone());
    found.unwrap_or((AuditActor::Unknown, None))
}

/// Formats a path parameter: `conversation:1a2b` from `{conversation_id}`. UUIDs are written as in responses.
fn object(name: &str, value: &str) -> String {
    let kind = name.trim_end_matches("_id").trim_end_matches("_name");
    let uuid = uuid::Uuid::parse_str(value);
    let value = uuid.map_or_else(|_| value.to_owned(), |id| id.simple().to_string());
    sanitize_text(&format!("{kind}:{value}"))
}

/// Whether a request is audited. The pattern is passed lazily: to find it, actix matches all routes again.
fn is_audited(
    method: &Method,
    pattern: impl FnOnce() -> Option<String>,
    actor: Option<&AuditActor>,
    status: StatusCode,
) -> bool {
    match actor {
        None | Some(AuditActor::Unknown) => status == StatusCode::UNAUTHORIZED,
        Some(AuditActor::Sandbox(_)) => {
            pattern().is_some_and(|route| AUDITED_SANDBOX_ROUTES.contains(&route.as_str()))
        }
        Some(_) => !method.is_safe() || status == StatusCode::FORBIDDEN,
    }
}

/// Whether this request is audited if its response has this status.
fn is_audit_required(req: &HttpRequest, status: StatusCode) -> bool {
    let known = req.extensions();
    let who = known
        .get::<AuditContext>()
        .and_then(|context| context.who.as_ref());
    let actor = who.map(|(actor, _)| actor);
    is_audited(req.method(), || req.match_pattern(), actor, status)
}

/// The objects that the path names: the first, and the others.
fn audit_objects(req: &HttpRequest) -> (Option<String>, Option<String>) {
    let mut audit_objects = req.match_info().iter().map(|(name, it)| object(name, it));
    let first = audit_objects.next();
    let more: Vec<String> = audit_objects.collect();
    (
        first,
        (!more.is_empty()).then(|| sanitize_text(&more.join(" "))),
    )
}

/// The audit entry of a request that may never be answered: its handler panics, or its client closes the connection, while
/// the change takes effect. Stored in the request's extensions, and written when dropped.
struct UnansweredRequest {
    app: Application,
    origin: administration::Origin,
    audit_objects: (Option<String>, Option<String>),
    is_answered: bool,
}

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let (object, detail) = std::mem::take(&mut self.audit_objects);
        let mut origin = self.origin.clone();
        // The edge catches the panic and answers with this status.
        let internal = StatusCode::INTERNAL_SERVER_ERROR.as_u16();
        origin.status = std::thread::panicking().then_some(internal);
        self.app.audit.record(origin, object, detail);
    }
}

/// Called when caller and input are known, right before the handler runs.
pub(crate) fn begin(req: &HttpRequest) {
    if !is_audit_required(req, StatusCode::INTERNAL_SERVER_ERROR) {
        return;
    }
    if let Some(app) = req.app_data::<Application>() {
        let unanswered = UnansweredRequest {
            app: app.clone(),
            origin: origin(req),
            audit_objects: audit_objects(req),
            is_answered: false,
        };
        req.extensions_mut().insert(unanswered);
    }
}

/// Writes the audit entry of an answered request, if it is audited. Does not wait.
pub(crate) fn record<B>(response: &ServiceResponse<B>) {
    let (req, status) = (response.request(), response.status());
    if let Some(begun) = req.extensions_mut().get_mut::<UnansweredRequest>() {
        begun.is_answered = true;
    }
    let outcome = AuditOutcome::of_status(status.as_u16());
    let is_told = outcome == AuditOutcome::Ok && req.extensions().get::<AlreadyAudited>().is_some();
    if is_told || !is_audit_required(req, status) {
        return;
    }
    let Some(app) = req.app_data::<Application>() else {
        return;
    };
    let made = response
        .response()
        .extensions()
        .get::<CreatedResource>()
        .cloned();
    let made = made.map(|created| sanitize_text(&created.0));
    let (object, detail) = match audit_objects(req) {
        (None, detail) => (made, detail),
        (object, detail) => (object, detail.or(made)),
    };
    let mut origin = origin(req);
    origin.status = Some(status.as_u16());
    app.audit.record(origin, object, detail);
}

#[cfg(test)]
mod tests {
    use domain::id::{SandboxId, UserId};

    use super::*;

    #[test]
    fn changes_are_audited_and_reads_are_not() {
        let user = AuditActor::User(UserId::parse("ada").unwrap());
        let sandbox = AuditActor::Sandbox(SandboxId::parse("s").unwrap());
        let secrets = Some(AUDITED_SANDBOX_ROUTES[0]);
        let (get, post) = (Method::GET, Method::POST);
        let table = [
            (&get, None, &user, 200, false),
            (&get, None, &user, 404, false),
            (&get, None, &user, 403, true),
            (&post, None, &user, 200, true),
            (&Method::DELETE, None, &user, 404, true),
            (&Method::OPTIONS, None, &user, 200, false),
            (&get, None, &AuditActor::Unknown, 200, false),
            (&get, None, &AuditActor::Unknown, 401, true),
            (&post, None, &AuditActor::Unknown, 404, false),
            (&get, secrets, &sandbox, 200, true),
            (&get, secrets, &sandbox, 403, true),
            (
                &post,
                Some("/api/v1/webhooks/events/{conversation_id}"),
                &sandbox,
                200,
                false,
            ),
        ];
        for (method, pattern, actor, status, expected) in table {
            let status = StatusCode::from_u16(status).unwrap();
            let of_route = || pattern.map(str::to_owned);
            let found = is_audited(method, of_route, Some(actor), status);
            assert_eq!(found, expected, "{method} {pattern:?} {actor} {status}");
        }
    }

    #[test]
    fn objects_have_kind_and_id() {
        let id = "bd149714-3570-48a2-9bd5-4ec68782c6d8";
        let hex = "conversation:bd149714357048a29bd54ec68782c6d8";
        assert_eq!(object("conversation_id", id), hex);
        assert_eq!(object("secret_name", "TOKEN"), "secret:TOKEN");
        assert_eq!(object("sandbox_id", &"x".repeat(999)).len(), 256);
    }

    #[test]
    fn audited_sandbox_routes_exist() {
        let document = crate::openapi_document();
        for pattern in AUDITED_SANDBOX_ROUTES {
            assert!(document["paths"].get(pattern).is_some(), "{pattern}");
        }
    }
}
