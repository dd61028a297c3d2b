//! Users, keys and the audit log on the wire. An addition: the reference has none of them.

use std::time::Duration;

use application::administration::{IssuedKey, KeyOptions};
use domain::audit::{AuditActor, AuditEntry, AuditFilter, AuditOutcome};
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, OrganizationId, SessionId, UserId};
use domain::user::identity::{ApiKey, MAX_KEY_NAME_CHARS, Role, User};
use uuid::Uuid;

use crate::decode::model;
use crate::dto::secret_text::SecretText;
use crate::extract::NamedParam;

/// Default grace period of a replaced key: a day.
const DEFAULT_ROTATION_GRACE_SECONDS: i64 = 24 * 60 * 60;

/// A user.
#[model(response = AdministeredUser, from(user: User))]
pub(crate) struct AccountDto {
    /// The user's name, which is also the id.
    id: UserId,
    /// The user's role.
    role: Role,
    created_at: Timestamp,
    /// Since when the user cannot sign in or use a key.
    disabled_at: Option<Timestamp>,
    /// When the deletion began; the entry stays until all data is deleted.
    deleted_at: Option<Timestamp>,
}

/// An API key, without its text.
#[model(response = ApiKey, from(key: ApiKey, current: Option<ApiKeyId>))]
pub(crate) struct KeyDto {
    id: ApiKeyId,
    #[from(key.user)]
    user_id: UserId,
    /// The only organization in which the key acts; `null`: requests choose one.
    #[from(key.organization)]
    organization_id: Option<OrganizationId>,
    /// The name that the owner chose.
    name: Option<String>,
    /// The first characters of its text.
    prefix: String,
    created_at: Timestamp,
    /// When the key expires; `null`: never.
    expires_at: Option<Timestamp>,
    /// When the key was last used, to the minute.
    last_used_at: Option<Timestamp>,
    /// Who created the key: an actor, as in the audit log. `null` for keys of earlier releases.
    made_by: Option<String>,
    /// Whether this request uses the key.
    #[from(current == Some(key.id))]
    is_current: bool,
}

/// A new API key: the only response with its text.
#[model(response = NewApiKey, from(made: IssuedKey))]
pub(crate) struct CreatedKeyDto {
    /// The text of the key. It cannot be shown again.
    #[from(made.text.into())]
    key: SecretText,
    /// The stored record of the key.
    #[from(KeyDto::of(made.key, None))]
    record: KeyDto,
}

/// The options of a new key.
#[model(body = ApiKeyCreate)]
#[derive(Default)]
pub(crate) struct CreateKeyDto {
    #[validate(custom(function = check_key_name))]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Lifetime in seconds; unlimited if absent.
    #[validate(range(min = 1, max = 315_360_000))]
    expires_in: Option<i64>,
    /// The only organization in which the key acts. Without one, requests choose by `X-Org-Id`.
    organization_id: Option<OrganizationId>,
    /// Another name of `organization_id`.
    org_id: Option<OrganizationId>,
}

impl From<CreateKeyDto> for KeyOptions {
    fn from(body: CreateKeyDto) -> Self {
        Self {
            name: body.name,
            expires_in: body.expires_in.map(seconds),
            organization: body.organization_id.or(body.org_id),
            is_automation: false,
        }
    }
}

/// The options of a key rotation.
#[model(body = ApiKeyRotate, into_default = KeyOptions)]
pub(crate) struct RotationDto {
    /// The name of the new key; the old key's if absent.
    #[validate(custom(function = check_key_name))]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Lifetime of the new key in seconds; the old key's if absent.
    #[validate(range(min = 1, max = 315_360_000))]
    #[into(expires_in.map(seconds))]
    expires_in: Option<i64>,
    /// Grace period in seconds, after which the old key expires at the latest.
    #[decode(default = 86_400)]
    #[validate(range(min = 0, max = 2_592_000))]
    #[schema(required)]
    #[into(skip)]
    grace_period: i64,
}

impl RotationDto {
    /// The options of the new key, and the grace period of the old one. A missing body has the defaults.
    pub(crate) fn into_parts(body: Option<Self>) -> (KeyOptions, Duration) {
        let grace = body
            .as_ref()
            .map_or(DEFAULT_ROTATION_GRACE_SECONDS, |body| body.grace_period);
        (
            body.map(KeyOptions::from).unwrap_or_default(),
            seconds(grace),
        )
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
#[model(body = UserCreate)]
pub(crate) struct NewUserDto {
    /// The name: 1 to 128 visible characters.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\s\x00-\x1f\x7f]+$")]
    pub id: UserId,
    /// The user's role.
    #[decode(default)]
    #[schema(required, default = "user")]
    pub role: Role,
}

/// A change of a user.
#[model(body = UserUpdate)]
pub(crate) struct UserUpdateDto {
    /// The role.
    #[decode(not_null)]
    pub role: Option<Role>,
    /// Whether the user is kept from signing in and using keys. Sessions end, and sandboxes pause.
    #[decode(not_null)]
    pub disabled: Option<bool>,
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
pub(crate) struct UserKeyParams {
    /// The user; an invalid name answers 404, after the key was decoded.
    #[decode(rename = "user_id")]
    pub user: String,
    /// The key.
    #[decode(rename = "key_id")]
    pub id: ApiKeyId,
}

/// An entry of the audit log.
#[model(response = AuditEntry, from(entry: AuditEntry))]
pub(crate) struct AuditEntryDto {
    id: Uuid,
    /// When the action ended.
    at: Timestamp,
    /// The actor: `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
    #[from(entry.actor.to_string())]
    actor: String,
    /// The API key that was used.
    #[from(entry.key)]
    key_id: Option<ApiKeyId>,
    /// The session that was used.
    #[from(entry.session)]
    session_id: Option<SessionId>,
    /// The action: method and route, or a command.
    action: String,
    /// The object: kind and id (`sandbox:1a2b`).
    object: Option<String>,
    /// Further objects.
    detail: Option<String>,
    /// The address of the client.
    source: Option<String>,
    /// The outcome.
    outcome: AuditOutcome,
    /// The status of the response.
    status: Option<u16>,
    /// The id of the request, as in the log.
    request_id: Option<String>,
    /// Number of equal entries within a minute.
    count: u32,
}

/// The query for entries, in addition to [`PageQuery`].
#[model(query, into = AuditFilter)]
pub(crate) struct AuditQuery {
    /// Only entries of this actor: `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
    actor: Option<AuditActor>,
    /// Only entries with exactly this action.
    action: Option<String>,
    /// Only entries about exactly this object.
    object: Option<String>,
    /// Only entries with this outcome.
    outcome: Option<AuditOutcome>,
    /// Only entries at or after this time.
    since: Option<Timestamp>,
    /// Only entries before this time.
    until: Option<Timestamp>,
}
