//! Users, keys and the audit log on the wire. All of it is ours: the reference has nothing of the kind.

use std::time::Duration;

use application::administration::{KeyOptions, IssuedKey};
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

use crate::decode::{Choice, Decode, FieldErrors, FieldError, Object, Path, bounds};
use crate::extract::NamedParam;

/// Longest life of a key that is meant to end: ten years, in seconds.
const MAX_KEY_LIFETIME_SECONDS: i64 = 10 * 365 * 24 * 60 * 60;
/// Longest time for which a key that was replaced goes on to work: 30 days, in seconds.
const MAX_ROTATION_GRACE_SECONDS: i64 = 30 * 24 * 60 * 60;
/// The usual one: a day.
const DEFAULT_ROTATION_GRACE_SECONDS: i64 = 24 * 60 * 60;

/// A role.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = UserRole)]
pub enum RoleDto {
    /// Everything with what is their own.
    User,
    /// That, and to administer users, keys and the audit log.
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
    /// The name, which is the id.
    id: String,
    /// What they may do.
    role: RoleDto,
    /// Since when they are known.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When their deletion began; the entry stays until nothing of them is left.
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
    /// To name it by.
    #[schema(value_type = String)]
    id: ApiKeyId,
    /// Whose it is.
    user_id: String,
    /// What its owner calls it.
    #[schema(required)]
    name: Option<String>,
    /// The first characters of its text.
    prefix: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// From when on it is refused; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    expires_at: Option<Timestamp>,
    /// When it was last seen, to the minute.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    last_used_at: Option<Timestamp>,
    /// Who made it: an actor, as in the audit log. `null` for keys of earlier releases.
    #[schema(required)]
    made_by: Option<String>,
    /// Whether this request came with it.
    is_current: bool,
}

impl KeyDto {
    /// As whoever uses the key `current` reads it.
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

/// A new API key: the only answer that has its text.
#[derive(Serialize, ToSchema)]
#[schema(as = NewApiKey)]
pub struct CreatedKeyDto {
    /// The text, to be kept: nobody can be told it again.
    key: String,
    /// What the service keeps of it.
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

/// What is asked of a new key.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ApiKeyCreate)]
pub struct CreateKeyDto {
    /// What to call it.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Seconds for which it is good; without it for ever.
    #[schema(minimum = 1, maximum = 315_360_000)]
    expires_in: Option<i64>,
}

/// How to replace a key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKeyRotate)]
pub struct RotationDto {
    /// What to call the new key; without it as the former.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Seconds for which the new key is good; without it as long as the former was meant to be.
    #[schema(minimum = 1, maximum = 315_360_000)]
    expires_in: Option<i64>,
    /// Seconds for which the former goes on to work, at most.
    #[schema(minimum = 0, maximum = 2_592_000, default = 86_400)]
    grace_period: i64,
}

/// The body of a creation.
#[derive(Debug, Clone, Default)]
pub struct CreateKeyInput(pub KeyOptions);

/// The body of a rotation.
#[derive(Debug, Clone)]
pub struct RotationInput {
    /// What is asked of the new key.
    pub wish: KeyOptions,
    /// How long the former goes on to work.
    pub grace: Duration,
}

impl Default for RotationInput {
    fn default() -> Self {
        Self {
            wish: KeyOptions::default(),
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

fn wish<Model: Decode>(object: &mut Object<'_, Model>) -> Option<KeyOptions> {
    let name = object.optional::<String>("name");
    if let Some(fault) = name.as_ref().and_then(Option::as_deref).and_then(is_name) {
        object.fault("name", fault);
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
        wish(&mut object).map(Self)
    }
}

impl Decode for RotationInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let wish = wish(&mut object);
        let grace = object.default("grace_period", || DEFAULT_ROTATION_GRACE_SECONDS);
        object.rule("grace_period", grace.as_ref(), bounds(0..=MAX_ROTATION_GRACE_SECONDS));
        Some(Self {
            wish: wish?,
            grace: seconds(grace?),
        })
    }
}

/// A user to make.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserCreate)]
pub struct NewUserDto {
    /// The name: 1 to 128 visible characters.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\s\x00-\x1f\x7f]+$")]
    id: String,
    /// What they may do.
    #[schema(default = "user")]
    role: RoleDto,
}

/// The same, read.
#[derive(Debug, Clone)]
pub struct NewUserInput {
    /// The name.
    pub user: UserId,
    /// What they may do.
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

/// What a user may do from now on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserUpdate)]
pub struct UserUpdateDto {
    /// The role.
    role: RoleDto,
}

/// The same, read.
#[derive(Debug, Clone, Copy)]
pub struct UserUpdateInput(pub Role);

impl Decode for UserUpdateInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        object.required::<Role>("role").map(Self)
    }
}

/// The name of a user in a path. What cannot be one does not exist.
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

/// User and key of a path.
#[derive(Debug, Clone)]
pub struct UserKeyParams {
    /// Whose.
    pub user: String,
    /// Which.
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

/// How something ended.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AuditOutcome)]
pub enum AuditOutcomeDto {
    /// It was done.
    Ok,
    /// Nothing was done.
    Refused,
    /// It went wrong on the service's side.
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

/// One line of the audit log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditEntryDto {
    /// Of this line.
    id: Uuid,
    /// When it ended.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who: `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
    actor: String,
    /// With which API key.
    #[schema(value_type = Option<String>, required)]
    key_id: Option<ApiKeyId>,
    /// What: method and route, or a command.
    action: String,
    /// With what: kind and id (`sandbox:1a2b`).
    #[schema(required)]
    object: Option<String>,
    /// More about it.
    #[schema(required)]
    detail: Option<String>,
    /// From which address.
    #[schema(required)]
    source: Option<String>,
    /// How it ended.
    outcome: AuditOutcomeDto,
    /// The status of the answer.
    #[schema(required)]
    status: Option<u16>,
    /// The id of the request, as in the service's log.
    #[schema(required)]
    request_id: Option<String>,
    /// How often it was the same within a minute.
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

/// Which lines.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Of this actor: `user:NAME`, `sandbox:ID`, `cli`, `service` or `unknown`.
    #[param(value_type = String, required = false)]
    actor: Option<AuditActor>,
    /// Exactly this action.
    #[param(value_type = String, required = false)]
    action: Option<String>,
    /// Exactly this object.
    #[param(value_type = String, required = false)]
    object: Option<String>,
    /// With this end.
    #[param(value_type = AuditOutcomeDto, required = false)]
    outcome: Option<AuditOutcome>,
    /// At or after this time.
    #[param(value_type = String, format = DateTime, required = false)]
    since: Option<Timestamp>,
    /// Before this time.
    #[param(value_type = String, format = DateTime, required = false)]
    until: Option<Timestamp>,
    /// `next_page_id` of the page before.
    #[param(value_type = String, required = false)]
    page_id: Option<PageToken>,
    /// Most items of this page.
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
