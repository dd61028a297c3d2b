//! What is there: reading states, without ever waiting for an operation.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::crash_point;
use domain::id::SandboxId;
use domain::sandbox::{AGENT_SERVER, BackendFact, BackendState, ExposedUrl, SandboxEndpoints, SandboxError};
use url::Url;

use crate::backend::Inner;
use crate::errors::{self, blocking};
use crate::layout::Places;
use crate::log;
use crate::marker::{self, Marker};
use crate::proc::{self, ProcessKey};
use crate::state::{Phase, State};

/// What was seen of one sandbox.
enum Seen {
    Nothing,
    /// Processes without a directory.
    Stray,
    Lives(ProcessKey, u16),
    Stopped,
    Exited(String),
}

impl Inner {
    /// The state of one sandbox; adopts it if it lives.
    pub(crate) async fn observe(
        self: Arc<Self>,
        id: SandboxId,
    ) -> Result<Option<BackendState>, SandboxError> {
        let (places, marker) = (self.places(&id), self.marker(&id));
        let (instance, wanted) = (self.config.instance.clone(), id.clone());
        let seen = blocking(move || match look(&places, &marker, |_| false) {
            Seen::Nothing if marker::is_on_any(&instance, &wanted) => Seen::Stray,
            seen => seen,
        });
        let seen = seen.await?;
        self.conclude(&id, seen).await
    }

    /// All sandboxes that have a directory or a process.
    pub(crate) async fn observe_all(self: Arc<Self>) -> Result<Vec<BackendFact>, SandboxError> {
        let inner = Arc::clone(&self);
        let seen = blocking(move || {
            let with_dir: BTreeSet<SandboxId> = inner.layout.ids()?.into_iter().collect();
            let marked = marker::marked(&inner.config.instance);
            let living: BTreeSet<SandboxId> = marked.values().cloned().collect();
            let mut seen = Vec::new();
            for id in with_dir.union(&living) {
                // Seen a moment ago with its marker: it need not be asked once more.
                let is_its_own = |key| marked.get(&key) == Some(id);
                let found = match look(&inner.places(id), &inner.marker(id), is_its_own) {
                    Seen::Nothing if living.contains(id) => Seen::Stray,
                    found => found,
                };
                seen.push((id.clone(), found));
            }
            std::io::Result::Ok(seen)
        });
        let mut facts = Vec::new();
        for (id, seen) in seen.await?.map_err(errors::other)? {
            if let Some(state) = self.conclude(&id, seen).await? {
                facts.push(BackendFact { id, state });
            }
        }
        Ok(facts)
    }

    async fn conclude(
        self: &Arc<Self>,
        id: &SandboxId,
        seen: Seen,
    ) -> Result<Option<BackendState>, SandboxError> {
        Ok(match seen {
            Seen::Nothing => None,
            Seen::Stray => {
                let detail = "its directory is gone, but processes of it still run".to_owned();
                Some(BackendState::Exited { detail })
            }
            Seen::Stopped => Some(BackendState::Stopped),
            Seen::Exited(detail) => Some(BackendState::Exited { detail }),
            Seen::Lives(key, port) => {
                self.track_adopted(id.clone(), key).await?;
                Some(BackendState::Running(self.endpoints(id, port)?))
            }
        })
    }

    /// Where a sandbox with this port is.
    pub(crate) fn endpoints(&self, id: &SandboxId, port: u16) -> Result<SandboxEndpoints, SandboxError> {
        let agent_url = Url::parse(&format!("http://127.0.0.1:{port}"))
            .map_err(|error| SandboxError::Other(Box::new(error)))?;
        let url = agent_url.clone();
        Ok(SandboxEndpoints {
            agent_url,
            exposed_urls: vec![ExposedUrl {
                name: AGENT_SERVER.to_owned(),
                url,
                port,
            }],
            workspace: self.places(id).workspace().to_string_lossy().into_owned(),
        })
    }

    pub(crate) async fn store(&self, id: &SandboxId, state: &State) -> Result<(), SandboxError> {
        let (file, state) = (self.places(id).state(), state.clone());
        let write = move || crash_point::around(state.phase.deed(), || state.store(&file));
        blocking(write).await?.map_err(errors::other)
    }

    pub(crate) async fn load(&self, id: &SandboxId) -> Result<Option<State>, SandboxError> {
        let file = self.places(id).state();
        blocking(move || State::load(&file)).await
    }
}

/// `is_its_own`: whether a process is already known to live and to be one of this sandbox. Blocks.
fn look(places: &Places, marker: &Marker, is_its_own: impl FnOnce(ProcessKey) -> bool) -> Seen {
    if !places.root.is_dir() {
        return Seen::Nothing;
    }
    // A directory without state was made a moment ago, or is being deleted.
    let Some(state) = State::load(&places.state()) else {
        return Seen::Stopped;
    };
    let main = state.main().filter(|key| is_its_own(*key));
    if let Some(key) = main.or_else(|| state.living(marker)) {
        return Seen::Lives(key, state.port);
    }
    match state.phase {
        Phase::Stopping | Phase::Stopped => Seen::Stopped,
        Phase::Exited { detail } => Seen::Exited(detail),
        Phase::Starting if state.boot == proc::boot_id() => marker::find_main(marker, state.port)
            .map_or(Seen::Stopped, |key| Seen::Lives(key, state.port)),
        Phase::Starting | Phase::Running if state.boot != proc::boot_id() => {
            Seen::Exited("the machine was restarted".to_owned())
        }
        Phase::Starting | Phase::Running => Seen::Exited(describe(
            "ended while the service was not watching",
            places,
            &[],
        )),
    }
}

/// `the agent server <what>`, with the end of its log. Blocks.
pub(crate) fn describe(what: &str, places: &Places, keys: &[secrecy::SecretString]) -> String {
    let names = [
        (places.root.clone(), "<sandbox>"),
        (places.short.clone(), "<sandbox>"),
    ];
    let quoted = log::quote(&places.log(), keys, &names);
    if quoted.is_empty() {
        format!("the agent server {what}; it logged nothing")
    } else {
        format!("the agent server {what}. The end of its log:\n{quoted}")
    }
}
