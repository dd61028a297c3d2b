//! Settings, secrets, profiles and catalogues on the wire.

pub(crate) mod agent_profiles;
pub(crate) mod catalogue;
pub(crate) mod git_providers;
pub(crate) mod mcp;
pub(crate) mod profiles;
pub(crate) mod provider_connections;
pub(crate) mod secret;
pub(crate) mod settings;
pub(crate) mod skills;
pub(crate) mod web_client;
