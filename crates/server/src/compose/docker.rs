//! Docker containers as sandboxes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use domain::clock::{Clock as _, SystemClock};
use domain::error::Classify as _;
use domain::id::HostId;
use domain::sandbox::{BackendReachability, SandboxBackend};
use futures::StreamExt as _;
use sandbox_docker::{
    BindMount, DockerConfig, DockerSandboxes, DockerSpec, DockerSpecs, ExposedPort,
    MetadataBlocking, PauseMode, RegistryCredentials, ResourceLimits,
};

pub(crate) use sandbox_docker::Survey;

use super::OpenedBackend;
use crate::config::{self, Config};

/// Time for an engine to answer before `auto` chooses processes.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);

/// The engine of the sandboxes.
#[derive(Clone)]
pub(crate) struct EngineHandle(Arc<DockerSandboxes>);

impl EngineHandle {
    /// The address of this machine that containers reach as `host.docker.internal`, if the engine reports it.
    pub(crate) async fn gateway(&self) -> Option<IpAddr> {
        self.0.gateway().await
    }

    /// The engine's capabilities, for `doctor`.
    pub(crate) async fn survey(&self) -> anyhow::Result<Survey> {
        self.0
            .survey()
            .await
            .map_err(|error| anyhow!("{}", error.public()))
    }
}

/// Opens the backend. The engine need not run yet.
pub(super) fn open(config: &Config, host: &HostId, reason: &str) -> anyhow::Result<OpenedBackend> {
    let docker = docker_config(config, host);
    let specs = DockerSpecs::new(&docker, SystemClock.now());
    let backend = Arc::new(
        DockerSandboxes::new(docker).context("cannot use the container engine (docker.socket)")?,
    );
    Ok(OpenedBackend {
        backend: Arc::clone(&backend) as _,
        endpoints: Arc::clone(&backend) as _,
        specs: Arc::new(specs),
        reason: reason.to_owned(),
        engine: Some(EngineHandle(backend)),
    })
}

/// Why the engine is unreachable; `None` if it answers.
pub(super) async fn unreachable_reason(backend: &dyn SandboxBackend) -> Option<String> {
    let mut reachability = backend.watch_reachability();
    match tokio::time::timeout(ENGINE_TIMEOUT, reachability.next()).await {
        Ok(Some(BackendReachability::Reachable)) => None,
        Ok(Some(BackendReachability::Unreachable { detail })) => Some(detail),
        Ok(None) | Err(_) => Some("no container engine answers: start one, or name its address in WORKSPACE_DOCKER__SOCKET".to_owned()),
    }
}

fn docker_config(config: &Config, host: &HostId) -> DockerConfig {
    let docker = &config.docker;
    let specs = docker.templates.iter().map(spec).collect();
    DockerConfig {
        socket: docker.socket.clone(),
        publish_address: docker.publish_address,
        reach_host: docker.reach_host.clone(),
        exposed_host: docker.exposed_host.clone(),
        runtime: docker.runtime.clone(),
        metadata: match docker.block_metadata {
            config::MetadataAccess::Auto => MetadataBlocking::Auto,
            config::MetadataAccess::Required => MetadataBlocking::Required,
            config::MetadataAccess::Off => MetadataBlocking::Off,
        },
        grace: config.sandbox.stop_grace,
        disk_interval: docker.disk_check,
        registry: docker
            .registry
            .as_ref()
            .map(|registry| RegistryCredentials {
                server: registry.server.clone(),
                username: registry.username.clone(),
                password: registry.password.clone(),
            }),
        ..DockerConfig::new(host.clone(), specs)
    }
}

fn spec(template: &config::TemplateSettings) -> DockerSpec {
    let ports = template.ports.iter().map(|(name, port)| ExposedPort {
        name: name.clone(),
        port: *port,
    });
    let mounts = template.mounts.iter().map(|mount| BindMount {
        source: mount.source.clone(),
        target: mount.target.clone(),
        writable: mount.writable,
    });
    DockerSpec {
        id: template.id.clone(),
        image: template.image.clone(),
        entrypoint: template.entrypoint.clone(),
        command: template.command.clone(),
        env: template.env.clone(),
        secret_env: template.secret_env.clone(),
        working_dir: template.working_dir.clone(),
        volume: template.volume.clone(),
        user: template.user.clone(),
        resources: ResourceLimits {
            memory: template.memory,
            cpus: template.cpus,
            pids: template.pids,
            disk: template.disk,
        },
        capabilities: template.capabilities.clone(),
        read_only: template.read_only,
        pause: match template.pause {
            config::PauseSetting::Stop => PauseMode::Stop,
            config::PauseSetting::Freeze => PauseMode::Freeze,
        },
        idle_stop: template.idle_stop,
        lifetime: template.lifetime,
        ports: ports.collect(),
        mounts: mounts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use domain::id::SpecId;

    use super::*;

    #[test]
    fn the_defaults_of_the_configuration_are_those_of_the_backend() {
        let config = Config::load(None, &[("HOME".into(), "/home/someone".into())]).unwrap();
        let host = HostId::parse("host").unwrap();
        let spec = DockerSpec::new(
            SpecId::parse(DockerSpec::DEFAULT_IMAGE).unwrap(),
            DockerSpec::DEFAULT_IMAGE,
        );
        let expected = DockerConfig::new(host.clone(), vec![spec]);
        assert_eq!(
            format!("{:#?}", docker_config(&config, &host)),
            format!("{expected:#?}")
        );
    }
}
