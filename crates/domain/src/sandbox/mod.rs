//! Sandboxes: a row holds the intent (what the owner wants) and the facts (what backend and agent server report).
//!
//! ```text
//!   insert ──► STARTING ──agent answers──► RUNNING ──pause──► PAUSED
//!                 │  ▲                        │  ▲               │
//!            dies │  └────────resume──────────┼──┼───────────────┘   (resume also leaves ERROR)
//!                 ▼                     dies  │  │
//!               ERROR ◄───────────────────────┘  └── service restart adopts what still runs
//!
//!   MISSING: the row exists, the backend has nothing left of it.   DesiredState::Deleted hides the row from its owner.
//! ```

mod grouping;
mod lock;
mod mask;
mod path;
mod port;
mod view;
mod warm;

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

pub use grouping::{MAX_SHARED_CONVERSATIONS, SandboxGrouping, SandboxOccupancy};
pub use lock::{SandboxLock, SandboxLocks};
pub use mask::{LogMask, mask_line};
pub use path::{is_below, normalize_path};
pub use port::{
    BackendCapabilities, BackendFact, BackendReachability, BackendState, HostSandboxRepository,
    LogStream, LogTail, PrepareProgress, SandboxBackend, SandboxEndpoints, SandboxError,
    SandboxKeyRepository, SandboxLaunch, SandboxLifecycle, SandboxReader, SandboxRepository,
    SandboxSpecCatalog, SingleUserRule,
};
pub use view::{SandboxView, SealedSessionKey};
pub use warm::{MAX_WARM_SANDBOXES_PER_HOST, WarmRepository, WarmSandbox, WarmState};

use crate::agent::spending::NanoUsd;
use crate::clock::Timestamp;
use crate::egress_list::EgressList;
use crate::encryption::cipher::Sealed;
use crate::id::{ApiKeyId, HostId, OwnerId, SandboxId, SpecId};
use crate::user::identity::KeyHash;
use crate::wire_enum::wire_enum;

wire_enum! {
    /// Status on the wire, see `docs/reference/wire/sandboxes.md`.
    SandboxStatus {
        /// Being started, or resumed.
        Starting = "STARTING",
        /// The agent server answers.
        Running = "RUNNING",
        /// Stopped on request; can be resumed.
        Paused = "PAUSED",
        /// Failed, with a cause in `status_detail`; can be resumed.
        Error = "ERROR",
        /// The backend has nothing left of it.
        Missing = "MISSING",
    }
}

impl SandboxStatus {
    /// STARTING or RUNNING, which is what the caps count.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

wire_enum! {
    DesiredState {
        Running = "running",
        /// To be stopped, keeping the workspace.
        Paused = "paused",
        /// To be deleted. Once this is committed, the owner does not see the sandbox.
        Deleted = "deleted",
    }
}

/// A service inside a sandbox that clients can reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposedUrl {
    /// `AGENT_SERVER`, `VSCODE`, `WORKER_1`, `WORKER_2`.
    pub name: String,
    /// Address for clients. It contains no key.
    pub url: Url,
    pub port: u16,
}

pub const AGENT_SERVER: &str = "AGENT_SERVER";

/// Prefix of callback tokens. Session keys are base62, so no session key has it.
pub const CALLBACK_TOKEN_PREFIX: &str = "cb_";

/// A stored sandbox: the owner's intent and the last known facts.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// Id, also the backend's name for it.
    pub id: SandboxId,
    pub owner: OwnerId,
    /// The sandbox spec that it was created from.
    pub spec_id: SpecId,
    pub host: HostId,
    pub desired: DesiredState,
    pub status: SandboxStatus,
    /// Fact, for the user: why it is in ERROR or MISSING, what a start waits for, or that the status is the last known
    /// one because the backend is unreachable.
    pub status_detail: Option<String>,
    /// Hash of the session key, which identifies the sandbox in webhook reports.
    pub key_hash: KeyHash,
    /// The session key, sealed with context [`Sandbox::key_context`]. Replaced when a stopped sandbox starts again.
    pub session_key: Sealed,
    /// The agent server's encryption key (`OH_SECRET_KEY`), which never changes; same context.
    pub secret_key: Sealed,
    /// Hash of the callback token. `None` if an earlier release created the sandbox: its conversations hold the session
    /// key, which is therefore never replaced.
    pub callback_token_hash: Option<KeyHash>,
    /// Fact: address of the agent server for the service.
    pub agent_url: Option<Arc<Url>>,
    /// Fact: addresses for clients.
    pub exposed_urls: Arc<[ExposedUrl]>,
    /// Fact: absolute path of the workspace inside the sandbox.
    pub workspace: Option<String>,
    /// Fact: whether its programs use the service's forward proxy ([`SandboxEndpoints::has_proxy`]).
    pub has_proxy: bool,
    /// The hosts to which its owner limited it when it was created, of those that the service allows. `None`: all of these.
    pub egress: Option<EgressList>,
    /// The key of the automations service that created it, for one run of an automation. `None`: a user did.
    pub automation_key: Option<ApiKeyId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Time of the last pause. The session key remains valid for a while after it, for late events.
    pub paused_at: Option<Timestamp>,
}

impl Sandbox {
    /// Associated data of the sealed keys.
    pub fn key_context(id: &SandboxId) -> String {
        format!("sandbox/{id}")
    }

    /// The callback token of the sandbox with this secret key. Its conversations hold the token for look-ups of secrets and
    /// for the service's MCP server. An agent server stores both with the conversation, so the token lives as long as the
    /// sandbox, and the session key can change.
    ///
    /// The token is a hash of the secret key, so that no further value must be sealed. It does not reveal the secret key.
    pub fn callback_token(id: &SandboxId, secret_key: &SecretString) -> SecretString {
        let text = format!(
            "callback token of sandbox {id}: {}",
            secret_key.expose_secret()
        );
        SecretString::from(format!("{CALLBACK_TOKEN_PREFIX}{}", KeyHash::of(&text)))
    }

    /// Applies observed facts. A sandbox that is stopped, failed or gone has no addresses; its workspace path is kept.
    pub fn apply_facts(&mut self, facts: &SandboxFacts) {
        let (status, endpoints, detail) = match facts {
            SandboxFacts::Preparing { detail } => (SandboxStatus::Starting, None, Some(detail)),
            SandboxFacts::Starting { endpoints } => {
                (SandboxStatus::Starting, Some(endpoints), None)
            }
            SandboxFacts::Running { endpoints } => (SandboxStatus::Running, Some(endpoints), None),
            SandboxFacts::Paused => (SandboxStatus::Paused, None, None),
            SandboxFacts::Error { detail } => (SandboxStatus::Error, None, Some(detail)),
            SandboxFacts::Missing { detail } => (SandboxStatus::Missing, None, Some(detail)),
        };
        self.status = status;
        self.status_detail = detail.cloned();
        if let Some(endpoints) = endpoints {
            self.agent_url = Some(Arc::new(endpoints.agent_url.clone()));
            self.exposed_urls = endpoints.exposed_urls.as_slice().into();
            self.workspace = Some(endpoints.workspace.clone());
            self.has_proxy = endpoints.has_proxy;
        } else {
            self.agent_url = None;
            self.exposed_urls = Arc::default();
        }
    }

    /// Applies another session key. The sandbox is starting with that key and has no addresses yet.
    pub fn replace_session_key(&mut self, new: &NewSessionKey, at: Timestamp) {
        self.key_hash = new.hash;
        self.session_key = new.sealed.clone();
        self.status = SandboxStatus::Starting;
        self.agent_url = None;
        self.exposed_urls = Arc::default();
        self.updated_at = at;
    }

    /// Whether the session key may deliver webhook reports: the sandbox is STARTING or RUNNING, or was paused at most
    /// `grace` ago.
    pub fn accepts_reports(&self, now: Timestamp, grace: Duration) -> bool {
        match self.desired {
            DesiredState::Running => self.status.is_up(),
            DesiredState::Paused => self.paused_at.is_some_and(|at| now.since(at) <= grace),
            DesiredState::Deleted => false,
        }
    }
}

#[derive(Debug, Clone)]
pub struct NewSessionKey {
    pub hash: KeyHash,
    /// The key, sealed with context [`Sandbox::key_context`].
    pub sealed: Sealed,
}

/// Caps on sandboxes that are starting or running. 0 allows none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxCaps {
    pub per_user: u32,
    pub overall: u32,
}

/// Facts to record about a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxFacts {
    /// Nothing exists yet; the backend fetches what the sandbox needs.
    Preparing {
        /// Cause, for the user.
        detail: String,
    },
    /// The process or container exists; the agent server has not answered yet.
    Starting {
        endpoints: SandboxEndpoints,
    },
    /// The agent server answers.
    Running {
        endpoints: SandboxEndpoints,
    },
    Paused,
    Error {
        /// Cause, for the user.
        detail: String,
    },
    /// The backend has nothing left of it.
    Missing {
        /// Cause, for the user.
        detail: String,
    },
}

/// A template of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSpec {
    pub id: SpecId,
    pub command: Option<Vec<String>>,
    /// Time at which the service first read it.
    pub created_at: Timestamp,
    /// Environment without secret values.
    pub initial_env: std::collections::BTreeMap<String, String>,
    /// Directory that agents work in.
    pub working_dir: String,
    /// A sandbox that is RUNNING without use for this long is paused. `None` disables this.
    pub idle_stop: Option<Duration>,
    /// A sandbox is deleted after this long. `None` disables this.
    pub lifetime: Option<Duration>,
    /// The hosts that the service allows to its sandboxes. `None`: those of `egress.allow`.
    pub egress: Option<EgressList>,
    /// What a conversation in its sandboxes may spend on models. `None`: no limit.
    pub conversation_budget: Option<NanoUsd>,
}

/// Why the service may pause or delete a sandbox without a request of its owner. It never does so while a conversation
/// runs or a start is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetirementReason {
    /// Pause: the sandbox is RUNNING, and neither it nor a conversation in it has changed since then.
    IdleSince(Timestamp),
    /// Delete: the sandbox was created before then.
    OlderThan(Timestamp),
}

impl RetirementReason {
    /// The intent that the retirement commits.
    pub fn desired(self) -> DesiredState {
        match self {
            Self::IdleSince(_) => DesiredState::Paused,
            Self::OlderThan(_) => DesiredState::Deleted,
        }
    }
}
