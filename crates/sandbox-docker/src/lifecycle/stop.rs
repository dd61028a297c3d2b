//! Stops and removes sandboxes.

use std::time::Duration;

use bollard::models::ContainerStateStatusEnum as Status;
use bollard::query_parameters::{
    RemoveContainerOptionsBuilder, RemoveVolumeOptions, StopContainerOptionsBuilder,
};
use domain::id::SandboxId;
use domain::sandbox::{BackendFact, BackendState, SandboxError};
use tokio::time::{Instant, sleep};

use crate::backend::DockerInner;
use crate::config::PauseMode;
use crate::container;
use crate::container::labels;
use crate::engine::errors::{EngineError, EngineErrorKind};
use crate::lifecycle::observe::ContainerSnapshot;
use crate::lifecycle::ownership::Ownership;
use crate::lifecycle::state_cache::{KnownState, OperationGuard};

/// Backoff while another process removes the resource.
const MIN_REMOVAL_BACKOFF: Duration = Duration::from_millis(20);
const MAX_REMOVAL_BACKOFF: Duration = Duration::from_millis(500);

impl DockerInner {
    pub(crate) async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let _lock = self.lock(id).await?;
        let operation = self.states.begin(id);
        let outcome = self.stop_unlocked(id, &operation).await;
        if !matches!(outcome, Ok(()) | Err(SandboxError::NotFound)) {
            operation.set_uncertain();
        }
        outcome
    }

    async fn stop_unlocked(
        &self,
        id: &SandboxId,
        operation: &OperationGuard,
    ) -> Result<(), SandboxError> {
        let container = match self.container(id).await? {
            Ownership::Ours(container) if container.status != Status::REMOVING => container,
            _ => {
                return match self.volume(id).await? {
                    Ownership::Ours(()) => {
                        operation.set_state(KnownState::VolumeOnly);
                        Ok(())
                    }
                    Ownership::Missing | Ownership::Foreign => Err(SandboxError::NotFound),
                };
            }
        };
        // From here on the exit counts as requested, even if this process crashes.
        operation.set_state(KnownState::Stopped);
        match self.stop_or_freeze(&container).await {
            Ok(()) => {}
            // It exited or was removed in the meantime.
            Err(error) if error.is_changed_elsewhere() => {
                if let Ownership::Ours(container) = self.container(id).await?
                    && container.status == Status::RUNNING
                {
                    return Err(error.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
        tracing::info!(sandbox.id = %id, "sandbox {id} stopped");
        Ok(())
    }

    /// Stops or freezes it, as its template says.
    async fn stop_or_freeze(&self, container: &ContainerSnapshot) -> Result<(), EngineError> {
        match (container.is_alive(), labels::pause(&container.labels)) {
            (false, _) => Ok(()),
            (true, PauseMode::Freeze) if container.status == Status::PAUSED => Ok(()),
            (true, PauseMode::Freeze) => {
                let frozen = self.engine.call("pausing the container", |docker| {
                    docker.pause_container(&container.id)
                });
                frozen.await
            }
            (true, PauseMode::Stop) => self.stop_container(&container.id).await,
        }
    }

    /// Stops it gracefully, and kills it after the grace period.
    async fn stop_container(&self, container: &str) -> Result<(), EngineError> {
        let seconds = i32::try_from(container::grace(&self.config)).unwrap_or(i32::MAX);
        let options = StopContainerOptionsBuilder::new().t(seconds).build();
        let limit = self.config.grace + self.engine.limit();
        let ended = self
            .engine
            .call_within("stopping the container", limit, |docker| {
                docker.stop_container(container, Some(options))
            });
        ended.await
    }

    /// Stops a running sandbox for this cause and reports it to the owner. Does nothing if it does not run.
    pub(crate) async fn stop_for_cause(
        &self,
        id: &SandboxId,
        cause: String,
    ) -> Result<(), SandboxError> {
        let _lock = self.lock(id).await?;
        let operation = self.states.begin(id);
        match self.container(id).await? {
            Ownership::Ours(container) if container.status == Status::RUNNING => {
                if let Err(error) = self.stop_container(&container.id).await {
                    operation.set_uncertain();
                    return Err(error.into());
                }
            }
            _ => return Ok(()),
        }
        tracing::warn!(sandbox.id = %id, cause, "sandbox {id} stopped by the service");
        operation.set_exited(cause.clone());
        self.tasks.report(BackendFact {
            id: id.clone(),
            state: BackendState::Exited { detail: cause },
        });
        Ok(())
    }

    pub(crate) async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let _lock = self.lock(id).await?;
        let operation = self.states.begin(id);
        let deadline = Instant::now() + self.engine.limit();
        let outcome = match self.remove_container(id, deadline).await {
            Ok(()) => self.remove_volume(id, deadline).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(is_removed) => {
                operation.set_removed();
                if is_removed {
                    tracing::info!(sandbox.id = %id, "sandbox {id} removed");
                }
                Ok(())
            }
            Err(error) => {
                operation.set_uncertain();
                Err(error.removal_failed())
            }
        }
    }

    /// Returns when the container is gone.
    async fn remove_container(&self, id: &SandboxId, deadline: Instant) -> Result<(), EngineError> {
        let removed = retry_while_in_use(deadline, || async {
            let Ownership::Ours(container) = self.container(id).await? else {
                return Ok(false);
            };
            let removed = self.remove_container_once(&container.id).await;
            removed.map(|()| true)
        });
        removed.await.map(drop)
    }

    /// Also ends its processes and removes the anonymous volumes of its image.
    pub(super) async fn remove_container_once(&self, container: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::new()
            .force(true)
            .v(true)
            .build();
        let removed = self.engine.call("removing the container", |docker| {
            docker.remove_container(container, Some(options))
        });
        removed.await
    }

    /// Returns when the volume is gone, and whether there was one.
    async fn remove_volume(&self, id: &SandboxId, deadline: Instant) -> Result<bool, EngineError> {
        let name = &labels::name(id);
        let removed = retry_while_in_use(deadline, || async {
            let Ownership::Ours(()) = self.volume(id).await? else {
                return Ok(false);
            };
            let removed = self.engine.call("removing the volume", |docker| {
                docker.remove_volume(name, None::<RemoveVolumeOptions>)
            });
            removed.await.map(|()| true)
        });
        removed.await
    }
}

/// Repeats a removal while another process removes the resource, or the engine has not released it yet. Returns whether there
/// was one.
async fn retry_while_in_use<Removal>(
    deadline: Instant,
    remove: impl Fn() -> Removal,
) -> Result<bool, EngineError>
where
    Removal: Future<Output = Result<bool, EngineError>>,
{
    let mut backoff = MIN_REMOVAL_BACKOFF;
    loop {
        match remove().await {
            Err(error) if error.kind == EngineErrorKind::NotFound => return Ok(true),
            Err(error) if error.kind == EngineErrorKind::Conflict && Instant::now() <= deadline => {
                sleep(backoff).await;
            }
            result => return result,
        }
        backoff = (backoff * 2).min(MAX_REMOVAL_BACKOFF);
    }
}
