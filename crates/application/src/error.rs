//! The error of the use-cases: a failure of a port, or a refusal by a use-case.

use std::borrow::Cow;
use std::time::Duration;

use domain::agent::AgentError;
use domain::encryption::cipher::CipherError;
use domain::error::{Classify, ErrorClass, StoreError};
use domain::sandbox::SandboxError;

const IDEMPOTENCY_KEY_REUSED: &str = "The idempotency key was used for another request before";

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Cipher(#[from] CipherError),
    /// Another process holds the lease and continues this work.
    #[error("another process continues this work")]
    TakenOver,
    #[error("{IDEMPOTENCY_KEY_REUSED}")]
    IdempotencyKeyReused,
    /// The sandbox reports faster than its quota allows.
    #[error("the sandbox reports more than {bytes_per_minute} bytes of events a minute")]
    ReportRate {
        bytes_per_minute: u64,
        wait: Duration,
    },
    /// A rule of the use-case refuses the request.
    #[error("{detail}")]
    Refused {
        class: ErrorClass,
        /// The message for the client. It contains no secret.
        detail: String,
    },
}

impl AppError {
    /// 404 with this text.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::refused(ErrorClass::NotFound, detail)
    }

    /// 400 with this text.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::refused(ErrorClass::Invalid, detail)
    }

    /// 409 with this text.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::refused(ErrorClass::Conflict, detail)
    }

    pub fn refused(class: ErrorClass, detail: impl Into<String>) -> Self {
        Self::Refused {
            class,
            detail: detail.into(),
        }
    }
}

impl Classify for AppError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Store(e) => e.class(),
            Self::Sandbox(e) => e.class(),
            Self::Agent(e) => e.class(),
            Self::Cipher(e) => e.class(),
            Self::TakenOver => ErrorClass::Unavailable,
            Self::IdempotencyKeyReused => ErrorClass::Unprocessable,
            Self::ReportRate { .. } => ErrorClass::RateLimited,
            Self::Refused { class, .. } => *class,
        }
    }

    fn public(&self) -> Cow<'_, str> {
        match self {
            Self::Store(e) => e.public(),
            Self::Sandbox(e) => e.public(),
            Self::Agent(e) => e.public(),
            Self::Cipher(e) => e.public(),
            Self::TakenOver => Cow::Borrowed("Another process continues this work. Try again."),
            Self::IdempotencyKeyReused => Cow::Borrowed(IDEMPOTENCY_KEY_REUSED),
            Self::ReportRate {
                bytes_per_minute, ..
            } => Cow::Owned(format!(
                "This sandbox reports more than {bytes_per_minute} bytes of events a minute. Send them again later."
            )),
            Self::Refused { detail, .. } => Cow::Borrowed(detail),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Store(e) => e.retry_after(),
            Self::Sandbox(e) => e.retry_after(),
            Self::Agent(e) => e.retry_after(),
            Self::Cipher(e) => e.retry_after(),
            Self::TakenOver
            | Self::Refused {
                class: ErrorClass::Unavailable,
                ..
            } => Some(Duration::from_secs(5)),
            Self::ReportRate { wait, .. } => Some(*wait),
            Self::IdempotencyKeyReused | Self::Refused { .. } => None,
        }
    }
}
