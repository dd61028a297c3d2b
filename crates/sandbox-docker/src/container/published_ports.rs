//! The endpoints of a running sandbox, from the ports that the engine published.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bollard::models::{PortMap, PortSummary, PortSummaryTypeEnum};
use domain::sandbox::{AGENT_SERVER, ExposedUrl, SandboxEndpoints};
use url::Url;

use crate::config::DockerConfig;
use crate::container;
use crate::container::labels::{self, Labels};

/// Pairs of a port in the container and the host's port.
pub(crate) type PublishedPorts = Vec<(u16, u16)>;

pub(crate) fn from_inspection(ports: &PortMap, labels: &Labels) -> PublishedPorts {
    let inside = labels::ports(labels).into_iter().map(|(_, port)| port);
    inside
        .filter_map(|port| {
            let bindings = ports.get(&container::key(port))?.as_ref()?;
            let outside = bindings.first()?.host_port.as_ref()?.parse().ok()?;
            Some((port, outside))
        })
        .collect()
}

pub(crate) fn from_list(ports: &[PortSummary]) -> PublishedPorts {
    let tcp = ports
        .iter()
        .filter(|port| port.typ.is_none_or(|typ| typ == PortSummaryTypeEnum::TCP));
    tcp.filter_map(|port| Some((port.private_port, port.public_port?)))
        .collect()
}

/// The endpoints of a container with these labels. `None` if its agent server's port is not published.
pub(crate) fn endpoints(
    config: &DockerConfig,
    labels: &Labels,
    published: &PublishedPorts,
) -> Option<SandboxEndpoints> {
    let service_host = config
        .reach_host
        .clone()
        .unwrap_or_else(|| reachable(config.publish_address));
    let client_host = config.exposed_host.as_ref().unwrap_or(&service_host);
    let url = |host: &str, inside: u16| {
        let (_, outside) = published.iter().find(|(port, _)| *port == inside)?;
        Url::parse(&format!("http://{host}:{outside}")).ok()
    };
    let named = labels::ports(labels);
    let (_, agent) = named.iter().find(|(name, _)| name == AGENT_SERVER)?;
    Some(SandboxEndpoints {
        agent_url: url(&service_host, *agent)?,
        exposed_urls: named
            .iter()
            .filter_map(|(name, port)| {
                Some(ExposedUrl {
                    name: name.clone(),
                    url: url(client_host, *port)?,
                    port: *port,
                })
            })
            .collect(),
        workspace: labels.get(labels::WORKSPACE)?.clone(),
        has_proxy: labels.contains_key(labels::PROXY),
    })
}

/// A port published on all addresses is reached on loopback.
fn reachable(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) if address.is_unspecified() => format!("[{}]", Ipv6Addr::LOCALHOST),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use domain::id::HostId;

    use super::*;

    fn labels() -> Labels {
        Labels::from([
            (
                labels::PORTS.to_owned(),
                "AGENT_SERVER=8000,WORKER_1=8011".to_owned(),
            ),
            (
                labels::WORKSPACE.to_owned(),
                "/workspace/project".to_owned(),
            ),
        ])
    }

    #[test]
    fn clients_and_the_service_may_use_different_hosts() {
        let mut config = DockerConfig::new(HostId::parse("here").unwrap(), Vec::new());
        config.publish_address = Ipv4Addr::UNSPECIFIED.into();
        config.exposed_host = Some("sandboxes.test".to_owned());
        let published = vec![(8000, 40000), (8011, 40001)];
        let endpoints = endpoints(&config, &labels(), &published).unwrap();
        assert_eq!(endpoints.agent_url.as_str(), "http://127.0.0.1:40000/");
        assert_eq!(endpoints.workspace, "/workspace/project");
        let urls = endpoints.exposed_urls.iter();
        let urls: Vec<_> = urls
            .map(|url| (url.name.as_str(), url.url.as_str(), url.port))
            .collect();
        assert_eq!(
            urls,
            [
                ("AGENT_SERVER", "http://sandboxes.test:40000/", 8000),
                ("WORKER_1", "http://sandboxes.test:40001/", 8011),
            ]
        );
        config.publish_address = Ipv6Addr::UNSPECIFIED.into();
        let endpoints = super::endpoints(&config, &labels(), &published).unwrap();
        assert_eq!(endpoints.agent_url.as_str(), "http://[::1]:40000/");
    }

    #[test]
    fn there_are_no_endpoints_without_the_agent_servers_port() {
        let config = DockerConfig::new(HostId::parse("here").unwrap(), Vec::new());
        assert_eq!(endpoints(&config, &labels(), &vec![(8011, 40001)]), None);
        assert_eq!(
            endpoints(&config, &Labels::new(), &vec![(8000, 40000)]),
            None
        );
    }
}
