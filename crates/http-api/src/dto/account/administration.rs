//! Users, keys and the audit log on the wire. An addition: the reference has none of them.

use std::time::Duration;

use application::administration::{IssuedKey, KeyOptions};
use domain::audit::{AuditActor, AuditEntry, AuditFilter, AuditOutcome};
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, UserId};
use domain::identity::{ApiKey, MAX_KEY_NAME_CHARS, Role, User};
use domain::page::{PageLimit, PageRequest, PageToken};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::decode::{Choice, Decode, FieldError, FieldErrors, Object, Path, bounds};
use crate::extract::NamedParam;

/// Longest lifetime of a key that expires: ten years.
const MAX_KEY_LIFETIME_SECONDS: i64 = 10 * 365 * 24 * 60 * 60;
/// Longest grace period of a replaced key: 30 days.
const MAX_ROTATION_GRACE_SECONDS: i64 = 30 * 24 * 60 * 60;
/// Default grace period of a replaced key: a day.
const DEFAULT_ROTATION_GRACE_SECONDS: i64 = 24 * 60 * 60;

/// A role.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = UserRole)]
pub enum RoleDto {
    /// May use their own resources.
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

impl Choice for Role {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("user", Self::User), ("admin", Self::Admin)];
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
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ApiKeyCreate)]
pub struct CreateKeyDto {
    /// The name of the key.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Lifetime in seconds; unlimited if absent.
    #[schema(minimum = 1, maximum = 315_360_000)]
    expires_in: Option<i64>,
}

/// The options of a key rotation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKeyRotate)]
pub struct RotationDto {
    /// The name of the new key; the old key's if absent.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Lifetime of the new key in seconds; the old key's if absent.
    #[schema(minimum = 1, maximum = 315_360_000)]
    expires_in: Option<i64>,
    /// Grace period in seconds, after which the old key expires at the latest.
    #[schema(minimum = 0, maximum = 2_592_000, default = 86_400)]
    grace_period: i64,
}

/// The decoded body of a creation.
#[derive(Debug, Clone, Default)]
pub struct CreateKeyInput(pub KeyOptions);

/// The decoded body of a rotation.
#[derive(Debug, Clone)]
pub struct RotationInput {
    /// The options of the new key.
    pub options: KeyOptions,
    /// The grace period of the old key.
    pub grace: Duration,
}

impl Default for RotationInput {
    fn default() -> Self {
        Self {
            options: KeyOptions::default(),
            grace: seconds(DEFAULT_ROTATION_GRACE_SECONDS),
        }
    }
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.unsigned_abs())
}

fn is_name(name: &str) -> Option<FieldError> {
    let is_name = (1..=MAX_KEY_NAME_CHARS).contains(&name.chars().count())
        && !name.chars().any(char::is_control);
    let refusal = format!("a name has 1 to {MAX_KEY_NAME_CHARS} characters in one line");
    (!is_name).then(|| FieldError::value_error(refusal))
}

fn key_options<Model: Decode>(object: &mut Object<'_, Model>) -> Option<KeyOptions> {
    let name = object.optional::<String>("name");
    if let Some(fault) = name.as_ref().and_then(Option::as_deref).and_then(is_name) {
        object.add_error("name", fault);
    }
    let life = object.optional::<i64>("expires_in");
    let given = life.as_ref().and_then(Option::as_ref);
    object.rule("expires_in", given, bounds(1..=MAX_KEY_LIFETIME_SECONDS));
    Some(KeyOptions {
        name: name?,
        expires_in: life?.map(seconds),
    })
}

impl Decode for CreateKeyInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        key_options(&mut object).map(Self)
    }
}

impl Decode for RotationInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let options = key_options(&mut object);
        let grace = object.default("grace_period", || DEFAULT_ROTATION_GRACE_SECONDS);
        object.rule(
            "grace_period",
            grace.as_ref(),
            bounds(0..=MAX_ROTATION_GRACE_SECONDS),
        );
        Some(Self {
            options: options?,
            grace: seconds(grace?),
        })
    }
}

/// A user to create.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserCreate)]
pub struct NewUserDto {
    /// The name: 1 to 128 visible characters.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\s\x00-\x1f\x7f]+$")]
    id: String,
    /// The user's role.
    #[schema(default = "user")]
    role: RoleDto,
}

/// The decoded body.
#[derive(Debug, Clone)]
pub struct NewUserInput {
    /// The name.
    pub user: UserId,
    /// The user's role.
    pub role: Role,
}

impl Decode for NewUserInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let id = object.required::<String>("id");
        let user = object.convert("id", id, UserId::parse);
        let role = object.default("role", Role::default);
        Some(Self {
            user: user?,
            role: role?,
        })
    }
}

/// A change of a user's role.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserUpdate)]
pub struct UserUpdateDto {
    /// The role.
    role: RoleDto,
}

/// The decoded body.
#[derive(Debug, Clone, Copy)]
pub struct UserUpdateInput(pub Role);

impl Decode for UserUpdateInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        object.required::<Role>("role").map(Self)
    }
}

/// The name of a user in a path; an invalid one answers 404.
#[derive(Debug, Clone)]
pub struct UserIdParam(pub UserId);

impl Decode for UserIdParam {
    fn decode(value: &Value, _: &Path<'_>, _: &mut FieldErrors) -> Option<Self> {
        let text = value.as_str()?;
        UserId::parse(text).ok().map(Self)
    }
}

impl NamedParam for UserIdParam {
    const NAME: &'static str = "user_id";
    const UNKNOWN_IF_INVALID: bool = true;
}

impl NamedParam for ApiKeyId {
    const NAME: &'static str = "key_id";
}

/// User and key in a path.
#[derive(Debug, Clone)]
pub struct UserKeyParams {
    /// The user.
    pub user: String,
    /// The key.
    pub id: ApiKeyId,
}

impl Decode for UserKeyParams {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let (user, id) = (object.required("user_id"), object.required("key_id"));
        Some(Self {
            user: user?,
            id: id?,
        })
    }
}

/// The outcome of an audited action.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
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

impl Choice for AuditOutcome {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("ok", Self::Ok),
        ("refused", Self::Refused),
        ("failed", Self::Failed),
    ];
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
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only entries of this actor: `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
    #[param(value_type = String, required = false)]
    actor: Option<AuditActor>,
    /// Only entries with exactly this action.
    #[param(value_type = String, required = false)]
    action: Option<String>,
    /// Only entries about exactly this object.
    #[param(value_type = String, required = false)]
    object: Option<String>,
    /// Only entries with this outcome.
    #[param(value_type = AuditOutcomeDto, required = false)]
    outcome: Option<AuditOutcome>,
    /// Only entries at or after this time.
    #[param(value_type = String, format = DateTime, required = false)]
    since: Option<Timestamp>,
    /// Only entries before this time.
    #[param(value_type = String, format = DateTime, required = false)]
    until: Option<Timestamp>,
    /// `next_page_id` of the previous page.
    #[param(value_type = String, required = false)]
    page_id: Option<PageToken>,
    /// Maximum number of items on the page.
    #[param(value_type = i64, required = false, minimum = 1, maximum = 100, default = 100)]
    limit: PageLimit,
}

impl Decode for AuditQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let actor = object.optional::<String>("actor");
        let actor = object.convert_optional("actor", actor, |text| text.parse::<AuditActor>());
        let (action, on) = (object.optional("action"), object.optional("object"));
        let outcome = object.optional("outcome");
        let (since, until) = (object.optional("since"), object.optional("until"));
        let page = object.page(PageLimit::MAX)?;
        Some(Self {
            actor: actor?,
            action: action?,
            object: on?,
            outcome: outcome?,
            since: since?,
            until: until?,
            page_id: page.after,
            limit: page.limit,
        })
    }
}

impl AuditQuery {
    /// Filter and page.
    pub fn into_parts(self) -> (AuditFilter, PageRequest) {
        let filter = AuditFilter {
            actor: self.actor,
            action: self.action,
            object: self.object,
            outcome: self.outcome,
            since: self.since,
            until: self.until,
        };
        let page = PageRequest {
            after: self.page_id,
            limit: self.limit,
        };
        (filter, page)
    }
}
