//! Use-cases over the domain's ports: the order of steps, retries, deadlines and background work.
//!
//! Knows: the ports and the order of their calls. Must never know: SQL, HTTP, Docker, processes, the environment.
//!
//! * [`App`] is what an entry point (HTTP crate, test) calls: one small struct per group of use-cases.
//! * [`background`] runs beside requests: the start worker, the sandbox reconciler, the conversation syncer and
//!   housekeeping.
//! * Everything that must survive a crash is a row before it is an action; background loops converge rows and facts.

#![expect(missing_docs, reason = "a name that says everything needs no sentence")]

pub mod catalogue;
pub mod conversations;
pub mod error;
pub mod git;
mod identity;
pub mod ports;
pub mod quotas;
mod runtime;
pub mod sandboxes;
pub mod secrets;
pub mod settings;
pub mod skills;
pub mod start;
mod warm;

pub use conversations::{event_streams, events, export, pending, sync, webhooks};
pub use git::pull_requests;
pub use identity::{administration, audit, authenticate, single_user, users};
pub use runtime::{background, idempotency, keyed_semaphore, rotation, tasks, trace};
pub use sandboxes::{gateway, inspection};

use std::sync::Arc;
use std::time::Duration;

use domain::sandbox::{Sandbox, SandboxCaps};
use domain::user::identity::ApiKeyWithRole;
use domain::user::usage::QuotaLimits;
pub use error::AppError;
pub use ports::{AuthMode, Policy, Ports, Retention, WarmPolicy};
pub use runtime::live_setting::LiveSetting;
pub use runtime::metrics::ApplicationMetrics;
pub use tasks::BackgroundTasks;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
pub use warm::WarmCounts;

use crate::administration::AdministrationService;
use crate::audit::{AuditBuffer, AuditService};
use crate::authenticate::KeyAuthenticator;
use crate::conversations::ConversationService;
use crate::conversations::stream_registry::StreamRegistry;
use crate::event_streams::EventStreams;
use crate::events::EventService;
use crate::export::ExportService;
use crate::gateway::GatewayResolver;
use crate::git::GitService;
use crate::identity::key_cache::KeyCache;
use crate::inspection::SandboxInspector;
use crate::pending::PendingMessageService;
use crate::quotas::Quotas;
use crate::runtime::metrics::MetricsRecorder;
use crate::sandboxes::{
    LogReaders, SandboxReconciler, SandboxService, SessionKeyCache, log_readers,
};
use crate::secrets::SecretsService;
use crate::settings::SettingsService;
use crate::skills::SkillService;
use crate::start::{StartService, StartUpdates};
use crate::sync::ConversationSyncer;
use crate::warm::WarmSandboxPool;
use crate::webhooks::WebhookService;

/// The application: built once by the composition root, shared by every request.
#[derive(Clone)]
pub struct App {
    pub authenticate: KeyAuthenticator,
    /// Reads, changes and deletes conversations, and sends messages to them.
    pub conversations: ConversationService,
    /// Messages for conversations that cannot take them yet.
    pub pending: PendingMessageService,
    pub starts: StartService,
    /// Starts, pauses, resumes and deletes sandboxes, and lists sandbox specs.
    pub sandboxes: SandboxService,
    pub events: EventService,
    pub exports: ExportService,
    pub event_streams: EventStreams,
    /// Intake of webhook reports from agent servers.
    pub webhooks: WebhookService,
    pub settings: SettingsService,
    pub secrets: SecretsService,
    pub git: GitService,
    pub skills: SkillService,
    /// Reads files, git state, skills and hooks inside sandboxes, and switches the models of agents.
    pub inspector: SandboxInspector,
    /// Resolves requests to agent servers.
    pub gateway: GatewayResolver,
    /// Changes users, roles and keys, with an audit entry for each change.
    pub administration: AdministrationService,
    pub audit: AuditService,
    pub quotas: Quotas,
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) ports: Ports,
    pub(crate) policy: Policy,
    pub(crate) tasks: BackgroundTasks,
    pub(crate) reconciler: SandboxReconciler,
    pub(crate) warm: WarmSandboxPool,
    pub(crate) syncer: ConversationSyncer,
    pub(crate) updates: StartUpdates,
    pub(crate) streams: StreamRegistry,
    pub(crate) log_readers: LogReaders,
    pub(crate) metrics: MetricsRecorder,
    pub(crate) quotas: Quotas,
    /// API keys that were looked up within the last second.
    pub(crate) api_keys: KeyCache<ApiKeyWithRole>,
    /// Session keys that were opened recently.
    pub(crate) session_keys: SessionKeyCache,
    /// Audit entries that are not stored yet.
    pub(crate) trail: AuditBuffer,
    /// Wakes the relist of the reconciler.
    pub(crate) look_again: tokio::sync::Notify,
    /// Cancelled when this process hands its starts over to the other replicas of the host.
    pub(crate) leaving: CancellationToken,
    pub(crate) starting: TaskTracker,
}

impl Inner {
    /// Whether the service accepts reports of this sandbox now.
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
    /// Wires the use-cases. No background work runs before [`background::spawn`].
    #[expect(
        clippy::too_many_lines,
        reason = "one constructor call for each service"
    )]
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
        let streams = StreamRegistry::default();
        let syncer = ConversationSyncer::new(
            ports.clone(),
            policy.clone(),
            (streams.clone(), quotas.clone()),
        );
        let reconciler =
            SandboxReconciler::new(ports.clone(), policy.clone(), syncer.clone(), tasks.clone());
        let warm = WarmSandboxPool::new(
            ports.clone(),
            policy.clone(),
            reconciler.clone(),
            tasks.clone(),
        );
        let inner = Arc::new(Inner {
            warm,
            ports,
            policy,
            tasks,
            reconciler,
            syncer,
            updates: StartUpdates::default(),
            streams,
            log_readers: log_readers(),
            metrics: MetricsRecorder::default(),
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
            conversations: ConversationService(Arc::clone(&inner)),
            pending: PendingMessageService(Arc::clone(&inner)),
            starts: StartService::new(Arc::clone(&inner), settings.clone(), secrets.clone()),
            sandboxes: SandboxService(Arc::clone(&inner), settings.clone()),
            events: EventService(Arc::clone(&inner.ports.events)),
            exports: ExportService::new(&inner.ports),
            event_streams: EventStreams {
                events: Arc::clone(&inner.ports.events),
                streams: inner.streams.clone(),
            },
            webhooks: WebhookService(Arc::clone(&inner)),
            git: GitService::new(Arc::clone(&inner), settings.clone()),
            skills: SkillService::new(Arc::clone(&inner)),
            inspector: SandboxInspector::new(Arc::clone(&inner), settings.clone()),
            settings,
            secrets,
            gateway: GatewayResolver(Arc::clone(&inner)),
            administration: AdministrationService::new(Arc::clone(&inner)),
            audit: AuditService::new(Arc::clone(&inner)),
            quotas,
            inner,
        }
    }

    /// Runs the sender of a long response in the background until it ends or the service stops.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.tasks.spawn(work);
    }

    /// Metrics of the warm pool, as of its last pass. Cheap: it reads no port.
    pub fn warm_counts(&self) -> WarmCounts {
        self.inner.warm.counts()
    }

    /// Replaces the caps. Sandboxes above the new caps keep running; new ones need room.
    pub fn set_caps(&self, caps: SandboxCaps) {
        self.inner.policy.caps.set(caps);
    }

    /// Replaces the quotas. Stored data above the new quotas stays.
    pub fn set_quota(&self, quota: QuotaLimits) {
        self.inner.policy.quota.set(quota);
    }

    /// Replaces the retention times, from the next housekeeping pass on.
    pub fn set_retention(&self, retention: Retention) {
        self.inner.policy.retention.set(retention);
    }

    /// Hands running starts over to the other processes that serve this host, so that they continue at once and not
    /// only when the leases expire. Where no other process serves the host, the starts continue here until background
    /// work stops. For a process that stops: no new start begins. Returns `false` if some starts were not handed over
    /// within `deadline`; their leases expire.
    pub async fn hand_over(&self, deadline: Duration) -> bool {
        if !self.inner.policy.is_host_shared {
            return true;
        }
        self.inner.leaving.cancel();
        self.inner.starting.close();
        let all = self.inner.starting.wait();
        tokio::time::timeout(deadline, all).await.is_ok()
    }

    /// Checks whether sandboxes can start right now, for `/ready`. The composition root checks the store.
    pub async fn check_backend(&self) -> Result<(), AppError> {
        Ok(self.inner.ports.backend.check().await?)
    }
}
