//! Starts sandboxes: creates the container, or continues with what an earlier call left, in any state.
//!
//! ```text
//!   create ──new───► start ──► inspect ──► endpoints
//!     │ name in use          ▲
//!     ▼                      │
//!   existing one?  ── created, exited ──┘        running ──► endpoints       paused ──► unpause ──► inspect
//!                  └─ dead, being removed, unreachable ──► remove, recreate around the same volume
//! ```

use std::time::Duration;

use bollard::models::{
    ContainerStateStatusEnum as Status, NetworkConnectRequest, VolumeCreateRequest,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, RemoveContainerOptionsBuilder,
    StartContainerOptions,
};
use domain::error::chain;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{SandboxEndpoints, SandboxError, SandboxLaunch};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{DockerInner, START_QUEUE_TIMEOUT};
use crate::config::DockerSpec;
use crate::container;
use crate::errors::{EngineError, EngineErrorKind};
use crate::labels;
use crate::observe::{ContainerSnapshot, Ownership};
use crate::state_cache::{KnownState, OperationGuard};

/// Interval of checks while another task or process changes the container.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The permit of one of the concurrent starts.
pub(crate) type ContainerStartPermit = OwnedSemaphorePermit;

/// The result of a creation.
enum CreateOutcome {
    Created(String),
    NameInUse,
}

impl DockerInner {
    /// Waits for a permit to start a container.
    pub(crate) async fn acquire_start_permit(&self) -> Result<ContainerStartPermit, SandboxError> {
        let acquire_start_permit =
            timeout(START_QUEUE_TIMEOUT, self.starts.clone().acquire_owned());
        acquire_start_permit
            .await
            .map_err(|_| SandboxError::TimedOut {
                what: "a turn to start the container",
            })?
            .map_err(|error| SandboxError::Other(Box::new(error)))
    }

    /// The configured template of this id.
    pub(crate) fn spec(&self, id: &SpecId) -> Result<&DockerSpec, SandboxError> {
        let spec = self.config.specs.iter().find(|spec| spec.id == *id);
        spec.ok_or_else(|| start_failed(format!(
                "there is no sandbox template {id} any more, and no container of it: the operator has to configure it again"
            )))
    }

    /// The caller holds the lock of this sandbox.
    pub(crate) async fn start(
        &self,
        launch: SandboxLaunch,
        _guard: OwnedMutexGuard<()>,
        _permit: ContainerStartPermit,
    ) -> Result<SandboxEndpoints, SandboxError> {
        let operation = self.states.begin(&launch.id);
        let outcome = self.start_unlocked(&launch, &operation).await;
        if outcome.is_err() {
            operation.set_uncertain();
        }
        outcome
    }

    async fn start_unlocked(
        &self,
        launch: &SandboxLaunch,
        operation: &OperationGuard,
    ) -> Result<SandboxEndpoints, SandboxError> {
        let known = self.states.recall(&launch.id).0;
        // Creating first saves a call for a new sandbox, inspecting first for an existing one. An existing container needs
        // no template: an upgrade may have removed it.
        let mut look_first = matches!(
            known,
            KnownState::Running | KnownState::Stopped | KnownState::Exited
        ) || self.spec(&launch.spec).is_err();
        let deadline = Instant::now() + self.engine.limit();
        while Instant::now() < deadline {
            if !look_first
                && let CreateOutcome::Created(id) = self.create(launch, operation).await?
            {
                if let Some(endpoints) = self.run(launch, &id, false, operation).await? {
                    return Ok(endpoints);
                }
                look_first = true;
                continue;
            }
            look_first = match self.found(&launch.id).await? {
                Ownership::Foreign => return Err(foreign("container", launch)),
                Ownership::Ours(found) => {
                    if let Some(endpoints) = self.take_over(launch, &found, operation).await? {
                        return Ok(endpoints);
                    }
                    true
                }
                // Another process is creating it: the name is taken before the container is visible.
                Ownership::Missing => {
                    sleep(POLL_INTERVAL).await;
                    false
                }
            };
        }
        Err(start_failed(
            "something else keeps changing its container; is another service of this installation running?".to_owned(),
        ))
    }

    async fn found(&self, id: &SandboxId) -> Result<Ownership<ContainerSnapshot>, SandboxError> {
        self.container(id).await.map_err(EngineError::start_failed)
    }

    /// Creates a container, and its volume if needed.
    async fn create(
        &self,
        launch: &SandboxLaunch,
        operation: &OperationGuard,
    ) -> Result<CreateOutcome, SandboxError> {
        let spec = self.spec(&launch.spec)?;
        self.make_volume(launch).await?;
        let network = self.network.ensure().await?;
        let storage = self.disk.storage_options(spec).await;
        let limits_storage = storage.is_some();
        let first = self.create_once(launch, spec, network, storage).await;
        let made = match first {
            Err(error) if limits_storage && self.disk.is_refusal(&error) => {
                let network = self.network.ensure().await?;
                self.create_once(launch, spec, network, None).await
            }
            Err(error) if error.kind == EngineErrorKind::NetworkMissing => {
                self.network.forget().await;
                let network = self.network.ensure().await?;
                let storage = self.disk.storage_options(spec).await;
                self.create_once(launch, spec, network, storage).await
            }
            other => other,
        };
        match made {
            Ok((id, warnings)) => {
                operation.set_warnings(Self::serious(launch, warnings));
                self.check_runtime(&id).await?;
                Ok(CreateOutcome::Created(id))
            }
            Err(error) if error.kind == EngineErrorKind::Conflict => Ok(CreateOutcome::NameInUse),
            Err(error) => {
                if error.kind == EngineErrorKind::ImageMissing {
                    self.images.forget(&spec.image);
                }
                Err(error.start_failed())
            }
        }
    }

    /// The warnings for the owner. Engines that cannot limit swap warn each time.
    fn serious(launch: &SandboxLaunch, warnings: Vec<String>) -> Vec<String> {
        let (minor, serious): (Vec<_>, Vec<_>) = warnings
            .into_iter()
            .partition(|it| it.to_ascii_lowercase().contains("swap"));
        tracing::debug!(sandbox.id = %launch.id, ?minor, "the engine on the new container");
        for warning in &serious {
            tracing::warn!(sandbox.id = %launch.id, warning, "the engine could not apply all settings of the new \
                 container");
        }
        serious
    }

    async fn create_once(
        &self,
        launch: &SandboxLaunch,
        spec: &DockerSpec,
        network: String,
        storage: Option<std::collections::HashMap<String, String>>,
    ) -> Result<(String, Vec<String>), EngineError> {
        let name = labels::name(&launch.id);
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let body = container::body(&self.config, spec, launch, network, storage);
        let created = self.engine.call("creating the container", |docker| {
            docker.create_container(Some(options), body)
        });
        created.await.map(|created| (created.id, created.warnings))
    }

    /// Creates the volume before the container, because some engines add no labels to implicitly created volumes. Refuses a
    /// foreign volume of that name.
    async fn make_volume(&self, launch: &SandboxLaunch) -> Result<(), SandboxError> {
        let (instance, name) = (&self.config.instance, labels::name(&launch.id));
        let request = VolumeCreateRequest {
            name: Some(name.clone()),
            labels: Some(labels::of_volume(instance, launch)),
            ..VolumeCreateRequest::default()
        };
        let made = self.engine.call("creating the volume", |docker| {
            docker.create_volume(request)
        });
        // If the name is in use, the engine reports that.
        let made = made.await.map_err(EngineError::start_failed)?;
        if labels::sandbox(instance, &name, &made.labels).as_ref() == Some(&launch.id) {
            Ok(())
        } else {
            Err(foreign("volume", launch))
        }
    }

    /// Refuses a container with the wrong runtime: some engines ignore the requested one.
    async fn check_runtime(&self, container: &str) -> Result<(), SandboxError> {
        let Some(wanted) = &self.config.runtime else {
            return Ok(());
        };
        let seen = self.engine.call("inspecting the container", |docker| {
            docker.inspect_container(container, None::<InspectContainerOptions>)
        });
        let seen = seen.await.map_err(EngineError::start_failed)?;
        let given = seen.host_config.and_then(|host| host.runtime);
        if given.as_ref() == Some(wanted) {
            return Ok(());
        }
        self.discard(container).await?;
        let given = given.unwrap_or_default();
        Err(start_failed(format!(
            "the container engine ignores the requested runtime {wanted} (it reports {given:?}): the operator has to \
                 make it the engine's default and remove WORKSPACE_DOCKER__RUNTIME, or use another engine"
        )))
    }

    /// Starts an existing container. `None`: it was (or is being) removed.
    async fn take_over(
        &self,
        launch: &SandboxLaunch,
        found: &ContainerSnapshot,
        operation: &OperationGuard,
    ) -> Result<Option<SandboxEndpoints>, SandboxError> {
        match found.status {
            Status::RUNNING => {
                if let Some(endpoints) = self.endpoints_of(&launch.id, found) {
                    operation.set_state(KnownState::Running);
                    return Ok(Some(endpoints));
                }
                tracing::warn!(sandbox.id = %launch.id, "sandbox {} is unreachable; recreating its container", launch.id);
                self.discard(&found.id).await.map(|()| None)
            }
            Status::PAUSED => {
                let thawed = self.engine.call("unpausing the container", |docker| {
                    docker.unpause_container(&found.id)
                });
                self.settled(launch, thawed.await, operation).await
            }
            // Its agent server was never executed, so the container holds no work. The template may be correct by now.
            Status::EXITED if found.exit.is_unrunnable() && found.is_short_run() => {
                self.discard(&found.id).await.map(|()| None)
            }
            Status::CREATED | Status::EXITED | Status::EMPTY => {
                self.run(launch, &found.id, found.has_run, operation).await
            }
            Status::DEAD => self.discard(&found.id).await.map(|()| None),
            Status::REMOVING | Status::RESTARTING | Status::STOPPING => {
                sleep(POLL_INTERVAL).await;
                Ok(None)
            }
        }
    }

    /// Starts a stopped container. `None`: it was removed.
    async fn run(
        &self,
        launch: &SandboxLaunch,
        container: &str,
        has_run: bool,
        operation: &OperationGuard,
    ) -> Result<Option<SandboxEndpoints>, SandboxError> {
        let mut started = self.start_once(container).await;
        if has_run
            && let Err(error) = &started
            && error.kind == EngineErrorKind::NetworkMissing
        {
            // A container stores the id of its network, and a recreated network has another id.
            self.network.forget().await;
            let network = self.network.ensure().await?;
            started = match self.attach(container, network).await {
                Ok(()) => self.start_once(container).await,
                Err(error) => Err(error),
            };
        }
        if !has_run && let Err(error) = &started {
            // The container holds no work. The next one gets the current template and network.
            match error.kind {
                EngineErrorKind::NetworkMissing => {
                    self.discard(container).await?;
                    self.network.forget().await;
                    return Ok(None);
                }
                EngineErrorKind::Other => {
                    if let Err(error) = self.discard(container).await {
                        tracing::warn!(sandbox.id = %launch.id, error = %chain(&error), "cannot remove a container that does not \
                             start");
                    }
                }
                _ => {}
            }
        }
        self.settled(launch, started, operation).await
    }

    async fn start_once(&self, container: &str) -> Result<(), EngineError> {
        let started = self.engine.call("starting the container", |docker| {
            docker.start_container(container, None::<StartContainerOptions>)
        });
        started.await
    }

    async fn attach(&self, container: &str, network: String) -> Result<(), EngineError> {
        let request = NetworkConnectRequest {
            container: container.to_owned(),
            ..NetworkConnectRequest::default()
        };
        let attached = self.engine.call(
            "attaching the container to its network",
            |docker| async move { docker.connect_network(&network, request).await },
        );
        attached.await
    }

    /// The endpoints after a start.
    async fn settled(
        &self,
        launch: &SandboxLaunch,
        started: Result<(), EngineError>,
        operation: &OperationGuard,
    ) -> Result<Option<SandboxEndpoints>, SandboxError> {
        match started {
            Ok(()) => {}
            // Another process changed the container: inspect it again.
            Err(error)
                if matches!(
                    error.kind,
                    EngineErrorKind::NotFound | EngineErrorKind::Conflict
                ) =>
            {
                sleep(POLL_INTERVAL).await;
                return Ok(None);
            }
            Err(error) => return Err(error.start_failed()),
        }
        operation.set_state(KnownState::Running);
        match self.found(&launch.id).await? {
            Ownership::Ours(container) if container.is_alive() => {
                let endpoints = self.endpoints_of(&launch.id, &container).ok_or_else(|| {
                    start_failed("the engine did not publish the agent server's port".to_owned())
                })?;
                tracing::info!(sandbox.id = %launch.id, url = %endpoints.agent_url, "sandbox {} started", launch.id);
                Ok(Some(endpoints))
            }
            Ownership::Ours(container) => {
                let detail = self.post_mortem(&container).await;
                operation.set_exited(detail.clone());
                Err(start_failed(detail))
            }
            Ownership::Missing | Ownership::Foreign => Ok(None),
        }
    }

    /// Removes a container in any state, and keeps the volume.
    pub(crate) async fn discard(&self, container: &str) -> Result<(), SandboxError> {
        let options = RemoveContainerOptionsBuilder::new()
            .force(true)
            .v(true)
            .build();
        let removed = self.engine.call("removing the container", |docker| {
            docker.remove_container(container, Some(options))
        });
        match removed.await {
            Ok(()) => Ok(()),
            Err(error) if error.kind == EngineErrorKind::NotFound => Ok(()),
            // Another process is removing it: the caller inspects again.
            Err(error) if error.kind == EngineErrorKind::Conflict => Ok(()),
            Err(error) => Err(error.still_here()),
        }
    }
}

fn start_failed(detail: String) -> SandboxError {
    SandboxError::StartFailed {
        detail,
        source: None,
    }
}

fn foreign(what: &str, launch: &SandboxLaunch) -> SandboxError {
    let name = labels::name(&launch.id);
    start_failed(format!(
        "the engine has a {what} named {name} that is not of this installation: it is left alone, and the operator has to \
         rename or remove it"
    ))
}
