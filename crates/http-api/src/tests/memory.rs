//! The whole application over stores and fakes in memory.

use std::sync::Arc;

use application::{App, AuthMode, Policy, Ports, Tasks};
use async_trait::async_trait;
use domain::cipher::{Cipher, CipherError, Sealed};
use domain::clock::Clock;
use domain::id::HostId;
use domain::sandbox::{SandboxError, SandboxSpec, SandboxSpecCatalog};
use secrecy::{ExposeSecret, SecretString};
use store_memory::{FakeAgentRuntime, FakeSandboxBackend, MemoryStore, SequentialIds};

/// The application over this store. Nothing runs in its background.
pub(super) fn application(store: &Arc<MemoryStore>, clock: &Arc<dyn Clock>) -> App {
    let ports = Ports {
        conversations: store.clone(),
        events: store.clone(),
        start_tasks: store.clone(),
        sandboxes: store.clone(),
        backend: Arc::new(FakeSandboxBackend::default()),
        specs: Arc::new(NoSpecs),
        agents: Arc::new(FakeAgentRuntime::default()),
        settings: store.clone(),
        api_keys: store.clone(),
        cipher: Arc::new(Marker),
        clock: clock.clone(),
        ids: Arc::new(SequentialIds::default()),
    };
    let policy = Policy::new(
        HostId::parse("host").unwrap(),
        "http://127.0.0.1:3000/api/v1/webhooks".parse().unwrap(),
        AuthMode::ApiKey,
    );
    App::new(ports, policy, Tasks::new(tokio::runtime::Handle::current()))
}

struct NoSpecs;

#[async_trait]
impl SandboxSpecCatalog for NoSpecs {
    async fn list(&self) -> Result<Vec<SandboxSpec>, SandboxError> {
        Ok(Vec::new())
    }
}

/// Seals by marking, so that tests can damage what is stored.
struct Marker;

impl Cipher for Marker {
    fn seal(&self, context: &str, secret: &SecretString) -> Result<Sealed, CipherError> {
        Ok(Sealed::from_text(format!(
            "{context}|{}",
            secret.expose_secret()
        )))
    }

    fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretString, CipherError> {
        let text = sealed.as_text().strip_prefix(context);
        let text = text.and_then(|text| text.strip_prefix('|'));
        text.map(SecretString::from).ok_or(CipherError::Damaged)
    }

    fn is_outdated(&self, _: &Sealed) -> bool {
        false
    }
}
