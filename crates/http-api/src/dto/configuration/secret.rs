//! Custom secrets on the wire; see `docs/reference/wire/secrets.md`. Requests contain values; only sandboxes get them, as plain
//! text.

use application::secrets::{
    NewSecret, SecretInfo, SecretUpdate, check_description, check_name, check_value,
};
use application::settings::MASK;
use domain::user::secret::SecretSummary;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::decode::{DecodeScalar, FieldError, model};
use crate::extract::NamedParam;

/// A secret without its value.
#[model(response = CustomSecretWithoutValue, not_required, from(secret: SecretInfo))]
pub(crate) struct SecretDto {
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

/// All secrets of the user.
#[model(response = GETCustomSecrets)]
pub(crate) struct SecretsDto {
    /// Oldest first.
    pub custom_secrets: Vec<SecretDto>,
}

/// The secrets that a sandbox may read.
#[model(response = SecretNamesResponse)]
pub(crate) struct SecretNamesDto {
    /// Custom secrets, and the tokens of git providers as `<provider>_token`.
    pub secrets: Vec<SecretDto>,
}

/// The query of a search.
#[model(query)]
pub(crate) struct SecretQuery {
    /// Only names that contain this, case-insensitive.
    #[decode(rename = "name__contains")]
    pub name_contains: Option<String>,
}

/// The name of a secret in a path; an invalid one answers 404.
#[derive(Debug, Clone)]
pub(crate) struct SecretName(pub String);

/// By hand: every text is looked up, also one with NUL.
impl DecodeScalar for SecretName {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let name = value.as_str().ok_or_else(FieldError::string_type)?;
        Ok(Self(name.to_owned()))
    }
}

impl NamedParam for SecretName {
    const NAME: &'static str = "secret_id";
    const UNKNOWN_IF_INVALID: bool = true;
}

/// A new secret.
#[model(body = CustomSecretCreate, into = NewSecret)]
pub(crate) struct NewSecretDto {
    /// The name of the environment variable.
    #[validate(custom(function = check_name))]
    #[schema(pattern = "^[A-Za-z_][A-Za-z0-9_]*$", max_length = 255)]
    name: String,
    /// The value, at most 64 KiB.
    #[validate(custom(function = check_value))]
    #[schema(write_only)]
    value: SecretString,
    #[validate(custom(function = check_description))]
    #[schema(max_length = 4096)]
    description: Option<String>,
}

/// A changed secret.
#[model(body = CustomSecretUpdate, into = SecretUpdate)]
pub(crate) struct SecretUpdateDto {
    /// The new name.
    #[validate(custom(function = check_name))]
    #[schema(pattern = "^[A-Za-z_][A-Za-z0-9_]*$", max_length = 255)]
    name: String,
    /// The purpose; absent or null clears it.
    #[validate(custom(function = check_description))]
    #[schema(max_length = 4096)]
    #[into(description.unwrap_or_default())]
    description: Option<String>,
    /// The new value; absent, null or the mask keeps the stored one.
    #[validate(custom(function = check_new_value))]
    #[schema(write_only)]
    #[into(value.filter(|value| !is_mask(value)))]
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
