//! Settings, secrets, profiles and catalogues on the wire.

pub mod catalogue;
pub mod git_providers;
pub mod mcp;
pub mod profiles;
pub mod secret;
pub mod settings;
pub mod skills;
pub mod web_client;
