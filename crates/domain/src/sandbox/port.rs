//! The ports of sandboxes: repository, backend and spec catalogue.

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
    DesiredState, ExposedUrl, NewSessionKey, RetirementReason, Sandbox, SandboxCaps, SandboxFacts,
    SandboxOccupancy, SandboxSpec, SandboxView,
};
use crate::clock::Timestamp;
use crate::coordination::idempotency::{IdempotencyCheck, IdempotentResponse};
use crate::error::{BoxError, Classify, ErrorClass, StoreError};
use crate::id::{HostId, OwnerId, SandboxId, SpecId};
use crate::page::{Page, PageRequest};
use crate::user::identity::KeyHash;
use crate::user::scope::Scope;

/// The rows of sandboxes. In a user's scope, rows with [`DesiredState::Deleted`] are not visible; in the system's scope
/// they are.
#[async_trait]
pub trait SandboxRepository: Send + Sync + 'static {
    /// Stores a new sandbox if the caps allow it. Counting and inserting are one transaction, so concurrent inserts
    /// never exceed a cap (`CapReached`). `Conflict` if the id is taken, `NotFound` if the owner was deleted
    /// ([`UserRepository::purge`](crate::user::identity::UserRepository::purge)). The caps count rows with `desired =
    /// running` and status STARTING or RUNNING.
    async fn insert(&self, sandbox: &Sandbox, caps: &SandboxCaps) -> Result<(), StoreError>;
    /// Inserts like [`SandboxRepository::insert`] and stores the response to a request with an idempotency key, in one transaction. The key is
    /// checked first: if it was used before, nothing else is checked or written. [`IdempotencyCheck::New`] if the
    /// sandbox was stored.
    async fn insert_once(
        &self,
        sandbox: &Sandbox,
        caps: &SandboxCaps,
        response: &IdempotentResponse,
    ) -> Result<IdempotencyCheck, StoreError>;
    async fn find(&self, scope: &Scope, id: &SandboxId) -> Result<Option<Sandbox>, StoreError>;
    /// Several sandboxes, in the order of `ids`; `None` for unknown ones.
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
    /// The owner's sandboxes of this spec that are desired to run and RUNNING, with their occupancy, in any order. One
    /// query. At most 500, newest first.
    async fn list_running(
        &self,
        owner: &OwnerId,
        spec: &SpecId,
    ) -> Result<Vec<SandboxOccupancy>, StoreError>;
    /// Commits an intent; `None` if there is no such sandbox (a deleted one stays deleted).
    /// * `Running`: a sandbox that is STARTING or RUNNING stays as it is; else the caps are checked as in `insert`, the
    ///   status becomes STARTING and the detail is cleared.
    /// * `Paused`: sets `paused_at` unless the sandbox was paused before.
    /// * `Deleted`: hides the sandbox from its owner.
    async fn set_desired(
        &self,
        scope: &Scope,
        id: &SandboxId,
        desired: DesiredState,
        caps: &SandboxCaps,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError>;
}

/// Sandboxes by their keys, in any state.
#[async_trait]
pub trait SandboxKeyRepository: Send + Sync + 'static {
    /// The sandbox whose session key has this hash, in any state.
    async fn find_by_key(&self, hash: &KeyHash) -> Result<Option<Sandbox>, StoreError>;
    /// The sandbox whose callback token has this hash, in any state.
    async fn find_by_callback_token(&self, hash: &KeyHash) -> Result<Option<Sandbox>, StoreError>;
    /// Replaces the session key of a stopped sandbox, if the intent is to run it and `old` is still the hash of its key.
    /// That hash fences the write against another process that replaces the key. The same write sets STARTING and clears
    /// the addresses, so that no answer shows the new key with the address of the former agent server. Afterwards the old
    /// key finds nothing. `None` if the fence refuses the write, or the row is gone.
    async fn replace_session_key(
        &self,
        id: &SandboxId,
        old: &KeyHash,
        new: &NewSessionKey,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError>;
}

/// The rows of sandboxes for the reconcilers of their hosts.
#[async_trait]
pub trait HostSandboxRepository: Send + Sync + 'static {
    /// Records facts if the intent is still `expected`, which fences off a pause or deletion in between. `false` if it
    /// is not, or the row is gone. Paused, Error and Missing clear `agent_url` and `exposed_urls`.
    async fn record_facts(
        &self,
        id: &SandboxId,
        expected: DesiredState,
        facts: &SandboxFacts,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// The rows of a host, by id, after `after`, at most `limit`, for the reconciler.
    async fn list_on_host(
        &self,
        host: &HostId,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError>;
    /// The rows of a host that are not as they are wanted, at most `limit`, oldest change first: sandboxes that start, that run
    /// although they shall be paused, and that are not deleted yet.
    async fn list_unsettled(&self, host: &HostId, limit: usize)
    -> Result<Vec<Sandbox>, StoreError>;
    /// Sandboxes of this host to which the reason applies, longest unchanged first, at most `limit`.
    async fn list_retirable(
        &self,
        host: &HostId,
        reason: RetirementReason,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError>;
    /// Commits [`RetirementReason::desired`] if the reason still applies, else returns `None`. The check and the change
    /// are one transaction: a conversation that starts to run at the same moment either prevents the retirement or
    /// finds the sandbox paused.
    async fn retire(
        &self,
        id: &SandboxId,
        reason: RetirementReason,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError>;
    /// Sets the detail of all rows of a host in STARTING, RUNNING or PAUSED, or clears it with `None`. It says that the
    /// backend is unreachable and the status is the last known one. Neither status nor `updated_at` changes. Returns
    /// the number of rows.
    async fn annotate(&self, host: &HostId, detail: Option<&str>) -> Result<u64, StoreError>;
    /// Deletes the row. Its conversations stay and show MISSING. `false` if there is none.
    async fn remove(&self, id: &SandboxId) -> Result<bool, StoreError>;
}

/// What a backend needs to start a sandbox for the first time or again. The caller chooses id and keys, so that a
/// repeated start yields one sandbox.
#[derive(Debug, Clone)]
pub struct SandboxLaunch {
    /// Id, which also names the directory or container.
    pub id: SandboxId,
    /// The owner (for labels).
    pub owner: OwnerId,
    pub spec: SpecId,
    /// Session key of the agent server (`OH_SESSION_API_KEYS_0`).
    pub session_key: SecretString,
    /// Encryption key of the agent server (`OH_SECRET_KEY`).
    pub secret_key: SecretString,
    /// Base URL of the webhooks, as the sandbox reaches the service, e.g. `http://127.0.0.1:3000/api/v1/webhooks`.
    pub webhook_url: Url,
    pub cors_origins: Vec<String>,
    /// Whether the agent server boots dormant: it gets `secret_key`, which authenticates the request that wakes it, and
    /// everything else later ([`AgentLifecycle::wake`](crate::agent::AgentLifecycle::wake)). An agent server without this
    /// feature boots awake.
    pub dormant: bool,
    /// Learns what a long start waits for.
    pub progress: PrepareProgress,
}

/// The requested part of a sandbox's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogTail {
    /// Number of lines from its end.
    pub lines: u32,
    /// Whether to follow new output until the sandbox ends.
    pub follow: bool,
}

/// The log of a sandbox, in pieces of at most about 64 KiB, each of whole lines.
pub type LogStream = BoxStream<'static, Result<Vec<u8>, SandboxError>>;

/// The addresses of a started sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxEndpoints {
    /// Address of the agent server for the service.
    pub agent_url: Url,
    /// Addresses for clients, the agent server included.
    pub exposed_urls: Vec<ExposedUrl>,
    /// Absolute path of the workspace inside the sandbox.
    pub workspace: String,
    /// Whether its programs reach other machines through the service's forward proxy, and trust its certificates.
    pub has_proxy: bool,
}

/// The state of a sandbox, as its backend reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendState {
    /// The main process runs; the agent server may not answer yet.
    Running(SandboxEndpoints),
    /// Stopped; the workspace is kept.
    Stopped,
    /// The main process ended without a request.
    Exited {
        /// Exit code or signal and the last log lines, for the user, without keys.
        detail: String,
    },
    /// Only the workspace is left; the rest was removed outside of the service. `start` creates a new sandbox around
    /// it.
    Remains,
    /// Nothing of it exists: it was removed outside of the service. Only `watch` reports this.
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendFact {
    pub id: SandboxId,
    pub state: BackendState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendCapabilities {
    /// Whether `stop` keeps the workspace and `start` reuses it.
    pub pause: bool,
    /// Whether sandboxes are isolated from each other and from the host.
    pub isolated: bool,
    /// Whether `start` gives a stopped sandbox the session key of its launch, so that earlier keys open nothing. Otherwise
    /// the sandbox keeps the key of its creation.
    pub replaces_session_key: bool,
}

/// Why only one user may have sandboxes of a backend without isolation, as texts for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingleUserRule {
    /// What keeps users from being isolated. A clause without a final stop.
    pub reason: &'static str,
    /// How to allow more users. A sentence.
    pub advice: &'static str,
}

/// Receives the progress of a long preparation or start. Calls are cheap and never wait; lines may be dropped.
#[derive(Clone)]
pub struct PrepareProgress(Arc<dyn Fn(&str) + Send + Sync>);

impl PrepareProgress {
    pub fn new(report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    pub fn silent() -> Self {
        Self::new(|_| ())
    }

    pub fn report(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for PrepareProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrepareProgress")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendReachability {
    /// The backend responds. Changes that happened while it did not are reported by `watch` or found by `list`.
    Reachable,
    /// The backend does not respond (the engine is down). The state of sandboxes is the last known one.
    Unreachable {
        /// Cause, for the user.
        detail: String,
    },
}

/// A technology that runs sandboxes: what it is, and whether it can start them. One adapter implements this,
/// [`SandboxLifecycle`] and [`SandboxReader`], and gives every call a deadline.
#[async_trait]
pub trait SandboxBackend: Send + Sync + 'static {
    /// `process`, `docker`, …
    fn name(&self) -> &'static str;
    fn capabilities(&self) -> BackendCapabilities;
    /// Prepares the first start (provisions the agent server, pulls images) and reports to the log and to `progress`.
    /// It returns quickly if nothing is missing. Several tasks may call it concurrently: the work is done once, and each
    /// caller gets the progress. Cancelling the call does not stop the work.
    async fn prepare(&self, spec: &SpecId, progress: &PrepareProgress) -> Result<(), SandboxError>;
    /// A short text that identifies what a cold start from this spec would now use: image or agent server, command,
    /// limits and settings, but no keys or ids. A warm sandbox with another recipe is stale. Makes at most one request
    /// to the engine. `Unavailable` if the recipe cannot be determined now.
    async fn recipe(&self, spec: &SpecId) -> Result<String, SandboxError> {
        Ok(spec.as_str().to_owned())
    }
    /// The reachability now, and every change from now on. A backend that is always reachable never yields an item.
    fn watch_reachability(&self) -> BoxStream<'static, BackendReachability> {
        stream::pending().boxed()
    }
    /// Whether the backend can start sandboxes now; the error names the obstacle. For `/ready`.
    async fn check(&self) -> Result<(), SandboxError>;
}

/// Starts, observes and ends sandboxes. All operations are idempotent by the sandbox's id. The backend acts and observes;
/// the repository stores ownership and intent.
#[async_trait]
pub trait SandboxLifecycle: Send + Sync + 'static {
    /// Creates and starts the sandbox, starts a stopped or crashed one again in the same workspace, or finds the
    /// running one. If the backend [`replaces_session_key`](BackendCapabilities::replaces_session_key), it restarts a
    /// sandbox that runs with another session key than the launch's. It returns when the process exists, before the agent
    /// server answers. After a crash of the service, the next call finds what the last one made. After a cancelled call, a
    /// later `start` or `remove` finds everything that it left.
    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError>;
    /// The state of one sandbox; `None` if nothing of it exists.
    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError>;
    /// Every sandbox of this service instance that exists in any form.
    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError>;
    /// Ends the processes gracefully, then by force, and keeps the workspace. CPU and memory are free when it returns.
    /// `NotFound` if nothing exists.
    async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError>;
    /// Ends the sandbox and deletes everything of it. `Ok` if nothing exists. After `Unavailable` the sandbox still
    /// exists.
    async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError>;
    /// Changes of state from now on that were not requested through this object (exits, removals). Changes may be lost
    /// under load; the reconciler lists periodically.
    fn watch(&self) -> BoxStream<'static, BackendFact>;
}

/// Reads one sandbox: its problems, its output and its paths.
#[async_trait]
pub trait SandboxReader: Send + Sync + 'static {
    /// Problems of a running sandbox, for its owner: its reports cannot reach `webhook_url`, or a limit could not be
    /// set. Usually empty. It takes a few seconds at most.
    async fn list_warnings(&self, id: &SandboxId, webhook_url: &Url) -> Vec<String> {
        let _ = (id, webhook_url);
        Vec::new()
    }
    /// The output of the main process, oldest first, also of a stopped sandbox. `NotFound` if nothing exists.
    /// [`LogMask`](super::LogMask) masks these keys and those that the backend knows. Following ends with the main
    /// process. Dropping the stream stops reading; a slow reader holds one piece.
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
    /// Resolves a path in the sandbox to an absolute path without `.` and `..`, and without symbolic links as far as
    /// the backend sees the files. A relative path starts at the agent server's working directory. The path need not
    /// exist. `NotFound` if it leaves what belongs to the sandbox; a process sandbox can reach more than that.
    async fn resolve(&self, id: &SandboxId, path: &str) -> Result<String, SandboxError> {
        let _ = id;
        normalize_path(path).ok_or(SandboxError::NotFound)
    }
}

/// The available sandbox specs. Never empty.
#[async_trait]
pub trait SandboxSpecCatalog: Send + Sync + 'static {
    /// All specs in configuration order, the default first. Returns the same allocation until a spec changes, so that
    /// callers can cache what they derive from it.
    async fn list(&self) -> Result<Arc<[SandboxSpec]>, SandboxError>;
}

/// Failure of a sandbox backend. `detail` is for the client: it says what is wrong and what to do, without secrets and
/// host paths.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("sandbox not found")]
    NotFound,
    /// The backend does not support the operation.
    #[error("not supported by this backend: {what}")]
    Unsupported { what: &'static str },
    /// The sandbox could not be created or started.
    #[error("sandbox failed to start: {detail}")]
    StartFailed {
        /// Cause, for the user.
        detail: String,
        #[source]
        source: Option<BoxError>,
    },
    /// The backend lacks what it needs (a suitable Python, an image, the engine).
    #[error("sandbox backend is not usable: {detail}")]
    Unavailable {
        /// Cause, for the user.
        detail: String,
        #[source]
        source: Option<BoxError>,
    },
    #[error("timed out: {what}")]
    TimedOut { what: &'static str },
    #[error("sandbox backend failed")]
    Other(#[source] BoxError),
}

impl SandboxError {
    /// The backend lacks something; no other error says so.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        let (detail, source) = (detail.into(), None);
        Self::Unavailable { detail, source }
    }

    /// A start failed; no other error says so.
    pub fn start_failed(detail: impl Into<String>) -> Self {
        let (detail, source) = (detail.into(), None);
        Self::StartFailed { detail, source }
    }

    /// An unexpected failure.
    pub fn other(error: impl Into<BoxError>) -> Self {
        Self::Other(error.into())
    }
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
