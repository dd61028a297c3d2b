//! The backend `example` of the service.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use domain::clock::{Clock as _, SystemClock};
use domain::id::SpecId;
use domain::sandbox::{SandboxSpec, SingleUserRule};
use sandbox_provider::{
    BackendFeatures, CallbackCheck, ConfiguredBackend, DoctorReport, Installation,
    SandboxNetworking, SandboxPorts, SandboxProvider, SpecList,
};
use settings::{SettingReader, SettingSection};

use crate::ExampleSandboxes;
use crate::backend::NAME;

/// Registers the backend.
#[derive(Debug)]
pub struct ExampleProvider;

impl SandboxProvider for ExampleProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn section(&self) -> SettingSection {
        SettingSection {
            defaults: "[example]\n# The agent server, quoted as for a shell.\ncommand = \"sleep\"\n",
            ..SettingSection::default()
        }
    }

    fn configure(&self, reader: &SettingReader<'_>) -> Arc<dyn ConfiguredBackend> {
        let words = reader.words("example.command", "a command, quoted as for a shell");
        Arc::new(ConfiguredExample {
            command: words.unwrap_or_default(),
        })
    }
}

#[derive(Debug)]
struct ConfiguredExample {
    command: Vec<String>,
}

#[async_trait]
impl ConfiguredBackend for ConfiguredExample {
    fn features(&self) -> BackendFeatures {
        BackendFeatures {
            name: NAME,
            noun: "example sandboxes",
            is_isolated: false,
            single_user: Some(SingleUserRule {
                reason: "Sandboxes are processes of one account",
                advice: "Use another backend.",
            }),
            enforces_egress: false,
            can_share_host: false,
            warm: 0,
            parallel_starts: sandbox_provider::starts_of_this_machine(),
            network: SandboxNetworking::Shared,
        }
    }

    async fn probe(&self, _: &Installation<'_>) -> Result<&'static str, String> {
        Err("set WORKSPACE_SANDBOX__BACKEND=example".to_owned())
    }

    async fn open(&self, installation: &Installation<'_>) -> anyhow::Result<SandboxPorts> {
        let root = installation.data_dir.join(NAME);
        let backend = ExampleSandboxes::new(&root, self.command.clone()).await;
        let backend = backend.context("cannot make the directory of the sandboxes")?;
        Ok(SandboxPorts {
            backend: Arc::new(backend.clone()),
            lifecycle: Arc::new(backend.clone()),
            reader: Arc::new(backend.clone()),
            endpoints: Arc::new(backend),
            specs: specs(&self.command),
            gateway: None,
            callbacks: None,
            egress: None,
        })
    }

    async fn examine(
        &self,
        _: &Installation<'_>,
        report: &mut DoctorReport,
    ) -> Option<CallbackCheck> {
        report.ok("agent server", self.command.join(" "));
        Some(CallbackCheck { gateway: None })
    }
}

/// The one template.
fn specs(command: &[String]) -> SpecList {
    SpecList(Arc::new([SandboxSpec {
        id: SpecId::parse(NAME).expect("a constant name"),
        command: Some(command.to_vec()),
        created_at: SystemClock.now(),
        initial_env: BTreeMap::new(),
        working_dir: "workspace".to_owned(),
        idle_stop: None,
        lifetime: None,
        egress: None,
        conversation_budget: None,
    }]))
}
