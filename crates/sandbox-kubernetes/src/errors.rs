//! Errors of the API server.

use domain::sandbox::SandboxError;
use kube::core::Status;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {message}")]
pub(crate) struct ClusterError {
    /// What the service wanted to do: `creating the claim`.
    what: &'static str,
    pub(crate) kind: ErrorKind,
    /// What the API server says, without secrets.
    message: String,
    #[source]
    source: Option<Box<kube::Error>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// No such object.
    NotFound,
    /// The object exists, or is another version than the request expects.
    Conflict,
    /// Credentials are missing or wrong.
    Unauthorized,
    /// The service account lacks the right.
    Forbidden,
    /// The namespace's quota is used up.
    Quota,
    /// The object is refused for what it contains.
    Invalid,
    /// The version of a list is too old.
    Gone,
    /// The API server has a problem that should pass.
    Busy,
    /// No API server answers.
    Unreachable,
    TimedOut,
    Other,
}

impl ErrorKind {
    /// Whether the same request may succeed soon.
    pub(crate) fn is_transient(self) -> bool {
        matches!(self, Self::Busy | Self::Unreachable)
    }
}

impl ClusterError {
    pub(crate) fn new(what: &'static str, error: kube::Error) -> Self {
        let (kind, message) = match &error {
            kube::Error::Api(status) => (kind_of(status), status.message.clone()),
            kube::Error::HyperError(_) | kube::Error::Service(_) => (
                ErrorKind::Unreachable,
                "the API server of the cluster does not answer".to_owned(),
            ),
            kube::Error::Auth(_) => (
                ErrorKind::Unauthorized,
                "the credentials for the cluster cannot be read".to_owned(),
            ),
            _ => (
                ErrorKind::Other,
                "the API server's answer cannot be read".to_owned(),
            ),
        };
        Self {
            what,
            kind,
            message,
            source: Some(Box::new(error)),
        }
    }

    pub(crate) fn timed_out(what: &'static str) -> Self {
        Self {
            what,
            kind: ErrorKind::TimedOut,
            message: "the API server of the cluster does not answer in time".to_owned(),
            source: None,
        }
    }

    /// For requests whose answers may quote secrets.
    pub(crate) fn without_message(self) -> Self {
        Self {
            message: format!("the API server refuses it ({:?})", self.kind),
            source: None,
            ..self
        }
    }

    /// The cause for the user, with what to do.
    pub(crate) fn detail(&self) -> String {
        let Self { what, message, .. } = self;
        match self.kind {
            ErrorKind::Unauthorized => format!(
                "{what} failed, because the cluster does not accept the service's credentials ({message}): the operator has to \
                 renew them"
            ),
            ErrorKind::Forbidden => format!(
                "{what} failed, because the service lacks a right in the cluster ({message}): the operator has to grant it"
            ),
            ErrorKind::Quota => format!(
                "{what} failed, because a quota of the cluster is used up ({message}): delete or pause other sandboxes, or ask \
                 the operator for a larger quota"
            ),
            _ => format!("{what} failed: {message}"),
        }
    }

    /// A start or another change that cannot be made now.
    pub(crate) fn start_failed(self) -> SandboxError {
        let detail = self.detail();
        match self.kind {
            ErrorKind::Invalid => SandboxError::StartFailed {
                detail,
                source: Some(Box::new(self)),
            },
            _ => self.into(),
        }
    }
}

/// A request that reads, stops or removes.
impl From<ClusterError> for SandboxError {
    fn from(error: ClusterError) -> Self {
        match error.kind {
            ErrorKind::TimedOut => Self::TimedOut { what: error.what },
            ErrorKind::Other => Self::other(error),
            _ => Self::Unavailable {
                detail: error.detail(),
                source: Some(Box::new(error)),
            },
        }
    }
}

fn kind_of(status: &Status) -> ErrorKind {
    match status.code {
        401 => ErrorKind::Unauthorized,
        403 if status.message.contains("exceeded quota") => ErrorKind::Quota,
        403 => ErrorKind::Forbidden,
        404 => ErrorKind::NotFound,
        409 => ErrorKind::Conflict,
        410 => ErrorKind::Gone,
        400 | 422 => ErrorKind::Invalid,
        429 | 500 | 502..=504 => ErrorKind::Busy,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use domain::error::{Classify as _, ErrorClass};

    use super::*;

    fn answer(code: u16, message: &str) -> ClusterError {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        ClusterError::new("creating the pod", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn answers_become_errors_that_say_what_to_do() {
        let quota = answer(403, "exceeded quota: small, requested: pods=1");
        assert_eq!(quota.kind, ErrorKind::Quota);
        let error = quota.start_failed();
        assert_eq!(error.class(), ErrorClass::Unavailable);
        let text = error.public().into_owned();
        assert!(
            text.contains("larger quota") && text.contains("pods=1"),
            "{text}"
        );

        let text = answer(403, "cannot create pods").start_failed().to_string();
        assert!(text.contains("grant"), "{text}");
        let invalid = answer(422, "spec.containers[0].image: Required value").start_failed();
        assert!(
            matches!(invalid, SandboxError::StartFailed { .. }),
            "{invalid}"
        );
        for code in [429, 500, 503, 504] {
            assert!(answer(code, "later").kind.is_transient(), "{code}");
        }
        assert!(!answer(409, "").kind.is_transient());
        let hidden = answer(422, "invalid value: canary-1").without_message();
        assert!(!hidden.detail().contains("canary-1"));
    }
}
