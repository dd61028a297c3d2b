//! One template for sandboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::id::SpecId;
use domain::sandbox::AGENT_SERVER;
use secrecy::{ExposeSecret as _, SecretString};

use super::values::{
    MountSettings, assignment, container_path, is_image, is_inside, is_plain_name, mount,
    parse_size,
};
use crate::config::reader::SettingReader;

/// Smallest limit that engines accept.
const MIN_MEMORY_BYTES: u64 = 6 << 20;

/// How a sandbox is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseSetting {
    /// Ends all programs.
    Stop,
    /// Keeps programs in memory.
    Freeze,
}

/// A template. `None` for a limit means unlimited.
#[derive(Debug, Clone)]
pub(crate) struct TemplateSettings {
    pub(crate) id: SpecId,
    pub(crate) image: String,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) working_dir: String,
    pub(crate) volume: String,
    pub(crate) user: Option<String>,
    /// Bytes.
    pub(crate) memory: Option<u64>,
    /// Cores.
    pub(crate) cpus: Option<f64>,
    pub(crate) pids: Option<u32>,
    /// Bytes.
    pub(crate) disk: Option<u64>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) read_only: bool,
    pub(crate) pause: PauseSetting,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) secret_env: BTreeMap<String, SecretString>,
    /// Name and port in the container.
    pub(crate) ports: Vec<(String, u16)>,
    pub(crate) mounts: Vec<MountSettings>,
    pub(crate) idle_stop: Option<Duration>,
    pub(crate) lifetime: Option<Duration>,
}

impl TemplateSettings {
    /// Reads the section's keys; the reader may put an additional template over them.
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
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
                let parts = text.splitn(2, ':').all(is_plain_name);
                parts.then(|| text.to_owned())
            }),
            memory: memory(reader),
            cpus: cpus(reader),
            pids: Some(reader.number("docker.pids", 0..=4_194_304)).filter(|pids| *pids != 0),
            disk: size(reader, "docker.disk"),
            capabilities: capabilities(reader),
            read_only: reader.switch("docker.read_only"),
            pause: reader.parsed("docker.pause", "stop or freeze", |text| match text {
                "stop" => Some(PauseSetting::Stop),
                "freeze" => Some(PauseSetting::Freeze),
                _ => None,
            }),
            env: variables(reader, "docker.env", &reader.list("docker.env")),
            secret_env: secret_variables(reader),
            ports: ports(reader),
            mounts: mounts(reader),
            idle_stop: reader.limit("sandbox.idle_stop"),
            lifetime: reader.limit("sandbox.lifetime"),
        };
        template.check(reader);
        template
    }

    /// Files outside of the volume are lost whenever the container is recreated.
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
    reader.optional_parsed(key, "words, quoted as for a shell", |text| {
        shlex::split(text).filter(|words| !words.is_empty())
    })
}

fn directory(reader: &SettingReader<'_>, key: &str) -> String {
    reader.parsed(key, "an absolute path other than /", |text| {
        container_path(text).filter(|path| path != "/")
    })
}

fn size(reader: &SettingReader<'_>, key: &str) -> Option<u64> {
    let bytes = reader.parsed(
        key,
        "a number and a unit (KiB, MiB, GiB, TiB), or 0",
        parse_size,
    );
    (bytes != 0).then_some(bytes)
}

fn memory(reader: &SettingReader<'_>) -> Option<u64> {
    let bytes = size(reader, "docker.memory");
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

/// Without the prefix `CAP_`.
fn capabilities(reader: &SettingReader<'_>) -> Vec<String> {
    let listed = reader.list("docker.capabilities");
    let named: Option<Vec<String>> = listed
        .iter()
        .map(|text| {
            let name = text.strip_prefix("CAP_").unwrap_or(text);
            let plain = name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
            // `ALL` is refused: a list must name what an agent needs.
            (plain && !name.is_empty() && name != "ALL").then(|| name.to_owned())
        })
        .collect();
    named.unwrap_or_else(|| {
        reader.problem("docker.capabilities", "must hold names such as CHOWN");
        Vec::new()
    })
}

/// Entries `NAME=VALUE` of the list `key`.
pub(in crate::config) fn variables(
    reader: &SettingReader<'_>,
    key: &str,
    listed: &[String],
) -> BTreeMap<String, String> {
    let parsed: Option<BTreeMap<String, String>> = listed
        .iter()
        .map(|text| assignment(text).map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    parsed.unwrap_or_else(|| {
        reader.problem(key, "must hold entries NAME=VALUE");
        BTreeMap::new()
    })
}

fn secret_variables(reader: &SettingReader<'_>) -> BTreeMap<String, SecretString> {
    let listed = reader.secret_list("docker.secret_env");
    let parsed: Option<BTreeMap<String, SecretString>> = listed
        .iter()
        .map(|text| {
            let (name, value) = assignment(text.expose_secret())?;
            Some((name.to_owned(), value.into()))
        })
        .collect();
    parsed.unwrap_or_else(|| {
        reader.problem(
            "docker.secret_env",
            "(or its file) must hold entries NAME=VALUE",
        );
        BTreeMap::new()
    })
}

fn ports(reader: &SettingReader<'_>) -> Vec<(String, u16)> {
    let listed = reader.list("docker.ports");
    let parsed: Option<Vec<(String, u16)>> = listed
        .iter()
        .map(|text| {
            let (name, port) = assignment(text)?;
            let port = port.trim().parse().ok().filter(|port| *port != 0)?;
            Some((name.to_owned(), port))
        })
        .collect();
    let Some(ports) = parsed else {
        reader.problem("docker.ports", "must hold entries NAME=PORT");
        return Vec::new();
    };
    let names: BTreeSet<&str> = ports.iter().map(|(name, _)| name.as_str()).collect();
    let numbers: BTreeSet<u16> = ports.iter().map(|(_, port)| *port).collect();
    if names.len() < ports.len() || numbers.len() < ports.len() {
        reader.problem("docker.ports", "must not hold a name or a port twice");
    } else if !names.contains(AGENT_SERVER) {
        reader.problem(
            "docker.ports",
            "must hold AGENT_SERVER=PORT, by which this service talks to the agent server",
        );
    }
    ports
}

fn mounts(reader: &SettingReader<'_>) -> Vec<MountSettings> {
    let listed = reader.list("docker.mounts");
    let parsed: Option<Vec<MountSettings>> = listed.iter().map(|text| mount(text)).collect();
    parsed.unwrap_or_else(|| {
        reader.problem(
            "docker.mounts",
            "must hold entries /SOURCE:/TARGET or /SOURCE:/TARGET:ro with absolute paths",
        );
        Vec::new()
    })
}
