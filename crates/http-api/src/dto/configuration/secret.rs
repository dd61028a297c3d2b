//! Custom secrets on the wire; see `docs/reference/wire/secrets.md`. Requests contain values; only sandboxes get them, as plain
//! text.

use application::secrets::{
    NewSecret, SecretInfo, SecretUpdate, check_description, check_name, check_value,
};
use application::settings::MASK;
use domain::user::secret::SecretSummary;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::decode::{Decode, FieldErrors, Path, model};
use crate::dto::page::PageQuery;
use crate::extract::NamedParam;

/// A secret without its value.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomSecretWithoutValue)]
pub struct SecretDto {
    /// The name of the environment variable.
    pub name: String,
    /// The purpose; may be empty.
    pub description: Option<String>,
}

impl From<SecretSummary> for SecretDto {
    fn from(secret: SecretSummary) -> Self {
        Self {
            name: secret.name,
            description: Some(secret.description),
        }
    }
}

impl From<SecretInfo> for SecretDto {
    fn from(secret: SecretInfo) -> Self {
        Self {
            name: secret.name,
            description: secret.description,
        }
    }
}

/// All secrets of the user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GETCustomSecrets)]
pub struct SecretsDto {
    /// Oldest first.
    pub custom_secrets: Vec<SecretDto>,
}

/// The secrets that a sandbox may read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SecretNamesResponse)]
pub struct SecretNamesDto {
    /// Custom secrets, and the tokens of git providers as `<provider>_token`.
    pub secrets: Vec<SecretDto>,
}

/// The query of a search.
#[model(query)]
#[derive(Debug, Clone)]
pub struct SecretQuery {
    /// Only names that contain this, case-insensitive.
    #[decode(rename = "name__contains")]
    pub name_contains: Option<String>,
    /// The page.
    #[decode(flatten)]
    pub page: PageQuery,
}

/// The name of a secret in a path; an invalid one answers 404.
#[derive(Debug, Clone)]
pub struct SecretName(pub String);

/// By hand: every text is looked up, also one with NUL.
impl Decode for SecretName {
    fn decode(value: &Value, _: &Path<'_>, _: &mut FieldErrors) -> Option<Self> {
        value.as_str().map(|name| Self(name.to_owned()))
    }
}

impl NamedParam for SecretName {
    const NAME: &'static str = "secret_id";
    const UNKNOWN_IF_INVALID: bool = true;
}

/// A new secret.
#[model(body)]
#[derive(Debug)]
#[schema(as = CustomSecretCreate)]
pub struct NewSecretDto {
    /// The name of the environment variable.
    #[validate(custom(function = check_name))]
    #[schema(pattern = "^[A-Za-z_][A-Za-z0-9_]*$", max_length = 255)]
    name: String,
    /// The value, at most 64 KiB.
    #[validate(custom(function = check_value))]
    #[schema(write_only)]
    value: SecretString,
    /// The purpose.
    #[validate(custom(function = check_description))]
    #[schema(max_length = 4096)]
    description: Option<String>,
}

impl From<NewSecretDto> for NewSecret {
    fn from(secret: NewSecretDto) -> Self {
        Self {
            name: secret.name,
            value: secret.value,
            description: secret.description,
        }
    }
}

/// A changed secret.
#[model(body)]
#[derive(Debug)]
#[schema(as = CustomSecretUpdate)]
pub struct SecretUpdateDto {
    /// The new name.
    #[validate(custom(function = check_name))]
    #[schema(pattern = "^[A-Za-z_][A-Za-z0-9_]*$", max_length = 255)]
    name: String,
    /// The purpose; absent or null clears it.
    #[validate(custom(function = check_description))]
    #[schema(max_length = 4096)]
    description: Option<String>,
    /// The new value; absent, null or the mask keeps the stored one.
    #[validate(custom(function = check_new_value))]
    #[schema(write_only)]
    value: Option<SecretString>,
}

fn is_mask(value: &SecretString) -> bool {
    value.expose_secret() == MASK
}

fn check_new_value(value: &SecretString) -> Result<(), String> {
    if is_mask(value) {
        return Ok(());
    }
    check_value(value)
}

impl From<SecretUpdateDto> for SecretUpdate {
    fn from(secret: SecretUpdateDto) -> Self {
        Self {
            name: secret.name,
            description: secret.description.unwrap_or_default(),
            value: secret.value.filter(|value| !is_mask(value)),
        }
    }
}
