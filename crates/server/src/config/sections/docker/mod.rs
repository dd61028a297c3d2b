//! Section `docker`: the engine, and the templates for sandboxes.

pub(in crate::config) mod template;
pub(in crate::config) mod values;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use secrecy::SecretString;

use crate::config::reader::SettingReader;
use values::{is_plain_name, is_socket};

pub(crate) use template::{PauseSetting, TemplateSettings};
pub(in crate::config) use values::parse_size;

/// Whether to block the cloud's metadata address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataAccess {
    /// Block it if possible.
    Auto,
    /// Block it, or start no sandboxes.
    Required,
    /// Do not block it.
    Off,
}

/// Credentials of a registry.
#[derive(Debug, Clone)]
pub(crate) struct RegistrySettings {
    /// Host, optionally with a port.
    pub(crate) server: String,
    pub(crate) username: String,
    /// A password or a token.
    pub(crate) password: SecretString,
}

/// The engine.
#[derive(Debug, Clone)]
pub(crate) struct DockerSettings {
    /// The engine's address; `None`: Docker's default.
    pub(crate) socket: Option<String>,
    /// The address on which ports are published.
    pub(crate) publish_address: IpAddr,
    /// The host by which the service reaches published ports, if it differs from that address.
    pub(crate) reach_host: Option<String>,
    /// The host by which clients reach published ports, if it differs from the service's.
    pub(crate) exposed_host: Option<String>,
    /// OCI runtime.
    pub(crate) runtime: Option<String>,
    pub(crate) block_metadata: MetadataAccess,
    /// Interval of disk measurements.
    pub(crate) disk_check: Duration,
    /// Credentials for pulls.
    pub(crate) registry: Option<RegistrySettings>,
    /// The templates, the default first. Never empty.
    pub(crate) templates: Vec<TemplateSettings>,
}

impl DockerSettings {
    /// `docker_host` is the variable that Docker's own programs use.
    pub(in crate::config) fn read(reader: &SettingReader<'_>, docker_host: Option<String>) -> Self {
        let socket =
            reader.optional_parsed("docker.socket", "unix:///PATH or tcp://HOST:PORT", |text| {
                is_socket(text).then(|| text.to_owned())
            });
        let mut templates = vec![TemplateSettings::read(reader)];
        let mut ids = BTreeSet::from([templates[0].id.clone()]);
        for (number, template) in reader
            .templates(TemplateSettings::read)
            .into_iter()
            .enumerate()
        {
            if !ids.insert(template.id.clone()) {
                let problem = "is also the id of another template: ids must differ";
                reader.template_problem(number, "docker.id", problem);
            }
            templates.push(template);
        }
        Self {
            socket: socket.or(docker_host),
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
            block_metadata: reader.parsed(
                "docker.block_metadata",
                "auto, required or off",
                |text| match text {
                    "auto" => Some(MetadataAccess::Auto),
                    "required" => Some(MetadataAccess::Required),
                    "off" => Some(MetadataAccess::Off),
                    _ => None,
                },
            ),
            disk_check: disk_check(reader),
            registry: registry(reader),
            templates,
        }
    }
}

fn disk_check(reader: &SettingReader<'_>) -> Duration {
    let interval = reader.duration("docker.disk_check");
    if interval < Duration::from_secs(1) {
        reader.problem("docker.disk_check", "must be 1s or more");
    }
    interval
}

fn registry(reader: &SettingReader<'_>) -> Option<RegistrySettings> {
    let server = host(reader, "docker.registry_server");
    let username = reader.optional("docker.registry_username");
    let password = reader.secret("docker.registry_password");
    match (server, username, password) {
        (Some(server), Some(username), Some(password)) => Some(RegistrySettings {
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
