//! Names and labels by which the service recognises its own resources.

use std::collections::HashMap;
use std::net::SocketAddr;

use domain::id::{HostId, SandboxId};
use domain::sandbox::SandboxLaunch;
use url::Url;

use crate::config::{DockerSpec, PauseMode};

/// Id of the installation. A resource without it is never touched, whatever its name.
pub(crate) const INSTANCE: &str = "agent-workspace.instance";
pub(crate) const SANDBOX: &str = "agent-workspace.sandbox";
pub(crate) const OWNER: &str = "agent-workspace.owner";
pub(crate) const SPEC: &str = "agent-workspace.spec";
pub(crate) const CALLBACK: &str = "agent-workspace.callback";
/// Ports of the sandbox as `NAME=PORT`, separated by commas: a list of sandboxes then needs neither template nor
/// inspection.
pub(crate) const PORTS: &str = "agent-workspace.ports";
pub(crate) const WORKSPACE: &str = "agent-workspace.workspace";
pub(crate) const PAUSE: &str = "agent-workspace.pause";
/// Names of secret variables, separated by commas. The service masks their values where it quotes the log.
pub(crate) const SECRETS: &str = "agent-workspace.secrets";

/// Address of the forward proxy that the container uses.
pub(crate) const PROXY: &str = "agent-workspace.proxy";

pub(crate) type Labels = HashMap<String, String>;

/// Name of a sandbox's container and volume.
pub(crate) fn name(id: &SandboxId) -> String {
    format!("agent-workspace-{id}")
}

/// The filter for all resources of this installation.
pub(crate) fn of_instance(instance: &HostId) -> String {
    format!("{INSTANCE}={instance}")
}

pub(crate) fn of_volume(instance: &HostId, launch: &SandboxLaunch) -> Labels {
    let pairs = [
        (INSTANCE, instance.to_string()),
        (SANDBOX, launch.id.to_string()),
        (OWNER, launch.owner.to_string()),
        (SPEC, launch.spec.to_string()),
    ];
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

pub(crate) fn of_container(
    instance: &HostId,
    launch: &SandboxLaunch,
    spec: &DockerSpec,
    proxy: Option<SocketAddr>,
) -> Labels {
    let ports = spec.ports.iter();
    let ports: Vec<_> = ports
        .map(|port| format!("{}={}", port.name, port.port))
        .collect();
    let secrets: Vec<_> = spec.secret_env.keys().map(String::as_str).collect();
    let pause = match spec.pause {
        PauseMode::Stop => "stop",
        PauseMode::Freeze => "freeze",
    };
    let mut labels = of_volume(instance, launch);
    for (name, value) in [
        (CALLBACK, address(&launch.webhook_url)),
        (PORTS, ports.join(",")),
        (WORKSPACE, spec.working_dir.clone()),
        (PAUSE, pause.to_owned()),
        (SECRETS, secrets.join(",")),
    ] {
        labels.insert(name.to_owned(), value);
    }
    if let Some(proxy) = proxy {
        labels.insert(PROXY.to_owned(), proxy.to_string());
    }
    labels
}

/// A URL without secret parts: all users of the engine's host can read labels.
pub(crate) fn address(url: &Url) -> String {
    let mut url = url.clone();
    // Remove the credentials and keep the rest.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// The sandbox of this container or volume, if it is the installation's own. The name must match: an image committed
/// from a sandbox's container passes its labels on to new containers.
pub(crate) fn sandbox(instance: &HostId, full_name: &str, labels: &Labels) -> Option<SandboxId> {
    if labels.get(INSTANCE).map(String::as_str) != Some(instance.as_str()) {
        return None;
    }
    let id = SandboxId::parse(labels.get(SANDBOX)?).ok()?;
    (full_name.trim_start_matches('/') == name(&id)).then_some(id)
}

/// The ports by name at the container's creation.
pub(crate) fn ports(labels: &Labels) -> Vec<(String, u16)> {
    let listed = labels.get(PORTS).map(String::as_str).unwrap_or_default();
    let pairs = listed.split(',').filter_map(|pair| pair.rsplit_once('='));
    pairs
        .filter_map(|(name, port)| Some((name.to_owned(), port.parse().ok()?)))
        .collect()
}

pub(crate) fn pause(labels: &Labels) -> PauseMode {
    match labels.get(PAUSE).map(String::as_str) {
        Some("freeze") => PauseMode::Freeze,
        _ => PauseMode::Stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_needs_the_label_of_the_installation_and_its_own_name() {
        let instance = HostId::parse("host-1").unwrap();
        let labels = |instance: &str, id: &str| {
            Labels::from([
                (INSTANCE.to_owned(), instance.to_owned()),
                (SANDBOX.to_owned(), id.to_owned()),
            ])
        };
        let sandbox = |name: &str, labels: &Labels| super::sandbox(&instance, name, labels);
        let id = SandboxId::parse("s1").unwrap();
        let ours = labels("host-1", "s1");
        assert_eq!(sandbox("/agent-workspace-s1", &ours), Some(id.clone()));
        assert_eq!(sandbox("agent-workspace-s1", &ours), Some(id));
        assert_eq!(sandbox("/created-from-its-image", &ours), None);
        assert_eq!(
            sandbox("/agent-workspace-s1", &labels("host-2", "s1")),
            None
        );
        assert_eq!(sandbox("/agent-workspace-s1", &Labels::new()), None);
    }

    #[test]
    fn addresses_omit_secrets() {
        let url = Url::parse("http://user:pass@host:3000/api?token=x#y").unwrap();
        assert_eq!(address(&url), "http://host:3000/api");
    }

    #[test]
    fn ports_are_parsed() {
        let labels = Labels::from([(
            PORTS.to_owned(),
            "AGENT_SERVER=8000,WORKER_1=8011".to_owned(),
        )]);
        let expected = [("AGENT_SERVER", 8000), ("WORKER_1", 8011)];
        let expected = expected.map(|(name, port)| (name.to_owned(), port));
        assert_eq!(ports(&labels), expected);
        assert_eq!(ports(&Labels::new()), []);
    }
}
