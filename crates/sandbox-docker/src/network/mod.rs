//! The network of this installation: sandboxes reach the outside, but not each other.
//!
//! Knows: a bridge of the engine has a device on the host, which rules of the packet filter can name. The engine accepts
//! two networks of one name but not of one device, so two concurrent creations cannot both succeed.

pub(crate) mod callback_check;
pub(crate) mod metadata;
pub(crate) mod packet_filter;
mod policy;
pub(crate) mod proxy;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bollard::models::{IpamConfig, Network as Listed, NetworkCreateRequest};
use bollard::query_parameters::{InspectNetworkOptions, ListNetworksOptionsBuilder};
use domain::error::chain;
use domain::sandbox::SandboxError;
use sandbox_provider::EgressPolicy;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use url::Url;

use crate::config::{DockerConfig, MetadataBlocking};
use crate::container::labels;
use crate::engine::Engine;
use crate::engine::errors::{EngineError, EngineErrorKind};
use policy::ReachablePorts;

/// The engine's own network; `host-gateway` is its gateway.
const DEFAULT_NETWORK: &str = "bridge";
const ICC_OPTION: &str = "com.docker.network.bridge.enable_icc";
const BRIDGE_NAME_OPTION: &str = "com.docker.network.bridge.name";
/// Attempts to find a network that another process is creating, and the interval between them.
const MAX_ATTEMPTS: u32 = 20;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct SandboxNetwork {
    engine: Engine,
    config: Arc<DockerConfig>,
    device: String,
    /// One task at a time searches or creates the network, and changes rules.
    state: Mutex<NetworkState>,
    has_warned_metadata: AtomicBool,
    has_warned_open: AtomicBool,
}

#[derive(Debug, Default)]
struct NetworkState {
    /// The network, once it is ready.
    ready: Option<ReadyNetwork>,
    /// The port of this machine at which new containers reach the service.
    service: Option<u16>,
}

/// A network that exists.
#[derive(Debug, Clone)]
pub(crate) struct ReadyNetwork {
    pub(crate) id: String,
    /// The host's address in it, if its bridge is on this machine.
    pub(crate) host: Option<IpAddr>,
}

impl SandboxNetwork {
    /// Creates no resource yet.
    pub(crate) fn new(engine: Engine, config: Arc<DockerConfig>) -> Self {
        Self {
            device: device(config.instance.as_str()),
            engine,
            config,
            state: Mutex::default(),
            has_warned_metadata: AtomicBool::new(false),
            has_warned_open: AtomicBool::new(false),
        }
    }

    /// Ensures that the network exists and has its rules.
    pub(crate) async fn ensure(&self) -> Result<ReadyNetwork, SandboxError> {
        let mut state = self.state.lock().await;
        if let Some(network) = &state.ready {
            return Ok(network.clone());
        }
        let network = match self.find_existing().await.map_err(failed)? {
            Some(network) => network,
            None => self.create().await.map_err(failed)?,
        };
        self.block_metadata().await?;
        self.enforce_policy(&network, state.service).await?;
        state.ready = Some(network.clone());
        Ok(network)
    }

    /// Lets containers reach the service at this URL.
    pub(crate) async fn admit(&self, service: &Url) {
        let port = service.port_or_known_default();
        let mut state = self.state.lock().await;
        if state.service != port {
            state.service = port;
            // The rules change with it.
            state.ready = None;
        }
    }

    /// Forgets the network: the engine reported that it does not exist.
    pub(crate) async fn forget(&self) {
        self.state.lock().await.ready = None;
    }

    /// Restores the rules of the packet filter if there is a network: a restart of the engine may have removed them. Returns the
    /// network.
    pub(crate) async fn restore_rules(&self) -> Result<Option<ReadyNetwork>, SandboxError> {
        // Checking a rule and setting it are two steps, which must not interleave.
        let mut state = self.state.lock().await;
        let Some(network) = self.find_existing().await.map_err(failed)? else {
            return Ok(None);
        };
        let restored = match self.block_metadata().await {
            Ok(()) => self.enforce_policy(&network, state.service).await,
            failed => failed,
        };
        if restored.is_err() {
            // Rules are required: no sandbox starts until they are set.
            state.ready = None;
        }
        restored.map(|()| Some(network))
    }

    /// The ports at which existing containers reach the service: another process of the installation may listen at its own.
    async fn services_of_containers(&self) -> Result<BTreeSet<u16>, EngineError> {
        let all = self.engine.containers(&self.config.instance, false).await?;
        let ports = all.iter().filter_map(|container| {
            let callback = container.labels.as_ref()?.get(labels::CALLBACK)?;
            Url::parse(callback).ok()?.port_or_known_default()
        });
        Ok(ports.collect())
    }

    /// Whether a sandbox could be attached now. Only required rules can prevent that; the first start does everything else.
    pub(crate) async fn check(&self) -> Result<(), SandboxError> {
        let is_required = self.config.metadata == MetadataBlocking::Required
            || self.config.policy != EgressPolicy::Open;
        if is_required {
            self.ensure().await?;
        }
        Ok(())
    }

    /// The host's address behind `host-gateway`. `None` if the engine has no such network, or is unreachable.
    pub(crate) async fn gateway(&self) -> Option<IpAddr> {
        let network = self
            .engine
            .call("inspecting the default network", |docker| {
                docker.inspect_network(DEFAULT_NETWORK, None::<InspectNetworkOptions>)
            });
        let ranges = network.await.ok()?.ipam?.config?;
        ranges.iter().find_map(gateway_of)
    }

    /// Removes the network unless it has containers, running or not.
    pub(crate) async fn remove_if_unused(&self) -> Result<(), SandboxError> {
        let mut state = self.state.lock().await;
        let containers = self.engine.containers(&self.config.instance, false);
        if !containers.await.map_err(failed)?.is_empty() {
            return Ok(());
        }
        state.ready = None;
        for network in self.list().await.map_err(failed)? {
            match self.remove(&network).await {
                Ok(()) => {}
                // Another container is attached to it by hand: keep the network until that is gone.
                Err(error)
                    if matches!(
                        error.kind,
                        EngineErrorKind::Conflict | EngineErrorKind::Other
                    ) =>
                {
                    tracing::warn!(error = %chain(&error), engine_message = error.message(), "cannot remove the sandboxes' network: detach other containers from it; trying again later");
                    return Ok(());
                }
                Err(error) => return Err(failed(error)),
            }
        }
        if self.config.metadata != MetadataBlocking::Off
            && let Err(error) = packet_filter::HOST
                .unblock(&self.device, self.config.instance.as_str())
                .await
        {
            tracing::debug!(
                error,
                "cannot remove the rules that block the metadata address"
            );
        }
        if self.config.policy != EgressPolicy::Open
            && let Err(error) = packet_filter::HOST.release(&self.device).await
        {
            tracing::debug!(error, "cannot remove the rules of the egress policy");
        }
        Ok(())
    }

    /// Sets the rules of the egress policy, or removes those of a former one.
    async fn enforce_policy(
        &self,
        network: &ReadyNetwork,
        service: Option<u16>,
    ) -> Result<(), SandboxError> {
        let host = network.host;
        if self.config.policy == EgressPolicy::Open {
            if host.is_some()
                && let Err(error) = packet_filter::HOST.release(&self.device).await
            {
                tracing::debug!(error, "cannot look for rules of a former egress policy");
            }
            return Ok(());
        }
        let proxy = self
            .config
            .egress
            .is_some()
            .then_some(self.config.proxy_port);
        let enforced = match host {
            Some(host) => {
                let mut services = self.services_of_containers().await.map_err(failed)?;
                services.extend(service);
                let reachable = ReachablePorts {
                    proxy: proxy.map(|port| SocketAddr::new(host, port)),
                    services,
                };
                packet_filter::HOST.confine(&self.device, &reachable).await
            }
            None => Err("the bridge of the sandboxes' network is not on this host".to_owned()),
        };
        enforced.map_err(|cause| {
            SandboxError::unavailable(format!(
                "cannot enforce egress.policy: {cause}; run the service as root on the engine's host, or set \
                 WORKSPACE_EGRESS__POLICY=open"
            ))
        })
    }

    /// Returns the best network of the installation, and removes the others. `None` if there is none.
    async fn find_existing(&self) -> Result<Option<ReadyNetwork>, EngineError> {
        let mut networks = self.list().await?.into_iter();
        let Some(best) = networks.next() else {
            return Ok(None);
        };
        if !is_isolated(&best) && !self.has_warned_open.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "sandboxes can reach each other's ports, because the engine ignores the option {ICC_OPTION} of networks: use \
                     Docker if users must be isolated"
            );
        }
        for other in networks {
            if let Err(error) = self.remove(&other).await {
                tracing::warn!(error = %chain(&error), "cannot remove a second network of the sandboxes; it stays unused");
            }
        }
        let ranges = best.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
        let host = ranges.iter().find_map(gateway_of);
        Ok(best.id.map(|id| ReadyNetwork {
            id,
            host: host.and_then(|address| proxy::on_this_machine(&self.device, address)),
        }))
    }

    async fn create(&self) -> Result<ReadyNetwork, EngineError> {
        let request = self.request();
        let created = self.engine.call("creating the network", |docker| {
            docker.create_network(request)
        });
        match created.await {
            // Another task or process may have created an older one at the same time.
            Ok(created) => Ok(self.find_existing().await?.unwrap_or(ReadyNetwork {
                id: created.id,
                host: None,
            })),
            Err(error) if error.is_duplicate_network() => {
                self.wait_for_other_creation().await?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for a network that another task or process is creating: the engine refuses a second network of the same device
    /// before its list contains the first one. `None` if there is still none, i.e. the refusal had another cause.
    async fn wait_for_other_creation(&self) -> Result<Option<ReadyNetwork>, EngineError> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(network) = self.find_existing().await? {
                return Ok(Some(network));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        self.find_existing().await
    }

    fn request(&self) -> NetworkCreateRequest {
        let options = [(ICC_OPTION, "false"), (BRIDGE_NAME_OPTION, &self.device)];
        let instance = self.config.instance.as_str();
        NetworkCreateRequest {
            // Use the full id: an engine with two networks of one name refuses to start their containers.
            name: format!("agent-workspace-{instance}"),
            driver: Some("bridge".to_owned()),
            enable_ipv6: Some(false),
            options: Some(string_map(options)),
            labels: Some(string_map([(labels::INSTANCE, instance)])),
            ..NetworkCreateRequest::default()
        }
    }

    /// Networks with the installation's label, isolated ones first, then the oldest. Others are never touched.
    async fn list(&self) -> Result<Vec<Listed>, EngineError> {
        let label = labels::of_instance(&self.config.instance);
        let filters = HashMap::from([("label", vec![label.as_str()])]);
        let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
        let listed = self.engine.call("listing networks", |docker| {
            docker.list_networks(Some(options))
        });
        let mut networks = listed.await?;
        networks.sort_by_cached_key(|network| {
            let (created, id) = (network.created.clone(), network.id.clone());
            (!is_isolated(network), created, id)
        });
        Ok(networks)
    }

    async fn remove(&self, network: &Listed) -> Result<(), EngineError> {
        let Some(id) = &network.id else {
            return Ok(());
        };
        let removed = self
            .engine
            .call("removing the network", |docker| docker.remove_network(id));
        match removed.await {
            Err(error)
                if matches!(
                    error.kind,
                    EngineErrorKind::NotFound | EngineErrorKind::NetworkMissing
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    async fn block_metadata(&self) -> Result<(), SandboxError> {
        if self.config.metadata == MetadataBlocking::Off {
            return Ok(());
        }
        let instance = self.config.instance.as_str();
        let Err(cause) = metadata::block(&self.device, instance).await else {
            return Ok(());
        };
        if self.config.metadata == MetadataBlocking::Required {
            return Err(SandboxError::unavailable(format!(
                "cannot block the cloud metadata address, which docker.block_metadata = \"required\" demands: {cause}; \
                 {METADATA_ADVICE}"
            )));
        }
        if !self.has_warned_metadata.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                cause,
                "sandboxes may reach the cloud metadata address 169.254.169.254: {METADATA_ADVICE}"
            );
        }
        Ok(())
    }
}

const METADATA_ADVICE: &str = "run the service as root on the engine's host, or block the address yourself and set \
    WORKSPACE_DOCKER__BLOCK_METADATA=off";

/// Whether containers of the network cannot reach each other. Podman accepts the option and ignores it.
fn is_isolated(network: &Listed) -> bool {
    let options = network.options.as_ref();
    options.is_some_and(|options| options.get(ICC_OPTION).is_some_and(|icc| icc == "false"))
}

fn failed(error: EngineError) -> SandboxError {
    error.start_failed()
}

fn string_map<const N: usize>(pairs: [(&str, &str); N]) -> HashMap<String, String> {
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A device name that fits the kernel's 15 bytes: stable across starts, unique per installation.
fn device(instance: &str) -> String {
    format!("aw-{:.12x}", Sha256::digest(instance.as_bytes()))
}

/// Engines omit a gateway that they chose themselves: it is the first address.
fn gateway_of(range: &IpamConfig) -> Option<IpAddr> {
    if let Some(gateway) = &range.gateway {
        // Some engines append a prefix length.
        return gateway.split('/').next()?.parse().ok();
    }
    let network: Ipv4Addr = range.subnet.as_ref()?.split('/').next()?.parse().ok()?;
    Some(Ipv4Addr::from(u32::from(network).checked_add(1)?).into())
}

#[cfg(test)]
mod tests {
    use domain::id::{HostId, SpecId};

    use super::*;
    use crate::config::DockerSpec;

    #[test]
    fn device_names_are_short_and_stable() {
        assert_eq!(device("one"), "aw-7692c3ad3540");
        assert_eq!(device(&"x".repeat(64)).len(), 15);
        assert_ne!(device("one"), device("two"));
    }

    #[tokio::test]
    async fn failing_to_block_the_metadata_address_is_an_error_if_required() {
        let spec = DockerSpec::new(SpecId::parse("x").expect("an id"), "x:1");
        // No engine has this network, so its bridge does not exist.
        let instance = HostId::parse("nowhere").expect("an id");
        let mut config = DockerConfig::new(instance, vec![spec]);
        for (metadata, expected) in [
            (MetadataBlocking::Required, false),
            (MetadataBlocking::Auto, true),
            (MetadataBlocking::Off, true),
        ] {
            config.metadata = metadata;
            let engine = Engine::new(&config).expect("an address");
            let network = SandboxNetwork::new(engine, Arc::new(config.clone()));
            let blocked = network.block_metadata().await;
            assert_eq!(blocked.is_ok(), expected, "{metadata:?}");
            if let Err(error) = blocked {
                assert!(
                    error
                        .to_string()
                        .contains("WORKSPACE_DOCKER__BLOCK_METADATA"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn the_gateway_is_reported_or_the_first_address() {
        let range = |subnet: &str, gateway: Option<&str>| IpamConfig {
            subnet: Some(subnet.to_owned()),
            gateway: gateway.map(str::to_owned),
            ..IpamConfig::default()
        };
        let ip = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(gateway_of(&range("172.17.0.0/16", None)), ip("172.17.0.1"));
        assert_eq!(
            gateway_of(&range("172.17.0.0/16", Some("172.17.9.9"))),
            ip("172.17.9.9")
        );
        assert_eq!(gateway_of(&range("fd00::/64", None)), None);
    }
}
