//! Model calls of sandboxes (`docs/explanation/model-calls.md`).
//!
//! The token of a call takes the place of a model's key, so it comes in the header of the provider. The service checks it,
//! and the crate `broker` makes the call with the key. Errors have the form of the provider, because the agent's library
//! reads them.

use actix_web::http::StatusCode;
use actix_web::http::header::{AUTHORIZATION, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse, route, web};
use application::models::{ModelGrant, SandboxTokenRefusal};
use broker::{
    CallBody, ModelAnswer, ModelBroker, ModelCall, ModelCallError, PathRefusal, check_path,
};
use domain::agent::model_endpoint::ModelProtocol;
use domain::error::chain;
use serde_json::json;

use super::relay::{LengthError, Upload, headers_of, length_of};
use crate::extract::Application;
use crate::problem::Problem;
use crate::routes::sandbox::model_meter::CallMeter;

/// Seconds until a refused call may be repeated.
const RETRY_SECONDS: &str = "5";

/// Bytes that a request without an announced length is taken to have, where a budget applies.
const UNKNOWN_LENGTH: u64 = 1 << 20;

/// A refusal or a failure, before it has the form of a provider.
struct Refusal {
    status: StatusCode,
    text: String,
}

impl Refusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    fn unknown_token() -> Self {
        let text = "The token is not valid. Models accept the token of a running sandbox only.";
        Self::new(StatusCode::UNAUTHORIZED, text)
    }

    /// The type that the providers name for this status.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            402 => "billing_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        }
    }

    /// The status that Google's interfaces name for this one.
    fn google_status(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "UNAUTHENTICATED",
            402 | 403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            400..=499 => "INVALID_ARGUMENT",
            504 => "DEADLINE_EXCEEDED",
            _ => "UNAVAILABLE",
        }
    }

    fn into_response(self, protocol: ModelProtocol) -> HttpResponse {
        let (kind, text) = (self.kind(), self.text.as_str());
        let body = match protocol {
            ModelProtocol::Anthropic => {
                json!({"type": "error", "error": {"type": kind, "message": text}})
            }
            ModelProtocol::Gemini => {
                let (code, status) = (self.status.as_u16(), self.google_status());
                json!({"error": {"code": code, "message": text, "status": status}})
            }
            ModelProtocol::OpenAi | ModelProtocol::Proxy | ModelProtocol::Azure => json!({
                "error": {"message": text, "type": kind, "param": null, "code": null}
            }),
        };
        let mut response = HttpResponse::build(self.status);
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.insert_header((RETRY_AFTER, RETRY_SECONDS));
        }
        response.json(body)
    }
}

impl From<ModelCallError> for Refusal {
    fn from(error: ModelCallError) -> Self {
        let status = match &error {
            ModelCallError::InvalidHeader => StatusCode::BAD_REQUEST,
            ModelCallError::Busy => StatusCode::TOO_MANY_REQUESTS,
            ModelCallError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            ModelCallError::Forbidden(_) => StatusCode::FORBIDDEN,
            ModelCallError::Unreachable(_)
            | ModelCallError::Broken(_)
            | ModelCallError::Redirected => StatusCode::BAD_GATEWAY,
            ModelCallError::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        };
        if status.is_server_error() {
            tracing::warn!(error = %chain(&error), "a model call failed");
        }
        Self::new(status, error.to_string())
    }
}

/// Calls a model.
#[route(
    "/llm/{path:.*}",
    method = "GET",
    method = "POST",
    method = "PUT",
    method = "PATCH",
    method = "DELETE"
)]
pub(crate) async fn model_call(
    req: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let broker = req.app_data::<web::Data<ModelBroker>>();
    let broker = broker.ok_or_else(Problem::not_found)?;
    let app = req.app_data::<Application>();
    let app = app.ok_or_else(|| Problem::internal("the application is not registered"))?;
    // Without a valid token, the path tells which errors the caller reads.
    let guess = if path.ends_with("messages") {
        ModelProtocol::Anthropic
    } else if path.contains(':') {
        ModelProtocol::Gemini
    } else {
        ModelProtocol::OpenAi
    };
    let opened = match token_of(&req) {
        Some(token) => app.models.open(token).await?,
        None => Err(SandboxTokenRefusal::Unknown),
    };
    let (protocol, outcome) = match opened {
        Ok(grant) => {
            let sent = send(&req, (app, broker), &grant, &path, payload).await;
            (grant.endpoint.protocol, sent)
        }
        Err(SandboxTokenRefusal::Unknown) => {
            broker.count_refusal();
            (guess, Err(Refusal::unknown_token()))
        }
        Err(SandboxTokenRefusal::NotRunning) => {
            broker.count_refusal();
            let text = "The sandbox of this token is not running.";
            (guess, Err(Refusal::new(StatusCode::FORBIDDEN, text)))
        }
    };
    Ok(outcome.unwrap_or_else(|refusal| refusal.into_response(protocol)))
}

/// The token, in the header of any protocol.
fn token_of(req: &HttpRequest) -> Option<&str> {
    let text = |name: &str| req.headers().get(name)?.to_str().ok();
    let bearer = text(AUTHORIZATION.as_str()).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let own = ["x-api-key", "x-goog-api-key", "api-key"];
    own.into_iter().find_map(text).or(bearer)
}

/// Opens the record of a call that costs something.
async fn meter(
    app: &Application,
    broker: &ModelBroker,
    grant: &ModelGrant,
    request_bytes: u64,
) -> Result<CallMeter, Refusal> {
    let (_, price) = broker.prices().find(&grant.model, None);
    match app.spending.begin(grant, price, request_bytes).await {
        Ok(Ok(open)) => Ok(CallMeter::new(
            app,
            broker,
            &grant.model,
            open,
            request_bytes,
        )),
        Ok(Err(spent)) => {
            broker.count_refusal();
            Err(Refusal::new(
                StatusCode::PAYMENT_REQUIRED,
                spent.to_string(),
            ))
        }
        Err(error) => {
            tracing::warn!(error = %chain(&error), "the budgets of a model call cannot be read");
            let text = "The service cannot read the budgets at the moment. Repeat the call later.";
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text))
        }
    }
}

async fn send(
    req: &HttpRequest,
    (app, broker): (&Application, &ModelBroker),
    grant: &ModelGrant,
    path: &str,
    payload: web::Payload,
) -> Result<HttpResponse, Refusal> {
    let protocol = grant.endpoint.protocol;
    let method = req.method().as_str();
    let path = check_path(protocol, method, path, req.query_string()).map_err(|refusal| {
        broker.count_refusal();
        match refusal {
            PathRefusal::NotFound => {
                let text = "The service makes no model calls with this path.";
                Refusal::new(StatusCode::NOT_FOUND, text)
            }
            PathRefusal::MethodNotAllowed => {
                let text = "Model calls with this path have another method.";
                Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text)
            }
        }
    })?;
    let max = broker.max_request_bytes();
    let length = length_of(req, max).map_err(|error| match error {
        LengthError::TooLarge => ModelCallError::TooLarge(max).into(),
        LengthError::Invalid => {
            Refusal::new(StatusCode::BAD_REQUEST, "Content-Length is not a number.")
        }
    })?;
    // Other methods read what an endpoint knows about its models.
    let meter = if method == "POST" {
        let request_bytes = length.unwrap_or(UNKNOWN_LENGTH);
        Some(meter(app, broker, grant, request_bytes).await?)
    } else {
        None
    };
    let (sender, body) = CallBody::channel(length);
    let headers = headers_of(req);
    let answer = broker.call(ModelCall {
        sandbox: &grant.sandbox,
        endpoint: &grant.endpoint,
        key: &grant.key,
        method,
        path: &path,
        headers: &headers,
        body,
    });
    let mut upload = Upload::new(payload, sender, broker.idle_timeout(), max);
    let answer = upload.until(answer).await?;
    Ok(respond(answer, meter, upload))
}

fn respond(answer: ModelAnswer, mut meter: Option<CallMeter>, upload: Upload) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = HttpResponse::build(status);
    let mut content_type = "";
    for (name, value) in &answer.headers {
        response.append_header((name.as_str(), value.as_slice()));
        if name == "content-type" {
            content_type = str::from_utf8(value).unwrap_or_default();
        }
    }
    if let Some(meter) = &mut meter {
        meter.answered(answer.status, content_type);
    }
    let chunks = answer.body.into_stream();
    match meter {
        Some(meter) => upload.respond(response, meter.watch(chunks)),
        None => upload.respond(response, chunks),
    }
}
