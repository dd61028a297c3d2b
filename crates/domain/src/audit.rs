//! The audit log: who did what to which object, when, from where, and with what outcome. Entries are added and, when
//! they are old, deleted; they never change.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{ApiKeyId, SandboxId, SessionId, UserId};
use crate::page::{Page, PageRequest};
use crate::wire_enum::wire_enum;

/// Maximum length of a text in an entry, in characters. Longer texts are truncated.
pub const MAX_AUDIT_TEXT_CHARS: usize = 256;

/// The actor of an entry. Its text is `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuditActor {
    /// A user, authenticated by a key, or the local user of open mode.
    User(UserId),
    /// The agent server of a sandbox, authenticated by the session key.
    Sandbox(SandboxId),
    /// The command line on a machine of the service.
    Cli,
    Service,
    Unknown,
}

impl fmt::Display for AuditActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "user:{user}"),
            Self::Sandbox(sandbox) => write!(f, "sandbox:{sandbox}"),
            Self::Cli => f.write_str("cli"),
            Self::Service => f.write_str("service"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// The text is not an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid actor: expected `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`")]
pub struct InvalidActor;

impl FromStr for AuditActor {
    type Err = InvalidActor;

    fn from_str(text: &str) -> Result<Self, InvalidActor> {
        match text.split_once(':') {
            Some(("user", name)) => UserId::parse(name).map(Self::User),
            Some(("sandbox", id)) => SandboxId::parse(id).map(Self::Sandbox),
            None if text == "cli" => Ok(Self::Cli),
            None if text == "service" => Ok(Self::Service),
            None if text == "unknown" => Ok(Self::Unknown),
            _ => return Err(InvalidActor),
        }
        .map_err(|_| InvalidActor)
    }
}

wire_enum! {
    AuditOutcome {
        Ok = "ok",
        /// Not allowed, not found or invalid: nothing was done.
        Refused = "refused",
        /// The service failed: something may have been done.
        Failed = "failed",
    }
}

impl AuditOutcome {
    /// The outcome that an HTTP status means.
    pub const fn of_status(status: u16) -> Self {
        match status {
            ..400 => Self::Ok,
            400..500 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

/// An entry of the log. It contains no secret and nothing of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub id: Uuid,
    /// Time at which the action ended.
    pub at: Timestamp,
    pub actor: AuditActor,
    pub key: Option<ApiKeyId>,
    pub session: Option<SessionId>,
    /// The action: method and route (`DELETE /api/v1/sandboxes/{sandbox_id}`), a command (`cli users delete`), or a
    /// name that the service defines.
    pub action: String,
    /// The object, as kind and id (`sandbox:1a2b`).
    pub object: Option<String>,
    /// Further ids, or a role. No values of secrets.
    pub detail: Option<String>,
    pub source: Option<String>,
    pub outcome: AuditOutcome,
    pub status: Option<u16>,
    /// Id of the request, as in the service's log.
    pub request_id: Option<String>,
    /// Number of occurrences: more than one only for repeated refusals, see `docs/reference/audit-log.md`.
    pub count: u32,
}

/// Prepares a text for an entry: truncates it to [`MAX_AUDIT_TEXT_CHARS`] and removes control characters.
pub fn sanitize_text(text: &str) -> String {
    let kept = text.chars().filter(|c| !c.is_control());
    kept.take(MAX_AUDIT_TEXT_CHARS).collect()
}

/// Filter of a search. `None` does not filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    pub actor: Option<AuditActor>,
    pub action: Option<String>,
    pub object: Option<String>,
    pub outcome: Option<AuditOutcome>,
    /// Entries at or after.
    pub since: Option<Timestamp>,
    /// Entries before.
    pub until: Option<Timestamp>,
}

#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Adds entries, all or none. An entry whose id is stored already is left as it is, so that a caller may repeat a
    /// batch whose result is unknown.
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;
    /// Newest first.
    async fn search(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError>;
    /// Deletes at most `limit` entries from before `before`, oldest first; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_round_trip_through_text() {
        for text in [
            "user:ada",
            "user:a:b",
            "sandbox:s-1",
            "cli",
            "service",
            "unknown",
        ] {
            assert_eq!(text.parse::<AuditActor>().unwrap().to_string(), text);
        }
        for bad in ["", "ada", "user:", "sandbox:a b", "cli:x", "User:ada"] {
            assert_eq!(bad.parse::<AuditActor>(), Err(InvalidActor), "{bad}");
        }
    }

    #[test]
    fn texts_are_truncated_and_have_no_control_characters() {
        assert_eq!(sanitize_text("a\nb\0c"), "abc");
        assert_eq!(
            sanitize_text(&"é".repeat(300)).chars().count(),
            MAX_AUDIT_TEXT_CHARS
        );
    }

    #[test]
    fn a_status_determines_the_outcome() {
        for (status, end) in [(200, "ok"), (307, "ok"), (401, "refused"), (503, "failed")] {
            assert_eq!(AuditOutcome::of_status(status).as_str(), end);
            assert_eq!(end.parse(), Ok(AuditOutcome::of_status(status)));
        }
    }
}
