//! API keys, users, and the audit log.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::secret::Secret;
use super::string_enums::{AuditOutcome, UserRole};
use super::time::UtcTime;

/// An API key, without its text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApiKey {
    pub id: String,
    pub user_id: String,
    pub name: Option<String>,
    pub prefix: String,
    pub created_at: UtcTime,
    /// The time of its expiry; `None`: it never expires.
    pub expires_at: Option<UtcTime>,
    /// The time of its last use, to the minute.
    pub last_used_at: Option<UtcTime>,
    pub made_by: Option<String>,
    /// The organization that the key is bound to; `None`: all of its user's.
    pub organization_id: Option<String>,
    pub is_current: bool,
}

/// A new key. The service shows its text only here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewApiKey {
    pub key: Secret,
    pub record: ApiKey,
}

/// Options of a new key.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NewKey {
    pub name: Option<String>,
    /// The lifetime in seconds; `None`: the key never expires.
    pub expires_in: Option<i64>,
    /// Binds the key to this organization.
    pub organization_id: Option<String>,
    /// Another name of `organization_id` on the wire.
    pub org_id: Option<String>,
}

/// Options of a key that replaces another one.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KeyRotation {
    /// The name; `None`: that of the old key.
    pub name: Option<String>,
    /// The lifetime in seconds; `None`: that of the old key.
    pub expires_in: Option<i64>,
    /// Time in seconds for which the old key stays valid, at most; `None`: a day.
    pub grace_period: Option<i64>,
}

/// A user, as administrators see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdministeredUser {
    pub id: String,
    pub role: UserRole,
    pub created_at: UtcTime,
    /// The time of the deletion, while the user's data is being removed.
    pub deleted_at: Option<UtcTime>,
    /// Since when the user cannot sign in or use keys.
    pub disabled_at: Option<UtcTime>,
}

/// A user to create.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewUser {
    pub id: String,
    pub role: UserRole,
}

/// A change of a user; `None` keeps a field.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UserChange {
    pub role: Option<UserRole>,
    pub disabled: Option<bool>,
}

/// An entry of the audit log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditEntry {
    pub id: String,
    pub at: UtcTime,
    pub actor: String,
    pub key_id: Option<String>,
    pub session_id: Option<String>,
    /// The action: method and route, or the command.
    pub action: String,
    pub object: Option<String>,
    pub detail: Option<String>,
    pub source: Option<String>,
    pub outcome: AuditOutcome,
    pub status: Option<u16>,
    pub request_id: Option<String>,
    /// The number of equal actions that this entry counts.
    pub count: u32,
}

/// A filter of audit entries.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub action: Option<String>,
    pub object: Option<String>,
    pub outcome: Option<AuditOutcome>,
    /// At this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Before this time.
    pub until: Option<DateTime<Utc>>,
}
