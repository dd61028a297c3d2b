//! Section `docker`: the engine, and the templates for sandboxes.

mod spec;
mod values;

use std::time::Duration;

use domain::id::HostId;
use sandbox_provider::container_settings::templates;
use sandbox_provider::{EgressPolicy, EgressSlot, reachable_network};
use settings::SettingReader;

use crate::config::{DockerConfig, DockerSpec, MetadataBlocking, RegistryCredentials};
use values::{is_plain_name, is_socket};

impl DockerConfig {
    pub(crate) fn read(reader: &SettingReader<'_>, instance: HostId) -> Self {
        let socket =
            reader.optional_parsed("docker.socket", "unix:///PATH or tcp://HOST:PORT", |text| {
                is_socket(text).then(|| text.to_owned())
            });
        // Docker's own programs use the same variable.
        let docker_host = || reader.variable("DOCKER_HOST")?.to_str().map(str::to_owned);
        let policy = EgressPolicy::read(reader);
        let has_proxy = match policy {
            EgressPolicy::Open => sandbox_provider::sends_secrets(reader),
            EgressPolicy::AllowList => true,
            EgressPolicy::None => false,
        };
        Self {
            instance,
            socket: socket.or_else(docker_host),
            specs: templates(reader, "docker", DockerSpec::read, |spec| &spec.id),
            publish_address: reader.parsed(
                "docker.publish_address",
                "an IP address, e.g. 127.0.0.1",
                |text| text.parse().ok(),
            ),
            reach_host: host(reader, "docker.reach_host"),
            exposed_host: host(reader, "docker.exposed_host"),
            runtime: reader.optional_parsed("docker.runtime", "a name, e.g. runsc", |text| {
                is_plain_name(text).then(|| text.to_owned())
            }),
            metadata: reader.choice(
                "docker.block_metadata",
                &[
                    ("auto", MetadataBlocking::Auto),
                    ("required", MetadataBlocking::Required),
                    ("off", MetadataBlocking::Off),
                ],
            ),
            policy,
            egress: (policy != EgressPolicy::None).then(EgressSlot::default),
            has_proxy,
            proxy_port: reader.number("docker.proxy_port", 1..=65_535),
            reachable_networks: reader.parsed_list(
                "docker.reachable_networks",
                "IPv4 networks or addresses, e.g. 10.20.0.0/16, outside 127.0.0.0/8",
                |text| reachable_network(text, &[]),
            ),
            grace: reader.duration("sandbox.stop_grace"),
            call_limit: Duration::from_secs(30),
            pull_stall: Duration::from_secs(5 * 60),
            disk_interval: sandbox_provider::disk_check(reader, "docker.disk_check"),
            registry: registry(reader),
        }
    }
}

fn registry(reader: &SettingReader<'_>) -> Option<RegistryCredentials> {
    let server = host(reader, "docker.registry_server");
    let username = reader.optional("docker.registry_username");
    let password = reader.secret("docker.registry_password");
    match (server, username, password) {
        (Some(server), Some(username), Some(password)) => Some(RegistryCredentials {
            server,
            username,
            password,
        }),
        (None, None, None) => None,
        _ => {
            reader.problem(
                "docker.registry_server",
                "goes with registry_username and registry_password: set all three, or none",
            );
            None
        }
    }
}

/// A host, optionally with a port.
fn host(reader: &SettingReader<'_>, key: &str) -> Option<String> {
    reader.optional_parsed(key, "a host name or address", |text| {
        let url = url::Url::parse(&format!("http://{text}/")).ok()?;
        let plain = !text.contains(['/', '?', '#', '@']) && url.has_host();
        plain.then(|| text.to_owned())
    })
}

#[cfg(test)]
mod tests;
