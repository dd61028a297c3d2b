//! Git commands of sandboxes (`docs/explanation/git-calls.md`).
//!
//! git in a sandbox sends a token in place of its owner's credentials. The service checks it, and the crate `broker` makes the
//! call with the credentials. Refusals are plain text, which git shows. None has status 401: git would ask for a password.

use actix_web::http::StatusCode;
use actix_web::http::header::{ContentType, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse, route, web};
use application::administration::Origin;
use application::models::SandboxTokenRefusal;
use application::sandbox_git::{GIT_TOKEN_HEADER, GitGrant, GitRefusal};
use broker::{
    CallBody, GitAnswer, GitAnswerBody, GitBroker, GitCall, GitCallError, GitRequest, Push,
};
use domain::audit::{AuditActor, sanitize_text};
use domain::error::chain;

use super::relay::{LengthError, Upload, headers_of, length_of};
use crate::audit::AuditOrigin;
use crate::extract::Application;
use crate::problem::Problem;

/// The path of all calls.
pub(crate) const GIT_CALLS: &str = "/git/";

/// The action of pushes in the audit log.
const PUSH_ACTION: &str = "git push";
/// Characters of a commit's id there.
const SHORT_ID_CHARS: usize = 12;

/// Seconds until a refused call may be repeated.
const RETRY_SECONDS: &str = "5";

/// Calls a git host.
#[route("/git/{path:.*}", method = "GET", method = "POST", method = "PUT")]
pub(crate) async fn git_call(
    req: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let broker = req.app_data::<web::Data<GitBroker>>();
    let broker = broker.ok_or_else(Problem::not_found)?;
    let app = req.app_data::<Application>();
    let app = app.ok_or_else(|| Problem::internal("the application is not registered"))?;
    let token = req.headers().get(GIT_TOKEN_HEADER);
    let token = token.and_then(|token| token.to_str().ok());
    // As it was sent: a decoded path could lead elsewhere.
    let place = req.uri().path().strip_prefix(GIT_CALLS);
    let grant = app
        .sandbox_git
        .open(token.unwrap_or_default(), place.unwrap_or_default());
    match grant.await? {
        Ok(grant) => {
            let query = req.uri().query().unwrap_or_default();
            let request = GitRequest::parse(req.method().as_str(), grant.path, query);
            let Some(request) = request else {
                broker.count_refusal();
                return Ok(failed(&GitCallError::UnknownOperation));
            };
            let push = request
                .is_push()
                .then(|| PushRecord::new(&req, app, &grant, &request));
            let answer = send(&req, broker, &grant, (&request, payload)).await;
            if let Some(push) = push {
                push.finish(&answer);
            }
            Ok(answer.map_or_else(|refused| refused, |(response, _)| response))
        }
        Err(refusal) => {
            broker.count_refusal();
            Ok(refused(StatusCode::FORBIDDEN, text_of(refusal)))
        }
    }
}

fn text_of(refusal: GitRefusal) -> &'static str {
    match refusal {
        GitRefusal::Token(SandboxTokenRefusal::Unknown) => {
            "the sandbox's token is not valid; a new conversation renews it"
        }
        GitRefusal::Token(SandboxTokenRefusal::NotRunning) => {
            "the sandbox of this token is not running"
        }
        GitRefusal::UnknownHost => {
            "there is no token for this host; store one in the settings, and start a conversation"
        }
    }
}

/// Makes the call. Also what was pushed.
async fn send(
    req: &HttpRequest,
    broker: &GitBroker,
    grant: &GitGrant<'_>,
    (request, payload): (&GitRequest, web::Payload),
) -> Result<(HttpResponse, Option<Push>), HttpResponse> {
    let length = match length_of(req, GitBroker::MAX_REQUEST_BYTES) {
        Ok(length) => length,
        Err(error) => {
            broker.count_refusal();
            return Err(match error {
                LengthError::TooLarge => {
                    refused(StatusCode::PAYLOAD_TOO_LARGE, "the push is too large")
                }
                LengthError::Invalid => {
                    refused(StatusCode::BAD_REQUEST, "Content-Length is not a number")
                }
            });
        }
    };
    let (sender, body) = CallBody::channel(length);
    let headers = headers_of(req);
    let rights = grant.rights_in(request.repository());
    let call = broker.call(GitCall {
        sandbox: &grant.sandbox,
        host: &grant.host,
        request,
        rights: &rights,
        address: &grant.address,
        method: req.method().as_str(),
        path: grant.path,
        query: req.uri().query().unwrap_or_default(),
        headers: &headers,
        body,
    });
    let (idle, max) = (GitBroker::IDLE_TIMEOUT, GitBroker::MAX_REQUEST_BYTES);
    let mut upload = Upload::new(payload, sender, idle, max);
    let GitAnswer {
        status,
        headers,
        body,
        push,
    } = match upload.until(call).await {
        Ok(answer) => answer,
        Err(error) => return Err(failed(&error)),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = HttpResponse::build(status);
    for (name, value) in &headers {
        response.append_header((name.as_str(), value.as_slice()));
    }
    let response = match body {
        GitAnswerBody::Whole(body) => response.body(body),
        GitAnswerBody::Streamed(body) => upload.respond(response, body.into_stream()),
    };
    Ok((response, push))
}

/// The entry of a push in the audit log. If the sandbox closes the connection before the host has answered, the entry has no
/// status: the host may have taken the push.
struct PushRecord<'a> {
    app: &'a Application,
    object: String,
    /// `None` once the entry is written, or where there is none to write.
    origin: Option<Origin>,
}

impl<'a> PushRecord<'a> {
    fn new(
        req: &HttpRequest,
        app: &'a Application,
        grant: &GitGrant<'_>,
        request: &GitRequest,
    ) -> Self {
        let repository = grant.name_of(request.repository());
        let mut origin = AuditOrigin::of(req).0;
        origin.actor = AuditActor::Sandbox(grant.sandbox.clone());
        PUSH_ACTION.clone_into(&mut origin.action);
        Self {
            app,
            object: sanitize_text(&format!("repository:{repository}")),
            origin: Some(origin),
        }
    }

    /// What comes before a push, without a reference, is none.
    fn finish(mut self, answer: &Result<(HttpResponse, Option<Push>), HttpResponse>) {
        let origin = self.origin.take();
        let (status, detail) = match answer {
            Ok((_, None)) => return,
            Ok((response, Some(push))) => {
                let status = match push.refusal {
                    Some(_) => StatusCode::FORBIDDEN,
                    None => response.status(),
                };
                let updates = push.updates.iter().map(|update| {
                    let [old, new] = [&update.old, &update.new].map(|id| &id[..SHORT_ID_CHARS]);
                    format!("{} {old}..{new}", update.name)
                });
                let updates = updates.collect::<Vec<_>>().join(", ");
                (status, Some(sanitize_text(&updates)))
            }
            Err(refused) => (refused.status(), None),
        };
        self.write(origin, Some(status), detail);
    }

    fn write(
        &mut self,
        origin: Option<Origin>,
        status: Option<StatusCode>,
        detail: Option<String>,
    ) {
        if let Some(mut origin) = origin {
            origin.status = status.map(|status| status.as_u16());
            let object = std::mem::take(&mut self.object);
            self.app.audit.record(origin, Some(object), detail);
        }
    }
}

impl Drop for PushRecord<'_> {
    fn drop(&mut self) {
        let origin = self.origin.take();
        let detail = "the sandbox closed the connection before the host had answered";
        self.write(origin, None, Some(detail.to_owned()));
    }
}

fn failed(error: &GitCallError) -> HttpResponse {
    let status = match error {
        GitCallError::UnknownOperation => StatusCode::NOT_FOUND,
        GitCallError::InvalidHeader | GitCallError::Incomplete => StatusCode::BAD_REQUEST,
        GitCallError::Busy => StatusCode::TOO_MANY_REQUESTS,
        GitCallError::Forbidden(_)
        | GitCallError::Denied
        | GitCallError::TokenWithheld
        | GitCallError::OtherRepository
        | GitCallError::ReadOnly
        | GitCallError::UnreadablePush
        | GitCallError::RefusedPush(_) => StatusCode::FORBIDDEN,
        GitCallError::Unreachable(_)
        | GitCallError::Broken(_)
        | GitCallError::InvalidList
        | GitCallError::Redirected => StatusCode::BAD_GATEWAY,
        GitCallError::TimedOut => StatusCode::GATEWAY_TIMEOUT,
    };
    if status.is_server_error() {
        tracing::warn!(error = %chain(error), "a git call failed");
    }
    refused(status, &error.to_string())
}

/// git shows the lines of a plain text.
fn refused(status: StatusCode, text: &str) -> HttpResponse {
    let mut response = HttpResponse::build(status);
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.insert_header((RETRY_AFTER, RETRY_SECONDS));
    }
    response
        .content_type(ContentType::plaintext())
        .body(format!("agent-workspace: {text}.\n"))
}
