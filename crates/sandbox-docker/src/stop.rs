//! Stopping and removing.

use std::time::Duration;

use bollard::models::ContainerStateStatusEnum as Status;
use bollard::query_parameters::{
    RemoveContainerOptionsBuilder, RemoveVolumeOptions, StopContainerOptionsBuilder,
};
use domain::id::SandboxId;
use domain::sandbox::{BackendFact, BackendState, SandboxError};
use tokio::time::{Instant, sleep};

use crate::backend::Inner;
use crate::config::PauseMode;
use crate::container;
use crate::errors::{EngineError, Kind};
use crate::facts::{Container, Found};
use crate::labels;
use crate::memory::{Life, Operation};

/// Pauses between two looks at what somebody else is removing.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

impl Inner {
    pub(crate) async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let _guard = self.lock(id).await?;
        let operation = self.memory.begin(id);
        let outcome = self.put_down(id, &operation).await;
        if !matches!(outcome, Ok(()) | Err(SandboxError::NotFound)) {
            operation.unsure();
        }
        outcome
    }

    async fn put_down(&self, id: &SandboxId, operation: &Operation) -> Result<(), SandboxError> {
        let container = match self.container(id).await? {
            Found::Ours(container) if container.status != Status::REMOVING => container,
            _ => {
                return match self.volume(id).await? {
                    Found::Ours(()) => {
                        operation.now(Life::Remains);
                        Ok(())
                    }
                    Found::Nothing | Found::Foreign => Err(SandboxError::NotFound),
                };
            }
        };
        // From here on its end is no news, also if we do not live to see it.
        operation.now(Life::Down);
        match self.quieten(&container).await {
            Ok(()) => {}
            // It ended or was removed by itself meanwhile.
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Conflict) => {
                if let Found::Ours(container) = self.container(id).await?
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

    /// Stops or freezes it, as its template has it.
    async fn quieten(&self, container: &Container) -> Result<(), EngineError> {
        match (container.is_alive(), labels::pause(&container.labels)) {
            (false, _) => Ok(()),
            (true, PauseMode::Freeze) if container.status == Status::PAUSED => Ok(()),
            (true, PauseMode::Freeze) => {
                let frozen = self.engine.call("pausing the container", |docker| {
                    docker.pause_container(&container.id)
                });
                frozen.await
            }
            (true, PauseMode::Stop) => self.end(&container.id).await,
        }
    }

    /// Asks it to end, and kills it when it does not.
    async fn end(&self, container: &str) -> Result<(), EngineError> {
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

    /// Puts down a running sandbox for this cause, which its owner is told. Nothing happens to one that does not run.
    pub(crate) async fn end_with_cause(
        &self,
        id: &SandboxId,
        cause: String,
    ) -> Result<(), SandboxError> {
        let _guard = self.lock(id).await?;
        let operation = self.memory.begin(id);
        match self.container(id).await? {
            Found::Ours(container) if container.status == Status::RUNNING => {
                if let Err(error) = self.end(&container.id).await {
                    operation.unsure();
                    return Err(error.into());
                }
            }
            _ => return Ok(()),
        }
        tracing::warn!(sandbox.id = %id, cause, "sandbox {id} put down");
        operation.ended(cause.clone());
        self.tell(BackendFact {
            id: id.clone(),
            state: BackendState::Exited { detail: cause },
        });
        Ok(())
    }

    pub(crate) async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let _guard = self.lock(id).await?;
        let operation = self.memory.begin(id);
        let deadline = Instant::now() + self.engine.limit();
        let outcome = match self.remove_container(id, deadline).await {
            Ok(()) => self.remove_volume(id, deadline).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(is_removed) => {
                operation.gone();
                if is_removed {
                    tracing::info!(sandbox.id = %id, "sandbox {id} removed");
                }
                Ok(())
            }
            Err(error) => {
                operation.unsure();
                Err(error.still_here())
            }
        }
    }

    /// Returns when there is no container of ours.
    async fn remove_container(&self, id: &SandboxId, deadline: Instant) -> Result<(), EngineError> {
        let mut pause = SHORTEST;
        loop {
            let Found::Ours(container) = self.container(id).await? else {
                return Ok(());
            };
            // The volumes that its image asks for have no name and nobody else: they go with it.
            let options = RemoveContainerOptionsBuilder::new()
                .force(true)
                .v(true)
                .build();
            let removed = self.engine.call("removing the container", |docker| {
                docker.remove_container(&container.id, Some(options))
            });
            match removed.await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind == Kind::NotFound => return Ok(()),
                // Somebody else is removing it.
                Err(error) if error.kind != Kind::Conflict || Instant::now() > deadline => {
                    return Err(error);
                }
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Returns when there is no volume of ours; whether there was one.
    async fn remove_volume(&self, id: &SandboxId, deadline: Instant) -> Result<bool, EngineError> {
        let name = labels::name(id);
        let mut pause = SHORTEST;
        loop {
            let Found::Ours(()) = self.volume(id).await? else {
                return Ok(false);
            };
            let removed = self.engine.call("removing the volume", |docker| {
                docker.remove_volume(&name, None::<RemoveVolumeOptions>)
            });
            match removed.await {
                Ok(()) => return Ok(true),
                Err(error) if error.kind == Kind::NotFound => return Ok(true),
                // The engine has not let go of it yet, or another container uses it.
                Err(error) if error.kind != Kind::Conflict || Instant::now() > deadline => {
                    return Err(error);
                }
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST);
        }
    }
}
