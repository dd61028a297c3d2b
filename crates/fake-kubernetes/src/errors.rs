//! Answers of an API server that refuses a request.

use serde_json::{Value, json};

/// A refusal as a `Status` object.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            reason,
            message,
        }
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(404, "NotFound", format!("{what} not found"))
    }

    pub(crate) fn exists(what: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{what} already exists"))
    }

    pub(crate) fn conflict(what: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {what}: the object has been modified");
        Self::new(409, "Conflict", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    pub(crate) fn gone() -> Self {
        Self::new(410, "Expired", "too old resource version")
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        )
    }

    pub(crate) fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}
