//! The adapters that the composition root passes in.

use std::sync::Arc;

use domain::agent::model_endpoint::ModelEndpointFinder;
use domain::agent::spending::SpendingRepository;
use domain::agent::workspace::SandboxWorkspace;
use domain::agent::{AgentConversationReader, AgentLifecycle, AgentRuntime};
use domain::audit::AuditLog;
use domain::clock::Clock;
use domain::conversation::pending::PendingMessageRepository;
use domain::conversation::{
    ConversationDeletionRepository, ConversationReportRepository, ConversationRepository,
};
use domain::coordination::change::ChangeFeed;
use domain::coordination::host::HostRepository;
use domain::coordination::idempotency::IdempotencyRepository;
use domain::coordination::lease::LeaseRepository;
use domain::encryption::cipher::Cipher;
use domain::encryption::vault::{Fingerprints, VaultRepository};
use domain::event::EventStore;
use domain::git::{CloneSourceResolver, GitHosting};
use domain::id::IdGenerator;
use domain::sandbox::{
    HostSandboxRepository, SandboxBackend, SandboxKeyRepository, SandboxLifecycle, SandboxReader,
    SandboxRepository, SandboxSpecCatalog, WarmRepository,
};
use domain::skill::SkillLibrary;
use domain::start_task::{StartTaskQueue, StartTaskRepository};
use domain::user::administration::AdministrationRepository;
use domain::user::device_login::DeviceLoginRepository;
use domain::user::egress::EgressRequestRepository;
use domain::user::identity::{ApiKeyRepository, UserRepository};
use domain::user::mail::Mailer;
use domain::user::organization::{OrganizationDeletionRepository, OrganizationRepository};
use domain::user::secret::SecretRepository;
use domain::user::settings::SettingsRepository;
use domain::user::sign_in::{PasswordHasher, PasswordRepository, SessionRepository};
use domain::user::single_sign_on::{IdentityProviders, IdentityRepository};
use domain::user::usage::UsageRepository;

/// One adapter per port.
#[derive(Clone)]
pub struct Ports {
    pub conversations: Arc<dyn ConversationRepository>,
    pub conversation_reports: Arc<dyn ConversationReportRepository>,
    pub conversation_deletions: Arc<dyn ConversationDeletionRepository>,
    /// Events, on connections of their own, so that intake and other work cannot starve each other.
    pub events: Arc<dyn EventStore>,
    pub start_tasks: Arc<dyn StartTaskRepository>,
    pub start_queue: Arc<dyn StartTaskQueue>,
    pub sandboxes: Arc<dyn SandboxRepository>,
    pub sandbox_keys: Arc<dyn SandboxKeyRepository>,
    pub host_sandboxes: Arc<dyn HostSandboxRepository>,
    /// Warm sandboxes: started before a user asks for them.
    pub warm: Arc<dyn WarmRepository>,
    pub backend: Arc<dyn SandboxBackend>,
    pub sandbox_lifecycle: Arc<dyn SandboxLifecycle>,
    pub sandbox_reader: Arc<dyn SandboxReader>,
    pub specs: Arc<dyn SandboxSpecCatalog>,
    pub agents: Arc<dyn AgentRuntime>,
    pub agent_lifecycle: Arc<dyn AgentLifecycle>,
    pub agent_reader: Arc<dyn AgentConversationReader>,
    pub settings: Arc<dyn SettingsRepository>,
    pub secrets: Arc<dyn SecretRepository>,
    /// Files and commands inside sandboxes.
    pub workspace: Arc<dyn SandboxWorkspace>,
    pub pending: Arc<dyn PendingMessageRepository>,
    pub skills: Arc<dyn SkillLibrary>,
    pub git: Arc<dyn GitHosting>,
    pub clone_sources: Arc<dyn CloneSourceResolver>,
    pub api_keys: Arc<dyn ApiKeyRepository>,
    pub users: Arc<dyn UserRepository>,
    pub sessions: Arc<dyn SessionRepository>,
    /// Passwords and one-time links.
    pub passwords: Arc<dyn PasswordRepository>,
    /// Programs that wait until a person signs them in.
    pub device_logins: Arc<dyn DeviceLoginRepository>,
    /// Hosts that the egress policy refused to sandboxes.
    pub egress_requests: Arc<dyn EgressRequestRepository>,
    /// Identities and e-mail addresses of users.
    pub identities: Arc<dyn IdentityRepository>,
    pub identity_providers: Arc<dyn IdentityProviders>,
    pub password_hasher: Arc<dyn PasswordHasher>,
    /// `None` where the service sends no mail.
    pub mailer: Option<Arc<dyn Mailer>>,
    pub organizations: Arc<dyn OrganizationRepository>,
    pub organization_deletions: Arc<dyn OrganizationDeletionRepository>,
    /// Changes of users and keys, each in one transaction with its audit entry.
    pub administration: Arc<dyn AdministrationRepository>,
    pub audit: Arc<dyn AuditLog>,
    /// Counters of what users store.
    pub usage: Arc<dyn UsageRepository>,
    /// What model calls cost.
    pub spending: Arc<dyn SpendingRepository>,
    /// Stored responses to requests with an idempotency key.
    pub idempotent_responses: Arc<dyn IdempotencyRepository>,
    pub hosts: Arc<dyn HostRepository>,
    /// Leases between processes that serve the same host.
    pub leases: Arc<dyn LeaseRepository>,
    /// Changes that other processes commit.
    pub changes: Arc<dyn ChangeFeed>,
    /// Which process holds which master keys.
    pub vault: Arc<dyn VaultRepository>,
    /// Seals and opens secrets.
    pub cipher: Arc<dyn Cipher>,
    pub fingerprints: Arc<dyn Fingerprints>,
    /// `None` if sandboxes call models themselves.
    pub models: Option<Arc<dyn ModelEndpointFinder>>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdGenerator>,
}
