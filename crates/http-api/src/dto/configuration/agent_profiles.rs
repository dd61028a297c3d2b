//! Agent profiles on the wire. They hold no secrets.

use application::settings::{
    AgentProfile, AgentProfileRefusal, AgentProfiles, MAX_AGENT_PROFILES, UpdateError,
};
use domain::id::AgentProfileId;
use serde_json::{Map, Value};

use super::profiles::ProfileName;
use crate::decode::{DecodeScalar, ErrorFormat, FieldError, model};
use crate::dto::configuration::git_providers::errors_of;
use crate::extract::NamedParam;
use crate::problem::Problem;

impl NamedParam for AgentProfileId {
    const NAME: &'static str = "profile_id";
}

/// An agent profile in a list.
#[model(response = AgentProfileInfo, from(profile: &AgentProfile))]
pub(crate) struct AgentProfileInfoDto {
    /// It does not change when the profile is renamed.
    #[from(profile.id.dashed())]
    id: String,
    #[from(profile.name.clone())]
    name: String,
    /// `openhands` or `acp`.
    #[from(profile.kind().to_string())]
    agent_kind: String,
    /// Counts the saves.
    #[from(profile.revision)]
    revision: i64,
    /// The model profile of the agent.
    #[from(profile.model_profile().map(str::to_owned))]
    llm_profile_ref: Option<String>,
    /// The MCP servers that the agent may use; null for all.
    #[from(profile.mcp_servers())]
    mcp_server_refs: Option<Vec<String>>,
}

/// All agent profiles of the user.
#[model(response = AgentProfileListResponse, from(saved: &AgentProfiles))]
pub(crate) struct AgentProfileListDto {
    /// In the order of creation.
    #[from(saved.iter().map(AgentProfileInfoDto::from).collect())]
    profiles: Vec<AgentProfileInfoDto>,
    /// The profile of starts that name none.
    #[from(saved.active().map(|profile| profile.id.dashed()))]
    active_agent_profile_id: Option<String>,
}

/// One agent profile.
#[model(response = AgentProfileDetailResponse, from(saved: &AgentProfile))]
pub(crate) struct AgentProfileDetailDto {
    #[from(saved.name.clone())]
    name: String,
    /// What was saved, with id, name and revision.
    #[schema(value_type = Object)]
    #[from(saved.view())]
    profile: Map<String, Value>,
}

/// The result of activating an agent profile.
#[model(response = ActivateAgentProfileResponse)]
pub(crate) struct AgentProfileActivatedDto {
    pub id: String,
    pub message: String,
    /// Always false: a start applies the profile, and the settings stay as they are.
    pub agent_settings_applied: bool,
}

/// The fields of an agent profile; the settings validate them.
#[derive(Debug)]
pub(crate) struct AgentProfileFields(pub Map<String, Value>);

/// By hand: an object whose members depend on the kind of agent.
impl DecodeScalar for AgentProfileFields {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let fields = value.as_object().cloned();
        fields
            .map(Self)
            .ok_or_else(FieldError::model_attributes_type)
    }
}

/// A new name.
#[model(body = RenameAgentProfileRequest)]
pub(crate) struct RenameAgentProfileDto {
    /// The new name.
    #[schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")]
    pub new_name: ProfileName,
}

/// The error response when an agent profile was not changed.
pub(crate) fn agent_profile_problem(error: UpdateError<AgentProfileRefusal>) -> Problem {
    let refusal = match error {
        UpdateError::Refused(refusal) => refusal,
        UpdateError::Failed(error) => return error.into(),
    };
    match refusal {
        AgentProfileRefusal::NotFound => Problem::missing("Agent profile not found"),
        AgentProfileRefusal::NameTaken => {
            Problem::conflict("An agent profile of this name already exists")
        }
        AgentProfileRefusal::Full => Problem::conflict(format!(
            "Agent profile limit reached ({MAX_AGENT_PROFILES}). Delete one before saving a new one."
        )),
        AgentProfileRefusal::Invalid(issues) => {
            Problem::invalid(&errors_of(&issues), ErrorFormat::V1)
        }
    }
}
