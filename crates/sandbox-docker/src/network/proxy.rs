//! Hands the connections of containers to other machines to the service's forward proxy.
//!
//! The listener is at the host's address in the sandboxes' network. There, a source address says which container sends:
//! the kernel of the host sees other addresses for other networks and for the host itself, and containers cannot send raw
//! packets. A template that lets them has no proxy ([`may_use`]).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::error::{BoxError, chain};
use domain::id::SandboxId;
use sandbox_provider::{
    BackendTasks, EgressPolicy, SandboxAddresses, accept_for_gateway, can_forge_addresses,
    is_proxy_variable, listen_for_sandboxes,
};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use crate::config::{DockerConfig, DockerSpec};
use crate::container::labels;
use crate::engine::Engine;
use crate::engine::errors::EngineError;
use crate::network::ReadyNetwork;
use crate::network::callback_check::{self, ProbeOutcome};

/// How long a look-up of an address holds: the engine must not answer one for each connection.
const ADDRESS_LIFETIME: Duration = Duration::from_secs(2);
/// How often the service is asked whether it has its proxy yet.
const SERVICE_INTERVAL: Duration = Duration::from_millis(50);

/// Whether containers of this template use the proxy. With the open policy, those with a proxy of the operator do not.
pub(crate) fn may_use(config: &DockerConfig, spec: &DockerSpec) -> bool {
    let names = spec.env.keys().chain(spec.secret_env.keys());
    let can_forge = can_forge_addresses(&spec.capabilities);
    let has_own = names.into_iter().any(|name| is_proxy_variable(name));
    let may_have_own = config.policy == EgressPolicy::Open;
    config.has_proxy && !can_forge && !(may_have_own && has_own)
}

/// The listener for containers of this installation.
#[derive(Debug)]
pub(crate) struct ProxyListener {
    engine: Engine,
    config: Arc<DockerConfig>,
    tasks: BackendTasks,
    /// The address of the listener, once there is one. One task at a time opens it.
    open: tokio::sync::Mutex<Option<SocketAddr>>,
    addresses: Mutex<HashMap<IpAddr, (SandboxId, Instant)>>,
    /// Whether the first container reached the listener.
    is_reached: OnceCell<bool>,
    has_warned: AtomicBool,
}

impl ProxyListener {
    pub(crate) fn new(engine: Engine, config: Arc<DockerConfig>, tasks: BackendTasks) -> Self {
        Self {
            engine,
            config,
            tasks,
            open: tokio::sync::Mutex::default(),
            addresses: Mutex::default(),
            is_reached: OnceCell::new(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// The address for new containers of a template. `None`: they have no proxy, and get the values of secrets.
    pub(crate) async fn address(
        self: &Arc<Self>,
        network: &ReadyNetwork,
        spec: &DockerSpec,
    ) -> Option<SocketAddr> {
        if !may_use(&self.config, spec) || self.is_reached.get() == Some(&false) {
            return None;
        }
        self.listen(network).await
    }

    /// Waits until the service has its proxy, and listens. A check of the engine has no service and never does.
    pub(crate) async fn restore(self: &Arc<Self>, network: &ReadyNetwork) {
        let Some(slot) = &self.config.egress else {
            return;
        };
        while slot.get().is_none() {
            sleep(SERVICE_INTERVAL).await;
        }
        self.listen(network).await;
    }

    async fn listen(self: &Arc<Self>, network: &ReadyNetwork) -> Option<SocketAddr> {
        let gateway = self.config.egress.as_ref()?;
        gateway.get()?;
        let mut open = self.open.lock().await;
        let wanted = SocketAddr::new(network.host?, self.config.proxy_port);
        if *open == Some(wanted) {
            return Some(wanted);
        }
        match listen_for_sandboxes(wanted) {
            Ok(listener) => {
                tracing::info!(address = %wanted, "containers reach other machines through the forward proxy at {wanted}");
                *open = Some(wanted);
                let (gateway, tasks) = (Arc::clone(gateway), self.tasks.clone());
                let accepted = accept_for_gateway(listener, gateway, Arc::clone(self) as _, tasks);
                self.tasks.spawn(accepted);
                Some(wanted)
            }
            Err(error) => {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error = %chain(&error), "cannot listen at {wanted} for containers, so new ones get the values of \
                        secrets: free the port, or choose another one in docker.proxy_port");
                }
                None
            }
        }
    }

    async fn look_up(&self, address: IpAddr) -> Result<Option<SandboxId>, EngineError> {
        let now = Instant::now();
        if let Some((id, at)) = self.addresses().get(&address)
            && now.duration_since(*at) < ADDRESS_LIFETIME
        {
            return Ok(Some(id.clone()));
        }
        let running = self.engine.containers(&self.config.instance, true).await?;
        let all = running.iter().filter_map(|container| {
            let networks = container.network_settings.as_ref()?.networks.as_ref()?;
            let name = container.names.as_ref()?.first()?;
            let labels = container.labels.as_ref()?;
            let id = labels::sandbox(&self.config.instance, name, labels)?;
            // An operator may have attached it to further networks.
            let own: Vec<IpAddr> = networks
                .values()
                .filter_map(|network| network.ip_address.as_ref()?.parse().ok())
                .collect();
            Some((id, own))
        });
        let known =
            all.flat_map(|(id, own)| own.into_iter().map(move |it| (it, (id.clone(), now))));
        let mut addresses = self.addresses();
        *addresses = known.collect();
        Ok(addresses.get(&address).map(|(id, _)| id.clone()))
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, (SandboxId, Instant)>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether containers reach the listener, which the first one tries: a packet filter of the host may be in between. All share one
    /// network. An image without a suitable program proves nothing.
    pub(crate) async fn is_reached_from(&self, container: &str) -> bool {
        // Otherwise there is no way but the proxy.
        self.config.policy != EgressPolicy::Open
            || *self.is_reached.get_or_init(|| self.check(container)).await
    }

    async fn check(&self, container: &str) -> bool {
        let Some(address) = *self.open.lock().await else {
            return true;
        };
        let Ok(url) = format!("http://{address}/").parse() else {
            return true;
        };
        let outcome = callback_check::probe(&self.engine, container, &url).await;
        let Some(ProbeOutcome::Failed(reason)) = outcome else {
            return true;
        };
        tracing::warn!(
            "containers cannot reach the forward proxy at {address} ({reason}), so new ones get the values of secrets: let the packet \
             filter of this machine accept connections to it from the sandboxes' network, and restart the service"
        );
        false
    }
}

#[async_trait]
impl SandboxAddresses for ProxyListener {
    async fn sandbox_at(&self, address: IpAddr) -> Result<Option<SandboxId>, BoxError> {
        Ok(self.look_up(address).await?)
    }
}

/// The host's address in a network whose bridge is on this machine. A remote or rootless engine has its bridges elsewhere, and
/// another machine may have the same address.
pub(super) fn on_this_machine(device: &str, address: IpAddr) -> Option<IpAddr> {
    let exists = Path::new("/sys/class/net").join(device).exists();
    exists.then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::id::{HostId, SpecId};

    #[test]
    fn templates_that_could_forge_addresses_or_have_a_proxy_use_none() {
        let cases = [
            ("", "", true),
            ("NO_PROXY", "", true),
            ("https_proxy", "", false),
            ("", "NET_RAW", false),
            ("", "NET_ADMIN", false),
        ];
        for (variable, capability, expected) in cases {
            let mut spec = DockerSpec::new(SpecId::parse("x").unwrap(), "x:1");
            spec.env.insert(variable.to_owned(), "x".to_owned());
            spec.capabilities.push(capability.to_owned());
            let instance = HostId::parse("host").unwrap();
            let mut config = DockerConfig::new(instance, vec![spec.clone()]);
            assert_eq!(may_use(&config, &spec), expected, "{variable} {capability}");
            config.has_proxy = false;
            assert!(!may_use(&config, &spec));
            spec.env.clear();
            spec.secret_env.insert("HTTP_PROXY".to_owned(), "x".into());
            config.has_proxy = true;
            assert!(!may_use(&config, &spec));
        }
    }
}
