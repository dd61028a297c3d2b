//! Reads one template for sandboxes, which the code calls a spec.

use sandbox_provider::budget;
use sandbox_provider::container_settings::{
    capabilities, cpus, directory, egress_allow, exposed_ports, id_and_image, is_inside, memory,
    secret_env,
};
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
            egress: egress_allow(reader, "docker.egress_allow"),
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

fn mounts(reader: &SettingReader<'_>) -> Vec<BindMount> {
    let expected = "entries /SOURCE:/TARGET or /SOURCE:/TARGET:ro with absolute paths";
    reader.parsed_list("docker.mounts", expected, mount)
}
