//! Reads one template for sandboxes, which the code calls a spec.

use domain::egress_list::EgressList;
use sandbox_provider::container_settings::{
    capabilities, cpus, directory, exposed_ports, id_and_image, is_inside, memory, secret_env,
};
use sandbox_provider::{EgressPolicy, budget};
use settings::SettingReader;

use super::values::{is_plain_name, mount};
use crate::config::{BindMount, DockerSpec, PauseMode, ResourceLimits};

/// Smallest limits that engines accept.
const MIN_MEMORY_MIB: u64 = 6;
const MIN_CPUS: f64 = 0.01;

impl DockerSpec {
    /// Reads the section's keys; the reader may put an additional template over them.
    pub(crate) fn read(reader: &SettingReader<'_>) -> Self {
        let (id, image) = id_and_image(reader, "docker");
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
                memory: memory(reader, "docker.memory", MIN_MEMORY_MIB),
                cpus: cpus(reader, "docker.cpus", MIN_CPUS),
                pids: reader.count_limit("docker.pids", 4_194_304),
                disk: reader.size_limit("docker.disk"),
            },
            capabilities: capabilities(reader, "docker.capabilities"),
            read_only: reader.switch("docker.read_only"),
            pause: reader.choice(
                "docker.pause",
                &[("stop", PauseMode::Stop), ("freeze", PauseMode::Freeze)],
            ),
            env: reader.assignments("docker.env"),
            secret_env: secret_env(reader, "docker.secret_env"),
            ports: exposed_ports(reader, "docker.ports"),
            mounts: mounts(reader),
            idle_stop: reader.limit("sandbox.idle_stop"),
            lifetime: reader.limit("sandbox.lifetime"),
            conversation_budget: budget(reader, "sandbox.conversation_budget"),
            egress: egress(reader),
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

/// The hosts of a template, where lists say what sandboxes reach.
fn egress(reader: &SettingReader<'_>) -> Option<EgressList> {
    const KEY: &str = "docker.egress_allow";
    let entries = reader.list(KEY);
    if entries.is_empty() {
        return None;
    }
    if EgressPolicy::read(reader) != EgressPolicy::AllowList {
        reader.problem(
            KEY,
            "has an effect only with egress.policy = \"allow_list\"",
        );
    }
    let list = EgressList::parse(entries.iter().map(String::as_str));
    list.map_err(|problem| reader.problem(KEY, &problem)).ok()
}

fn words(reader: &SettingReader<'_>, key: &str) -> Option<Vec<String>> {
    reader.words(key, "words, quoted as for a shell")
}

fn mounts(reader: &SettingReader<'_>) -> Vec<BindMount> {
    let expected = "entries /SOURCE:/TARGET or /SOURCE:/TARGET:ro with absolute paths";
    reader.parsed_list("docker.mounts", expected, mount)
}
