//! Custom secrets on the wire; see `docs/reference/wire/secrets.md`. Requests contain values; only sandboxes get them, as plain
//! text.

use application::secrets::{
    NewSecret, SecretInfo, SecretUpdate, check_description, check_name, check_value,
};
use application::settings::MASK;
use domain::page::{PageLimit, PageRequest};
use domain::secret::SecretSummary;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::decode::{Decode, FieldErrors, Object, Path};
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
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SecretQuery {
    /// Only names that contain this, case-insensitive.
    #[param(rename = "name__contains", required = false, nullable = false)]
    pub name_contains: Option<String>,
    /// `next_page_id` of the previous page.
    #[param(required = false, nullable = false)]
    pub page_id: Option<String>,
    /// Maximum number of items on the page.
    #[param(value_type = i64, required = false, minimum = 1, maximum = 100, default = 100)]
    pub limit: PageLimit,
}

/// The decoded query.
#[derive(Debug, Clone)]
pub struct SecretSearch {
    /// A part of the name.
    pub name_contains: Option<String>,
    /// The page.
    pub page: PageRequest,
}

impl Decode for SecretSearch {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let name_contains = object.optional("name__contains");
        let page = object.page(PageLimit::MAX);
        Some(Self {
            name_contains: name_contains?,
            page: PageQuery::from(page?).into(),
        })
    }
}

/// The name of a secret in a path; an invalid one answers 404.
#[derive(Debug, Clone)]
pub struct SecretName(pub String);

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
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomSecretCreate)]
pub struct NewSecretDto {
    /// The name of the environment variable.
    #[schema(pattern = "^[A-Za-z_][A-Za-z0-9_]*$", max_length = 255)]
    name: String,
    /// The value, at most 64 KiB.
    #[schema(format = Password, write_only)]
    value: String,
    /// The purpose.
    #[schema(max_length = 4096)]
    description: Option<String>,
}

/// Body of the operations that store a secret.
#[derive(Debug, Clone)]
pub struct NewSecretInput(pub NewSecret);

impl Decode for NewSecretInput {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let name = object.required::<String>("name");
        let name = object.convert("name", name, |it| check_name(&it).map(|()| it));
        let value = object.required::<SecretString>("value");
        let value = object.convert("value", value, |it| check_value(&it).map(|()| it));
        let description = object.optional::<String>("description");
        let description = object.convert_optional("description", description, described);
        Some(Self(NewSecret {
            name: name?,
            value: value?,
            description: description?,
        }))
    }
}

/// A changed secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomSecretUpdate)]
pub struct SecretUpdateDto {
    /// The new name.
    #[schema(pattern = "^[A-Za-z_][A-Za-z0-9_]*$", max_length = 255)]
    name: String,
    /// The purpose; absent or null clears it.
    #[schema(max_length = 4096)]
    description: Option<String>,
    /// The new value; absent, null or the mask keeps the stored one.
    #[schema(format = Password, write_only)]
    value: Option<String>,
}

/// Body of the operations that change a secret.
#[derive(Debug, Clone)]
pub struct SecretUpdateInput(pub SecretUpdate);

impl Decode for SecretUpdateInput {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let name = object.required::<String>("name");
        let name = object.convert("name", name, |it| check_name(&it).map(|()| it));
        let description = object.optional::<String>("description");
        let description = object.convert_optional("description", description, described);
        let value = object.optional::<SecretString>("value");
        let value = value.map(|it| it.filter(|it| it.expose_secret() != MASK));
        let value = object.convert_optional("value", value, |it| check_value(&it).map(|()| it));
        Some(Self(SecretUpdate {
            name: name?,
            description: description?.unwrap_or_default(),
            value: value?,
        }))
    }
}

fn described(text: String) -> Result<String, String> {
    check_description(&text).map(|()| text)
}
