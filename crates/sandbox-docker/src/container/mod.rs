//! The description of a sandbox's container.

pub(crate) mod certificates;
pub(crate) mod environment;
pub(crate) mod exit;
pub(crate) mod labels;
pub(crate) mod published_ports;
mod recipe;

use std::collections::HashMap;
use std::net::SocketAddr;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType, MountVolumeOptions,
    PortBinding, RestartPolicy, RestartPolicyNameEnum,
};
use domain::sandbox::SandboxLaunch;
use sandbox_provider::EgressPolicy;
use secrecy::ExposeSecret;

use crate::config::{self, DockerConfig, DockerSpec};

/// The name of the host inside containers, set explicitly for engines that lack it (Linux).
pub(crate) const HOST_NAME: &str = "host.docker.internal";
const HOST_ENTRY: &str = "host.docker.internal:host-gateway";

/// The engine passes queries for other names on to this address of the container, where nothing answers: a name could carry data
/// past the proxy.
const NO_RESOLVER: &str = "127.0.0.1";

/// The engine keeps two log files of this size for each container.
const MAX_LOG_SIZE: &str = "10m";

/// Writable directories of a read-only image: in memory, counted against the sandbox's limit. Self-extracting programs run
/// from there.
const TMPFS_PATHS: [&str; 2] = ["/tmp", "/run"];
const TMPFS_OPTIONS: &str = "rw,exec,nosuid,nodev,mode=1777";

/// What the engine gives a container.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attachments {
    /// Id of its network.
    pub(crate) network: String,
    /// The forward proxy that its programs use.
    pub(crate) proxy: Option<SocketAddr>,
    /// The engine's storage limits.
    pub(crate) storage: Option<HashMap<String, String>>,
}

/// The container of this sandbox.
pub(crate) fn body(
    config: &DockerConfig,
    spec: &DockerSpec,
    launch: &SandboxLaunch,
    attached: Attachments,
) -> ContainerCreateBody {
    let Attachments {
        network,
        proxy,
        storage,
    } = attached;
    let variables = environment::variables(spec, launch, proxy);
    let env = variables
        .iter()
        .map(|(name, value)| format!("{name}={}", value.expose_secret()));
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        entrypoint: spec.entrypoint.clone(),
        cmd: spec.command.clone(),
        env: Some(env.collect()),
        working_dir: Some(spec.working_dir.clone()),
        user: spec.user.clone(),
        labels: Some(labels::of_container(&config.instance, launch, spec, proxy)),
        exposed_ports: Some(spec.ports.iter().map(|port| key(port.port)).collect()),
        stop_timeout: Some(grace(config)),
        host_config: Some(HostConfig {
            storage_opt: storage,
            network_mode: Some(network),
            ..host(config, spec, launch)
        }),
        ..ContainerCreateBody::default()
    }
}

/// Time for the container to stop, in whole seconds.
pub(crate) fn grace(config: &DockerConfig) -> i64 {
    i64::try_from(config.grace.as_secs()).unwrap_or(i64::MAX)
}

/// The engine's name for a port.
pub(crate) fn key(port: u16) -> String {
    format!("{port}/tcp")
}

fn host(config: &DockerConfig, spec: &DockerSpec, launch: &SandboxLaunch) -> HostConfig {
    let limits = &spec.resources;
    let memory = limits.memory.and_then(|bytes| i64::try_from(bytes).ok());
    let tmpfs = TMPFS_PATHS.map(|dir| (dir.to_owned(), TMPFS_OPTIONS.to_owned()));
    HostConfig {
        // An init process reaps orphans, and forwards signals that a program would ignore as process 1.
        init: Some(true),
        runtime: config.runtime.clone(),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(spec.capabilities.clone()),
        // Without a setting, the engine's default seccomp profile applies.
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        privileged: Some(false),
        readonly_rootfs: Some(spec.read_only),
        tmpfs: spec.read_only.then(|| tmpfs.into()),
        memory,
        // Equal to the memory limit, i.e. no swap.
        memory_swap: memory,
        nano_cpus: limits.cpus.map(nano),
        pids_limit: limits.pids.map(i64::from),
        mounts: Some(mounts(config, spec, launch)),
        port_bindings: Some(bindings(config, spec)),
        dns: (config.policy != EgressPolicy::Open).then(|| vec![NO_RESOLVER.to_owned()]),
        extra_hosts: Some(vec![HOST_ENTRY.to_owned()]),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([
                ("max-size".to_owned(), MAX_LOG_SIZE.to_owned()),
                ("max-file".to_owned(), "2".to_owned()),
            ])),
        }),
        ..HostConfig::default()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a number of processors, checked to be positive and small"
)]
fn nano(cpus: f64) -> i64 {
    (cpus * 1e9).round() as i64
}

fn mounts(config: &DockerConfig, spec: &DockerSpec, launch: &SandboxLaunch) -> Vec<Mount> {
    let volume = Mount {
        typ: Some(MountType::VOLUME),
        source: Some(labels::name(&launch.id)),
        target: Some(spec.volume.clone()),
        volume_options: Some(MountVolumeOptions {
            labels: Some(labels::of_volume(&config.instance, launch)),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    };
    let bind = |mount: &config::BindMount| Mount {
        typ: Some(MountType::BIND),
        source: Some(mount.source.clone()),
        target: Some(mount.target.clone()),
        read_only: Some(!mount.writable),
        ..Mount::default()
    };
    std::iter::once(volume)
        .chain(spec.mounts.iter().map(bind))
        .collect()
}

/// The engine chooses free ports of the host.
fn bindings(config: &DockerConfig, spec: &DockerSpec) -> HashMap<String, Option<Vec<PortBinding>>> {
    let binding = PortBinding {
        host_ip: Some(config.publish_address.to_string()),
        host_port: Some(String::new()),
    };
    let ports = spec.ports.iter();
    ports
        .map(|port| (key(port.port), Some(vec![binding.clone()])))
        .collect()
}
