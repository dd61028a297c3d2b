//! Model profiles on the wire. Requests contain their keys, responses never do; see [`SecretVisibility`].

use std::sync::LazyLock;

use actix_web::http::StatusCode;
use application::settings::{
    Profile, ProfileRefusal, Profiles, SaveProfile, SecretVisibility, UpdateError,
};
use domain::clock::Timestamp;
use domain::id::ProviderConnectionId;
use regex::Regex;
use serde_json::{Map, Value};

use crate::decode::{DecodeScalar, ErrorFormat, FieldError, Sensitive, characters, model, pattern};
use crate::dto::configuration::git_providers::errors_of;
use crate::extract::NamedParam;
use crate::problem::Problem;

static PROFILE_NAME_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^[A-Za-z0-9._-]{1,64}$").expect("the pattern is valid (tested)"));

/// The name of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProfileName(pub String);

impl DecodeScalar for ProfileName {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        // By hand: only the first error counts, and the pattern's error also covers a name with NUL.
        let name = value.as_str().ok_or_else(FieldError::string_type)?;
        let name = name.to_owned();
        let fault = characters(1..=64)(&name);
        match fault.or_else(|| pattern(&PROFILE_NAME_PATTERN)(&name)) {
            Some(fault) => Err(fault),
            None => Ok(Self(name)),
        }
    }
}

impl NamedParam for ProfileName {
    const NAME: &'static str = "name";
}

/// `llm_profiles` of the settings: every profile's configuration by name.
#[model(response = LLMProfiles, from(saved: &Profiles, reveal: SecretVisibility, now: Timestamp))]
pub(crate) struct SavedProfilesDto {
    #[schema(value_type = Object)]
    #[from(saved.iter().map(|p| (p.name().to_owned(), p.view(reveal, now))).collect())]
    profiles: Map<String, Value>,
    #[from(saved.active().map(str::to_owned))]
    active: Option<String>,
}

impl SavedProfilesDto {
    /// Replaces the endpoint and the key of a profile.
    pub(crate) fn replace(&mut self, name: &str, base_url: Value, api_key: Value) {
        if let Some(profile) = self.profiles.get_mut(name) {
            profile["base_url"] = base_url;
            profile["api_key"] = api_key;
        }
    }
}

/// A profile in a list.
#[model(response = ProfileInfo, from(profile: &Profile, saved: &Profiles))]
pub(crate) struct ProfileInfoDto {
    #[from(profile.name().to_owned())]
    name: String,
    #[from(Some(profile.model()))]
    model: Option<String>,
    /// The endpoint; null for the vendor's own.
    #[from(profile.base_url().map(str::to_owned))]
    base_url: Option<String>,
    #[from(saved.has_key(profile))]
    api_key_set: bool,
    /// The connection that gives its endpoint and key. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[from(profile.connection())]
    provider_connection_id: Option<ProviderConnectionId>,
    /// Whether that connection is gone. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[from(profile.connection().map(|_| saved.is_broken(profile)))]
    provider_connection_broken: Option<bool>,
}

/// All profiles of the user.
#[model(response = ProfileListResponse, from(saved: &Profiles))]
pub(crate) struct ProfileListDto {
    #[from(saved.iter().map(|profile| ProfileInfoDto::of(profile, saved)).collect())]
    profiles: Vec<ProfileInfoDto>,
    #[from(saved.active().map(str::to_owned))]
    active_profile: Option<String>,
}

/// One profile with its configuration.
#[model(response = ProfileDetailResponse, from(profile: &Profile, saved: &Profiles, now: Timestamp))]
pub(crate) struct ProfileDetailDto {
    #[from(profile.name().to_owned())]
    name: String,
    /// The configuration, as in `agent_settings.llm`; secrets are null.
    #[schema(value_type = Object)]
    #[from(profile.view(SecretVisibility::Hidden, now))]
    config: Value,
    #[from(saved.has_key(profile))]
    api_key_set: bool,
}

/// The result of changing a profile.
#[model(response = ProfileMutationResponse)]
pub(crate) struct ProfileChangedDto {
    /// The current name.
    pub name: String,
    pub message: String,
}

/// The active profile.
#[model(response = ActivateProfileResponse)]
pub(crate) struct ProfileActivatedDto {
    pub name: String,
    pub message: String,
    pub model: Option<String>,
}

/// The fields of a model; the settings validate them.
#[derive(Debug)]
pub(crate) struct LlmFields(Sensitive<Map<String, Value>>);

/// By hand: an object with any members, whose error is that of a model.
impl DecodeScalar for LlmFields {
    const SENSITIVE: bool = true;

    fn parse(value: &Value) -> Result<Self, FieldError> {
        let fields = value.as_object().cloned();
        let fields = fields.ok_or_else(FieldError::model_attributes_type)?;
        Ok(Self(Sensitive(fields)))
    }
}

/// A configuration to save as a profile.
#[model(body = SaveProfileRequest, into = SaveProfile)]
pub(crate) struct SaveProfileDto {
    /// Whether to store keys with the profile.
    #[decode(default = true)]
    include_secrets: bool,
    /// Fields of `agent_settings.llm`, and `provider_connection_id`; `model` is required, others are refused. Secrets that are absent, null or the mask keep
    /// their value in the profile of this name; blank clears. If absent, the active configuration is saved.
    #[schema(value_type = Option<Object>)]
    #[into(llm.map(|llm| llm.0.0))]
    llm: Option<LlmFields>,
    /// Whether to keep the key of the profile with this name, or its absence.
    #[decode(default = false)]
    preserve_existing_api_key: bool,
}

/// A new name.
#[model(body = RenameProfileRequest)]
pub(crate) struct RenameProfileDto {
    /// The new name.
    #[schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")]
    pub new_name: ProfileName,
}

/// The error response when a profile was not changed.
pub(crate) fn profile_problem(error: UpdateError<ProfileRefusal>) -> Problem {
    let refusal = match error {
        UpdateError::Refused(refusal) => refusal,
        UpdateError::Failed(error) => return error.into(),
    };
    match refusal {
        ProfileRefusal::NoSettings => Problem::missing("Settings not found"),
        ProfileRefusal::NotFound(name) => Problem::missing(format!("Profile '{name}' not found")),
        ProfileRefusal::NameTaken(name) => {
            Problem::conflict(format!("Profile '{name}' already exists"))
        }
        ProfileRefusal::Full => Problem::new(
            StatusCode::CONFLICT,
            format!(
                "Profile limit reached ({}). Delete a profile before saving a new one.",
                application::settings::MAX_PROFILES_PER_USER
            ),
        ),
        ProfileRefusal::Invalid(issues) => Problem::invalid(&errors_of(&issues), ErrorFormat::V1),
    }
}
