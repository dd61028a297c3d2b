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
    /// The owner.
    pub user_id: String,
    /// The name that the owner gave it.
    pub name: Option<String>,
    /// The beginning of the text.
    pub prefix: String,
    /// The time of its creation.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// The time of its expiry; `None`: it never expires.
    #[serde(with = "super::time::optional")]
    pub expires_at: Option<DateTime<Utc>>,
    /// The time of its last use, to the minute.
    #[serde(with = "super::time::optional")]
    pub last_used_at: Option<DateTime<Utc>>,
    /// The caller that created it, if known.
    pub made_by: Option<String>,
    /// Whether this request used the key.
    pub is_current: bool,
}

/// A new key. The service shows its text only here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewApiKey {
    /// The text of the key.
    pub key: Secret,
    /// The stored record.
    pub record: ApiKey,
}

/// Options of a new key.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NewKey {
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The lifetime in seconds; `None`: the key never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<i64>,
}

/// Options of a key that replaces another one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KeyRotation {
    /// The name; `None`: that of the old key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The lifetime in seconds; `None`: that of the old key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<i64>,
    /// Time in seconds for which the old key stays valid, at most; `None`: a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i64>,
}

/// A user, as administrators see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdministeredUser {
    /// The name.
    pub id: String,
    /// The role.
    pub role: UserRole,
    /// The time of its creation.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// The time of the deletion, while the user's data is being removed.
    #[serde(with = "super::time::optional")]
    pub deleted_at: Option<DateTime<Utc>>,
}

/// A user to create.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewUser {
    /// The name.
    pub id: String,
    /// The role.
    pub role: UserRole,
}

/// A change of a user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UserChange {
    /// The new role.
    pub role: UserRole,
}

/// An entry of the audit log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its id.
    pub id: String,
    /// The time of the action.
    #[serde(with = "super::time")]
    pub at: DateTime<Utc>,
    /// The caller.
    pub actor: String,
    /// The id of the API key that the caller used.
    pub key_id: Option<String>,
    /// The action: method and route, or the command.
    pub action: String,
    /// The object of the action.
    pub object: Option<String>,
    /// Further details.
    pub detail: Option<String>,
    /// The address of the client.
    pub source: Option<String>,
    /// The outcome.
    pub outcome: AuditOutcome,
    /// The status of the response.
    pub status: Option<u16>,
    /// The id of the request.
    pub request_id: Option<String>,
    /// The number of equal actions that this entry counts.
    pub count: u32,
}

/// A filter of audit entries.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only of this actor.
    pub actor: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only with this object.
    pub object: Option<String>,
    /// Only with this outcome.
    pub outcome: Option<AuditOutcome>,
    /// At this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Before this time.
    pub until: Option<DateTime<Utc>>,
}
