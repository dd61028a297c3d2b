//! Settings of the use-cases, which the composition root passes in.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::agent::spending::NanoUsd;
use domain::id::{HostId, ProviderName, UserId};
use domain::sandbox::{SandboxCaps, SingleUserRule};
use domain::user::usage::QuotaLimits;
use url::Url;

use crate::git::rights::GitPolicy;
use crate::identity::single_sign_on::rules::ProviderRules;
use crate::runtime::live_setting::LiveSetting;
use crate::trace::TracePropagation;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthMode {
    /// Every request needs an API key.
    ApiKey,
    /// Every request needs an API key or the session of a user who signed in.
    Accounts,
    /// Every request acts as this local user. Chosen explicitly (`auth.mode = "open"`).
    Open(UserId),
}

/// Whether lists of hosts can limit what sandboxes reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressControl {
    /// `egress.policy` is `open`: a sandbox could ignore a list.
    Unlimited,
    /// They reach only what lists name.
    Lists,
}

/// What sandboxes with a proxy get of secrets that have hosts; others get values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    Value,
    /// Text that the proxy replaces in their requests.
    Placeholder,
}

/// Who calls git hosts for which the owner of a sandbox has a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitCaller {
    Service,
    /// Git in the sandbox, with a placeholder of the token, or the token.
    Sandbox,
}

/// The secrets whose value agents get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretExposure {
    /// Those without hosts.
    WithoutHosts,
    /// Those whose owner asks for it, and those without hosts from before.
    OnRequest,
}

/// How long sessions last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLifetimes {
    /// Longest time without a request.
    pub idle: Duration,
    /// Longest time since the login.
    pub absolute: Duration,
}

impl Default for SessionLifetimes {
    /// 12 hours without a request, 30 days in all.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(12 * 60 * 60),
            absolute: Duration::from_secs(30 * 24 * 60 * 60),
        }
    }
}

/// What the operator configures of single sign-on, beside the providers themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SingleSignOnPolicy {
    /// The URL that browsers use for this service; providers return them there.
    pub public_url: Option<Url>,
    pub rules: BTreeMap<ProviderName, ProviderRules>,
}

/// Settings of the use-cases.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The host whose sandboxes this process serves.
    pub host: HostId,
    /// Whether other processes serve the same host. Then each action on a sandbox needs a lease.
    pub is_host_shared: bool,
    pub auth: AuthMode,
    pub sessions: SessionLifetimes,
    pub single_sign_on: SingleSignOnPolicy,
    /// Base URL of the webhooks, as sandboxes reach this service (`…/api/v1/webhooks`).
    pub webhook_url: Url,
    /// Set if a second user is refused because the backend does not isolate sandboxes.
    pub single_user: Option<SingleUserRule>,
    pub secrets_in_sandboxes: SecretForm,
    pub secret_exposure: SecretExposure,
    pub egress: EgressControl,
    /// Allowed CORS origins. Agent servers get them too.
    pub cors_origins: Vec<String>,
    /// Whether new git tokens are verified with their provider before they are stored.
    pub verify_git_tokens: bool,
    /// What agents may do with git.
    pub git: GitPolicy,
    /// Only the service holds [`Policy::git`].
    pub git_caller: GitCaller,
    /// Whether agents of users with a git token get this service's MCP server.
    pub mcp_in_conversations: bool,
    pub caps: LiveSetting<SandboxCaps>,
    /// Quotas of each user, and the report rate of each sandbox. [`Policy::new`] sets none; the service's defaults are in
    /// `config/default.toml`.
    pub quota: LiveSetting<QuotaLimits>,
    /// What each user may spend on models in each organization and calendar month (UTC). `None`: no limit.
    pub month_budget: Option<NanoUsd>,
    /// Longest time from the start of a sandbox's process until its agent server answers (`start.sandbox_deadline`).
    pub sandbox_start_timeout: Duration,
    /// Agent servers that boot at the same time. Waiting for a slot does not count towards the start timeout.
    pub max_parallel_boots: usize,
    pub warm: WarmPolicy,
    /// Longest time to prepare the backend for its first start (downloads).
    pub prepare_timeout: Duration,
    pub clone_timeout: Duration,
    /// Longest run time of a repository's setup script.
    pub setup_timeout: Duration,
    /// How long a lease on a start task or a sandbox lasts without a renewal.
    pub lease_ttl: Duration,
    /// How often the worker polls for unclaimed tasks, in case another replica has died.
    pub claim_interval: Duration,
    pub max_parallel_starts: usize,
    /// How long a paused sandbox may still report trailing events.
    pub report_grace: Duration,
    /// How often running conversations are compared with their agent servers.
    pub sync_interval: Duration,
    /// How often the reconciler compares rows with the backend.
    pub relist_interval: Duration,
    /// How often, on a shared host, it acts on rows that are not as they are wanted.
    pub settle_interval: Duration,
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
    pub target_count: u32,
    /// Older warm sandboxes are replaced.
    pub max_age: Duration,
    /// Interval of the pool's passes if no event triggers one.
    pub interval: Duration,
    /// After this time an unused claim is abandoned.
    pub claim_grace: Duration,
}

impl Default for WarmPolicy {
    /// Keeps none; maximum age six hours, a pass every ten seconds, a grace of one minute.
    fn default() -> Self {
        Self {
            target_count: 0,
            max_age: Duration::from_secs(6 * 60 * 60),
            interval: Duration::from_secs(10),
            claim_grace: Duration::from_secs(60),
        }
    }
}

impl Policy {
    /// Settings for a host that several processes serve: within ten seconds, another process continues the work of one
    /// that died.
    pub fn share_host(&mut self) {
        self.is_host_shared = true;
        self.lease_ttl = Duration::from_secs(6);
        self.claim_interval = Duration::from_secs(1);
    }

    /// The defaults, for this host, webhook address and mode.
    pub fn new(host: HostId, webhook_url: Url, auth: AuthMode) -> Self {
        Self {
            host,
            is_host_shared: false,
            auth,
            sessions: SessionLifetimes::default(),
            single_sign_on: SingleSignOnPolicy::default(),
            webhook_url,
            single_user: None,
            secrets_in_sandboxes: SecretForm::Value,
            secret_exposure: SecretExposure::WithoutHosts,
            egress: EgressControl::Unlimited,
            git: GitPolicy::default(),
            git_caller: GitCaller::Service,
            cors_origins: Vec::new(),
            verify_git_tokens: true,
            mcp_in_conversations: true,
            caps: LiveSetting::new(SandboxCaps {
                per_user: 10,
                overall: 50,
            }),
            quota: LiveSetting::default(),
            month_budget: None,
            sandbox_start_timeout: Duration::from_secs(120),
            max_parallel_boots: 8,
            warm: WarmPolicy::default(),
            prepare_timeout: Duration::from_secs(20 * 60),
            clone_timeout: Duration::from_secs(120),
            setup_timeout: Duration::from_secs(600),
            lease_ttl: Duration::from_secs(10),
            claim_interval: Duration::from_secs(2),
            max_parallel_starts: 8,
            report_grace: Duration::from_secs(60),
            sync_interval: Duration::from_secs(10),
            relist_interval: Duration::from_secs(30),
            settle_interval: Duration::from_secs(3),
            retire_interval: Duration::from_secs(30),
            housekeeping_interval: Duration::from_secs(10 * 60),
            retention: LiveSetting::new(Retention::default()),
            traces: None,
        }
    }
}
