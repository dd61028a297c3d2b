//! Settings: one sealed document for each user in an organization and for each shared organization, and the rules of their
//! changes.
//!
//! Knows: the meaning of fields, how requests of both APIs are merged, what a start needs. Must never know: HTTP
//! bodies, where documents are stored, how they are sealed.
//!
//! # One document for two APIs
//!
//! The V1 documents (`agent_settings`, `conversation_settings`) are stored sparsely, over embedded defaults. The
//! legacy fields `llm_model`, `llm_base_url`, `llm_api_key`, `agent`, `max_iterations`, `confirmation_mode`,
//! `security_analyzer` and `enable_default_condenser` are views of them: null in a legacy response while never set.
//!
//! # Saving
//!
//! A change reads a revision, applies itself and saves against that revision, and retries if another change was
//! faster. Changes of one user queue up inside this process, so that a burst of requests does not exhaust its retries,
//! and leave gaps for other replicas (`update_queues.rs`).

mod agent_document;
mod agent_profile;
mod agent_profiles;
mod document;
mod fields;
mod git_providers;
mod issues;
mod launch;
mod legacy;
mod llm;
pub(crate) mod marketplaces;
mod mcp;
mod model;
mod organization;
mod plain_fields;
mod profiles;
mod secret;
mod service;
mod update_queues;
mod v1;
mod view_cache;

pub use agent_document::{AgentDocument, LLM_API_KEY};
pub use agent_profile::{AgentProfile, AgentProfiles};
pub use agent_profiles::{AgentProfileRefusal, MAX_AGENT_PROFILES};
pub use git_providers::{GitProvidersInput, TokenInput, TokenRefusal};
pub use issues::{Issue, IssueKind};
pub use launch::{LaunchProfile, MissingSettings, token_name};
pub use legacy::LegacySettings;
pub use llm::llm_endpoint;
pub use mcp::{McpConfig, McpRemote, McpStdio, has_credentials};
pub use model::{OnByDefault, ProviderToken, Settings};
pub use profiles::{
    MAX_PROFILES_PER_USER, MAX_PROVIDER_CONNECTIONS, Profile, ProfileRefusal, Profiles,
    ProviderConnection, ProviderConnectionChange, SaveProfile,
};
pub use secret::{MASK, SecretInput, SecretVisibility};
pub use service::{SettingsService, UpdateError};
pub use v1::{McpConfigUpdate, V1Refusal, agent_schema, conversation_schema};
pub use view_cache::ViewCache;

#[cfg(test)]
mod tests;
