//! What the composition root hands in: adapters, and the numbers that govern them.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::AgentRuntime;
use domain::audit::AuditLog;
use domain::change::ChangeFeed;
use domain::cipher::Cipher;
use domain::clock::Clock;
use domain::conversation::ConversationRepository;
use domain::event::EventStore;
use domain::git::GitHosting;
use domain::host::HostRepository;
use domain::id::{HostId, IdGenerator, UserId};
use domain::idempotency::IdempotencyRepository;
use domain::identity::{AdministrationRepository, ApiKeyRepository, UserRepository};
use domain::lease::LeaseRepository;
use domain::pending::PendingMessageRepository;
use domain::sandbox::{
    SandboxCaps, SandboxBackend, SandboxRepository, SandboxSpecCatalog, WarmRepository,
};
use domain::secret::SecretRepository;
use domain::settings::SettingsRepository;
use domain::skill::SkillLibrary;
use domain::start_task::StartTaskRepository;
use domain::usage::{QuotaLimits, UsageRepository};
use domain::vault::{Fingerprints, VaultRepository};
use domain::workspace::SandboxWorkspace;
use url::Url;

use crate::live::LiveSetting;
use crate::trace::TracePropagation;
use crate::warm::WarmPolicy;

/// One adapter per port.
#[derive(Clone)]
pub struct Ports {
    /// Conversations.
    pub conversations: Arc<dyn ConversationRepository>,
    /// Events, on a connection of their own so that intake starves nobody and nobody starves it.
    pub events: Arc<dyn EventStore>,
    /// Start tasks.
    pub start_tasks: Arc<dyn StartTaskRepository>,
    /// Sandbox rows.
    pub sandboxes: Arc<dyn SandboxRepository>,
    /// Sandboxes that nobody has asked for yet.
    pub warm: Arc<dyn WarmRepository>,
    /// What runs sandboxes.
    pub backend: Arc<dyn SandboxBackend>,
    /// Templates.
    pub specs: Arc<dyn SandboxSpecCatalog>,
    /// Agent servers.
    pub agents: Arc<dyn AgentRuntime>,
    /// Settings.
    pub settings: Arc<dyn SettingsRepository>,
    /// Custom secrets.
    pub secrets: Arc<dyn SecretRepository>,
    /// The inside of sandboxes.
    pub workspace: Arc<dyn SandboxWorkspace>,
    /// Messages that wait for their conversation.
    pub pending: Arc<dyn PendingMessageRepository>,
    /// Skills of the installation.
    pub skills: Arc<dyn SkillLibrary>,
    /// Git providers.
    pub git: Arc<dyn GitHosting>,
    /// API keys.
    pub api_keys: Arc<dyn ApiKeyRepository>,
    /// Users, and their end.
    pub users: Arc<dyn UserRepository>,
    /// Changes of users and keys.
    pub administration: Arc<dyn AdministrationRepository>,
    /// Who did what.
    pub audit: Arc<dyn AuditLog>,
    /// What users store.
    pub usage: Arc<dyn UsageRepository>,
    /// Answers to requests with a key.
    pub answers: Arc<dyn IdempotencyRepository>,
    /// Hosts that the store knows.
    pub hosts: Arc<dyn HostRepository>,
    /// Turns between processes that serve the same host.
    pub leases: Arc<dyn LeaseRepository>,
    /// What other processes commit.
    pub changes: Arc<dyn ChangeFeed>,
    /// Which process has which master keys.
    pub vault: Arc<dyn VaultRepository>,
    /// Sealing.
    pub cipher: Arc<dyn Cipher>,
    /// Keyed hashes.
    pub fingerprints: Arc<dyn Fingerprints>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids and secrets.
    pub ids: Arc<dyn IdGenerator>,
}

/// Who may call without a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthMode {
    /// Nobody: every request names a key.
    ApiKey,
    /// Everybody is this one local user. An explicit opt-out.
    Open(UserId),
}

/// Numbers and names that govern the use-cases.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct Policy {
    /// Whose sandboxes this process serves.
    pub host: HostId,
    /// Whether other processes serve the same host, so that each acts on a sandbox under a lease.
    pub is_host_shared: bool,
    /// Who may call without a key.
    pub auth: AuthMode,
    /// Base of the webhooks as sandboxes reach us (`…/api/v1/webhooks`).
    pub webhook_url: Url,
    /// Whether a second user is refused, because nothing isolates sandboxes from each other.
    pub single_user: bool,
    /// Origins that browsers may come from, handed on to agent servers.
    pub cors_origins: Vec<String>,
    /// Whether a git provider is asked about its token before the token is stored.
    pub verify_git_tokens: bool,
    /// Whether agents are told of our own MCP server, where their user has a git provider's token.
    pub mcp_in_conversations: bool,
    /// Caps on running sandboxes.
    pub caps: LiveSetting<SandboxCaps>,
    /// What each user may store, and how fast sandboxes may report. Without limits unless they are set.
    pub quota: LiveSetting<QuotaLimits>,
    /// From the start of a sandbox's process until its agent server must answer.
    pub sandbox_start_deadline: Duration,
    /// Agent servers that boot at the same time, whatever started them. Waiting for a turn is not part of the deadline.
    pub parallel_boots: usize,
    /// Sandboxes that are booted before anybody asks for them.
    pub warm: WarmPolicy,
    /// Getting the backend ready for its first start (downloads), at most.
    pub prepare_deadline: Duration,
    /// A repository must be cloned within this time.
    pub clone_deadline: Duration,
    /// A repository's setup script is ended after this time.
    pub setup_deadline: Duration,
    /// How long a claimed start task is ours without a renewal.
    pub lease: Duration,
    /// How often unclaimed tasks are looked for when nothing announces one (another replica may have died).
    pub claim_interval: Duration,
    /// Starts under way at once.
    pub max_parallel_starts: usize,
    /// How long a paused sandbox's key still delivers trailing events.
    pub report_grace: Duration,
    /// How often running conversations are compared with their agent server.
    pub sync_interval: Duration,
    /// How often rows are compared with what the backend has.
    pub relist_interval: Duration,
    /// How often it is looked for sandboxes that nobody needs any more.
    pub retire_interval: Duration,
    /// How often what is old enough is deleted.
    pub housekeeping_interval: Duration,
    /// What is old enough.
    pub retention: LiveSetting<Retention>,
    /// How traces are handed on; `None` where none are exported.
    pub traces: Option<TracePropagation>,
}

/// How long things are kept that nobody works with any more; `None` for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Start tasks after they ended.
    pub start_tasks: Option<Duration>,
    /// The memory of deleted conversations, after their sandbox is gone: until then their ids cannot be used again.
    pub deleted_conversations: Option<Duration>,
    /// Messages that nobody could be told.
    pub pending_messages: Option<Duration>,
    /// Lines of the audit log.
    pub audit: Option<Duration>,
}

impl Default for Retention {
    /// 30 days, for messages 7, for the audit log 365.
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

impl Policy {
    /// Other processes serve the same host: what one that died has left is gone on with elsewhere within ten seconds.
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
            single_user: false,
            cors_origins: Vec::new(),
            verify_git_tokens: false,
            mcp_in_conversations: true,
            caps: LiveSetting::new(SandboxCaps {
                per_user: 10,
                overall: 50,
            }),
            quota: LiveSetting::default(),
            sandbox_start_deadline: Duration::from_secs(120),
            parallel_boots: 8,
            warm: WarmPolicy::default(),
            prepare_deadline: Duration::from_secs(20 * 60),
            clone_deadline: Duration::from_secs(120),
            setup_deadline: Duration::from_secs(600),
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
