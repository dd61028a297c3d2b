//! Settings, secrets, profiles, and what they are chosen from.

pub(super) mod agent_profiles;
pub(super) mod catalogue;
pub(super) mod git_providers;
pub(super) mod profiles;
pub(super) mod provider_connections;
pub(super) mod secrets;
pub(super) mod settings;
pub(super) mod skills;
pub(super) mod web_client;
