//! Which pod has which address, by which the service's forward proxy tells sandboxes apart.
//!
//! Knows: a pod that calls a Service of the cluster keeps its own address on the way, unless the cluster's network masquerades.
//! Pods cannot send raw packets, and a template that lets them has no proxy. A pod that leaves or has ended loses its address
//! to others.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::error::BoxError;
use domain::id::SandboxId;
use domain::sandbox::{SandboxError, SandboxLaunch};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use sandbox_provider::{
    EgressPolicy, SandboxAddresses, can_forge_addresses, is_proxy_variable, listen_for_sandboxes,
};
use tokio::net::TcpListener;
use tokio::time::timeout;
use url::Url;

use crate::config::{KubernetesConfig, KubernetesSpec};
use crate::names::Names;
use crate::state::{PodPhase, addresses, phase};

/// Time to look up a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The proxy for new pods of a template, as HOST:PORT: it is where their callbacks go. `None`: they have none, and get the values of
/// secrets.
pub(crate) fn address(
    config: &KubernetesConfig,
    spec: &KubernetesSpec,
    launch: &SandboxLaunch,
) -> Option<String> {
    let port = config.proxy_port.filter(|_| config.has_proxy)?;
    let mut names = spec.env.keys().chain(spec.secret_env.keys());
    // Where the policy is not open, there is no other way.
    let may_have_own = config.policy == EgressPolicy::Open;
    let has_own = may_have_own && names.any(|name| is_proxy_variable(name));
    let host = launch.webhook_url.host_str()?;
    (!has_own && !can_forge_addresses(&spec.capabilities)).then(|| format!("{host}:{port}"))
}

/// The addresses of the host of this URL of the service, for pods that look up no names.
pub(crate) async fn host_addresses(
    config: &KubernetesConfig,
    url: &Url,
) -> Result<Vec<IpAddr>, SandboxError> {
    let Some(host) = url.domain() else {
        return Ok(Vec::new());
    };
    if config.policy == EgressPolicy::Open {
        return Ok(Vec::new());
    }
    let found = timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, 0))).await;
    let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let found = found.map_err(|_| {
        SandboxError::unavailable(format!(
            "the service cannot look up {host}, the host of its own address for sandboxes: the operator has to check sandbox.callback_url"
        ))
    })?;
    let unique: BTreeSet<IpAddr> = found.map(|address| address.ip()).collect();
    Ok(unique.into_iter().collect())
}

/// A listener at all addresses of this pod or machine.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    // A machine without IPv6.
    listen_for_sandboxes(both)
        .or_else(|_| listen_for_sandboxes(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)))
}

/// The addresses of pods that run or come up.
#[derive(Debug, Default)]
pub(crate) struct PodAddresses(Mutex<KnownAddresses>);

#[derive(Debug, Default)]
struct KnownAddresses {
    now: AddressTable,
    /// Those of a new list, while it is read.
    listed: Option<AddressTable>,
}

#[derive(Debug, Default)]
struct AddressTable {
    pods: HashMap<IpAddr, KnownPod>,
    /// By the uid of a pod. Its node gives it other ones when it makes its network anew.
    addresses: HashMap<String, Vec<IpAddr>>,
}

#[derive(Debug)]
struct KnownPod {
    uid: String,
    sandbox: SandboxId,
}

impl AddressTable {
    /// Another pod that has the address by now keeps it.
    fn remove(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        for address in self.addresses.remove(uid).unwrap_or_default() {
            if self.pods.get(&address).is_some_and(|it| it.uid == uid) {
                self.pods.remove(&address);
            }
        }
    }

    fn note(&mut self, pod: &Pod, names: &Names) {
        self.remove(pod);
        let has_address = matches!(phase(pod), PodPhase::Runs | PodPhase::Pending);
        let sandbox = names.sandbox(&pod.metadata).filter(|_| has_address);
        if let (Some(sandbox), Some(uid)) = (sandbox, &pod.metadata.uid) {
            for address in addresses(pod) {
                let known = KnownPod {
                    uid: uid.clone(),
                    sandbox: sandbox.clone(),
                };
                self.pods.insert(address, known);
            }
            self.addresses.insert(uid.clone(), addresses(pod).collect());
        }
    }
}

impl PodAddresses {
    pub(crate) fn note(&self, event: &Event<Pod>, names: &Names) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => all.listed = Some(AddressTable::default()),
            Event::InitApply(pod) => all.listed.get_or_insert_default().note(pod, names),
            Event::InitDone => all.now = all.listed.take().unwrap_or_default(),
            Event::Apply(pod) => all.now.note(pod, names),
            Event::Delete(pod) => all.now.remove(pod),
        }
    }

    fn find(&self, address: IpAddr) -> Option<SandboxId> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.now.pods.get(&address).map(|it| it.sandbox.clone())
    }
}

#[async_trait]
impl SandboxAddresses for PodAddresses {
    async fn sandbox_at(&self, address: IpAddr) -> Result<Option<SandboxId>, BoxError> {
        Ok(self.find(address))
    }
}

#[cfg(test)]
mod tests {
    use domain::id::HostId;
    use serde_json::json;

    use super::*;
    use crate::names::{self, texts};

    fn names() -> Names {
        Names::new(&HostId::parse("host").unwrap())
    }

    fn pod(sandbox: &str, uid: &str, address: &str, phase: &str) -> Pod {
        let names = names();
        let name = names.of(&SandboxId::parse(sandbox).unwrap());
        serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "uid": uid,
                "labels": names.labels(&name),
                "annotations": texts([(names::SANDBOX, sandbox)]),
            },
            "status": {"phase": phase, "podIP": address, "podIPs": [{"ip": address}, {"ip": "fd00::1"}]},
        }))
        .unwrap()
    }

    #[test]
    fn an_address_is_that_of_the_newest_pod_that_has_not_ended() {
        let (addresses, names) = (PodAddresses::default(), names());
        let at = |address: &str| {
            let found = addresses.find(address.parse().unwrap());
            found.map(|id| id.as_str().to_owned())
        };
        let note = |event| addresses.note(&event, &names);
        note(Event::Apply(pod("a", "1", "10.0.0.1", "Pending")));
        assert_eq!(at("10.0.0.1").as_deref(), Some("a"));
        assert_eq!(at("fd00::1").as_deref(), Some("a"));
        assert_eq!(at("10.0.0.2"), None);
        note(Event::Apply(pod("a", "1", "10.0.0.2", "Running")));
        assert_eq!(at("10.0.0.1"), None);
        assert_eq!(at("10.0.0.2").as_deref(), Some("a"));
        note(Event::Apply(pod("a", "1", "10.0.0.1", "Running")));
        // Another pod gets the address before the end of the first one is known.
        note(Event::Apply(pod("b", "2", "10.0.0.1", "Pending")));
        note(Event::Apply(pod("a", "1", "10.0.0.1", "Failed")));
        note(Event::Delete(pod("a", "1", "10.0.0.1", "Failed")));
        assert_eq!(at("10.0.0.1").as_deref(), Some("b"));
        let mut leaving = pod("b", "2", "10.0.0.1", "Running");
        let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        leaving.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        note(Event::Apply(leaving));
        assert_eq!(at("10.0.0.1"), None);
        // Not the installation's own.
        let mut foreign = pod("c", "3", "10.0.0.3", "Pending");
        foreign.metadata.labels = None;
        note(Event::Apply(foreign));
        assert_eq!(at("10.0.0.3"), None);
    }

    #[test]
    fn a_new_list_replaces_what_was_known() {
        let (addresses, names) = (PodAddresses::default(), names());
        let known = |address: &str| addresses.find(address.parse().unwrap()).is_some();
        let note = |event| addresses.note(&event, &names);
        note(Event::Apply(pod("a", "1", "10.0.0.1", "Pending")));
        note(Event::Init);
        note(Event::InitApply(pod("b", "2", "10.0.0.2", "Pending")));
        assert!(known("10.0.0.1") && !known("10.0.0.2"));
        note(Event::InitDone);
        assert!(!known("10.0.0.1") && known("10.0.0.2"));
    }

    #[test]
    fn templates_that_could_forge_addresses_or_have_a_proxy_use_none() {
        let mut config = KubernetesConfig::new(HostId::parse("host").unwrap());
        config.proxy_port = Some(3128);
        config.has_proxy = true;
        let id = uuid::Uuid::nil();
        let launch = port_conformance::suites::sandboxes::backend::launch(id, &config.specs[0].id);
        let host = launch.webhook_url.host_str().unwrap().to_owned();
        for (variable, capability, expected) in [
            ("NO_PROXY", "CHOWN", Some(format!("{host}:3128"))),
            ("https_proxy", "CHOWN", None),
            ("NO_PROXY", "NET_RAW", None),
        ] {
            let mut spec = config.specs[0].clone();
            spec.env.insert(variable.to_owned(), "x".to_owned());
            spec.capabilities = vec![capability.to_owned()];
            assert_eq!(address(&config, &spec, &launch), expected);
        }
        config.has_proxy = false;
        assert_eq!(address(&config, &config.specs[0], &launch), None);
    }
}
