//! The backend `kubernetes` of the service.

use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use domain::clock::{Clock as _, SystemClock, Timestamp};
use domain::id::HostId;
use domain::sandbox::SandboxSpec;
use sandbox_provider::{
    BackendFeatures, CallbackCheck, ConfiguredBackend, DoctorReport, EgressRoute, Installation,
    SandboxNetworking, SandboxPorts, SandboxProvider, SpecList, shown_variables,
};
use settings::{SettingReader, SettingSection};

use crate::KubernetesSandboxes;
use crate::backend::{MAX_PARALLEL_STARTS, NAME};
use crate::config::{KubernetesConfig, KubernetesSpec};
use crate::section::SECTION;

/// Registers pods of a Kubernetes cluster.
#[derive(Debug)]
pub struct KubernetesProvider;

impl SandboxProvider for KubernetesProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn section(&self) -> SettingSection {
        SECTION
    }

    fn configure(&self, reader: &SettingReader<'_>) -> Arc<dyn ConfiguredBackend> {
        // The installation is known when the backend is opened.
        let instance = HostId::parse("not-opened").expect("a constant name");
        Arc::new(ConfiguredKubernetes(KubernetesConfig::read(
            reader, instance,
        )))
    }
}

#[derive(Debug)]
struct ConfiguredKubernetes(KubernetesConfig);

impl ConfiguredKubernetes {
    async fn connect(
        &self,
        installation: &Installation<'_>,
    ) -> anyhow::Result<KubernetesSandboxes> {
        let config = KubernetesConfig {
            instance: installation.host.clone(),
            ..self.0.clone()
        };
        let opened = KubernetesSandboxes::new(config).await;
        opened.context("cannot read the credentials for the cluster (kubernetes.kubeconfig)")
    }
}

#[async_trait]
impl ConfiguredBackend for ConfiguredKubernetes {
    fn features(&self) -> BackendFeatures {
        BackendFeatures {
            name: NAME,
            noun: "pods",
            is_isolated: true,
            single_user: None,
            enforces_egress: self.0.enforces_egress,
            can_share_host: true,
            // Pods have memory limits of their own.
            warm: 1,
            // The nodes of the cluster boot them.
            parallel_starts: MAX_PARALLEL_STARTS,
            network: SandboxNetworking::Separate {
                // A usual name of the service in the cluster. The operator sets sandbox.callback_url.
                host: "agent-workspace",
                is_remote: true,
            },
        }
    }

    async fn probe(&self, _: &Installation<'_>) -> Result<&'static str, String> {
        Err("for pods of a cluster, set WORKSPACE_SANDBOX__BACKEND=kubernetes".to_owned())
    }

    async fn open(&self, installation: &Installation<'_>) -> anyhow::Result<SandboxPorts> {
        let specs = specs(&self.0.specs, SystemClock.now());
        let backend = Arc::new(self.connect(installation).await?);
        backend.listen()?;
        let route = |slot| EgressRoute::new(slot, &self.0.reachable_networks);
        Ok(SandboxPorts {
            backend: Arc::clone(&backend) as _,
            lifecycle: Arc::clone(&backend) as _,
            reader: Arc::clone(&backend) as _,
            endpoints: backend,
            specs,
            callbacks: None,
            egress: self.0.egress.as_ref().map(route),
            gateway: None,
        })
    }

    async fn examine(
        &self,
        installation: &Installation<'_>,
        report: &mut DoctorReport,
    ) -> Option<CallbackCheck> {
        match self.connect(installation).await {
            Ok(sandboxes) => sandboxes.examine(report).await,
            Err(error) => {
                report.problem("cluster", format!("{error:#}"));
                None
            }
        }
    }
}

/// The templates in configured order, the default first, without secret values. `now` becomes their creation time in the API.
fn specs(all: &[KubernetesSpec], now: Timestamp) -> SpecList {
    let api_spec = |spec: &KubernetesSpec| SandboxSpec {
        id: spec.id.clone(),
        command: spec.command.clone(),
        created_at: now,
        initial_env: shown_variables(&spec.env, &spec.secret_env),
        working_dir: spec.working_dir.clone(),
        idle_stop: spec.idle_stop,
        lifetime: spec.lifetime,
        egress: spec.egress.clone(),
        conversation_budget: spec.conversation_budget,
    };
    SpecList(all.iter().map(api_spec).collect())
}
