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
pub mod models;
mod policy;
pub mod ports;
pub mod quotas;
mod runtime;
pub mod sandboxes;
pub mod secrets;
pub mod settings;
pub mod skills;
pub mod spending;
pub mod start;
mod warm;

pub use conversations::{event_streams, events, export, pending, sync, webhooks};
pub use git::{pull_requests, sandbox_git};
pub use identity::{
    administration, audit, authenticate, automation_keys, device_login, organizations, sign_in,
    single_sign_on, single_user, users,
};
pub use runtime::{background, idempotency, keyed_semaphore, master_key_rotation, tasks, trace};
pub use sandboxes::{gateway, inspection};

use std::sync::Arc;
use std::time::Duration;

use domain::sandbox::{SandboxBackend, SandboxCaps};
use domain::user::usage::QuotaLimits;
pub use error::AppError;
pub use policy::{
    AuthMode, EgressControl, GitCaller, Policy, Retention, SecretExposure, SecretForm,
    SessionLifetimes, WarmPolicy,
};
pub use ports::Ports;
pub use runtime::known_hosts::{HostCounts, KnownHosts};
pub use runtime::live_setting::LiveSetting;
pub use runtime::metrics::ApplicationMetrics;
pub use tasks::BackgroundTasks;
pub use warm::WarmCounts;

use crate::administration::AdministrationService;
use crate::audit::AuditService;
use crate::authenticate::{KeyAuthenticator, SandboxAuthenticator};
use crate::automation_keys::AutomationKeys;
use crate::background::{BackgroundLoops, ChangeFollower};
use crate::conversations::ConversationService;
use crate::conversations::stream_registry::StreamRegistry;
use crate::device_login::DeviceLoginService;
use crate::event_streams::EventStreams;
use crate::events::EventService;
use crate::export::ExportService;
use crate::gateway::GatewayResolver;
use crate::git::GitService;
use crate::identity::administration::CallerCaches;
use crate::identity::key_cache::KeyCache;
use crate::identity::mail::MailService;
use crate::inspection::SandboxInspector;
use crate::models::ModelAccess;
use crate::organizations::OrganizationService;
use crate::pending::{PendingDelivery, PendingMessageService};
use crate::quotas::Quotas;
use crate::runtime::hosts::HostWatch;
use crate::runtime::housekeeping::Housekeeping;
use crate::runtime::metrics::MetricsRecorder;
use crate::sandbox_git::SandboxGit;
use crate::sandboxes::egress::EgressService;
use crate::sandboxes::{
    SandboxFactory, SandboxLogService, SandboxReconciler, SandboxService, SandboxTokens,
};
use crate::secrets::SecretsService;
use crate::settings::SettingsService;
use crate::sign_in::SignInService;
use crate::single_sign_on::SingleSignOnService;
use crate::single_user::SingleUserCheck;
use crate::skills::SkillService;
use crate::spending::SpendingService;
use crate::start::{StartRunner, StartService, StartWorker};
use crate::sync::ConversationSyncer;
use crate::warm::WarmSandboxPool;
use crate::webhooks::WebhookService;

/// The application: built once by the composition root, shared by every request.
#[derive(Clone)]
pub struct App {
    pub authenticate: KeyAuthenticator,
    /// Passwords and sessions.
    pub sign_in: SignInService,
    /// Logins of programs without a browser.
    pub device_logins: Arc<DeviceLoginService>,
    /// Logins by identity providers.
    pub single_sign_on: Arc<SingleSignOnService>,
    /// Authenticates sandboxes.
    pub sandbox_keys: SandboxAuthenticator,
    /// Reads, changes and deletes conversations, and sends messages to them.
    pub conversations: ConversationService,
    /// Messages for conversations that cannot take them yet.
    pub pending: PendingMessageService,
    pub starts: StartService,
    /// Starts, pauses, resumes and deletes sandboxes, and lists sandbox specs.
    pub sandboxes: SandboxService,
    pub sandbox_logs: SandboxLogService,
    /// Hosts for which sandboxes ask their owners.
    pub egress: EgressService,
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
    /// The model calls that the service makes for sandboxes.
    pub models: ModelAccess,
    /// The git calls that the service makes for sandboxes.
    pub sandbox_git: SandboxGit,
    /// What model calls cost.
    pub spending: SpendingService,
    /// Resolves requests to agent servers.
    pub gateway: GatewayResolver,
    /// Changes users, roles and keys, with an audit entry for each change.
    pub administration: AdministrationService,
    /// The keys of the automations service.
    pub automation_keys: Arc<AutomationKeys>,
    /// Shared organizations, their members and invitations.
    pub organizations: OrganizationService,
    pub audit: AuditService,
    pub quotas: Quotas,
    /// The hosts that share the store.
    pub hosts: KnownHosts,
    backend: Arc<dyn SandboxBackend>,
    caps: LiveSetting<SandboxCaps>,
    retention: LiveSetting<Retention>,
    pub(crate) loops: Arc<BackgroundLoops>,
    pub(crate) recorder: Arc<MetricsRecorder>,
    pub(crate) tasks: BackgroundTasks,
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
    pub fn new(ports: &Ports, policy: Policy, tasks: BackgroundTasks) -> Self {
        let settings = settings_service(ports, &policy);
        let quotas = Quotas::new(
            Arc::clone(&ports.usage),
            policy.quota.clone(),
            tasks.clone(),
        );
        let (streams, recorder) = (StreamRegistry::default(), Arc::<MetricsRecorder>::default());
        let caches = CallerCaches {
            api_keys: KeyCache::default(),
            sessions: KeyCache::default(),
            reporters: KeyCache::default(),
        };
        let reporters = caches.reporters.clone();
        let clock = || Arc::clone(&ports.clock);
        let sandbox_keys = SandboxAuthenticator {
            keys: Arc::clone(&ports.sandbox_keys),
            clock: clock(),
            cache: reporters.clone(),
            report_grace: policy.report_grace,
        };
        let audit = AuditService::new(Arc::clone(&ports.audit), clock(), Arc::clone(&ports.ids));
        let tokens = SandboxTokens::new(ports, reporters.clone());
        let secrets = SecretsService::new(
            ports,
            &policy,
            quotas.clone(),
            settings.clone(),
            tokens.clone(),
        );
        let models = ModelAccess::new(ports, &policy, tokens.clone());
        let sandbox_git =
            SandboxGit::new(ports, &policy, tokens.clone(), settings.clone(), &secrets);
        let syncer = ConversationSyncer::new(ports, &policy, streams.clone(), quotas.clone());
        let reconciler = SandboxReconciler::new(
            ports,
            policy.clone(),
            syncer.clone(),
            reporters.clone(),
            tasks.clone(),
        );
        let mail = MailService::new(ports, tasks.clone());
        let sessions = caches.sessions.clone();
        let sign_in = SignInService::new(ports, &policy, sessions, mail.clone(), tasks.clone());
        let single_user = SingleUserCheck::new(ports, &policy);
        let hosts = KnownHosts::new(ports, &policy);
        let factory = SandboxFactory::new(ports, &policy, hosts.clone());
        let warm = WarmSandboxPool::new(
            ports,
            policy.clone(),
            factory.clone(),
            reconciler.clone(),
            tasks.clone(),
        );
        let starts = StartService::new(
            ports,
            &policy,
            settings.clone(),
            quotas.clone(),
            (factory.clone(), warm.clone()),
        );
        let runner = StartRunner::new(
            ports,
            &policy,
            &starts,
            (secrets.clone(), models.clone(), sandbox_git.clone()),
            reconciler.clone(),
            syncer.clone(),
            Arc::clone(&recorder),
        );
        let loops = BackgroundLoops {
            starts: StartWorker::new(clock(), policy.clone(), &starts, runner, tasks.clone()),
            changes: ChangeFollower {
                changes: Arc::clone(&ports.changes),
                host: policy.host.clone(),
                is_host_shared: policy.is_host_shared,
                starts: starts.clone(),
                reconciler: reconciler.clone(),
                syncer: syncer.clone(),
                streams: streams.clone(),
                tasks: tasks.clone(),
            },
            deliveries: Arc::new(PendingDelivery::new(ports, &policy, syncer.clone())),
            hosts: HostWatch::new(hosts.clone(), starts.clone(), &policy),
            housekeeping: Housekeeping::new(ports, &policy),
            warm: warm.clone(),
            syncer: syncer.clone(),
            reconciler: reconciler.clone(),
        };
        let organizations =
            OrganizationService::new(ports, mail, caches.clone(), reconciler.clone());
        Self {
            authenticate: KeyAuthenticator {
                keys: Arc::clone(&ports.api_keys),
                clock: clock(),
                cache: caches.api_keys.clone(),
                mode: policy.auth.clone(),
                tasks: tasks.clone(),
            },
            single_sign_on: Arc::new(SingleSignOnService::new(
                ports,
                &policy,
                sign_in.clone(),
                single_user.clone(),
            )),
            sign_in,
            device_logins: Arc::new(DeviceLoginService::new(ports, &policy)),
            conversations: ConversationService::new(
                ports,
                policy.host.clone(),
                reconciler.clone(),
                syncer.clone(),
                tasks.clone(),
            ),
            pending: PendingMessageService::new(ports, quotas.clone(), syncer.clone()),
            starts,
            sandboxes: SandboxService::new(
                ports,
                &policy,
                settings.clone(),
                (factory, warm),
                reconciler.clone(),
                reporters.clone(),
                tasks.clone(),
            ),
            sandbox_logs: SandboxLogService::new(
                Arc::clone(&ports.sandboxes),
                Arc::clone(&ports.sandbox_reader),
                Arc::clone(&ports.cipher),
                policy.host.clone(),
                streams.shutdown().clone(),
            ),
            egress: EgressService::new(ports, tokens),
            events: EventService(Arc::clone(&ports.events)),
            exports: ExportService::new(
                Arc::clone(&ports.events),
                Arc::clone(&ports.conversations),
            ),
            webhooks: WebhookService::new(
                ports,
                sandbox_keys.clone(),
                quotas.clone(),
                streams.clone(),
                syncer,
                Arc::clone(&recorder),
            ),
            event_streams: EventStreams {
                events: Arc::clone(&ports.events),
                streams,
            },
            git: GitService {
                hosting: Arc::clone(&ports.git),
                conversations: Arc::clone(&ports.conversations),
                clock: clock(),
                settings: settings.clone(),
                policy: policy.git.clone(),
            },
            skills: SkillService::new(Arc::clone(&ports.skills), Arc::clone(&ports.clone_sources)),
            inspector: SandboxInspector::new(ports, settings.clone(), models.clone()),
            models,
            sandbox_git,
            settings: settings.clone(),
            secrets,
            gateway: GatewayResolver::new(ports, reporters),
            organizations,
            automation_keys: Arc::new(AutomationKeys::new(ports)),
            administration: AdministrationService::new(ports, single_user, caches, reconciler),
            spending: SpendingService::new(ports, &policy, audit.clone(), settings),
            audit,
            sandbox_keys,
            quotas,
            hosts,
            backend: Arc::clone(&ports.backend),
            caps: policy.caps,
            retention: policy.retention,
            loops: Arc::new(loops),
            recorder,
            tasks,
        }
    }

    /// Runs the sender of a long response in the background until it ends or the service stops.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Metrics of the warm pool, as of its last pass. Cheap: it reads no port.
    pub fn warm_counts(&self) -> WarmCounts {
        self.loops.warm.counts()
    }

    /// Numbers of hosts, as of this process's last look. Cheap: it reads no port.
    pub fn host_counts(&self) -> HostCounts {
        self.hosts.counts()
    }

    /// Replaces the caps. Sandboxes above the new caps keep running; new ones need room.
    pub fn set_caps(&self, caps: SandboxCaps) {
        self.caps.set(caps);
    }

    /// Replaces the quotas. Stored data above the new quotas stays.
    pub fn set_quota(&self, quota: QuotaLimits) {
        self.quotas.set_limits(quota);
    }

    /// Replaces the retention times, from the next housekeeping pass on.
    pub fn set_retention(&self, retention: Retention) {
        self.retention.set(retention);
    }

    /// Hands running starts over to the other processes that serve this host, so that they continue at once and not
    /// only when the leases expire. Where no other process serves the host, the starts continue here until background
    /// work stops. For a process that stops: no new start begins. Returns `false` if some starts were not handed over
    /// within `deadline`; their leases expire.
    pub async fn hand_over(&self, deadline: Duration) -> bool {
        self.loops.starts.hand_over_all(deadline).await
    }

    /// Checks whether sandboxes can start right now, for `/ready`. The composition root checks the store.
    pub async fn check_backend(&self) -> Result<(), AppError> {
        Ok(self.backend.check().await?)
    }
}
