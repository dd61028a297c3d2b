//! Reads the state of sandboxes without waiting for operations.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bollard::models::{
    ContainerInspectResponse, ContainerStateStatusEnum as Status, ContainerSummary,
    ContainerSummaryStateEnum as Listed, PortMap,
};
use bollard::query_parameters::{InspectContainerOptions, ListVolumesOptionsBuilder};
use chrono::DateTime;
use domain::error::chain;
use domain::id::SandboxId;
use domain::sandbox::{BackendFact, BackendState, SandboxEndpoints, SandboxError, mask_line};
use futures::{StreamExt, TryStreamExt, stream};
use sandbox_provider::{SECRET_KEY_VARIABLE, SESSION_KEY_VARIABLE, describe_exit};
use secrecy::SecretString;
use tokio::time::sleep;

use crate::backend::DockerInner;
use crate::container::exit::{self, ContainerExit};
use crate::container::labels::{self, Labels};
use crate::container::published_ports;
use crate::engine::errors::{EngineError, EngineErrorKind};
use crate::lifecycle::ownership::Ownership;
use crate::lifecycle::state_cache::{KnownState, ListedState};
use crate::logs;

const MAX_PARALLEL_INSPECTIONS: usize = 8;

/// Time after an exit in which an engine may still report lack of memory as the cause.
const OOM_REPORT_GRACE: Duration = Duration::from_millis(250);
const RECENT_EXIT_AGE: Duration = Duration::from_secs(5);
/// A container that ran longer may hold a user's work.
const MAX_SHORT_RUN: Duration = Duration::from_secs(10);

/// A container of this installation, as inspected.
pub(crate) struct ContainerSnapshot {
    pub(crate) id: String,
    pub(crate) status: Status,
    pub(crate) labels: Labels,
    pub(crate) exit: ContainerExit,
    /// Whether it was ever started, so that it may hold a user's work.
    pub(crate) has_run: bool,
    started_at: String,
    finished_at: String,
    ports: PortMap,
    /// `NAME=VALUE`. Contains keys and is never printed.
    environment: Vec<String>,
}

/// A response without a mandatory field.
const UNEXPECTED_RESPONSE: EngineErrorKind = EngineErrorKind::Other;

impl ContainerSnapshot {
    fn new(response: ContainerInspectResponse) -> Option<Self> {
        let (state, config) = (response.state?, response.config?);
        let memory = response.host_config.and_then(|host| host.memory);
        let started = state.started_at.as_deref().unwrap_or_default();
        Some(Self {
            id: response.id?,
            status: state.status?,
            exit: ContainerExit::new(&state, memory),
            // The engine's value for "never".
            has_run: !started.is_empty() && !started.starts_with("0001-"),
            finished_at: state.finished_at.unwrap_or_default(),
            started_at: started.to_owned(),
            labels: config.labels.unwrap_or_default(),
            ports: response
                .network_settings
                .and_then(|settings| settings.ports)
                .unwrap_or_default(),
            environment: config.env.unwrap_or_default(),
        })
    }

    /// Whether the container's processes exist, frozen or not.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(
            self.status,
            Status::RUNNING | Status::PAUSED | Status::RESTARTING | Status::STOPPING
        )
    }

    /// Whether the container ended so soon that it cannot hold work.
    pub(crate) fn is_short_run(&self) -> bool {
        let time = |text: &str| DateTime::parse_from_rfc3339(text);
        match (time(&self.started_at), time(&self.finished_at)) {
            // The engine's times of a short run may be out of order.
            (Ok(start), Ok(end)) => (end - start)
                .to_std()
                .map_or(true, |ran| ran < MAX_SHORT_RUN),
            _ => false,
        }
    }

    /// Whether the container ended a moment ago, by the clocks of the engine and of this machine.
    fn ended_recently(&self) -> bool {
        let Ok(ended) = DateTime::parse_from_rfc3339(&self.finished_at) else {
            return false;
        };
        let ended = SystemTime::from(ended);
        let now = SystemTime::now();
        let age = now
            .duration_since(ended)
            .or_else(|_| ended.duration_since(now));
        age.is_ok_and(|age| age < RECENT_EXIT_AGE)
    }

    /// The values to mask in quotations.
    pub(crate) fn keys(&self) -> Vec<SecretString> {
        let listed = self.labels.get(labels::SECRETS).map(String::as_str);
        let listed = listed.unwrap_or_default().split(',');
        let secret: Vec<&str> = listed
            .chain([SESSION_KEY_VARIABLE, SECRET_KEY_VARIABLE])
            .collect();
        let pairs = self
            .environment
            .iter()
            .filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|(name, _)| secret.contains(name))
            .map(|(_, value)| SecretString::from(value))
            .collect()
    }
}

impl DockerInner {
    pub(crate) async fn container(
        &self,
        id: &SandboxId,
    ) -> Result<Ownership<ContainerSnapshot>, EngineError> {
        let name = labels::name(id);
        Ok(match self.inspect_container(&name).await? {
            Some(container) if self.is_ours(id, &name, &container.labels) => {
                Ownership::Ours(container)
            }
            Some(_) => Ownership::Foreign,
            None => Ownership::Missing,
        })
    }

    /// Inspects the container of this name or id.
    async fn inspect_container(
        &self,
        container: &str,
    ) -> Result<Option<ContainerSnapshot>, EngineError> {
        const OPERATION: &str = "inspecting the container";
        let response = self.engine.call(OPERATION, |docker| {
            docker.inspect_container(container, None::<InspectContainerOptions>)
        });
        match response.await {
            Ok(response) => ContainerSnapshot::new(response)
                .map(Some)
                .ok_or_else(|| EngineError::of(OPERATION, UNEXPECTED_RESPONSE)),
            Err(error) if error.kind == EngineErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn volume(&self, id: &SandboxId) -> Result<Ownership<()>, EngineError> {
        let name = labels::name(id);
        let response = self.engine.call("inspecting the volume", |docker| {
            docker.inspect_volume(&name)
        });
        match response.await {
            Ok(volume) if self.is_ours(id, &name, &volume.labels) => Ok(Ownership::Ours(())),
            Ok(_) => Ok(Ownership::Foreign),
            Err(error) if error.kind == EngineErrorKind::NotFound => Ok(Ownership::Missing),
            Err(error) => Err(error),
        }
    }

    fn is_ours(&self, id: &SandboxId, name: &str, labels: &Labels) -> bool {
        labels::sandbox(&self.config.instance, name, labels).as_ref() == Some(id)
    }

    /// The state of one sandbox; `None` if it has no resource.
    pub(crate) async fn observe(
        &self,
        id: &SandboxId,
    ) -> Result<Option<BackendState>, EngineError> {
        match self.container(id).await? {
            Ownership::Ours(container) => Ok(Some(self.state_of(id, &container).await)),
            Ownership::Missing | Ownership::Foreign => Ok(match self.volume(id).await? {
                Ownership::Ours(()) => Some(BackendState::Remains),
                Ownership::Missing | Ownership::Foreign => None,
            }),
        }
    }

    /// The endpoints of a running container; also caches its ports.
    pub(crate) fn endpoints_of(
        &self,
        id: &SandboxId,
        container: &ContainerSnapshot,
    ) -> Option<SandboxEndpoints> {
        let published = published_ports::from_inspection(&container.ports, &container.labels);
        let endpoints = published_ports::endpoints(&self.config, &container.labels, &published)?;
        self.states.set_ports(id, &endpoints);
        Some(endpoints)
    }

    async fn state_of(&self, id: &SandboxId, container: &ContainerSnapshot) -> BackendState {
        match container.status {
            Status::RUNNING | Status::RESTARTING | Status::STOPPING => self
                .endpoints_of(id, container)
                .map_or_else(unpublished, BackendState::Running),
            Status::PAUSED | Status::CREATED => BackendState::Stopped,
            Status::REMOVING => BackendState::Remains,
            Status::EXITED | Status::DEAD | Status::EMPTY => {
                let is_orderly = container.exit.is_orderly();
                match self.known_exit_state(id, is_orderly) {
                    Some(state) => state,
                    None => BackendState::Exited {
                        detail: self.describe_exit(container).await,
                    },
                }
            }
        }
    }

    /// The state of an exited container, as far as the cache knows it without the engine.
    fn known_exit_state(&self, id: &SandboxId, is_orderly: bool) -> Option<BackendState> {
        match self.states.recall(id) {
            (KnownState::Stopped, _) => Some(BackendState::Stopped),
            (KnownState::Exited, Some(detail)) => Some(BackendState::Exited { detail }),
            (KnownState::Unknown, _) if is_orderly => Some(BackendState::Stopped),
            _ => None,
        }
    }

    pub(crate) async fn describe_exit(&self, container: &ContainerSnapshot) -> String {
        let keys = container.keys();
        let mut exit = container.exit.clone();
        if exit.is_possible_oom() && container.ended_recently() {
            // Engines report lack of memory a moment after the end.
            sleep(OOM_REPORT_GRACE).await;
            if let Ok(Some(again)) = self.inspect_container(&container.id).await {
                exit = again.exit;
            }
        }
        let description = mask_line(&exit.describe(), &keys);
        let quoted = logs::quote(&self.engine, &container.id, &keys).await;
        describe_exit(&description, &quoted)
    }

    /// The states of all sandboxes of this installation. Makes two calls to the engine, and one more for each exit without
    /// a known cause.
    pub(crate) async fn observe_all(&self) -> Result<Vec<BackendFact>, SandboxError> {
        let (volumes, containers) = self.list_resources().await?;
        let states = containers.into_iter().map(|(id, listed)| async move {
            let state = match self.listed_state(&id, &listed) {
                Some(state) => Some(state),
                None => match self.inspected_state(&id).await {
                    // A container that the engine cannot inspect must not hide all others.
                    Err(error) if !error.is_connection_failure() => {
                        tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot inspect an exited container; the cause of its end stays unknown");
                        let detail = format!("the container exited; cannot read the cause: {}", error.detail());
                        Some(BackendState::Exited { detail })
                    }
                    state => state?,
                },
            };
            Ok::<_, EngineError>(state.map(|state| BackendFact { id, state }))
        });
        let facts: Vec<_> = stream::iter(states)
            .buffer_unordered(MAX_PARALLEL_INSPECTIONS)
            .try_filter_map(|fact| async { Ok(fact) })
            .try_collect()
            .await?;
        let with_container: std::collections::HashSet<_> =
            facts.iter().map(|fact| fact.id.clone()).collect();
        let remains = volumes
            .into_iter()
            .filter(|id| !with_container.contains(id))
            .map(|id| BackendFact {
                id,
                state: BackendState::Remains,
            });
        Ok(facts.into_iter().chain(remains).collect())
    }

    async fn inspected_state(&self, id: &SandboxId) -> Result<Option<BackendState>, EngineError> {
        let state = self.observe(id).await?;
        if let Some(BackendState::Exited { detail }) = &state {
            self.states.remember_exit(id, detail);
        }
        Ok(state)
    }

    /// The state as far as the list contains it.
    fn listed_state(&self, id: &SandboxId, listed: &ContainerSummary) -> Option<BackendState> {
        let none = Labels::new();
        let labels = listed.labels.as_ref().unwrap_or(&none);
        match listed.state? {
            Listed::RUNNING | Listed::RESTARTING | Listed::STOPPING => {
                let published =
                    published_ports::from_list(listed.ports.as_deref().unwrap_or_default());
                let endpoints = published_ports::endpoints(&self.config, labels, &published);
                Some(endpoints.map_or_else(unpublished, BackendState::Running))
            }
            Listed::PAUSED | Listed::CREATED => Some(BackendState::Stopped),
            Listed::REMOVING => Some(BackendState::Remains),
            Listed::EXITED | Listed::DEAD | Listed::EMPTY => {
                let code = listed.status.as_deref().and_then(exit::listed_code);
                self.known_exit_state(id, code.is_some_and(exit::is_orderly))
            }
        }
    }

    /// The coarse states of all sandboxes.
    pub(crate) async fn overview(&self) -> Result<HashMap<SandboxId, ListedState>, EngineError> {
        let (volumes, containers) = self.list_resources().await?;
        let volumes = volumes.into_iter().map(|id| (id, ListedState::VolumeOnly));
        let containers = containers.into_iter().map(|(id, listed)| {
            let state = match listed.state {
                Some(Listed::RUNNING | Listed::RESTARTING | Listed::STOPPING) => {
                    ListedState::Running
                }
                Some(Listed::REMOVING) => ListedState::VolumeOnly,
                _ => ListedState::Stopped,
            };
            (id, state)
        });
        Ok(volumes.chain(containers).collect())
    }

    /// Lists volumes and containers of this installation, volumes first. A volume is created before its container, so the
    /// other order would make a new sandbox look like one that lost its container.
    async fn list_resources(
        &self,
    ) -> Result<(Vec<SandboxId>, Vec<(SandboxId, ContainerSummary)>), EngineError> {
        let instance = &self.config.instance;
        let label = labels::of_instance(instance);
        let filters = HashMap::from([("label", vec![label.as_str()])]);
        let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
        let volumes = self.engine.call("listing volumes", |docker| {
            docker.list_volumes(Some(options))
        });
        let volumes = volumes.await?.volumes.unwrap_or_default().into_iter();
        let containers = self.engine.containers(instance, false).await?.into_iter();
        let containers = containers.filter_map(|listed| {
            let name = listed.names.as_ref()?.first()?;
            let id = labels::sandbox(instance, name, listed.labels.as_ref()?)?;
            Some((id, listed))
        });
        let volumes =
            volumes.filter_map(|volume| labels::sandbox(instance, &volume.name, &volume.labels));
        Ok((volumes.collect(), containers.collect()))
    }
}

/// A container runs, but its port is not published.
fn unpublished() -> BackendState {
    BackendState::Exited {
        detail: "the container runs, but its agent server's port is no longer published (it was detached from its \
                 network): resume the sandbox to recreate its container with the same workspace"
            .to_owned(),
    }
}
