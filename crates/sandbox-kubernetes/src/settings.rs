//! Section `kubernetes`: the cluster, and the templates for sandboxes.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::id::{HostId, SpecId};
use domain::sandbox::AGENT_SERVER;
use secrecy::ExposeSecret as _;
use settings::{Redaction, SettingReader, SettingSection, TemplateKeys, assignment};

use crate::config::{ClusterAccess, KubernetesConfig, KubernetesSpec, PodEngine, PodPort};

/// What the backend adds to the mechanism of the configuration. Its defaults are in `config/default.toml`.
pub(crate) const SECTION: SettingSection = SettingSection {
    defaults: "",
    templates: Some(TemplateKeys {
        section: "kubernetes",
        table: "kubernetes.templates",
        required: &["kubernetes.id", "kubernetes.image"],
        optional: &[
            "kubernetes.command",
            "kubernetes.entrypoint",
            "kubernetes.working_dir",
            "kubernetes.volume",
            "kubernetes.user",
            "kubernetes.group",
            "kubernetes.memory",
            "kubernetes.cpus",
            "kubernetes.reserved_cpus",
            "kubernetes.disk",
            "kubernetes.capabilities",
            "kubernetes.runtime_class",
            "kubernetes.env",
            "kubernetes.secret_env",
            "kubernetes.secret_env_file",
            "kubernetes.ports",
            "sandbox.idle_stop",
            "sandbox.lifetime",
        ],
    }),
    redacted: &[("kubernetes.secret_env", Redaction::Assignments)],
};

/// Kubelets cannot start a container with less.
const MIN_MEMORY_BYTES: u64 = 16 << 20;
const DEFAULT_DISK_BYTES: u64 = 20 << 30;

impl KubernetesConfig {
    pub(crate) fn read(reader: &SettingReader<'_>, instance: HostId) -> Self {
        let file = reader.optional_path("kubernetes.kubeconfig");
        Self {
            access: file.map_or(ClusterAccess::Inferred, ClusterAccess::File),
            instance,
            namespace: reader.parsed("kubernetes.namespace", "the name of a namespace", |text| {
                is_object_name(text).then(|| text.to_owned())
            }),
            engine: reader.choice(
                "kubernetes.engine",
                &[
                    ("auto", None),
                    ("agent_sandbox", Some(PodEngine::AgentSandbox)),
                    ("pods", Some(PodEngine::Pods)),
                ],
            ),
            storage_class: object_name(reader, "kubernetes.storage_class"),
            access_mode: reader.choice(
                "kubernetes.access_mode",
                &[
                    ("ReadWriteOnce", "ReadWriteOnce"),
                    ("ReadWriteOncePod", "ReadWriteOncePod"),
                ],
            ),
            pull_secrets: reader.parsed_list(
                "kubernetes.pull_secrets",
                "names of Secrets",
                |text| is_object_name(text).then(|| text.to_owned()),
            ),
            node_selector: reader.assignments("kubernetes.node_selector"),
            specs: specs(reader),
            grace: reader.duration("sandbox.stop_grace"),
            call_limit: Duration::from_secs(30),
            start_limit: Duration::from_secs(10 * 60),
        }
    }
}

/// The default template, and the additional ones.
fn specs(reader: &SettingReader<'_>) -> Vec<KubernetesSpec> {
    let mut specs = vec![KubernetesSpec::read(reader)];
    let mut ids = BTreeSet::from([specs[0].id.clone()]);
    for (number, spec) in (0..).zip(reader.templates("kubernetes", KubernetesSpec::read)) {
        if !ids.insert(spec.id.clone()) {
            let problem = "is also the id of another template: ids must differ";
            reader.template_problem(number, "kubernetes.id", problem);
        }
        specs.push(spec);
    }
    specs
}

impl KubernetesSpec {
    /// Reads the section's keys; the reader may put an additional template over them.
    fn read(reader: &SettingReader<'_>) -> Self {
        let image = reader.parsed("kubernetes.image", "an image, e.g. agents:1", |text| {
            is_image(text).then(|| text.to_owned())
        });
        let id = reader
            .optional_parsed("kubernetes.id", "1 to 255 visible characters", |text| {
                SpecId::parse(text).ok()
            })
            .unwrap_or_else(|| SpecId::parse(&image).expect("an image is an id"));
        let words = |key| reader.words(key, "words, quoted as for a shell");
        let template = Self {
            id,
            image,
            entrypoint: words("kubernetes.entrypoint"),
            command: words("kubernetes.command"),
            env: reader.assignments("kubernetes.env"),
            secret_env: reader.parsed_secrets(
                "kubernetes.secret_env",
                "entries NAME=VALUE",
                |text| {
                    let (name, value) = assignment(text.expose_secret())?;
                    Some((name.to_owned(), value.into()))
                },
            ),
            working_dir: directory(reader, "kubernetes.working_dir"),
            volume: directory(reader, "kubernetes.volume"),
            user: account(reader, "kubernetes.user"),
            group: account(reader, "kubernetes.group"),
            memory: memory(reader),
            cpus: cpus(reader, "kubernetes.cpus"),
            reserved_cpus: cpus(reader, "kubernetes.reserved_cpus"),
            disk: disk(reader),
            capabilities: capabilities(reader),
            runtime_class: object_name(reader, "kubernetes.runtime_class"),
            idle_stop: reader.limit("sandbox.idle_stop"),
            lifetime: reader.limit("sandbox.lifetime"),
            ports: ports(reader),
        };
        let inside = template.working_dir.strip_prefix(&template.volume);
        if !inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            reader.problem(
                "kubernetes.working_dir",
                "must be in `volume`: other directories do not outlive the pod",
            );
        }
        if template.reserved_cpus > template.cpus.or(Some(f64::INFINITY)) {
            reader.problem("kubernetes.reserved_cpus", "must not exceed `cpus`");
        }
        template
    }
}

/// A name as most objects have it (a DNS label).
fn is_object_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| is_plain(*first) && is_plain(*last))
        && text.len() <= 63
        && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-')
}

fn object_name(reader: &SettingReader<'_>, key: &str) -> Option<String> {
    reader.optional_parsed(key, "the name of an object", |text| {
        is_object_name(text).then(|| text.to_owned())
    })
}

/// Roughly an image reference; the kubelet checks it exactly.
fn is_image(text: &str) -> bool {
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_./:@".contains(&b));
    plain && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 255
}

/// An absolute path without `.`, `..` and empty segments.
fn directory(reader: &SettingReader<'_>, key: &str) -> String {
    reader.parsed(key, "an absolute path other than /", |text| {
        let path = text.strip_suffix('/').unwrap_or(text);
        let mut parts = path.strip_prefix('/')?.split('/');
        let is_plain = parts.all(|part| !matches!(part, "" | "." | ".."));
        (is_plain && !path.contains([':', '\0'])).then(|| path.to_owned())
    })
}

fn account(reader: &SettingReader<'_>, key: &str) -> Option<i64> {
    reader.optional_parsed(key, "a number", |text| {
        text.parse()
            .ok()
            .filter(|id| (0..=i64::from(u32::MAX)).contains(id))
    })
}

fn memory(reader: &SettingReader<'_>) -> Option<u64> {
    let bytes = reader.size_limit("kubernetes.memory");
    if bytes.is_some_and(|bytes| bytes < MIN_MEMORY_BYTES) {
        let problem = "must be 16MiB or more (or 0: no limit)";
        reader.problem("kubernetes.memory", problem);
    }
    bytes
}

fn disk(reader: &SettingReader<'_>) -> u64 {
    reader.size_limit("kubernetes.disk").unwrap_or_else(|| {
        reader.problem("kubernetes.disk", "must be the size of a claim, e.g. 20GiB");
        DEFAULT_DISK_BYTES
    })
}

fn cpus(reader: &SettingReader<'_>, key: &str) -> Option<f64> {
    let cpus = reader.parsed(key, "a number of cores, e.g. 1.5, or 0", |text| {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let cpus: f64 = text.parse().ok().filter(|_| plain)?;
        // A thousandth of a core is the smallest quantity.
        (cpus == 0.0 || (0.001..=10_000.0).contains(&cpus)).then_some(cpus)
    });
    (cpus > 0.0).then_some(cpus)
}

/// The names of the capabilities, without the prefix `CAP_`.
fn capabilities(reader: &SettingReader<'_>) -> Vec<String> {
    reader.parsed_list("kubernetes.capabilities", "names such as CHOWN", |text| {
        let name = text.strip_prefix("CAP_").unwrap_or(text);
        let plain = name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        (plain && !name.is_empty() && name != "ALL").then(|| name.to_owned())
    })
}

fn ports(reader: &SettingReader<'_>) -> Vec<PodPort> {
    let key = "kubernetes.ports";
    let ports = reader.parsed_list(key, "entries NAME=PORT", |text| {
        let (name, port) = assignment(text)?;
        let port = port.trim().parse().ok().filter(|port| *port != 0)?;
        let name = name.to_owned();
        Some(PodPort { name, port })
    });
    if ports.len() < reader.list(key).len() {
        // The reader has recorded the invalid entry.
        return ports;
    }
    let names: BTreeSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let numbers: BTreeSet<u16> = ports.iter().map(|port| port.port).collect();
    if names.len() < ports.len() || numbers.len() < ports.len() {
        reader.problem(key, "must not contain a name or a port twice");
    } else if !names.contains(AGENT_SERVER) {
        reader.problem(
            key,
            "must hold AGENT_SERVER=PORT, by which this service talks to the agent server",
        );
    }
    ports
}
