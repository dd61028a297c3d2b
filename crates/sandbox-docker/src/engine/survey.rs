//! The engine's capabilities for `doctor`. Creates no resource.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;

use bollard::Docker;
use bollard::models::SystemInfo;
use domain::id::SpecId;
use domain::sandbox::SandboxError;

use crate::DockerSandboxes;
use crate::config::MetadataBlocking;
use crate::disk::may_limit;
use crate::network::metadata;

/// The capabilities of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Version of the engine.
    pub(crate) version: String,
    /// The engine's operating system.
    pub(crate) system: String,
    /// Whether it runs as a user other than root.
    pub(crate) is_rootless: bool,
    /// Version of control groups: `1` or `2`.
    pub(crate) cgroups: Option<String>,
    /// Limits that the engine accepts and does not enforce.
    pub(crate) ignored_limits: Vec<&'static str>,
    /// Storage driver and the file system below it.
    pub(crate) storage: String,
    /// Whether the storage may limit changes to an image; no engine limits volumes.
    pub(crate) may_limit_disk: bool,
    /// The configured runtime, if the engine lacks it.
    pub(crate) missing_runtime: Option<String>,
    /// The host's address as sandboxes reach it.
    pub(crate) gateway: Option<IpAddr>,
    /// Why the cloud metadata address cannot be blocked. `None`: it can, or blocking is off.
    pub(crate) metadata_problem: Option<String>,
    /// The engine's time (RFC 3339).
    pub(crate) time: Option<String>,
    /// When the time was requested.
    pub(crate) requested_at: Instant,
    /// When the time was received.
    pub(crate) received_at: Instant,
    /// The engine's data directory, if it is on this machine.
    pub(crate) root: Option<PathBuf>,
    /// The templates with their images, and whether the engine has them.
    pub(crate) images: Vec<(SpecId, String, bool)>,
}

impl DockerSandboxes {
    /// Queries the engine. The error says why it is unreachable.
    pub(crate) async fn survey(&self) -> Result<Survey, SandboxError> {
        let inner = self.inner();
        let engine = &inner.engine;
        let requested_at = Instant::now();
        let info = engine
            .call("reading the engine's information", Docker::info)
            .await?;
        let received_at = Instant::now();
        let mut images = Vec::new();
        for spec in &inner.config.specs {
            let image = spec.image.as_str();
            let response =
                engine.call("inspecting the image", |docker| docker.inspect_image(image));
            let is_present = match response.await {
                Ok(_) => true,
                Err(error) if error.is_missing() => false,
                Err(error) => return Err(error.into()),
            };
            images.push((spec.id.clone(), spec.image.clone(), is_present));
        }
        let metadata_problem = match inner.config.metadata {
            MetadataBlocking::Off => None,
            MetadataBlocking::Auto | MetadataBlocking::Required => {
                metadata::check_chain().await.err()
            }
        };
        let runtime = inner.config.runtime.clone();
        Ok(Survey {
            version: info.server_version.clone().unwrap_or_default(),
            system: info.operating_system.clone().unwrap_or_default(),
            is_rootless: is_rootless(&info),
            cgroups: info.cgroup_version.map(|version| version.to_string()),
            ignored_limits: ignored_limits(&info),
            storage: storage(&info),
            may_limit_disk: may_limit(&info),
            missing_runtime: runtime.filter(|name| !has_runtime(&info, name)),
            gateway: self.gateway().await,
            metadata_problem,
            time: info.system_time.clone(),
            requested_at,
            received_at,
            root: info
                .docker_root_dir
                .clone()
                .map(PathBuf::from)
                // On another machine the path may name another directory.
                .filter(|root| engine.is_local() && root.is_dir()),
            images,
        })
    }
}

fn is_rootless(info: &SystemInfo) -> bool {
    let mut options = info.security_options.iter().flatten();
    options.any(|option| option == "name=rootless")
}

fn ignored_limits(info: &SystemInfo) -> Vec<&'static str> {
    [
        (info.memory_limit, "memory"),
        (info.swap_limit, "swap"),
        (info.cpu_cfs_quota, "processor"),
        (info.pids_limit, "processes"),
    ]
    .into_iter()
    .filter(|(is_enforced, _)| *is_enforced == Some(false))
    .map(|(_, name)| name)
    .collect()
}

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
