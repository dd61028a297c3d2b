//! API keys, users, and the audit log.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::secret::Secret;
use super::string_enums::{AuditOutcome, UserRole};

/// An API key, without its text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub user_id: String,
    /// What it is called.
    pub name: Option<String>,
    /// How its text begins.
    pub prefix: String,
    /// When it was made.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// Until when it is good; `None`: for ever.
    #[serde(with = "super::time::optional")]
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was used last, to the minute.
    #[serde(with = "super::time::optional")]
    pub last_used_at: Option<DateTime<Utc>>,
    /// Who made it, if that is known.
    pub made_by: Option<String>,
    /// Whether the request came with it.
    pub is_current: bool,
}

/// A new key. The service shows its text only here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewApiKey {
    /// Its text.
    pub key: Secret,
    /// All else.
    pub record: ApiKey,
}

/// A key to make.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NewKey {
    /// What to call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For how many seconds it is good; `None`: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<i64>,
}

/// A key to make in the place of another.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KeyRotation {
    /// What to call it; `None`: as the former.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For how many seconds it is good; `None`: for as long as the former was meant to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<i64>,
    /// For how many seconds the former goes on to work, at most; `None`: a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i64>,
}

/// A user, as administrators see them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdministeredUser {
    /// Their name.
    pub id: String,
    /// What they may do.
    pub role: UserRole,
    /// Since when they are there.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// When they were deleted; what is theirs goes after that.
    #[serde(with = "super::time::optional")]
    pub deleted_at: Option<DateTime<Utc>>,
}

/// A user to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewUser {
    /// Their name.
    pub id: String,
    /// What they may do.
    pub role: UserRole,
}

/// What a user becomes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UserChange {
    /// What they may do from now on.
    pub role: UserRole,
}

/// A line of the audit log: who did what.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its id.
    pub id: String,
    /// When.
    #[serde(with = "super::time")]
    pub at: DateTime<Utc>,
    /// Who.
    pub actor: String,
    /// With which key.
    pub key_id: Option<String>,
    /// What.
    pub action: String,
    /// To what.
    pub object: Option<String>,
    /// What else there is to say.
    pub detail: Option<String>,
    /// From which address.
    pub source: Option<String>,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// Status of the answer.
    pub status: Option<u16>,
    /// The request.
    pub request_id: Option<String>,
    /// How often, where lines of the same kind were put together.
    pub count: u32,
}

/// Which lines of the audit log.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only of this one.
    pub actor: Option<String>,
    /// Only such actions.
    pub action: Option<String>,
    /// Only to this object.
    pub object: Option<String>,
    /// Only what ended so.
    pub outcome: Option<AuditOutcome>,
    /// At or after.
    pub since: Option<DateTime<Utc>>,
    /// Before.
    pub until: Option<DateTime<Utc>>,
}
