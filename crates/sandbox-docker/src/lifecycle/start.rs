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

use bollard::models::{ContainerStateStatusEnum as Status, NetworkConnectRequest};
use bollard::query_parameters::StartContainerOptions;
use domain::error::chain;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{SandboxEndpoints, SandboxError, SandboxLaunch, SandboxLock};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{DockerInner, START_QUEUE_TIMEOUT};
use crate::config::DockerSpec;
use crate::container::labels;
use crate::engine::errors::{EngineError, EngineErrorKind};
use crate::lifecycle::create::{CreateOutcome, foreign};
use crate::lifecycle::observe::ContainerSnapshot;
use crate::lifecycle::ownership::Ownership;
use crate::lifecycle::state_cache::{KnownState, OperationGuard};

/// Interval of checks while another task or process changes the container.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

struct StoppedContainer<'a> {
    id: &'a str,
    /// Whether it was ever started.
    has_run: bool,
    /// Whether its programs use the forward proxy.
    has_proxy: bool,
}

impl DockerInner {
    pub(crate) async fn acquire_start_permit(&self) -> Result<OwnedSemaphorePermit, SandboxError> {
        timeout(START_QUEUE_TIMEOUT, self.starts.clone().acquire_owned())
            .await
            .map_err(|_| SandboxError::TimedOut {
                what: "waiting for a free start slot of the container engine",
            })?
            .map_err(SandboxError::other)
    }

    pub(crate) fn spec(&self, id: &SpecId) -> Result<&DockerSpec, SandboxError> {
        let spec = self.config.specs.iter().find(|spec| spec.id == *id);
        spec.ok_or_else(|| SandboxError::start_failed(format!(
                "the sandbox has no container, and its template {id} is not configured: the operator has to configure it again"
            )))
    }

    /// The caller holds the lock of this sandbox.
    pub(crate) async fn start(
        &self,
        launch: SandboxLaunch,
        _lock: SandboxLock,
        _permit: OwnedSemaphorePermit,
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
        self.network.admit(&launch.webhook_url).await;
        self.network.check().await?;
        let known = self.states.recall(&launch.id).0;
        // Creating first saves a call for a new sandbox, inspecting first for an existing one. An existing container needs
        // no template: an upgrade may have removed it.
        let mut inspect_first = matches!(
            known,
            KnownState::Running | KnownState::Stopped | KnownState::Exited
        ) || self.spec(&launch.spec).is_err();
        let deadline = Instant::now() + self.engine.limit();
        while Instant::now() < deadline {
            if !inspect_first
                && let CreateOutcome::Created { id, has_proxy } =
                    self.create(launch, operation).await?
            {
                let new = StoppedContainer {
                    id: &id,
                    has_run: false,
                    has_proxy,
                };
                if let Some(endpoints) = self.run(launch, new, operation).await? {
                    return Ok(endpoints);
                }
                inspect_first = true;
                continue;
            }
            inspect_first = match self.snapshot(&launch.id).await? {
                Ownership::Foreign => return Err(foreign("container", launch)),
                Ownership::Ours(container) => {
                    if let Some(endpoints) =
                        self.start_existing(launch, &container, operation).await?
                    {
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
        Err(SandboxError::start_failed(
            "its container keeps changing: the operator has to check that no other service uses the same installation id on this engine",
        ))
    }

    async fn snapshot(&self, id: &SandboxId) -> Result<Ownership<ContainerSnapshot>, SandboxError> {
        self.container(id).await.map_err(EngineError::start_failed)
    }

    /// Starts an existing container. `None`: it was (or is being) removed.
    async fn start_existing(
        &self,
        launch: &SandboxLaunch,
        container: &ContainerSnapshot,
        operation: &OperationGuard,
    ) -> Result<Option<SandboxEndpoints>, SandboxError> {
        match container.status {
            Status::RUNNING => {
                if let Some(endpoints) = self.endpoints_of(&launch.id, container) {
                    operation.set_state(KnownState::Running);
                    return Ok(Some(endpoints));
                }
                tracing::warn!(sandbox.id = %launch.id, "sandbox {} is unreachable; recreating its container", launch.id);
                self.discard_container(&container.id).await.map(|()| None)
            }
            Status::PAUSED => {
                let unpaused = self.engine.call("unpausing the container", |docker| {
                    docker.unpause_container(&container.id)
                });
                self.endpoints_after_start(launch, unpaused.await, operation)
                    .await
            }
            // Its agent server was never executed, so the container holds no work. The template may be correct by now.
            Status::EXITED if container.exit.is_unrunnable() && container.is_short_run() => {
                self.discard_container(&container.id).await.map(|()| None)
            }
            Status::CREATED | Status::EXITED | Status::EMPTY => {
                let stopped = StoppedContainer {
                    id: &container.id,
                    has_run: container.has_run,
                    has_proxy: container.labels.contains_key(labels::PROXY),
                };
                self.run(launch, stopped, operation).await
            }
            Status::DEAD => self.discard_container(&container.id).await.map(|()| None),
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
        container: StoppedContainer<'_>,
        operation: &OperationGuard,
    ) -> Result<Option<SandboxEndpoints>, SandboxError> {
        let StoppedContainer {
            id: container,
            has_run,
            has_proxy,
        } = container;
        if has_proxy && !self.write_certificates(launch, container).await? {
            return Ok(None);
        }
        let mut started = self.start_once(container).await;
        if has_run
            && let Err(error) = &started
            && error.kind == EngineErrorKind::NetworkMissing
        {
            // A container stores the id of its network, and a recreated network has another id.
            self.network.forget().await;
            let network = self.network.ensure().await?;
            started = match self.attach(container, network.id).await {
                Ok(()) => self.start_once(container).await,
                Err(error) => Err(error),
            };
        }
        if !has_run && let Err(error) = &started {
            // The container holds no work. The next one gets the current template and network.
            match error.kind {
                EngineErrorKind::NetworkMissing => {
                    self.discard_container(container).await?;
                    self.network.forget().await;
                    return Ok(None);
                }
                EngineErrorKind::Other => {
                    if let Err(error) = self.discard_container(container).await {
                        tracing::warn!(sandbox.id = %launch.id, error = %chain(&error), "cannot remove a container that does not \
                             start");
                    }
                }
                _ => {}
            }
        }
        let endpoints = self.endpoints_after_start(launch, started, operation);
        let endpoints = endpoints.await?;
        if has_proxy
            && !has_run
            && endpoints.is_some()
            && !self.proxy.is_reached_from(container).await
        {
            // The next one has no proxy.
            return self.discard_container(container).await.map(|()| None);
        }
        Ok(endpoints)
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

    /// The endpoints after a start or unpause. `None`: another process changed the container.
    async fn endpoints_after_start(
        &self,
        launch: &SandboxLaunch,
        started: Result<(), EngineError>,
        operation: &OperationGuard,
    ) -> Result<Option<SandboxEndpoints>, SandboxError> {
        match started {
            Ok(()) => {}
            // Another process changed the container: inspect it again.
            Err(error) if error.is_changed_elsewhere() => {
                sleep(POLL_INTERVAL).await;
                return Ok(None);
            }
            Err(error) => return Err(error.start_failed()),
        }
        operation.set_state(KnownState::Running);
        match self.snapshot(&launch.id).await? {
            Ownership::Ours(container) if container.is_alive() => {
                let endpoints = self.endpoints_of(&launch.id, &container).ok_or_else(|| {
                    SandboxError::start_failed("the engine did not publish the agent server's port: the operator has to check docker.ports of its template")
                })?;
                tracing::info!(sandbox.id = %launch.id, url = %endpoints.agent_url, "sandbox {} started", launch.id);
                Ok(Some(endpoints))
            }
            Ownership::Ours(container) => {
                let detail = self.describe_exit(&container).await;
                operation.set_exited(detail.clone());
                Err(SandboxError::start_failed(detail))
            }
            Ownership::Missing | Ownership::Foreign => Ok(None),
        }
    }

    /// Removes a container in any state, and keeps the volume.
    pub(crate) async fn discard_container(&self, container: &str) -> Result<(), SandboxError> {
        match self.remove_container_once(container).await {
            // Another process is removing it: the caller inspects again.
            Err(error) if !error.is_changed_elsewhere() => Err(error.removal_failed()),
            _ => Ok(()),
        }
    }
}
