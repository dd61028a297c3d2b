//! Creates the container and the volume of a sandbox.

use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{CreateContainerOptionsBuilder, InspectContainerOptions};
use domain::sandbox::{SandboxError, SandboxLaunch};

use crate::backend::DockerInner;
use crate::config::DockerSpec;
use crate::container::{self, Attachments, labels};
use crate::engine::errors::{EngineError, EngineErrorKind};
use crate::lifecycle::state_cache::OperationGuard;

pub(super) enum CreateOutcome {
    Created { id: String, has_proxy: bool },
    NameInUse,
}

impl DockerInner {
    pub(super) async fn create(
        &self,
        launch: &SandboxLaunch,
        operation: &OperationGuard,
    ) -> Result<CreateOutcome, SandboxError> {
        let spec = self.spec(&launch.spec)?;
        self.create_volume(launch).await?;
        let attached = self.attachments(spec).await?;
        let has_storage_limit = attached.storage.is_some();
        let has_proxy = attached.proxy.is_some();
        let first_attempt = self.create_once(launch, spec, attached).await;
        let created = match first_attempt {
            Err(error) if has_storage_limit && self.disk.is_refusal(&error) => {
                let unlimited = Attachments {
                    storage: None,
                    ..self.attachments(spec).await?
                };
                self.create_once(launch, spec, unlimited).await
            }
            Err(error) if error.kind == EngineErrorKind::NetworkMissing => {
                self.network.forget().await;
                let attached = self.attachments(spec).await?;
                self.create_once(launch, spec, attached).await
            }
            other => other,
        };
        match created {
            Ok((id, warnings)) => {
                operation.set_warnings(Self::owner_warnings(launch, warnings));
                self.check_runtime(&id).await?;
                Ok(CreateOutcome::Created { id, has_proxy })
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

    async fn attachments(&self, spec: &DockerSpec) -> Result<Attachments, SandboxError> {
        let network = self.network.ensure().await?;
        Ok(Attachments {
            proxy: self.proxy.address(&network, spec).await,
            network: network.id,
            storage: self.disk.storage_options(spec).await,
        })
    }

    /// The warnings for the owner. Engines that cannot limit swap warn each time.
    fn owner_warnings(launch: &SandboxLaunch, warnings: Vec<String>) -> Vec<String> {
        let (minor, serious): (Vec<_>, Vec<_>) = warnings
            .into_iter()
            .partition(|warning| warning.to_ascii_lowercase().contains("swap"));
        tracing::debug!(sandbox.id = %launch.id, ?minor, "minor warnings of the engine about the new container");
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
        attached: Attachments,
    ) -> Result<(String, Vec<String>), EngineError> {
        let name = labels::name(&launch.id);
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let body = container::body(&self.config, spec, launch, attached);
        let created = self.engine.call("creating the container", |docker| {
            docker.create_container(Some(options), body)
        });
        created.await.map(|created| (created.id, created.warnings))
    }

    /// Creates the volume before the container, because some engines add no labels to implicitly created volumes. Refuses a
    /// foreign volume of that name.
    async fn create_volume(&self, launch: &SandboxLaunch) -> Result<(), SandboxError> {
        let (instance, name) = (&self.config.instance, labels::name(&launch.id));
        let request = VolumeCreateRequest {
            name: Some(name.clone()),
            labels: Some(labels::of_volume(instance, launch)),
            ..VolumeCreateRequest::default()
        };
        let volume = self.engine.call("creating the volume", |docker| {
            docker.create_volume(request)
        });
        // If the name is in use, the engine reports that.
        let volume = volume.await.map_err(EngineError::start_failed)?;
        if labels::sandbox(instance, &name, &volume.labels).as_ref() == Some(&launch.id) {
            Ok(())
        } else {
            Err(foreign("volume", launch))
        }
    }

    /// Refuses a container with the wrong runtime: some engines ignore the requested one.
    async fn check_runtime(&self, container: &str) -> Result<(), SandboxError> {
        let Some(requested) = &self.config.runtime else {
            return Ok(());
        };
        let response = self.engine.call("inspecting the container", |docker| {
            docker.inspect_container(container, None::<InspectContainerOptions>)
        });
        let response = response.await.map_err(EngineError::start_failed)?;
        let actual = response.host_config.and_then(|host| host.runtime);
        if actual.as_ref() == Some(requested) {
            return Ok(());
        }
        self.discard_container(container).await?;
        let actual = actual.unwrap_or_default();
        Err(SandboxError::start_failed(format!(
            "the container engine ignores the requested runtime {requested} (it reports {actual:?}): the operator has to \
                 make it the engine's default and remove WORKSPACE_DOCKER__RUNTIME, or use another engine"
        )))
    }
}

pub(super) fn foreign(what: &str, launch: &SandboxLaunch) -> SandboxError {
    let name = labels::name(&launch.id);
    SandboxError::start_failed(format!(
        "the engine has a {what} named {name} that does not belong to this installation: the operator has to rename or \
         remove it"
    ))
}
