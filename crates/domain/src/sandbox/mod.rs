//! Sandboxes: a row of intent (what the owner wants) joined with facts (what the backend and the agent server report).
//!
//! ```text
//!   insert ──► STARTING ──agent answers──► RUNNING ──pause──► PAUSED
//!                 │  ▲                        │  ▲               │
//!            dies │  └────────resume──────────┼──┼───────────────┘   (resume also leaves ERROR)
//!                 ▼                     dies  │  │
//!               ERROR ◄───────────────────────┘  └── service restart adopts what still runs
//!
//!   MISSING: the row is there, the backend has nothing left of it.   DesiredState::Deleted hides the row from its owner.
//! ```

mod grouping;
mod mask;
mod path;
mod port;
mod view;
mod warm;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

pub use grouping::{SandboxGrouping, MAX_SHARED_CONVERSATIONS, SandboxOccupancy};
pub use mask::{LogMask, mask_line};
pub use path::{is_below, normalize_path};
pub use port::{
    BackendFact, BackendState, BackendCapabilities, BackendReachability, SandboxEndpoints, LogTail, LogStream, PrepareProgress,
    SandboxBackend, SandboxError, SandboxLaunch, SandboxRepository, SandboxSpecCatalog,
};
pub use view::{SandboxView, SealedSessionKey};
pub use warm::{MAX_WARM_SANDBOXES_PER_HOST, WarmRepository, WarmSandbox, WarmState};

use crate::cipher::Sealed;
use crate::clock::Timestamp;
use crate::conversation::wire_enum;
use crate::id::{HostId, SandboxId, SpecId, UserId};
use crate::identity::KeyHash;

wire_enum! {
    /// State on the wire (contract v1, section 2).
    SandboxStatus {
        /// Being started, or resumed.
        Starting = "STARTING",
        /// The agent server answers.
        Running = "RUNNING",
        /// Stopped on purpose; can be resumed.
        Paused = "PAUSED",
        /// Failed, with a cause in `status_detail`; can be resumed.
        Error = "ERROR",
        /// The backend has nothing left of it.
        Missing = "MISSING",
    }
}

impl SandboxStatus {
    /// STARTING or RUNNING: what the caps count.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

wire_enum! {
    /// What the owner wants.
    DesiredState {
        /// To run.
        Running = "running",
        /// To be stopped, keeping the workspace.
        Paused = "paused",
        /// To be gone. Hidden from the owner from the moment this is committed.
        Deleted = "deleted",
    }
}

/// A service inside the sandbox that can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposedUrl {
    /// `AGENT_SERVER`, `VSCODE`, `WORKER_1`, `WORKER_2`.
    pub name: String,
    /// Where clients reach it. Holds no key.
    pub url: Url,
    /// The port inside the sandbox.
    pub port: u16,
}

/// Name of the exposed URL of the agent server.
pub const AGENT_SERVER: &str = "AGENT_SERVER";

/// One sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// Its id, also the backend's name for it.
    pub id: SandboxId,
    /// Whose it is.
    pub owner: UserId,
    /// From which template.
    pub spec_id: SpecId,
    /// Where it lives.
    pub host: HostId,
    /// Intent.
    pub desired: DesiredState,
    /// Fact: last known state.
    pub status: SandboxStatus,
    /// Fact, for a person: why it is in ERROR or MISSING, what a start is waiting for, or that the status is the last known
    /// one because the backend is out of reach.
    pub status_detail: Option<String>,
    /// Hash of the session key, by which webhooks are recognised.
    pub key_hash: KeyHash,
    /// The session key, sealed with context [`Sandbox::key_context`].
    pub session_key: Sealed,
    /// The agent server's own encryption key (`OH_SECRET_KEY`), stable for the sandbox's life; same context.
    pub secret_key: Sealed,
    /// Fact: where we reach the agent server.
    pub agent_url: Option<Arc<Url>>,
    /// Fact: what clients may reach.
    pub exposed_urls: Arc<[ExposedUrl]>,
    /// Fact: absolute path of the workspace inside the sandbox.
    pub workspace: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When the row last changed.
    pub updated_at: Timestamp,
    /// When it was last paused: its key stays valid for trailing events for a while.
    pub paused_at: Option<Timestamp>,
}

impl Sandbox {
    /// Associated data of its sealed keys.
    pub fn key_context(id: &SandboxId) -> String {
        format!("sandbox/{id}")
    }

    /// Takes over what was observed. What is stopped, failed or gone answers nowhere; where its workspace was is kept.
    pub fn apply_facts(&mut self, facts: &SandboxFacts) {
        let (status, located, detail) = match facts {
            SandboxFacts::Preparing { detail } => (SandboxStatus::Starting, None, Some(detail)),
            SandboxFacts::Starting { located } => (SandboxStatus::Starting, Some(located), None),
            SandboxFacts::Running { located } => (SandboxStatus::Running, Some(located), None),
            SandboxFacts::Paused => (SandboxStatus::Paused, None, None),
            SandboxFacts::Error { detail } => (SandboxStatus::Error, None, Some(detail)),
            SandboxFacts::Missing { detail } => (SandboxStatus::Missing, None, Some(detail)),
        };
        self.status = status;
        self.status_detail = detail.cloned();
        if let Some(located) = located {
            self.agent_url = Some(Arc::new(located.agent_url.clone()));
            self.exposed_urls = located.exposed_urls.as_slice().into();
            self.workspace = Some(located.workspace.clone());
        } else {
            self.agent_url = None;
            self.exposed_urls = Arc::default();
        }
    }

    /// Whether its key may deliver webhooks: it is STARTING or RUNNING, or was paused less than `grace` ago.
    pub fn accepts_reports(&self, now: Timestamp, grace: Duration) -> bool {
        match self.desired {
            DesiredState::Running => self.status.is_up(),
            DesiredState::Paused => self.paused_at.is_some_and(|at| now.since(at) <= grace),
            DesiredState::Deleted => false,
        }
    }
}

/// Caps on sandboxes that are starting or running. 0 means none may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxCaps {
    /// Of one user.
    pub per_user: u32,
    /// Of the installation.
    pub overall: u32,
}

/// Facts to record about a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxFacts {
    /// Nothing exists yet: what it needs is being fetched. The detail says how far that is.
    Preparing {
        /// How far, in a line.
        detail: String,
    },
    /// The process or container exists; the agent server is not known to answer.
    Starting {
        /// Where it will answer.
        located: SandboxEndpoints,
    },
    /// The agent server answers.
    Running {
        /// Where.
        located: SandboxEndpoints,
    },
    /// Stopped on purpose.
    Paused,
    /// Failed; the cause is for a person.
    Error {
        /// Why.
        detail: String,
    },
    /// Nothing left of it.
    Missing {
        /// Why.
        detail: String,
    },
}

/// A template for sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Its id; for containers the image.
    pub id: SpecId,
    /// What runs in it.
    pub command: Option<Vec<String>>,
    /// When the service learnt of it.
    pub created_at: Timestamp,
    /// Environment without secret values.
    pub initial_env: std::collections::BTreeMap<String, String>,
    /// Where agents work.
    pub working_dir: String,
    /// How long a sandbox of it may be RUNNING unused before it is paused. `None`: as long as its owner likes.
    pub idle_stop: Option<Duration>,
    /// How long a sandbox of it may exist before it is deleted. `None`: as long as its owner likes.
    pub lifetime: Option<Duration>,
}

/// Why a sandbox may be put down though its owner did not ask. Whatever the reason, one with a running conversation or an
/// unfinished start is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetirementReason {
    /// To be paused: it is RUNNING, and neither it nor any conversation in it has changed since.
    IdleSince(Timestamp),
    /// To be deleted: it was created before.
    OlderThan(Timestamp),
}

impl RetirementReason {
    /// What becomes of it.
    pub fn desired(self) -> DesiredState {
        match self {
            Self::IdleSince(_) => DesiredState::Paused,
            Self::OlderThan(_) => DesiredState::Deleted,
        }
    }
}
