//! Users, keys and the audit log on the wire. An addition: the reference has none of them.

use std::time::Duration;

use application::administration::{IssuedKey, KeyOptions};
use domain::audit::{AuditActor, AuditEntry, AuditFilter, AuditOutcome};
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, UserId};
use domain::page::PageRequest;
use domain::user::identity::{ApiKey, MAX_KEY_NAME_CHARS, Role, User};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::decode::{Choice, model};
use crate::dto::page::PageQuery;
use crate::extract::NamedParam;

/// Default grace period of a replaced key: a day.
const DEFAULT_ROTATION_GRACE_SECONDS: i64 = 24 * 60 * 60;

/// A role.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema, Choice)]
#[serde(rename_all = "lowercase")]
#[schema(as = UserRole)]
pub enum RoleDto {
    /// May use their own resources.
    #[default]
    User,
    /// May also administer users and keys, and read the audit log.
    Admin,
}

impl From<Role> for RoleDto {
    fn from(role: Role) -> Self {
        match role {
            Role::User => Self::User,
            Role::Admin => Self::Admin,
        }
    }
}

impl From<RoleDto> for Role {
    fn from(role: RoleDto) -> Self {
        match role {
            RoleDto::User => Self::User,
            RoleDto::Admin => Self::Admin,
        }
    }
}

/// A user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdministeredUser)]
pub struct AccountDto {
    /// The user's name, which is also the id.
    id: String,
    /// The user's role.
    role: RoleDto,
    /// When the user was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When the deletion began; the entry stays until all data is deleted.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    deleted_at: Option<Timestamp>,
}

impl From<User> for AccountDto {
    fn from(user: User) -> Self {
        Self {
            id: user.id.to_string(),
            role: user.role.into(),
            created_at: user.created_at,
            deleted_at: user.deleted_at,
        }
    }
}

/// An API key, without its text.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub struct KeyDto {
    /// The id of the key.
    #[schema(value_type = String)]
    id: ApiKeyId,
    /// The owner.
    user_id: String,
    /// The name that the owner chose.
    #[schema(required)]
    name: Option<String>,
    /// The first characters of its text.
    prefix: String,
    /// When the key was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When the key expires; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    expires_at: Option<Timestamp>,
    /// When the key was last used, to the minute.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    last_used_at: Option<Timestamp>,
    /// Who created the key: an actor, as in the audit log. `null` for keys of earlier releases.
    #[schema(required)]
    made_by: Option<String>,
    /// Whether this request uses the key.
    is_current: bool,
}

impl KeyDto {
    /// Converts a key for a caller with the key `current`.
    pub fn of(key: ApiKey, current: Option<ApiKeyId>) -> Self {
        Self {
            id: key.id,
            user_id: key.user.to_string(),
            name: key.name,
            prefix: key.prefix,
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
            made_by: key.made_by,
            is_current: current == Some(key.id),
        }
    }
}

/// A new API key: the only response with its text.
#[derive(Serialize, ToSchema)]
#[schema(as = NewApiKey)]
pub struct CreatedKeyDto {
    /// The text of the key. It cannot be shown again.
    key: String,
    /// The stored record of the key.
    record: KeyDto,
}

impl From<IssuedKey> for CreatedKeyDto {
    fn from(made: IssuedKey) -> Self {
        Self {
            key: made.text.expose_secret().to_owned(),
            record: KeyDto::of(made.key, None),
        }
    }
}

/// The options of a new key.
#[model(body)]
#[derive(Debug, Default)]
#[schema(as = ApiKeyCreate)]
pub struct CreateKeyDto {
    /// The name of the key.
    #[validate(custom(function = check_key_name))]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Lifetime in seconds; unlimited if absent.
    #[validate(range(min = 1, max = 315_360_000))]
    expires_in: Option<i64>,
}

impl From<CreateKeyDto> for KeyOptions {
    fn from(key: CreateKeyDto) -> Self {
        Self {
            name: key.name,
            expires_in: key.expires_in.map(seconds),
        }
    }
}

/// The options of a key rotation.
#[model(body)]
#[derive(Debug)]
#[schema(as = ApiKeyRotate)]
pub struct RotationDto {
    /// The name of the new key; the old key's if absent.
    #[validate(custom(function = check_key_name))]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Lifetime of the new key in seconds; the old key's if absent.
    #[validate(range(min = 1, max = 315_360_000))]
    expires_in: Option<i64>,
    /// Grace period in seconds, after which the old key expires at the latest.
    #[decode(default = 86_400)]
    #[validate(range(min = 0, max = 2_592_000))]
    #[schema(required)]
    grace_period: i64,
}

impl RotationDto {
    /// The options of the new key, and the grace period of the old one. A missing body has the defaults.
    pub fn into_parts(body: Option<Self>) -> (KeyOptions, Duration) {
        let Some(body) = body else {
            return (
                KeyOptions::default(),
                seconds(DEFAULT_ROTATION_GRACE_SECONDS),
            );
        };
        let options = KeyOptions {
            name: body.name,
            expires_in: body.expires_in.map(seconds),
        };
        (options, seconds(body.grace_period))
    }
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.unsigned_abs())
}

fn check_key_name(name: &str) -> Result<(), String> {
    let is_name = (1..=MAX_KEY_NAME_CHARS).contains(&name.chars().count())
        && !name.chars().any(char::is_control);
    if is_name {
        return Ok(());
    }
    Err(format!(
        "a name has 1 to {MAX_KEY_NAME_CHARS} characters in one line"
    ))
}

/// A user to create.
#[model(body)]
#[derive(Debug)]
#[schema(as = UserCreate)]
pub struct NewUserDto {
    /// The name: 1 to 128 visible characters.
    #[schema(value_type = String, min_length = 1, max_length = 128, pattern = r"^[^\s\x00-\x1f\x7f]+$")]
    pub id: UserId,
    /// The user's role.
    #[decode(default)]
    #[schema(required, default = "user")]
    pub role: RoleDto,
}

/// A change of a user's role.
#[model(body)]
#[derive(Debug)]
#[schema(as = UserUpdate)]
pub struct UserUpdateDto {
    /// The role.
    pub role: RoleDto,
}

impl NamedParam for UserId {
    const NAME: &'static str = "user_id";
    const UNKNOWN_IF_INVALID: bool = true;
}

impl NamedParam for ApiKeyId {
    const NAME: &'static str = "key_id";
}

/// User and key in a path.
#[model]
#[derive(Debug, Clone)]
pub struct UserKeyParams {
    /// The user; an invalid name answers 404, after the key was decoded.
    #[decode(rename = "user_id")]
    pub user: String,
    /// The key.
    #[decode(rename = "key_id")]
    pub id: ApiKeyId,
}

/// The outcome of an audited action.
#[derive(Debug, Clone, Copy, Serialize, ToSchema, Choice)]
#[serde(rename_all = "lowercase")]
#[schema(as = AuditOutcome)]
pub enum AuditOutcomeDto {
    /// The action succeeded.
    Ok,
    /// The action was refused and changed nothing.
    Refused,
    /// The action failed because of a server error.
    Failed,
}

impl From<AuditOutcome> for AuditOutcomeDto {
    fn from(outcome: AuditOutcome) -> Self {
        match outcome {
            AuditOutcome::Ok => Self::Ok,
            AuditOutcome::Refused => Self::Refused,
            AuditOutcome::Failed => Self::Failed,
        }
    }
}

impl From<AuditOutcomeDto> for AuditOutcome {
    fn from(outcome: AuditOutcomeDto) -> Self {
        match outcome {
            AuditOutcomeDto::Ok => Self::Ok,
            AuditOutcomeDto::Refused => Self::Refused,
            AuditOutcomeDto::Failed => Self::Failed,
        }
    }
}

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditEntryDto {
    /// The id of the entry.
    id: Uuid,
    /// When the action ended.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The actor: `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
    actor: String,
    /// The API key that was used.
    #[schema(value_type = Option<String>, required)]
    key_id: Option<ApiKeyId>,
    /// The action: method and route, or a command.
    action: String,
    /// The object: kind and id (`sandbox:1a2b`).
    #[schema(required)]
    object: Option<String>,
    /// Further objects.
    #[schema(required)]
    detail: Option<String>,
    /// The address of the client.
    #[schema(required)]
    source: Option<String>,
    /// The outcome.
    outcome: AuditOutcomeDto,
    /// The status of the response.
    #[schema(required)]
    status: Option<u16>,
    /// The id of the request, as in the log.
    #[schema(required)]
    request_id: Option<String>,
    /// Number of equal entries within a minute.
    count: u32,
}

impl From<AuditEntry> for AuditEntryDto {
    fn from(entry: AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: entry.at,
            actor: entry.actor.to_string(),
            key_id: entry.key,
            action: entry.action,
            object: entry.object,
            detail: entry.detail,
            source: entry.source,
            outcome: entry.outcome.into(),
            status: entry.status,
            request_id: entry.request_id,
            count: entry.count,
        }
    }
}

/// The query for entries.
#[model(query)]
#[derive(Debug, Clone)]
pub struct AuditQuery {
    /// Only entries of this actor: `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
    #[param(value_type = String, required = false)]
    actor: Option<AuditActor>,
    /// Only entries with exactly this action.
    action: Option<String>,
    /// Only entries about exactly this object.
    object: Option<String>,
    /// Only entries with this outcome.
    outcome: Option<AuditOutcomeDto>,
    /// Only entries at or after this time.
    #[param(value_type = String, format = DateTime, required = false)]
    since: Option<Timestamp>,
    /// Only entries before this time.
    #[param(value_type = String, format = DateTime, required = false)]
    until: Option<Timestamp>,
    #[decode(flatten)]
    page: PageQuery,
}

impl AuditQuery {
    /// Filter and page.
    pub fn into_parts(self) -> (AuditFilter, PageRequest) {
        let filter = AuditFilter {
            actor: self.actor,
            action: self.action,
            object: self.object,
            outcome: self.outcome.map(AuditOutcome::from),
            since: self.since,
            until: self.until,
        };
        (filter, self.page.into())
    }
}
