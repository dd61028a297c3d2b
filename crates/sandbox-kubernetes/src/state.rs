//! What the objects of a sandbox say about it.
//!
//! Knows: conditions of a `Sandbox` may be older than its mode and its pod, so the mode and the pod decide.

use std::net::IpAddr;

use domain::sandbox::{AGENT_SERVER, BackendState, ExposedUrl, SandboxEndpoints};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use url::Url;

use crate::cluster::Found;
use crate::manifest::{DESIRED_STOPPED, SUSPENDED};
use crate::names::{self, text};

/// Time for the replacement of a pod, in which its sandbox counts as running.
const REPLACE_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// The state of a sandbox, with what must be looked up to describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Only the claim is left.
    Remains,
    /// Its end was requested, or it never ran.
    Stopped,
    /// Its pod runs.
    Running(SandboxEndpoints),
    /// Its pod ran, and is replaced or about to end; until then its address is the former one.
    Replaced(SandboxEndpoints),
    /// Its process ended without a request. The text completes "the agent server …".
    Exited(String),
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodPhase {
    /// It runs, and has an address.
    Runs,
    /// Its process ended.
    Ended,
    /// It waits for a node, an image or a volume.
    Pending,
    /// It is being deleted.
    Leaves,
}

impl Found {
    /// What is left of it. `None` if nothing exists.
    pub(crate) fn state(&self) -> Option<PodState> {
        let sandbox = self.sandbox.as_ref().filter(|it| !leaves(&it.metadata));
        let claim = self.claim.as_ref();
        let claim = claim.filter(|it| sandbox.is_some() || !leaves(&it.metadata))?;
        Some(match sandbox {
            Some(sandbox) if mode(sandbox) == SUSPENDED => PodState::Stopped,
            Some(sandbox) if has_expired(sandbox) && self.pod.is_none() => PodState::Exited(
                "was ended by the cluster, because its shutdownTime has passed".to_owned(),
            ),
            Some(_) => self.pod_state(claim, true),
            // A pod without its Sandbox is about to leave, unless it is a plain one.
            None if text(&claim.metadata, names::DESIRED) == Some(DESIRED_STOPPED) => {
                PodState::Stopped
            }
            None if self.pod.is_none() && text(&claim.metadata, names::POD_UID).is_some() => {
                PodState::Remains
            }
            None => self.pod_state(claim, false),
        })
    }

    fn pod_state(&self, claim: &PersistentVolumeClaim, is_replaced: bool) -> PodState {
        let phase = self.pod.as_ref().map(phase);
        let known = text(&claim.metadata, names::POD_UID);
        match (&self.pod, phase) {
            (Some(pod), Some(PodPhase::Runs)) => {
                let address = address(pod).and_then(|address| endpoints(claim, address));
                address.map_or(PodState::Stopped, PodState::Running)
            }
            (Some(pod), Some(PodPhase::Ended)) => PodState::Exited(describe_end(pod)),
            _ if known.is_none() || (!is_replaced && self.pod.is_none()) => PodState::Stopped,
            (Some(pod), _) if is_overdue(pod) => PodState::Exited(describe_delay(pod)),
            // It ran: its pod leaves, or another one is on its way.
            _ => {
                let former = text(&claim.metadata, names::POD_IP);
                let former = former.and_then(|address| endpoints(claim, address));
                former.map_or(PodState::Stopped, PodState::Replaced)
            }
        }
    }
}

impl PodState {
    /// As the service sees it, with a complete text for the end of a process.
    pub(crate) fn into_backend(self, detail: String) -> BackendState {
        match self {
            Self::Remains => BackendState::Remains,
            Self::Stopped => BackendState::Stopped,
            Self::Running(endpoints) | Self::Replaced(endpoints) => {
                BackendState::Running(endpoints)
            }
            Self::Exited(_) => BackendState::Exited { detail },
        }
    }
}

pub(crate) fn leaves(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// `spec.operatingMode`.
pub(crate) fn mode(sandbox: &DynamicObject) -> &str {
    sandbox.data["spec"]["operatingMode"]
        .as_str()
        .unwrap_or_default()
}

/// A condition of a `Sandbox` that was computed for its current generation: its status and reason.
pub(crate) fn condition<'a>(sandbox: &'a DynamicObject, name: &str) -> Option<(&'a str, &'a str)> {
    let all = sandbox.data["status"]["conditions"].as_array()?;
    let found = all.iter().find(|it| it["type"] == name)?;
    let generation = found["observedGeneration"].as_i64();
    let is_current = generation >= sandbox.metadata.generation;
    let reason = found["reason"].as_str().unwrap_or_default();
    is_current.then_some((found["status"].as_str()?, reason))
}

/// The text of a condition, of any generation.
pub(crate) fn message<'a>(sandbox: &'a DynamicObject, name: &str) -> Option<&'a str> {
    let all = sandbox.data["status"]["conditions"].as_array()?;
    all.iter().find(|it| it["type"] == name)?["message"].as_str()
}

/// Whether a pod leaves or comes up for longer than a drained node needs.
fn is_overdue(pod: &Pod) -> bool {
    let meta = &pod.metadata;
    let since = meta
        .deletion_timestamp
        .as_ref()
        .or(meta.creation_timestamp.as_ref());
    since.is_some_and(|since| Timestamp::now().duration_since(since.0) > REPLACE_LIMIT)
}

/// Why an overdue pod keeps its sandbox from running.
fn describe_delay(pod: &Pod) -> String {
    if !leaves(&pod.metadata) {
        return "was moved by the cluster, and does not come up at its new place".to_owned();
    }
    // A node that works ends its pods in time.
    let node = pod.spec.as_ref().and_then(|it| it.node_name.as_deref());
    format!(
        "was on the node {}, which does not end its pod: the operator has to check the node, and to remove it from the cluster if it is lost",
        node.unwrap_or("(unknown)")
    )
}

fn has_expired(sandbox: &DynamicObject) -> bool {
    condition(sandbox, "Ready").is_some_and(|(_, reason)| reason == "SandboxExpired")
}

pub(crate) fn phase(pod: &Pod) -> PodPhase {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    match phase {
        // A drained pod ends as well, and another one takes its place.
        _ if leaves(&pod.metadata) => PodPhase::Leaves,
        Some("Succeeded" | "Failed") => PodPhase::Ended,
        Some("Running") if container_runs(pod) && address(pod).is_some() => PodPhase::Runs,
        _ => PodPhase::Pending,
    }
}

/// The statuses of a pod's containers, in the order in which they run: the agent server's is the first of the last ones.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let before = status.and_then(|it| it.init_container_statuses.as_ref());
    let usual = status.and_then(|it| it.container_statuses.as_ref());
    before
        .into_iter()
        .flatten()
        .chain(usual.into_iter().flatten())
}

/// The state of the agent server's container.
fn container_state(pod: &Pod) -> Option<&ContainerState> {
    let all = pod.status.as_ref()?.container_statuses.as_ref()?;
    all.first()?.state.as_ref()
}

/// Whether the agent server's container has run, and may have a log.
pub(crate) fn has_run(pod: &Pod) -> bool {
    container_state(pod).is_some_and(|it| it.running.is_some() || it.terminated.is_some())
}

/// Why a container did not do what the agent server needs before it starts.
fn failed_preparation(pod: &Pod) -> Option<&str> {
    let all = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    let mut ends = all
        .iter()
        .filter_map(|it| it.state.as_ref()?.terminated.as_ref());
    let failed = ends.find(|it| it.exit_code != 0)?;
    let text = failed.message.as_deref().or(failed.reason.as_deref());
    Some(text.unwrap_or_default().trim())
}

fn container_runs(pod: &Pod) -> bool {
    container_state(pod).is_some_and(|it| it.running.is_some())
}

/// The first address of a pod.
pub(crate) fn address(pod: &Pod) -> Option<&str> {
    pod.status
        .as_ref()?
        .pod_ip
        .as_deref()
        .filter(|ip| !ip.is_empty())
}

/// All addresses of a pod.
pub(crate) fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let status = pod.status.as_ref();
    let further = status.and_then(|it| it.pod_ips.as_ref());
    let further = further.into_iter().flatten().map(|it| it.ip.as_str());
    let all = address(pod).into_iter().chain(further);
    all.filter_map(|address| address.parse().ok())
}

/// The addresses of a sandbox whose pod has this one.
pub(crate) fn endpoints(claim: &PersistentVolumeClaim, ip: &str) -> Option<SandboxEndpoints> {
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    let listed = text(&claim.metadata, names::PORTS)?;
    let ports = listed.split(',').filter_map(|pair| pair.rsplit_once('='));
    let urls: Vec<ExposedUrl> = ports
        .filter_map(|(name, port)| {
            Some(ExposedUrl {
                name: name.to_owned(),
                url: Url::parse(&format!("http://{host}:{port}/")).ok()?,
                port: port.parse().ok()?,
            })
        })
        .collect();
    Some(SandboxEndpoints {
        agent_url: urls.iter().find(|it| it.name == AGENT_SERVER)?.url.clone(),
        exposed_urls: urls,
        workspace: text(&claim.metadata, names::WORKSPACE)?.to_owned(),
        has_proxy: text(&claim.metadata, names::PROXY).is_some_and(|it| !it.is_empty()),
    })
}

/// Why a pod ended: completes "the agent server …".
pub(crate) fn describe_end(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let reason = status.and_then(|it| it.reason.as_deref());
    let message = status.and_then(|it| it.message.as_deref());
    if let Some(reason) = reason {
        let text = message.map_or_else(String::new, |text| format!(": {text}"));
        return format!("was ended by the cluster ({reason}{text})");
    }
    let ended = container_state(pod).and_then(|it| it.terminated.as_ref());
    let Some(ended) = ended else {
        return match failed_preparation(pod) {
            Some(cause) => format!("could not be started: {cause}"),
            None => "ended for an unknown reason".to_owned(),
        };
    };
    let code = ended.exit_code;
    match ended.reason.as_deref() {
        Some("OOMKilled") => {
            "was killed, because the sandbox used more memory than the limit of its template"
                .to_owned()
        }
        Some(reason @ ("ContainerCannotRun" | "StartError")) => {
            let message = ended.message.as_deref().unwrap_or_default();
            format!("could not be executed ({reason}: {message})")
        }
        _ => match ended.signal {
            Some(signal) if signal != 0 => format!("was ended by signal {signal}"),
            // A shell's and the kubelet's way to say so.
            _ if code > 128 => format!("was ended by signal {}", code - 128),
            _ => format!("ended with exit code {code}"),
        },
    }
}

/// What the end of the log says about the cluster.
pub(crate) fn advice(pod: &Pod, quoted: &str) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    let mounts = spec.containers.first()?.volume_mounts.as_ref()?;
    let mut refused = quoted
        .lines()
        .filter(|line| line.contains("Permission denied"));
    let is_of_volume = |line: &str| mounts.iter().any(|it| line.contains(&it.mount_path));
    refused.any(is_of_volume).then_some(
        "Its volume does not let its group write: the operator has to set kubernetes.storage_class to one whose driver applies fsGroup",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_neither_comes_nor_goes_is_explained() {
        let pod = |field: &str, minutes| -> Pod {
            let since = Timestamp::now() - SignedDuration::from_mins(minutes);
            let spec = json!({"nodeName": "n1", "containers": []});
            serde_json::from_value(json!({"metadata": {(field): since}, "spec": spec})).unwrap()
        };
        for (field, explanation) in [
            (
                "deletionTimestamp",
                "was on the node n1, which does not end its pod",
            ),
            ("creationTimestamp", "does not come up at its new place"),
        ] {
            assert!(!is_overdue(&pod(field, 4)), "{field}");
            assert!(is_overdue(&pod(field, 6)), "{field}");
            let detail = describe_delay(&pod(field, 6));
            assert!(detail.contains(explanation), "{detail}");
        }
    }

    #[test]
    fn the_container_that_failed_before_the_agent_server_is_quoted() {
        let ended =
            |code| json!({"terminated": {"exitCode": code, "message": " no certificates\n"}});
        let waiting = json!({"waiting": {"reason": "PodInitializing"}});
        for (before, main, expected) in [
            (
                ended(1),
                waiting.clone(),
                "could not be started: no certificates",
            ),
            (ended(0), waiting, "ended for an unknown reason"),
            // A helper that runs beside the agent server ends after it.
            (ended(143), ended(3), "ended with exit code 3"),
        ] {
            let status = json!({
                "initContainerStatuses": [{"name": "a", "state": before}],
                "containerStatuses": [{"name": "b", "state": main}],
            });
            let mut status = status;
            for list in ["initContainerStatuses", "containerStatuses"] {
                for (key, value) in [
                    ("image", json!("")),
                    ("imageID", json!("")),
                    ("ready", json!(false)),
                    ("restartCount", json!(0)),
                ] {
                    status[list][0][key] = value;
                }
            }
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap();
            assert_eq!(describe_end(&pod), expected);
        }
    }

    #[test]
    fn a_volume_that_refuses_writes_is_named() {
        let mounts = json!([{"name": "workspace", "mountPath": "/workspace"}]);
        let containers = json!([{"name": "agent", "volumeMounts": mounts}]);
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap();
        for (log, is_named) in [
            (
                "PermissionError: [Errno 13] Permission denied: '/workspace/conversations'",
                true,
            ),
            (
                "mkdir: cannot create directory '/workspace/x': Permission denied",
                true,
            ),
            (
                "PermissionError: [Errno 13] Permission denied: '/etc/x'",
                false,
            ),
            ("reading /workspace/x\nPermission denied: '/etc/x'", false),
            ("", false),
        ] {
            assert_eq!(advice(&pod, log).is_some(), is_named, "{log}");
        }
    }
}
