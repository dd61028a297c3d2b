//! Who did what to which object, when, from where, and with what result. Entries are added and, when they are old, deleted;
//! nothing changes one.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{ApiKeyId, SandboxId, UserId};
use crate::page::{Page, PageRequest};

/// Longest text of an entry, in characters; what is longer is cut off.
pub const MAX_AUDIT_TEXT_CHARS: usize = 256;

/// Who acts. As text `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuditActor {
    /// A user, by one of their keys, or the local user of an open service.
    User(UserId),
    /// The agent server in a sandbox, by the sandbox's key.
    Sandbox(SandboxId),
    /// Whoever runs the command line on a machine of the service.
    Cli,
    /// The service itself.
    Service,
    /// Somebody without a key that opens anything.
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

/// The text names no actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an actor is `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`")]
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

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditOutcome {
    /// It was done.
    Ok,
    /// It was not allowed, not there, or not right: nothing was done.
    Refused,
    /// It went wrong on our side: something may have been done.
    Failed,
}

impl AuditOutcome {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Refused, Self::Failed];

    /// The word on the wire and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    /// What an HTTP status says.
    pub const fn of_status(status: u16) -> Self {
        match status {
            ..400 => Self::Ok,
            400..500 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

/// The text is no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an outcome is `ok`, `refused` or `failed`")]
pub struct InvalidOutcome;

impl FromStr for AuditOutcome {
    type Err = InvalidOutcome;

    fn from_str(text: &str) -> Result<Self, InvalidOutcome> {
        let known = Self::ALL.into_iter().find(|it| it.as_str() == text);
        known.ok_or(InvalidOutcome)
    }
}

/// One line of the log. Never has a secret's value, or anything of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Of this entry.
    pub id: Uuid,
    /// When it ended.
    pub at: Timestamp,
    /// Who.
    pub actor: AuditActor,
    /// With which API key.
    pub key: Option<ApiKeyId>,
    /// What: method and route (`DELETE /api/v1/sandboxes/{sandbox_id}`), a command (`cli users delete`), or a word of ours.
    pub action: String,
    /// With what: kind and id (`sandbox:1a2b`).
    pub object: Option<String>,
    /// More about it: further ids, a role. No values of secrets.
    pub detail: Option<String>,
    /// From which address.
    pub source: Option<String>,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// The status of the answer.
    pub status: Option<u16>,
    /// The id of the request, as in the log of the service.
    pub request_id: Option<String>,
    /// How often: more than once only for what was refused again and again, see `docs/reference/audit-log.md`.
    pub count: u32,
}

/// The text as an entry may have it: not longer than [`MAX_AUDIT_TEXT_CHARS`], without control characters.
pub fn sanitize_text(text: &str) -> String {
    let kept = text.chars().filter(|c| !c.is_control());
    kept.take(MAX_AUDIT_TEXT_CHARS).collect()
}

/// Which entries. What is `None` does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Of this actor.
    pub actor: Option<AuditActor>,
    /// Exactly this.
    pub action: Option<String>,
    /// Exactly this.
    pub object: Option<String>,
    /// With this end.
    pub outcome: Option<AuditOutcome>,
    /// At or after.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
}

/// The log.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Adds entries, all or none. One that is there already (by its id) stays as it is, so that a batch whose fate is
    /// unknown may be sent again.
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;
    /// Newest first.
    async fn search(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError>;
    /// Deletes entries from before; how many. At most `limit`, the oldest first.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_is_its_text() {
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
    fn texts_are_short_and_of_one_line() {
        assert_eq!(sanitize_text("a\nb\0c"), "abc");
        assert_eq!(sanitize_text(&"é".repeat(300)).chars().count(), MAX_AUDIT_TEXT_CHARS);
    }

    #[test]
    fn a_status_tells_the_end() {
        for (status, end) in [(200, "ok"), (307, "ok"), (401, "refused"), (503, "failed")] {
            assert_eq!(AuditOutcome::of_status(status).as_str(), end);
            assert_eq!(end.parse(), Ok(AuditOutcome::of_status(status)));
        }
    }
}
