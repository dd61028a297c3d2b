//! The only table that maps classes of errors to HTTP responses.
//!
//! Server errors (5xx) are logged once, here, with their whole source chain, inside the request's span (which carries the
//! request id). The client only reads the public text.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};
use application::AppError;
use domain::error::{Classify, ErrorClass, StoreError, chain};
use serde_json::{Value, json};

use crate::decode::{ErrorFormat, FieldError, FieldErrors, Path};

/// `Retry-After` when the error names no time of its own.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);

/// The errors of routes that ask an agent server, for the document.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "for the document only")]
pub(crate) enum AgentServerErrors {
    #[response(status = 409, description = "The sandbox is paused")]
    Paused,
    #[response(
        status = 502,
        description = "The agent server failed, or cannot be reached"
    )]
    Failed,
}

/// The errors of routes that ask a git provider, for the document.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "for the document only")]
pub(crate) enum GitProviderErrors {
    #[response(
        status = 401,
        description = "The provider rejects the token, or (on older paths) none is stored",
        content_type = "application/json"
    )]
    TokenRejected(String),
    #[response(status = 429, description = "The provider limits requests")]
    Limited,
    #[response(status = 502, description = "The provider fails")]
    Failed,
}

/// An error response. Handlers return `Result<_, Problem>`; every error of the application and of the ports converts with
/// `?`.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    body: Value,
    retry_after: Option<Duration>,
    /// For the log; never sent.
    cause: Option<String>,
}

/// The status of an error class (`docs/reference/wire/errors.md`).
const fn status_of(class: ErrorClass) -> StatusCode {
    match class {
        ErrorClass::Invalid => StatusCode::BAD_REQUEST,
        ErrorClass::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorClass::Forbidden => StatusCode::FORBIDDEN,
        ErrorClass::NotFound => StatusCode::NOT_FOUND,
        ErrorClass::Conflict => StatusCode::CONFLICT,
        ErrorClass::Gone => StatusCode::GONE,
        ErrorClass::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorClass::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorClass::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorClass::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
        ErrorClass::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorClass::Upstream => StatusCode::BAD_GATEWAY,
        ErrorClass::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        ErrorClass::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorClass::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl Problem {
    /// `{"detail": "<text>"}` with this status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let waits = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        Self {
            status,
            body: json!({"detail": detail.into()}),
            retry_after: waits.then_some(DEFAULT_RETRY),
            cause: None,
        }
    }

    /// 400 with a text.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 401 `Unauthorized`.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized")
    }

    /// 403 with a text.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// 404 `Not Found`; see [`Problem::missing`] for another text.
    pub fn not_found() -> Self {
        Self::missing("Not Found")
    }

    /// 404 with a text.
    pub fn missing(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// 409 with a text.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// 500; the cause is logged, not sent.
    pub fn internal(cause: impl fmt::Display) -> Self {
        let mut problem = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error");
        problem.cause = Some(cause.to_string());
        problem
    }

    /// 422 with all errors.
    pub fn invalid(errors: &FieldErrors, error_format: ErrorFormat) -> Self {
        let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "");
        problem.body = json!({"detail": errors.detail(error_format)});
        problem
    }

    /// 422 about one value that only the application can check; `at` is its `loc`.
    pub fn unprocessable(at: &Path<'_>, fault: FieldError) -> Self {
        let mut errors = FieldErrors::new();
        errors.push_silent(at, fault);
        Self::invalid(&errors, ErrorFormat::V1)
    }

    /// Any status with any body, for shapes that single routes have.
    pub fn with_body(status: StatusCode, body: Value) -> Self {
        let mut problem = Self::new(status, "");
        problem.body = body;
        problem
    }

    /// Moves the text from the member `detail` to `error` (settings, skills, hooks).
    #[must_use]
    pub fn in_error_family(mut self) -> Self {
        if let Value::Object(body) = &mut self.body
            && let Some(Value::String(text)) = body.shift_remove("detail")
        {
            body.insert("error".into(), text.into());
        }
        self
    }

    /// Adds a cause for the log. It is logged if the response is a 5xx, and never sent.
    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// Sets the time after which the client may try again.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The body of the response.
    pub fn body(&self) -> &Value {
        &self.body
    }
}

impl<E: Classify + 'static> From<E> for Problem {
    fn from(error: E) -> Self {
        let class = error.class();
        if class == ErrorClass::Unprocessable {
            return refused_value(&error);
        }
        let status = status_of(class);
        let detail = match class {
            ErrorClass::Internal => "Internal Server Error".into(),
            _ => error.public(),
        };
        let mut problem = Self::new(status, detail);
        problem.retry_after = error.retry_after().or(problem.retry_after);
        problem.cause = status.is_server_error().then(|| chain(&error));
        problem
    }
}

/// The error for a well-formed value that the application refuses. Only for page tokens is the location known.
fn refused_value(error: &(impl Classify + 'static)) -> Problem {
    let fault = FieldError::value_error(error.public());
    if causes(error)
        .any(|cause| matches!(cause.downcast_ref(), Some(AppError::IdempotencyKeyReused)))
    {
        return Problem::unprocessable(&Path::header().key("Idempotency-Key"), fault);
    }
    if causes(error).any(is_page_token) {
        return Problem::unprocessable(&Path::query().key("page_id"), fault);
    }
    Problem::unprocessable(&Path::body(true), fault)
}

fn is_page_token(error: &(dyn Error + 'static)) -> bool {
    // The application's error is transparent: it does not name the store's error as its source.
    let inner = match error.downcast_ref() {
        Some(AppError::Store(inner)) => Some(inner),
        _ => error.downcast_ref(),
    };
    matches!(inner, Some(StoreError::InvalidPageToken))
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        (*error).source()
    })
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        // Not for 507: an exhausted quota is not a server error, and a full disk is logged elsewhere once.
        if self.status.is_server_error() && self.status != StatusCode::INSUFFICIENT_STORAGE {
            let status = self.status.as_u16();
            let cause = self.cause.as_deref().or(self.body["detail"].as_str());
            let cause = cause.unwrap_or("-");
            tracing::error!(
                http.status = status,
                error = cause,
                "request failed: {cause}"
            );
        } else {
            tracing::debug!(http.status = self.status.as_u16(), body = %self.body, "request refused");
        }
        let mut response = HttpResponse::build(self.status).json(&self.body);
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs().max(1);
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_class_has_a_status_and_hides_its_cause() {
        let refused = |class| {
            Problem::from(AppError::refused(class, "why"))
                .status()
                .as_u16()
        };
        let table = [
            (ErrorClass::Invalid, 400),
            (ErrorClass::Unauthenticated, 401),
            (ErrorClass::Forbidden, 403),
            (ErrorClass::NotFound, 404),
            (ErrorClass::Conflict, 409),
            (ErrorClass::Gone, 410),
            (ErrorClass::TooLarge, 413),
            (ErrorClass::Unprocessable, 422),
            (ErrorClass::RateLimited, 429),
            (ErrorClass::Internal, 500),
            (ErrorClass::Unsupported, 501),
            (ErrorClass::Upstream, 502),
            (ErrorClass::Unavailable, 503),
            (ErrorClass::TimedOut, 504),
            (ErrorClass::QuotaExceeded, 507),
        ];
        for (class, status) in table {
            assert_eq!(refused(class), status, "{class:?}");
        }
        let internal = Problem::from(AppError::refused(ErrorClass::Internal, "driver text"));
        assert_eq!(internal.body(), &json!({"detail": "Internal Server Error"}));
    }

    #[test]
    fn temporary_errors_have_retry_after() {
        let wait = |problem: Problem| {
            let response = problem.error_response();
            response
                .headers()
                .get(RETRY_AFTER)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(
            wait(
                StoreError::Unavailable {
                    what: "pool",
                    source: None
                }
                .into()
            )
            .as_deref(),
            Some("1")
        );
        let capped = StoreError::CapReached(domain::error::ReachedCap::PerUser(10));
        assert_eq!(wait(capped.into()).as_deref(), Some("30"));
        assert_eq!(
            wait(Problem::new(StatusCode::TOO_MANY_REQUESTS, "x")).as_deref(),
            Some("1")
        );
        assert_eq!(wait(Problem::not_found()), None);
    }

    #[test]
    fn an_invalid_page_token_is_an_error_of_the_query() {
        for problem in [
            Problem::from(StoreError::InvalidPageToken),
            Problem::from(AppError::Store(StoreError::InvalidPageToken)),
        ] {
            assert_eq!(problem.status(), StatusCode::UNPROCESSABLE_ENTITY);
            let item = &problem.body()["detail"][0];
            assert_eq!(
                item["loc"],
                json!(["query", "page_id"]),
                "{}",
                problem.body()
            );
            assert_eq!(item["type"], "value_error");
        }
    }

    #[test]
    fn the_error_family_has_its_text_in_error() {
        let problem = Problem::missing("Settings not found").in_error_family();
        assert_eq!(problem.body(), &json!({"error": "Settings not found"}));
    }
}
