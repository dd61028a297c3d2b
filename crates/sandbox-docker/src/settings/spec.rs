//! Reads one template for sandboxes, which the code calls a spec.

use std::collections::BTreeSet;

use domain::id::SpecId;
use domain::sandbox::AGENT_SERVER;
use secrecy::ExposeSecret as _;
use settings::{SettingReader, assignment};

use super::values::{container_path, is_image, is_inside, is_plain_name, mount};
use crate::config::{BindMount, DockerSpec, ExposedPort, PauseMode, ResourceLimits};

/// Smallest limit that engines accept.
const MIN_MEMORY_BYTES: u64 = 6 << 20;

impl DockerSpec {
    /// Reads the section's keys; the reader may put an additional template over them.
    pub(crate) fn read(reader: &SettingReader<'_>) -> Self {
        let image = reader.parsed("docker.image", "an image, e.g. agents:1", |text| {
            is_image(text).then(|| text.to_owned())
        });
        let id = reader
            .optional_parsed("docker.id", "1 to 255 visible characters", |text| {
                SpecId::parse(text).ok()
            })
            .unwrap_or_else(|| SpecId::parse(&image).expect("an image is an id"));
        let template = Self {
            id,
            image,
            command: words(reader, "docker.command"),
            entrypoint: words(reader, "docker.entrypoint"),
            working_dir: directory(reader, "docker.working_dir"),
            volume: directory(reader, "docker.volume"),
            user: reader.optional_parsed("docker.user", "a name, UID or UID:GID", |text| {
                let is_valid = text.splitn(2, ':').all(is_plain_name);
                is_valid.then(|| text.to_owned())
            }),
            resources: ResourceLimits {
                memory: memory(reader),
                cpus: cpus(reader),
                pids: reader.count_limit("docker.pids", 4_194_304),
                disk: reader.size_limit("docker.disk"),
            },
            capabilities: capabilities(reader),
            read_only: reader.switch("docker.read_only"),
            pause: reader.choice(
                "docker.pause",
                &[("stop", PauseMode::Stop), ("freeze", PauseMode::Freeze)],
            ),
            env: reader.assignments("docker.env"),
            secret_env: reader.parsed_secrets("docker.secret_env", "entries NAME=VALUE", |text| {
                let (name, value) = assignment(text.expose_secret())?;
                Some((name.to_owned(), value.into()))
            }),
            ports: ports(reader),
            mounts: mounts(reader),
            idle_stop: reader.limit("sandbox.idle_stop"),
            lifetime: reader.limit("sandbox.lifetime"),
        };
        template.check(reader);
        template
    }

    /// Checks that the working directory is in the volume or in a mount. Other files are lost whenever the container is
    /// recreated.
    fn check(&self, reader: &SettingReader<'_>) {
        let kept = self.mounts.iter().map(|mount| mount.target.as_str());
        let is_kept = kept
            .chain([self.volume.as_str()])
            .any(|directory| is_inside(&self.working_dir, directory));
        if !is_kept {
            reader.problem(
                "docker.working_dir",
                "must be in `volume`, or in a mount: other directories do not outlive the container",
            );
        }
    }
}

fn words(reader: &SettingReader<'_>, key: &str) -> Option<Vec<String>> {
    reader.words(key, "words, quoted as for a shell")
}

fn directory(reader: &SettingReader<'_>, key: &str) -> String {
    reader.parsed(key, "an absolute path other than /", |text| {
        container_path(text).filter(|path| path != "/")
    })
}

fn memory(reader: &SettingReader<'_>) -> Option<u64> {
    let bytes = reader.size_limit("docker.memory");
    if bytes.is_some_and(|bytes| bytes < MIN_MEMORY_BYTES) {
        reader.problem("docker.memory", "must be 6MiB or more (or 0: no limit)");
    }
    bytes
}

fn cpus(reader: &SettingReader<'_>) -> Option<f64> {
    let cpus = reader.parsed("docker.cpus", "a number of cores, e.g. 1.5, or 0", |text| {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let cpus: f64 = text.parse().ok().filter(|_| plain)?;
        // Engines refuse less than a hundredth of a core.
        (cpus == 0.0 || (0.01..=10_000.0).contains(&cpus)).then_some(cpus)
    });
    (cpus > 0.0).then_some(cpus)
}

/// The names of the capabilities, without the prefix `CAP_`.
fn capabilities(reader: &SettingReader<'_>) -> Vec<String> {
    reader.parsed_list("docker.capabilities", "names such as CHOWN", |text| {
        let name = text.strip_prefix("CAP_").unwrap_or(text);
        let plain = name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        // `ALL` is refused: a list must name what an agent needs.
        (plain && !name.is_empty() && name != "ALL").then(|| name.to_owned())
    })
}

fn ports(reader: &SettingReader<'_>) -> Vec<ExposedPort> {
    let key = "docker.ports";
    let ports = reader.parsed_list(key, "entries NAME=PORT", |text| {
        let (name, port) = assignment(text)?;
        let port = port.trim().parse().ok().filter(|port| *port != 0)?;
        let name = name.to_owned();
        Some(ExposedPort { name, port })
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

fn mounts(reader: &SettingReader<'_>) -> Vec<BindMount> {
    let expected = "entries /SOURCE:/TARGET or /SOURCE:/TARGET:ro with absolute paths";
    reader.parsed_list("docker.mounts", expected, mount)
}
