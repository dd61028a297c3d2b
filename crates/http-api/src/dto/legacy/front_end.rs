//! The minimal responses that the web front end of the 1.20 line expects of a hosted service, about keys and agents. Without
//! them it cannot connect or start a conversation.

use domain::id::UserId;
use serde::Serialize;
use utoipa::ToSchema;

/// The key of a request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CurrentApiKey)]
pub struct CurrentKeyDto {
    /// The owner of the key.
    user_id: String,
    /// Always null: keys do not belong to organizations.
    org_id: Option<String>,
}

impl CurrentKeyDto {
    /// A key of this user.
    pub fn of(user: &UserId) -> Self {
        Self {
            user_id: user.to_string(),
            org_id: None,
        }
    }
}

/// Agent profiles; there are none. Models have profiles.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AgentProfiles)]
pub struct AgentProfilesDto {
    /// Always empty.
    #[schema(value_type = Vec<serde_json::Value>)]
    profiles: [(); 0],
    active_agent_profile_id: Option<String>,
}

impl AgentProfilesDto {
    /// The only value.
    pub const NONE: Self = Self {
        profiles: [],
        active_agent_profile_id: None,
    };
}
