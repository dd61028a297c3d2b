//! Custom secrets on the wire; see `docs/reference/wire/secrets.md`. Requests contain values; only sandboxes get them, as plain
//! text.

use application::secrets::{
    NewSecret, SecretInfo, SecretUpdate, check_description, check_hosts, check_name, check_value,
};
use application::settings::MASK;
use domain::secret_rule::SecretRules;
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
    /// The hosts to which the service sends the value; sandboxes have a placeholder. Absent: sandboxes have the value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[from(texts(&secret.hosts))]
    pub hosts: Vec<String>,
    /// Whether agents get the value. Only in searches.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[from(None)]
    pub exposed: Option<bool>,
}

fn texts(hosts: &SecretRules) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

impl From<SecretSummary> for SecretDto {
    fn from(secret: SecretSummary) -> Self {
        Self {
            name: secret.name,
            description: Some(secret.description),
            hosts: texts(&secret.hosts),
            exposed: None,
        }
    }
}

impl SecretDto {
    /// With `exposed`, which lists of deployed front ends do not have.
    pub(crate) fn with_exposure(secret: SecretSummary) -> Self {
        let exposed = Some(secret.hosts.is_empty());
        Self {
            exposed,
            ..secret.into()
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
    /// Hosts such as `*.example.org:8443`, or paths of them: `api.example.org/repos/acme`. Then sandboxes get a placeholder, and
    /// the service sends the value to these hosts. Absent or null keeps the stored ones.
    #[validate(custom(function = check_host_texts))]
    #[schema(max_items = 32)]
    #[into(hosts.and_then(|hosts| check_hosts(&hosts).ok()))]
    hosts: Option<Vec<String>>,
    /// Whether agents get the value, which only a secret without hosts has: true says so, and clears stored hosts. Absent or null:
    /// as the hosts say.
    exposed: Option<bool>,
}

fn check_host_texts(hosts: &[String]) -> Result<(), String> {
    check_hosts(hosts).map(drop)
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
    /// The new hosts; an empty list gives sandboxes the value. Absent or null keeps the stored ones.
    #[validate(custom(function = check_host_texts))]
    #[schema(max_items = 32)]
    #[into(hosts.and_then(|hosts| check_hosts(&hosts).ok()))]
    hosts: Option<Vec<String>>,
    /// As for a new secret.
    exposed: Option<bool>,
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
