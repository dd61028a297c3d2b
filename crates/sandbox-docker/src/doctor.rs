//! Checks of `doctor`: the container engine. Creates no resource.

use std::path::PathBuf;

use bollard::Docker;
use bollard::models::SystemInfo;
use chrono::DateTime;
use domain::clock::{Clock as _, SystemClock, Timestamp};
use domain::sandbox::SandboxError;
use sandbox_provider::{CallbackCheck, DoctorReport};

use crate::DockerSandboxes;
use crate::config::{DockerConfig, MetadataBlocking};
use crate::disk::may_limit;
use crate::network::packet_filter;

impl DockerSandboxes {
    /// Reports what the engine can do. The error says why it is unreachable; then nothing is reported.
    pub(crate) async fn examine(
        &self,
        report: &mut DoctorReport,
    ) -> Result<CallbackCheck, SandboxError> {
        let (engine, config) = (&self.inner().engine, &self.inner().config);
        let requested = SystemClock.now();
        let info = engine.call("reading the engine's information", Docker::info);
        let info = info.await?;
        let received = SystemClock.now();
        let mut images = Vec::new();
        for spec in &config.specs {
            images.push((spec, engine.image(&spec.image).await?.is_some()));
        }
        let metadata_problem = match config.metadata {
            MetadataBlocking::Off => None,
            MetadataBlocking::Auto | MetadataBlocking::Required => {
                packet_filter::HOST.check_chain().await.err()
            }
        };
        report.ok("engine", summary(&info));
        limits(&info, config, report);
        clock(&info, (requested, received), report);
        disk(&info, engine.is_local(), report);
        for (spec, is_present) in images {
            let state = if is_present {
                "is present"
            } else {
                "is missing; the first start pulls it (or run docker pull)"
            };
            let text = format!("image {} {state}", spec.image);
            report.ok(&format!("template {}", spec.id), text);
        }
        blocking(metadata_problem, config.metadata, report);
        proxy(&info, engine.is_local(), config, report);
        let gateway = self.gateway().await;
        Ok(CallbackCheck { gateway })
    }
}

fn summary(info: &SystemInfo) -> String {
    let mode = if is_rootless(info) {
        "rootless"
    } else {
        "run by root"
    };
    let cgroups = info.cgroup_version.map(|version| version.to_string());
    format!(
        "{} on {}, {mode}, cgroups {}, storage {}",
        info.server_version.as_deref().unwrap_or_default(),
        info.operating_system.as_deref().unwrap_or_default(),
        cgroups.as_deref().unwrap_or("unknown"),
        storage(info)
    )
}

/// Events of sandboxes carry the engine's time, which it read between the request and the response.
fn clock(info: &SystemInfo, (first, last): (Timestamp, Timestamp), report: &mut DoctorReport) {
    let time = info.system_time.as_deref();
    if let Some(time) = time.and_then(|text| DateTime::parse_from_rfc3339(text).ok()) {
        let theirs = Timestamp::new(time.to_utc());
        let ours = theirs.max(first).min(last);
        report.skew("clock of the engine", theirs, ours);
    }
}

/// Images and volumes need disk space. On another machine the engine's path may name another directory.
fn disk(info: &SystemInfo, is_local: bool, report: &mut DoctorReport) {
    let what = "disk of the engine";
    let root = info.docker_root_dir.as_ref().map(PathBuf::from);
    match root.filter(|root| is_local && root.is_dir()) {
        Some(root) => {
            let advice = "free some space (`docker system df` shows what uses it)";
            report.free_space(what, &root, advice);
        }
        None => report.ok(what, "on another machine, or not visible from here"),
    }
}

fn limits(info: &SystemInfo, config: &DockerConfig, report: &mut DoctorReport) {
    let ignored = ignored_limits(info);
    if ignored.is_empty() {
        let text = "limits of memory, processor and processes are enforced";
        report.ok("limits", text);
    } else {
        let text = format!(
            "the engine does not enforce limits of {}: a sandbox can use up the machine. Enable the kernel's \
             accounting (cgroup v2 with all controllers delegated, for a rootless engine)",
            ignored.join(", ")
        );
        report.warn("limits", text);
    }
    let disk = if may_limit(info) {
        "the engine can limit changes to images; the service measures volumes"
    } else {
        "the engine's storage has no quotas: the service measures usage, and stops sandboxes over their limit"
    };
    report.ok("disk limits", disk);
    if let Some(runtime) = config
        .runtime
        .as_ref()
        .filter(|name| !has_runtime(info, name))
    {
        report.problem("runtime", format!(
            "the engine has no runtime {runtime}: install it there and name it in its daemon.json, or change docker.runtime"
        ));
    }
}

fn blocking(problem: Option<String>, blocking: MetadataBlocking, report: &mut DoctorReport) {
    let what = "metadata address";
    match (problem, blocking) {
        (_, MetadataBlocking::Off) => report.ok(what, "not blocked, as configured"),
        (None, _) => report.ok(what, "the service can block it by this machine's packet filter, and does so when it creates the network of sandboxes"),
        (Some(problem), MetadataBlocking::Auto) => report.warn(
            what,
            format!(
                "sandboxes may reach 169.254.169.254 ({problem}). In a cloud, block it: run the service as root, or set a \
                 rule of your own; elsewhere set WORKSPACE_DOCKER__BLOCK_METADATA=off"
            ),
        ),
        (Some(problem), MetadataBlocking::Required) => report.problem(
            what,
            format!(
                "docker.block_metadata = \"required\", but 169.254.169.254 cannot be blocked: {problem}"
            ),
        ),
    }
}

/// Whether the service can listen in the network of containers, as far as that is known without one.
fn proxy(info: &SystemInfo, is_local: bool, config: &DockerConfig, report: &mut DoctorReport) {
    let what = "secrets in containers";
    if !config.has_proxy {
        report.ok(
            what,
            "agents get their values, as configured (broker.secrets)",
        );
    } else if !is_local || is_rootless(info) {
        let text = "agents get their values: the network of a remote or rootless engine is not on this machine, so the service's \
             forward proxy cannot listen there";
        report.warn(what, text);
    } else {
        let text = format!(
            "agents get placeholders, which the service's forward proxy replaces at port {} of the sandboxes' network",
            config.proxy_port
        );
        report.ok(what, text);
    }
}

fn is_rootless(info: &SystemInfo) -> bool {
    let mut options = info.security_options.iter().flatten();
    options.any(|option| option == "name=rootless")
}

/// Limits that the engine accepts and does not enforce.
fn ignored_limits(info: &SystemInfo) -> Vec<&'static str> {
    let limits = [
        (info.memory_limit, "memory"),
        (info.swap_limit, "swap"),
        (info.cpu_cfs_quota, "processor"),
        (info.pids_limit, "processes"),
    ];
    let ignored = limits.into_iter().filter(|limit| limit.0 == Some(false));
    ignored.map(|(_, name)| name).collect()
}

/// The storage driver and the file system below it.
fn storage(info: &SystemInfo) -> String {
    let driver = info.driver.as_deref().unwrap_or("unknown");
    let mut status = info.driver_status.iter().flatten();
    let file_system = status.find_map(|pair| match &pair[..] {
        [name, value] if name == "Backing Filesystem" => Some(value),
        _ => None,
    });
    match file_system {
        Some(file_system) => format!("{driver} on {file_system}"),
        None => driver.to_owned(),
    }
}

/// An engine that does not list its runtimes may have this one.
fn has_runtime(info: &SystemInfo, name: &str) -> bool {
    let runtimes = info.runtimes.as_ref();
    runtimes.is_none_or(|runtimes| runtimes.contains_key(name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_engines_information_is_parsed() {
        let pair = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
        let info = SystemInfo {
            security_options: Some(vec![
                "name=seccomp,profile=default".to_owned(),
                "name=rootless".to_owned(),
            ]),
            memory_limit: Some(true),
            swap_limit: Some(false),
            cpu_cfs_quota: Some(false),
            pids_limit: None,
            driver: Some("overlay2".to_owned()),
            driver_status: Some(vec![pair("Backing Filesystem", "extfs")]),
            runtimes: Some(HashMap::from([(
                "runc".to_owned(),
                bollard::models::Runtime::default(),
            )])),
            ..SystemInfo::default()
        };
        assert!(is_rootless(&info));
        assert_eq!(ignored_limits(&info), ["swap", "processor"]);
        assert_eq!(storage(&info), "overlay2 on extfs");
        assert!(has_runtime(&info, "runc") && !has_runtime(&info, "runsc"));
        let empty = SystemInfo::default();
        assert!(!is_rootless(&empty) && has_runtime(&empty, "runsc"));
        assert_eq!(ignored_limits(&empty), [""; 0]);
        assert_eq!(storage(&empty), "unknown");
    }
}
