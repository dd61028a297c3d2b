//! Reads the state of sandboxes without waiting for operations.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::crash_point;
use domain::id::SandboxId;
use domain::sandbox::{
    AGENT_SERVER, BackendFact, BackendState, ExposedUrl, SandboxEndpoints, SandboxError,
};
use sandbox_provider::describe_exit;
use url::Url;

use crate::backend::ProcessInner;
use crate::confinement::plan::NetworkPolicy;
use crate::errors::blocking;
use crate::files::layout::SandboxPaths;
use crate::files::log_file;
use crate::files::state::{LifecyclePhase, ProcessState};
use crate::lifecycle::stop::StopMode;
use crate::processes::marker::{self, Marker};
use crate::processes::proc::{self, ProcessKey};

enum ObservedProcess {
    Missing,
    /// Processes without a directory.
    Stray,
    Running(ProcessKey, u16),
    Stopped,
    Exited(String),
}

impl ProcessInner {
    /// The state of one sandbox; adopts its process.
    pub(crate) async fn observe(
        self: Arc<Self>,
        id: SandboxId,
    ) -> Result<Option<BackendState>, SandboxError> {
        let (paths, marker) = (self.paths(&id), self.marker(&id));
        let (instance, sandbox) = (self.config.instance.clone(), id.clone());
        let observed = blocking(move || match inspect(&paths, &marker, |_| false) {
            ObservedProcess::Missing if marker::has_processes(&instance, &sandbox) => {
                ObservedProcess::Stray
            }
            observed => observed,
        });
        let observed = observed.await?;
        self.state_of(&id, observed).await
    }

    /// The states of all sandboxes that have a directory or a process.
    pub(crate) async fn observe_all(self: Arc<Self>) -> Result<Vec<BackendFact>, SandboxError> {
        let inner = Arc::clone(&self);
        let observed = blocking(move || {
            let with_dir: BTreeSet<SandboxId> = inner.layout.ids()?.into_iter().collect();
            let marked = marker::marked(&inner.config.instance);
            let running: BTreeSet<SandboxId> = marked.values().cloned().collect();
            let mut observed = Vec::new();
            for id in with_dir.union(&running) {
                // The process was just found by its marker.
                let is_known_member = |key| marked.get(&key) == Some(id);
                let state = match inspect(&inner.paths(id), &inner.marker(id), is_known_member) {
                    ObservedProcess::Missing if running.contains(id) => ObservedProcess::Stray,
                    state => state,
                };
                observed.push((id.clone(), state));
            }
            std::io::Result::Ok(observed)
        });
        let mut facts = Vec::new();
        for (id, observed) in observed.await?.map_err(SandboxError::other)? {
            if let Some(state) = self.state_of(&id, observed).await? {
                facts.push(BackendFact { id, state });
            }
        }
        Ok(facts)
    }

    async fn state_of(
        self: &Arc<Self>,
        id: &SandboxId,
        observed: ObservedProcess,
    ) -> Result<Option<BackendState>, SandboxError> {
        Ok(match observed {
            ObservedProcess::Missing => None,
            ObservedProcess::Stray => {
                let detail = "its directory does not exist, but its processes still run: delete the sandbox to end them".to_owned();
                Some(BackendState::Exited { detail })
            }
            ObservedProcess::Stopped => Some(BackendState::Stopped),
            ObservedProcess::Exited(detail) => Some(BackendState::Exited { detail }),
            ObservedProcess::Running(key, _) if self.has_other_network(id, key).await? => {
                self.end_with_other_network(id, key).await?
            }
            ObservedProcess::Running(key, port) => {
                self.track_adopted(id.clone(), key).await?;
                Some(BackendState::Running(self.endpoints(id, port)?))
            }
        })
    }

    /// Whether a sandbox of an earlier service has another network than this one configures.
    async fn has_other_network(
        &self,
        id: &SandboxId,
        key: ProcessKey,
    ) -> Result<bool, SandboxError> {
        if self.tracked_key(id) == Some(key) {
            return Ok(false);
        }
        let recorded =
            blocking(move || proc::initial_variable(key.pid, NetworkPolicy::VARIABLE)).await?;
        Ok(NetworkPolicy::recorded(recorded.as_deref()) != self.config.network())
    }

    /// Ends such a sandbox.
    async fn end_with_other_network(
        self: &Arc<Self>,
        id: &SandboxId,
        key: ProcessKey,
    ) -> Result<Option<BackendState>, SandboxError> {
        let _guard = match self.lock_existing(id).await {
            Err(SandboxError::NotFound) => return Ok(None),
            other => other?,
        };
        let (state, marker) = (self.load(id).await?, self.marker(id));
        let current = blocking(move || state?.find_process(&marker)).await?;
        if current != Some(key) {
            let cause = "an operation changed the sandbox during this one; repeat it";
            return Err(SandboxError::unavailable(cause));
        }
        let detail = "was stopped because it has another network than the configuration says (egress.policy, \
                      process.network): start it again"
            .to_owned();
        tracing::warn!(sandbox.id = %id, "sandbox {id} {detail}");
        let phase = LifecyclePhase::Exited {
            detail: detail.clone(),
        };
        self.end_processes(id, StopMode::Graceful, phase).await?;
        Ok(Some(BackendState::Exited { detail }))
    }

    pub(crate) fn endpoints(
        &self,
        id: &SandboxId,
        port: u16,
    ) -> Result<SandboxEndpoints, SandboxError> {
        let agent_url = Url::parse(&format!("http://127.0.0.1:{port}"));
        let agent_url = agent_url.map_err(SandboxError::other)?;
        let url = agent_url.clone();
        Ok(SandboxEndpoints {
            agent_url,
            exposed_urls: vec![ExposedUrl {
                name: AGENT_SERVER.to_owned(),
                url,
                port,
            }],
            workspace: self.paths(id).workspace().to_string_lossy().into_owned(),
            has_proxy: self.config.has_proxy(),
        })
    }

    pub(crate) async fn store(
        &self,
        id: &SandboxId,
        state: &ProcessState,
    ) -> Result<(), SandboxError> {
        let (file, state) = (self.paths(id).state(), state.clone());
        let write =
            move || crash_point::around(state.phase.crash_point_name(), || state.store(&file));
        blocking(write).await?.map_err(SandboxError::other)
    }

    pub(crate) async fn load(&self, id: &SandboxId) -> Result<Option<ProcessState>, SandboxError> {
        let file = self.paths(id).state();
        blocking(move || ProcessState::load(&file)).await
    }
}

/// `is_known_member`: whether a process is already known to belong to this sandbox. Blocks.
fn inspect(
    paths: &SandboxPaths,
    marker: &Marker,
    is_known_member: impl FnOnce(ProcessKey) -> bool,
) -> ObservedProcess {
    if !paths.root.is_dir() {
        return ObservedProcess::Missing;
    }
    // A directory without a state file was just created, or is being deleted.
    let Some(state) = ProcessState::load(&paths.state()) else {
        return ObservedProcess::Stopped;
    };
    let main = state.main().filter(|key| is_known_member(*key));
    if let Some(key) = main.or_else(|| state.find_process(marker)) {
        return ObservedProcess::Running(key, state.port);
    }
    match state.phase {
        LifecyclePhase::Exited { detail } => ObservedProcess::Exited(detail),
        LifecyclePhase::Starting | LifecyclePhase::Running if state.boot != proc::boot_id() => {
            ObservedProcess::Exited("the machine was restarted".to_owned())
        }
        LifecyclePhase::Starting | LifecyclePhase::Stopping | LifecyclePhase::Stopped => {
            ObservedProcess::Stopped
        }
        LifecyclePhase::Running => {
            let exit = "ended while the service was not watching";
            ObservedProcess::Exited(describe(exit, paths, &[]))
        }
    }
}

/// `the agent server <exit>` with the end of its log. Blocks.
pub(crate) fn describe(exit: &str, paths: &SandboxPaths, keys: &[secrecy::SecretString]) -> String {
    let names = [
        (paths.root.clone(), "<sandbox>"),
        (paths.short.clone(), "<sandbox>"),
    ];
    describe_exit(exit, &log_file::quote(&paths.log_file(), keys, &names))
}
