//! The sandbox repository (intent and facts), the backend (does and watches), the spec catalogue.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use secrecy::SecretString;
use url::Url;

use super::path::normalize_path;
use super::{
    SandboxCaps, DesiredState, ExposedUrl, SandboxOccupancy, RetirementReason, Sandbox, SandboxFacts, SandboxSpec,
    SandboxView,
};
use crate::clock::Timestamp;
use crate::error::{BoxError, Classify, ErrorClass, StoreError};
use crate::id::{HostId, SandboxId, SpecId, UserId};
use crate::idempotency::{IdempotentResponse, IdempotencyCheck};
use crate::identity::KeyHash;
use crate::page::{Page, PageRequest};
use crate::scope::Scope;

/// Rows of sandboxes. In a user's scope rows with [`DesiredState::Deleted`] are not there; the system sees them.
#[async_trait]
pub trait SandboxRepository: Send + Sync + 'static {
    /// Stores a new sandbox if the caps allow it: counting and inserting are one transaction, so a race of any number
    /// of inserts never exceeds a cap (`CapReached`). `Conflict` if the id is taken, `NotFound` if the owner was deleted
    /// ([`UserRepository::purge`](crate::identity::UserRepository::purge)).
    /// Counted are rows with `desired = running` and status STARTING or RUNNING.
    async fn insert(&self, sandbox: &Sandbox, caps: &SandboxCaps) -> Result<(), StoreError>;
    /// The same with the answer to a request that has a key of its sender's, in one transaction. A key that was used before
    /// comes first: then nothing is written or looked at. [`IdempotencyCheck::New`] if it was stored.
    async fn insert_once(
        &self,
        sandbox: &Sandbox,
        caps: &SandboxCaps,
        answer: &IdempotentResponse,
    ) -> Result<IdempotencyCheck, StoreError>;
    /// One sandbox.
    async fn find(&self, scope: &Scope, id: &SandboxId) -> Result<Option<Sandbox>, StoreError>;
    /// Several, in the order asked for.
    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[SandboxId],
    ) -> Result<Vec<Option<Sandbox>>, StoreError>;
    /// A keyset page, newest first (`created_at`, then id).
    async fn search(
        &self,
        scope: &Scope,
        page: &PageRequest,
    ) -> Result<Page<SandboxView>, StoreError>;
    /// The sandbox whose session key has this hash, whatever its state.
    async fn find_by_key(&self, hash: &KeyHash) -> Result<Option<Sandbox>, StoreError>;
    /// The sandboxes of this owner that were made from this template, are wanted to run and RUNNING, in any order: how
    /// much each is used. One query. At most 500, those made last.
    async fn list_running(&self, owner: &UserId, spec: &SpecId) -> Result<Vec<SandboxOccupancy>, StoreError>;
    /// Commits an intent; `None` if there is no such sandbox (a deleted one stays deleted).
    /// * `Running`: already STARTING or RUNNING stays as it is; else the caps are checked as in `insert`, status
    ///   becomes STARTING and the detail is cleared.
    /// * `Paused`: sets `paused_at` unless it was paused before.
    /// * `Deleted`: from now on hidden.
    async fn set_desired(
        &self,
        scope: &Scope,
        id: &SandboxId,
        desired: DesiredState,
        caps: &SandboxCaps,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError>;
    /// Records facts, only while the intent is still `expected` (a fence against a pause or delete that came between).
    /// `false` if it is not, or the row is gone. Paused, Error and Missing clear `agent_url` and `exposed_urls`.
    async fn record_facts(
        &self,
        id: &SandboxId,
        expected: DesiredState,
        facts: &SandboxFacts,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// The rows of a host, ordered by id, after `after`, at most `limit`: for the reconciler.
    async fn list_on_host(
        &self,
        host: &HostId,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError>;
    /// Sandboxes of this host that may be retired for this reason, longest unchanged first, at most `limit`.
    async fn list_retirable(
        &self,
        host: &HostId,
        why: RetirementReason,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError>;
    /// Commits [`RetirementReason::desired`] if the reason still holds: the look and the change are one transaction, so a
    /// conversation that starts to run at the same moment wins or finds the sandbox paused. `None` if it holds no more.
    async fn retire(
        &self,
        id: &SandboxId,
        why: RetirementReason,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError>;
    /// Sets the detail of all rows of a host in STARTING, RUNNING or PAUSED (`None` takes it away again): their backend is
    /// out of reach, so the status is the last known one. Neither status nor `updated_at` changes. Returns how many.
    async fn annotate(&self, host: &HostId, detail: Option<&str>) -> Result<u64, StoreError>;
    /// Deletes the row. Conversations in it stay and show MISSING. `false` if there is none.
    async fn remove(&self, id: &SandboxId) -> Result<bool, StoreError>;
}

/// Everything a backend needs to start (or start again) a sandbox. The caller decides id and keys, so that doing it
/// twice makes one sandbox.
#[derive(Debug, Clone)]
pub struct SandboxLaunch {
    /// Id: name of directory or container.
    pub id: SandboxId,
    /// Whose it is (for labels).
    pub owner: UserId,
    /// From which template.
    pub spec: SpecId,
    /// Session key of the agent server (`OH_SESSION_API_KEYS_0`).
    pub session_key: SecretString,
    /// Encryption key of the agent server (`OH_SECRET_KEY`).
    pub secret_key: SecretString,
    /// Base of the webhooks as the sandbox reaches us, e.g. `http://127.0.0.1:3000/api/v1/webhooks`.
    pub webhook_url: Url,
    /// Origins that browsers may come from.
    pub cors_origins: Vec<String>,
    /// Whether the agent server is to boot dormant: it gets `secret_key` (by which it is told to wake up), and everything
    /// else later ([`AgentRuntime::wake`](crate::agent::AgentRuntime::wake)). One that cannot do that boots as it can, and is
    /// found awake.
    pub dormant: bool,
}

/// Which part of a sandbox's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogTail {
    /// So many lines from its end.
    pub lines: u32,
    /// Whether to go on with what is written from now on, until the sandbox ends.
    pub follow: bool,
}

/// What a sandbox wrote, in pieces of about 64 KiB at most, each of whole lines.
pub type LogStream = BoxStream<'static, Result<Vec<u8>, SandboxError>>;

/// Where a started sandbox is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxEndpoints {
    /// Where we reach its agent server.
    pub agent_url: Url,
    /// What clients may reach, the agent server included.
    pub exposed_urls: Vec<ExposedUrl>,
    /// Absolute path of the workspace inside the sandbox.
    pub workspace: String,
}

/// What a backend knows about a sandbox of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendState {
    /// Its main process lives (whether the agent server answers is another question).
    Running(SandboxEndpoints),
    /// Stopped, workspace kept.
    Stopped,
    /// Its main process ended without being asked to.
    Exited {
        /// Exit code or signal and the last log lines, for a person; scrubbed of keys.
        detail: String,
    },
    /// Only its workspace is left: what ran in it was removed behind our back. `start` makes a new one around it.
    Remains,
    /// Nothing (left) of it. Only ever reported by `watch` (removed behind our back).
    Absent,
}

/// A state together with whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendFact {
    /// The sandbox.
    pub id: SandboxId,
    /// Its state.
    pub state: BackendState,
}

/// What a backend can do: asked, not discovered by failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendCapabilities {
    /// Whether `stop` keeps the workspace and `start` brings it back.
    pub pause: bool,
    /// Whether sandboxes are isolated from each other and from the host.
    pub isolated: bool,
}

/// Told, in a line for a person, how far a long preparation is. Cheap to call and never waits; lines may be dropped.
#[derive(Clone)]
pub struct PrepareProgress(Arc<dyn Fn(&str) + Send + Sync>);

impl PrepareProgress {
    /// Calls this with each line.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Nobody listens.
    pub fn silent() -> Self {
        Self::new(|_| ())
    }

    /// How far it is.
    pub fn tell(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for PrepareProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrepareProgress")
    }
}

/// Whether the backend can be asked at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendReachability {
    /// It answers. Whatever happened while it did not is told by `watch` or found by `list`.
    Reachable,
    /// It does not (the engine is down): what is known about sandboxes is the last known state.
    Unreachable {
        /// Cause, for a person.
        detail: String,
    },
}

/// A technology that runs sandboxes. Idempotent by our id throughout. Only does and watches: who owns what, and what is
/// wanted, is the repository's business. Every call has a deadline of the backend's own.
#[async_trait]
pub trait SandboxBackend: Send + Sync + 'static {
    /// `process`, `docker`, …
    fn name(&self) -> &'static str;
    /// What it can do.
    fn capabilities(&self) -> BackendCapabilities;
    /// Gets ready for a first start (provision the agent server, pull images), reporting progress to the log and to
    /// `progress`. Quick when everything is there. Safe to call from several tasks at once: the work is done once, and each
    /// caller hears how far it is. Cancelling the call does not stop the work.
    async fn prepare(&self, spec: &SpecId, progress: &PrepareProgress) -> Result<(), SandboxError>;
    /// Creates and starts the sandbox, or starts the stopped or crashed one again in the same workspace, or finds the
    /// running one. Returns when its process exists, not when the agent server answers. After a crash of ours at any
    /// point the next call finds what the last one made. Cancelling the call leaves nothing that a later `start` or
    /// `remove` does not find.
    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError>;
    /// The state of one sandbox; `None` if there is nothing of it.
    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError>;
    /// Every sandbox of this service instance that exists in any form.
    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError>;
    /// Ends its processes gracefully, then by force, keeping the workspace. Idempotent. `NotFound` if there is nothing.
    /// CPU and memory are free when this returns.
    async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError>;
    /// Ends and deletes everything of it. Idempotent: `Ok` if there is nothing. `Unavailable` means still here.
    async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError>;
    /// State changes from now on that nobody asked for through this object (exits, removals). Lossy under pressure:
    /// the reconciler lists periodically.
    fn watch(&self) -> BoxStream<'static, BackendFact>;
    /// Whether the backend can be reached: now, and every change from now on. One that cannot lose contact says nothing.
    fn watch_reachability(&self) -> BoxStream<'static, BackendReachability> {
        stream::pending().boxed()
    }
    /// What the owner of a running sandbox should know though it runs: its reports cannot reach `webhook_url`, a limit
    /// could not be set. For a person; usually empty. Takes a few seconds at most.
    async fn list_warnings(&self, id: &SandboxId, webhook_url: &Url) -> Vec<String> {
        let _ = (id, webhook_url);
        Vec::new()
    }
    /// What a cold start from this template would be made of now (image or agent server, command, limits, settings), as a short
    /// text that says nothing of it: one that was booted from another recipe is stale. Keys and ids of sandboxes are not part
    /// of it. Cheap: at most one look at the engine. `Unavailable` if it cannot be told now.
    async fn recipe(&self, spec: &SpecId) -> Result<String, SandboxError> {
        Ok(spec.as_str().to_owned())
    }
    /// What its main process wrote, oldest first, also of one that is stopped. `NotFound` if there is nothing of it. Masked
    /// by [`LogMask`](super::LogMask) with these keys and those that the backend itself knows. Following ends with the main
    /// process, reading when the stream is dropped; a slow reader holds one piece.
    async fn logs(
        &self,
        id: &SandboxId,
        keys: &[SecretString],
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        let _ = (id, keys, tail);
        Err(SandboxError::Unsupported {
            what: "logs of sandboxes",
        })
    }
    /// Where a path in the sandbox leads: absolute, without `.` and `..`, and as far as the backend sees the files without
    /// symbolic links. A relative one counts from where the agent server runs. What is not there may be made there. `NotFound`
    /// if it leads out of what belongs to the sandbox: where nothing isolates them, that is more than one sandbox can reach.
    async fn resolve(&self, id: &SandboxId, path: &str) -> Result<String, SandboxError> {
        let _ = id;
        normalize_path(path).ok_or(SandboxError::NotFound)
    }
    /// Whether sandboxes could be started right now; the error names what is in the way. For `/ready`.
    async fn check(&self) -> Result<(), SandboxError>;
}

/// The available templates. Never empty.
#[async_trait]
pub trait SandboxSpecCatalog: Send + Sync + 'static {
    /// All, in configuration order, the default first. As long as none changes, the same list: clients ask for it all the
    /// time, and what was made of it may be kept for as long.
    async fn list(&self) -> Result<Arc<[SandboxSpec]>, SandboxError>;
}

/// Failure of a sandbox backend. `detail` is for the client: what is wrong and what to do; no secret, no host path.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Nothing with this id.
    #[error("sandbox not found")]
    NotFound,
    /// This backend cannot do that.
    #[error("not supported by this backend: {what}")]
    Unsupported {
        /// What was asked.
        what: &'static str,
    },
    /// The sandbox could not be made or started.
    #[error("sandbox failed to start: {detail}")]
    StartFailed {
        /// Cause, for a person.
        detail: String,
        /// The driver's error.
        #[source]
        source: Option<BoxError>,
    },
    /// What the backend needs is not there (no suitable Python, image, engine): says what to do.
    #[error("sandbox backend is not usable: {detail}")]
    Unavailable {
        /// Cause, for a person.
        detail: String,
        /// The driver's error.
        #[source]
        source: Option<BoxError>,
    },
    /// The deadline passed.
    #[error("timed out: {what}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
    },
    /// Anything else.
    #[error("sandbox backend failed")]
    Other(#[source] BoxError),
}

impl Classify for SandboxError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound => ErrorClass::NotFound,
            Self::Unsupported { .. } => ErrorClass::Unsupported,
            Self::StartFailed { .. } | Self::Unavailable { .. } | Self::TimedOut { .. } => {
                ErrorClass::Unavailable
            }
            Self::Other(_) => ErrorClass::Internal,
        }
    }

    fn public(&self) -> Cow<'_, str> {
        match self {
            Self::Other(_) => "Internal Server Error".into(),
            other => other.to_string().into(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        (self.class() == ErrorClass::Unavailable).then_some(Duration::from_secs(5))
    }
}
