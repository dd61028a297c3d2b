//! What the web front end of the 1.20 line asks a hosted service about keys and agents, of which there is little to say here.
//! It cannot connect, or cannot start a conversation, without an answer.

use domain::id::UserId;
use serde::Serialize;
use utoipa::ToSchema;

/// The key of a request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CurrentApiKey)]
pub struct CurrentKeyDto {
    /// Whose key it is.
    user_id: String,
    /// Always null: no key is bound to an organization.
    org_id: Option<String>,
}

impl CurrentKeyDto {
    /// The key of a user.
    pub fn of(user: &UserId) -> Self {
        Self {
            user_id: user.to_string(),
            org_id: None,
        }
    }
}

/// Named configurations of agents: there are none; models have profiles.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AgentProfiles)]
pub struct AgentProfilesDto {
    /// Always empty.
    #[schema(value_type = Vec<serde_json::Value>)]
    profiles: [(); 0],
    active_agent_profile_id: Option<String>,
}

impl AgentProfilesDto {
    /// What there is.
    pub const NONE: Self = Self {
        profiles: [],
        active_agent_profile_id: None,
    };
}
