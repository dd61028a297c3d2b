//! The backend `docker` of the service.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use domain::clock::{Clock as _, SystemClock};
use domain::error::Classify as _;
use domain::id::HostId;
use domain::sandbox::{BackendReachability, SandboxBackend as _};
use futures::StreamExt as _;
use sandbox_provider::{
    BackendFeatures, CallbackCheck, ConfiguredBackend, DoctorReport, EgressRoute, Installation,
    SandboxNetworking, SandboxPorts, SandboxProvider, is_loopback,
};
use settings::{SettingReader, SettingSection};
use url::Url;

use crate::DockerSandboxes;
use crate::backend::NAME;
use crate::config::DockerConfig;
use crate::container::HOST_NAME;
use crate::section::SECTION;
use crate::specs::specs;

/// Time for an engine to answer before `auto` chooses another backend.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);

/// Registers containers of a Docker engine.
#[derive(Debug)]
pub struct DockerProvider;

impl SandboxProvider for DockerProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn section(&self) -> SettingSection {
        SECTION
    }

    fn configure(&self, reader: &SettingReader<'_>) -> Arc<dyn ConfiguredBackend> {
        // The installation is known when the backend is opened.
        let instance = HostId::parse("not-opened").expect("a constant name");
        Arc::new(ConfiguredDocker(DockerConfig::read(reader, instance)))
    }
}

#[derive(Debug)]
struct ConfiguredDocker(DockerConfig);

impl ConfiguredDocker {
    fn config(&self, installation: &Installation<'_>) -> DockerConfig {
        DockerConfig {
            instance: installation.host.clone(),
            ..self.0.clone()
        }
    }

    fn connect(&self, installation: &Installation<'_>) -> anyhow::Result<DockerSandboxes> {
        DockerSandboxes::new(self.config(installation))
            .context("cannot use the container engine (docker.socket)")
    }
}

#[async_trait]
impl ConfiguredBackend for ConfiguredDocker {
    fn features(&self) -> BackendFeatures {
        BackendFeatures {
            name: NAME,
            noun: "containers",
            is_isolated: true,
            single_user: None,
            enforces_egress: !is_remote(self.0.socket.as_deref()),
            can_share_host: true,
            // Containers have memory limits of their own.
            warm: 1,
            parallel_starts: sandbox_provider::starts_of_this_machine(),
            network: SandboxNetworking::Separate {
                host: HOST_NAME,
                is_remote: is_remote(self.0.socket.as_deref()),
            },
        }
    }

    async fn probe(&self, installation: &Installation<'_>) -> Result<&'static str, String> {
        // Its streams end when it is dropped.
        let sandboxes = self
            .connect(installation)
            .map_err(|error| format!("{error:#}"))?;
        let mut reachability = sandboxes.watch_reachability();
        match tokio::time::timeout(ENGINE_TIMEOUT, reachability.next()).await {
            Ok(Some(BackendReachability::Reachable)) => Ok("an engine answers"),
            Ok(Some(BackendReachability::Unreachable { detail })) => Err(detail),
            Ok(None) | Err(_) => Err("no container engine answers: start one, or name its address in WORKSPACE_DOCKER__SOCKET".to_owned()),
        }
    }

    async fn open(&self, installation: &Installation<'_>) -> anyhow::Result<SandboxPorts> {
        let specs = specs(&self.0, SystemClock.now());
        let backend = Arc::new(self.connect(installation)?);
        let engine = Arc::clone(&backend);
        let route = |slot| EgressRoute {
            by_default_route: true,
            ..EgressRoute::new(slot, &self.0.reachable_networks)
        };
        Ok(SandboxPorts {
            backend: Arc::clone(&backend) as _,
            lifecycle: Arc::clone(&backend) as _,
            reader: Arc::clone(&backend) as _,
            endpoints: backend,
            specs,
            callbacks: None,
            egress: self.0.egress.as_ref().map(route),
            gateway: Some(Arc::new(move || {
                let engine = Arc::clone(&engine);
                Box::pin(async move { engine.gateway().await })
            })),
        })
    }

    async fn examine(
        &self,
        installation: &Installation<'_>,
        report: &mut DoctorReport,
    ) -> Option<CallbackCheck> {
        let examined = match self.connect(installation) {
            Ok(sandboxes) => {
                let examined = sandboxes.examine(report).await;
                examined.map_err(|error| error.public().into_owned())
            }
            Err(error) => Err(format!("{error:#}")),
        };
        examined
            .map_err(|problem| report.problem("engine", problem))
            .ok()
    }
}

/// Whether the engine's address belongs to another machine.
fn is_remote(socket: Option<&str>) -> bool {
    let url = socket.and_then(|socket| Url::parse(&socket.replacen("tcp://", "http://", 1)).ok());
    url.is_some_and(|url| url.scheme() == "http" && !is_loopback(&url))
}
