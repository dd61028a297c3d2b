//! Use-cases over the domain's ports: the order in which things happen, retries, deadlines and background work.
//!
//! Knows: the ports, and what must follow what. Must never know: SQL, HTTP, Docker, a process, the environment.
//!
//! * [`App`] is what an entry point (HTTP crate, test) calls: one small struct per group of use-cases.
//! * [`background`] is what runs beside requests: the start worker, the sandbox keeper, the conversation syncer and
//!   housekeeping.
//! * Everything that must survive a crash is a row before it is an action; background loops converge rows and facts.

pub mod administration;
pub mod audit;
pub mod authenticate;
pub mod background;
pub mod catalogue;
pub mod conversations;
pub mod error;
pub mod events;
pub mod export;
pub mod follow;
mod followers;
pub mod gateway;
pub mod git;
mod housekeeping;
pub mod inside;
mod live;
mod look_ups;
mod measures;
pub mod pending;
pub mod ports;
pub mod pull_requests;
pub mod quotas;
pub mod repeat;
pub mod rotation;
mod sandbox_paths;
pub mod sandboxes;
pub mod secrets;
pub mod settings;
pub mod single_user;
pub mod skills;
pub mod start;
pub mod sync;
pub mod tasks;
pub mod trace;
pub mod turns;
pub mod users;
mod warm;
pub mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use domain::identity::ApiKeyWithRole;
use domain::sandbox::{SandboxCaps, Sandbox};
use domain::usage::QuotaLimits;
pub use error::AppError;
pub use live::LiveSetting;
pub use measures::ApplicationMetrics;
pub use ports::{AuthMode, Policy, Ports, Retention};
pub use tasks::BackgroundTasks;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
pub use warm::{WarmCounts, WarmPolicy};

use crate::administration::Administration;
use crate::audit::{Audit, AuditBuffer};
use crate::authenticate::KeyAuthenticator;
use crate::conversations::Conversations;
use crate::events::Events;
use crate::export::Exports;
use crate::follow::EventStreams;
use crate::followers::StreamRegistry;
use crate::gateway::Gateway;
use crate::git::GitService;
use crate::inside::SandboxInspector;
use crate::look_ups::KeyCache;
use crate::measures::MetricsRecorder;
use crate::pending::PendingMessages;
use crate::quotas::Quotas;
use crate::sandboxes::{SandboxReconciler, LogReaderLimiter, Sandboxes, SessionKeyCache};
use crate::secrets::SecretsService;
use crate::settings::SettingsService;
use crate::skills::Skills;
use crate::start::{StartService, StartUpdates};
use crate::sync::ConversationSyncer;
use crate::users::Users;
use crate::warm::WarmSandboxPool;
use crate::webhooks::Webhooks;

/// The application: built once by the composition root, shared by every request.
#[derive(Clone)]
pub struct App {
    /// Who is calling.
    pub authenticate: KeyAuthenticator,
    /// Conversations: read, change, delete, say something.
    pub conversations: Conversations,
    /// Messages that are said before a conversation can hear them.
    pub pending: PendingMessages,
    /// Starting conversations, and the tasks that do it.
    pub starts: StartService,
    /// Sandboxes and specs.
    pub sandboxes: Sandboxes,
    /// Events of conversations.
    pub events: Events,
    /// Whole conversations.
    pub exports: Exports,
    /// Events of conversations as they arrive.
    pub follow: EventStreams,
    /// Reports of agent servers.
    pub webhooks: Webhooks,
    /// Settings of users.
    pub settings: SettingsService,
    /// Secrets of users.
    pub secrets: SecretsService,
    /// Git providers of users.
    pub git: GitService,
    /// Skills to choose from.
    pub skills: Skills,
    /// The inside of sandboxes, and the models of agents.
    pub inside: SandboxInspector,
    /// Ways to agent servers.
    pub gateway: Gateway,
    /// Users, for whoever administers the service.
    pub users: Users,
    /// Changes of users and keys.
    pub administration: Administration,
    /// Who did what.
    pub audit: Audit,
    /// What users store, and may store.
    pub quotas: Quotas,
    pub(crate) inner: Arc<Inner>,
}

/// What the parts share.
pub(crate) struct Inner {
    pub(crate) ports: Ports,
    pub(crate) policy: Policy,
    pub(crate) tasks: BackgroundTasks,
    pub(crate) keeper: SandboxReconciler,
    pub(crate) warm: WarmSandboxPool,
    pub(crate) syncer: ConversationSyncer,
    pub(crate) updates: StartUpdates,
    pub(crate) followers: StreamRegistry,
    pub(crate) log_readers: LogReaderLimiter,
    pub(crate) measures: MetricsRecorder,
    pub(crate) quotas: Quotas,
    /// Users' keys that were looked up a moment ago.
    pub(crate) api_keys: KeyCache<ApiKeyWithRole>,
    /// Keys of sandboxes that were opened a moment ago.
    pub(crate) session_keys: SessionKeyCache,
    /// Lines of the audit log that are not stored yet.
    pub(crate) trail: AuditBuffer,
    /// Wakes the comparison of rows and backend.
    pub(crate) look_again: tokio::sync::Notify,
    /// What others who serve the host can go on with is handed over.
    pub(crate) leaving: CancellationToken,
    /// The start worker and what it runs.
    pub(crate) starting: TaskTracker,
}

impl Inner {
    /// Whether reports of this sandbox are taken in now.
    pub(crate) fn may_report(&self, sandbox: &Sandbox) -> bool {
        sandbox.accepts_reports(self.ports.clock.now(), self.policy.report_grace)
    }
}

fn settings_service(ports: &Ports, policy: &Policy) -> SettingsService {
    let settings = SettingsService::new(
        Arc::clone(&ports.settings),
        Arc::clone(&ports.cipher),
        Arc::clone(&ports.clock),
    );
    if policy.verify_git_tokens {
        return settings.verifying(Arc::clone(&ports.git));
    }
    settings
}

impl App {
    /// Wires the use-cases. Nothing runs in the background before [`background::spawn`].
    pub fn new(ports: Ports, policy: Policy, tasks: BackgroundTasks) -> Self {
        let settings = settings_service(&ports, &policy);
        let quotas = Quotas::new(
            Arc::clone(&ports.usage),
            policy.quota.clone(),
            tasks.clone(),
        );
        let secrets = SecretsService::new(
            (ports.clone(), quotas.clone()),
            settings.clone(),
            &policy.webhook_url,
        );
        let followers = StreamRegistry::default();
        let syncer = ConversationSyncer::new(
            ports.clone(),
            policy.clone(),
            (followers.clone(), quotas.clone()),
        );
        let keeper = SandboxReconciler::new(ports.clone(), policy.clone(), syncer.clone(), tasks.clone());
        let warm = WarmSandboxPool::new(ports.clone(), policy.clone(), keeper.clone(), tasks.clone());
        let inner = Arc::new(Inner {
            warm,
            ports,
            policy,
            tasks,
            keeper,
            syncer,
            updates: StartUpdates::default(),
            followers,
            log_readers: LogReaderLimiter::default(),
            measures: MetricsRecorder::default(),
            quotas: quotas.clone(),
            api_keys: KeyCache::default(),
            session_keys: SessionKeyCache::default(),
            trail: AuditBuffer::default(),
            look_again: tokio::sync::Notify::new(),
            leaving: CancellationToken::new(),
            starting: TaskTracker::new(),
        });
        Self {
            authenticate: KeyAuthenticator::new(Arc::clone(&inner)),
            conversations: Conversations::new(Arc::clone(&inner)),
            pending: PendingMessages::new(Arc::clone(&inner)),
            starts: StartService::new(Arc::clone(&inner), settings.clone(), secrets.clone()),
            sandboxes: Sandboxes::new(Arc::clone(&inner), settings.clone()),
            events: Events::new(Arc::clone(&inner)),
            exports: Exports::new(Arc::clone(&inner)),
            follow: EventStreams::new(Arc::clone(&inner)),
            webhooks: Webhooks::new(Arc::clone(&inner)),
            git: GitService::new(Arc::clone(&inner), settings.clone()),
            skills: Skills::new(Arc::clone(&inner)),
            inside: SandboxInspector::new(Arc::clone(&inner), settings.clone()),
            settings,
            secrets,
            gateway: Gateway::new(Arc::clone(&inner)),
            users: Users::new(Arc::clone(&inner)),
            administration: Administration::new(Arc::clone(&inner)),
            audit: Audit::new(Arc::clone(&inner)),
            quotas,
            inner,
        }
    }

    /// What the pool of warm sandboxes has and has done, for metrics. Cheap: as of its last look.
    pub fn warm_counts(&self) -> WarmCounts {
        self.inner.warm.counts()
    }

    /// Other caps from now on. What is above them goes on; what is new has to find room.
    pub fn set_caps(&self, caps: SandboxCaps) {
        self.inner.policy.caps.set(caps);
    }

    /// Other quotas from now on. What is stored above them stays.
    pub fn set_quota(&self, quota: QuotaLimits) {
        self.inner.policy.quota.set(quota);
    }

    /// Keeps what nobody works with for other times from the next pass on.
    pub fn set_retention(&self, retention: Retention) {
        self.inner.policy.retention.set(retention);
    }

    /// Hands the starts that are under way to whoever else serves this host: they go on there at once, and not only when the
    /// leases have run out. Where nobody else does, they go on here until background work is stopped. For a process that
    /// stops; nothing is started any more. `false` if some were not handed over within `deadline`: their leases run out.
    pub async fn hand_over(&self, deadline: Duration) -> bool {
        if !self.inner.policy.is_host_shared {
            return true;
        }
        self.inner.leaving.cancel();
        self.inner.starting.close();
        let all = self.inner.starting.wait();
        tokio::time::timeout(deadline, all).await.is_ok()
    }

    /// Whether sandboxes can be started right now; for `/ready` (the store is checked by whoever owns it).
    pub async fn check_backend(&self) -> Result<(), AppError> {
        Ok(self.inner.ports.backend.check().await?)
    }
}
