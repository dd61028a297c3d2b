//! Adapters and settings that the composition root passes in.

use std::sync::Arc;
use std::time::Duration;

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
use domain::id::{HostId, IdGenerator, UserId};
use domain::sandbox::{
    HostSandboxRepository, SandboxBackend, SandboxCaps, SandboxKeyRepository, SandboxLifecycle,
    SandboxReader, SandboxRepository, SandboxSpecCatalog, SingleUserRule, WarmRepository,
};
use domain::skill::SkillLibrary;
use domain::start_task::{StartTaskQueue, StartTaskRepository};
use domain::user::identity::{AdministrationRepository, ApiKeyRepository, UserRepository};
use domain::user::secret::SecretRepository;
use domain::user::settings::SettingsRepository;
use domain::user::usage::{QuotaLimits, UsageRepository};
use url::Url;

use crate::runtime::live_setting::LiveSetting;
use crate::trace::TracePropagation;

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
    /// Changes of users and keys, each in one transaction with its audit entry.
    pub administration: Arc<dyn AdministrationRepository>,
    pub audit: Arc<dyn AuditLog>,
    /// Counters of what users store.
    pub usage: Arc<dyn UsageRepository>,
    /// Stored responses to requests with an idempotency key.
    pub answers: Arc<dyn IdempotencyRepository>,
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
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdGenerator>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthMode {
    /// Every request needs an API key.
    ApiKey,
    /// Every request acts as this local user. An explicit opt-out.
    Open(UserId),
}

/// Settings of the use-cases.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The host whose sandboxes this process serves.
    pub host: HostId,
    /// Whether other processes serve the same host. Then each action on a sandbox needs a lease.
    pub is_host_shared: bool,
    pub auth: AuthMode,
    /// Base URL of the webhooks, as sandboxes reach this service (`…/api/v1/webhooks`).
    pub webhook_url: Url,
    /// Set if a second user is refused because the backend does not isolate sandboxes.
    pub single_user: Option<SingleUserRule>,
    /// Allowed CORS origins. Agent servers get them too.
    pub cors_origins: Vec<String>,
    /// Whether new git tokens are verified with their provider before they are stored.
    pub verify_git_tokens: bool,
    /// Whether agents of users with a git token get this service's MCP server.
    pub mcp_in_conversations: bool,
    pub caps: LiveSetting<SandboxCaps>,
    /// Quotas of each user, and the report rate of each sandbox. Unlimited by default.
    pub quota: LiveSetting<QuotaLimits>,
    /// Longest time from the start of a sandbox's process until its agent server answers.
    pub sandbox_start_timeout: Duration,
    /// Agent servers that boot at the same time. Waiting for a slot does not count towards the start timeout.
    pub parallel_boots: usize,
    pub warm: WarmPolicy,
    /// Longest time to prepare the backend for its first start (downloads).
    pub prepare_timeout: Duration,
    pub clone_timeout: Duration,
    /// Longest run time of a repository's setup script.
    pub setup_timeout: Duration,
    /// How long a lease on a start task or a sandbox lasts without a renewal.
    pub lease: Duration,
    /// How often the worker polls for unclaimed tasks, in case another replica has died.
    pub claim_interval: Duration,
    pub max_parallel_starts: usize,
    /// How long a paused sandbox may still report trailing events.
    pub report_grace: Duration,
    /// How often running conversations are compared with their agent servers.
    pub sync_interval: Duration,
    /// How often the reconciler compares rows with the backend.
    pub relist_interval: Duration,
    /// How often the reconciler looks for idle and expired sandboxes.
    pub retire_interval: Duration,
    /// How often housekeeping deletes expired data.
    pub housekeeping_interval: Duration,
    pub retention: LiveSetting<Retention>,
    /// Propagation of traces; `None` where traces are not exported.
    pub traces: Option<TracePropagation>,
}

/// How long finished data is kept; `None` keeps it forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Start tasks, after their end.
    pub start_tasks: Option<Duration>,
    /// Tombstones of deleted conversations, after the removal of their sandbox. Until then their ids cannot be used
    /// again.
    pub deleted_conversations: Option<Duration>,
    /// Undelivered pending messages.
    pub pending_messages: Option<Duration>,
    pub audit: Option<Duration>,
}

impl Default for Retention {
    /// 30 days; 7 days for pending messages, 365 days for the audit log.
    fn default() -> Self {
        let days = |days: u64| Some(Duration::from_secs(days * 24 * 60 * 60));
        let month = days(30);
        Self {
            start_tasks: month,
            deleted_conversations: month,
            pending_messages: days(7),
            audit: days(365),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmPolicy {
    /// Warm sandboxes of the default spec; up to twice as many while demand during one boot is higher. 0: none.
    pub keep: u32,
    /// Older warm sandboxes are replaced.
    pub max_age: Duration,
    /// Interval of passes without an event.
    pub interval: Duration,
    /// After this time an unused claim is abandoned.
    pub claim_grace: Duration,
}

impl Default for WarmPolicy {
    /// Keeps none; maximum age six hours, a pass every ten seconds, a grace of one minute.
    fn default() -> Self {
        Self {
            keep: 0,
            max_age: Duration::from_secs(6 * 60 * 60),
            interval: Duration::from_secs(10),
            claim_grace: Duration::from_secs(60),
        }
    }
}

impl Policy {
    /// Settings for a host that several processes serve: another process continues the work of one that died within
    /// ten seconds.
    pub fn share_host(&mut self) {
        self.is_host_shared = true;
        self.lease = Duration::from_secs(6);
        self.claim_interval = Duration::from_secs(1);
        self.relist_interval = Duration::from_secs(3);
    }

    /// The defaults, for this host, webhook address and mode.
    pub fn new(host: HostId, webhook_url: Url, auth: AuthMode) -> Self {
        Self {
            host,
            is_host_shared: false,
            auth,
            webhook_url,
            single_user: None,
            cors_origins: Vec::new(),
            verify_git_tokens: false,
            mcp_in_conversations: true,
            caps: LiveSetting::new(SandboxCaps {
                per_user: 10,
                overall: 50,
            }),
            quota: LiveSetting::default(),
            sandbox_start_timeout: Duration::from_secs(120),
            parallel_boots: 8,
            warm: WarmPolicy::default(),
            prepare_timeout: Duration::from_secs(20 * 60),
            clone_timeout: Duration::from_secs(120),
            setup_timeout: Duration::from_secs(600),
            lease: Duration::from_secs(10),
            claim_interval: Duration::from_secs(2),
            max_parallel_starts: 8,
            report_grace: Duration::from_secs(60),
            sync_interval: Duration::from_secs(10),
            relist_interval: Duration::from_secs(30),
            retire_interval: Duration::from_secs(30),
            housekeeping_interval: Duration::from_secs(10 * 60),
            retention: LiveSetting::new(Retention::default()),
            traces: None,
        }
    }
}
