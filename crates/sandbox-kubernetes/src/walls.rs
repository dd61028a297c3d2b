//! What `doctor` learns from pods like those of sandboxes: which walls hold on this cluster.
//!
//! One pod listens. The other one tries to reach it and what else sandboxes must not reach, and both end with the check.

use std::time::Duration;

use domain::sandbox::SandboxError;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use sandbox_provider::DoctorReport;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::KubernetesInner;
use crate::causes::Obstacle;
use crate::manifest::host_aliases;
use crate::names;
use crate::proxy::host_addresses;
use crate::state::{PodPhase, address, describe_end, phase};

/// What the pods run.
const PROGRAM: &str = include_str!("walls.py");
/// Tells an operator what the pods are.
const LABEL: &str = "app.kubernetes.io/component";
const COMPONENT: &str = "doctor";
const LISTENER: &str = "agent-workspace-doctor-listener";
const ATTEMPTS: &str = "agent-workspace-doctor";
const PORT: u16 = 8_000;
/// Longest time until a pod runs, the pull of its image included.
const START_TIMEOUT: Duration = Duration::from_secs(3 * 60);
/// Longest time of all attempts.
const ATTEMPTS_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time until deleted pods are gone.
const END_TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time until a pod that runs answers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The cluster ends a pod that a killed check left.
const LIFETIME_SECONDS: u64 = 10 * 60;
/// The address that clouds answer with credentials.
const METADATA: &str = "169.254.169.254:80";
const WHAT: &str = "walls";
/// Targets that sandboxes must reach.
const CALLBACKS: &str = "callbacks";
const PROXY: &str = "proxy";
/// A target that they reach unless the network is closed, and its address: a public name server.
const INTERNET: &str = "internet";
const PUBLIC: &str = "1.1.1.1:443";

/// What the program found.
#[derive(Debug, Deserialize)]
struct WallFacts {
    user: u32,
    has_token: bool,
    no_new_privileges: bool,
    has_seccomp_filter: bool,
    /// The names of the targets that answered.
    reached: Vec<String>,
}

/// What is known of the pods without the program.
struct ProbedPods {
    /// The template adds none.
    lacks_capabilities: bool,
    /// The service reached the pod that listens.
    is_listening: bool,
    /// Whether the namespace has network policies, if that is known.
    has_policy: Option<bool>,
    /// Whether the network of the namespace shall leave them no way but to the service.
    is_closed: bool,
    /// What they must reach: names and addresses.
    service: Vec<(&'static str, String)>,
}

impl WallFacts {
    fn report(&self, it: &ProbedPods, report: &mut DoctorReport) {
        if self.user == 0 {
            report.problem("privileges", "sandboxes run as root: set kubernetes.user");
        } else if !self.no_new_privileges || !self.has_seccomp_filter {
            let text = "the cluster runs sandboxes without no_new_privs or without a seccomp filter: check its runtime, and its \
                        admission webhooks";
            report.problem("privileges", text);
        } else {
            let capabilities = if it.lacks_capabilities {
                ", without capabilities"
            } else {
                ""
            };
            let user = self.user;
            report.ok(
                "privileges",
                format!("user {user}{capabilities}, with a seccomp filter"),
            );
        }
        if self.has_token {
            let text = "sandboxes have a token of a service account, though their pods ask for none: check the cluster's admission \
                        webhooks";
            report.problem("service account", text);
        } else {
            report.ok("service account", "sandboxes have no token");
        }
        let advice = match it.has_policy {
            Some(true) => "the cluster's network does not keep its policies, or they allow it",
            Some(false) => "apply a network policy, and use a cluster network that keeps it",
            None => "check its network policies, and use a cluster network that keeps them",
        };
        for (target, what) in [
            ("neighbor", "other sandboxes"),
            (
                "metadata",
                "the cloud's metadata address, which may give credentials to them",
            ),
            ("api_server", "the cluster's API server"),
            (
                INTERNET,
                "the internet without the service, although kubernetes.network is closed",
            ),
        ] {
            if target == INTERNET && !it.is_closed {
                continue;
            }
            if self.reached.iter().any(|name| name == target) {
                report.problem(what_of(target), format!("sandboxes reach {what}: {advice}"));
            } else if target == "neighbor" && !it.is_listening {
                let text = "not checked: nothing shows that the other pod would have answered";
                report.warn(what_of(target), text);
            } else {
                report.ok(what_of(target), "out of reach of sandboxes");
            }
        }
        self.report_service(it, report);
    }

    /// Whether they reach what they must.
    fn report_service(&self, it: &ProbedPods, report: &mut DoctorReport) {
        for (target, address) in &it.service {
            if self.reached.iter().any(|name| name == target) {
                report.ok(what_of(target), format!("sandboxes reach {address}"));
            } else {
                let text = format!(
                    "sandboxes do not reach {address}: the service has to run there, and a network policy has to let them"
                );
                report.warn(what_of(target), text);
            }
        }
    }
}

fn what_of(target: &str) -> &'static str {
    match target {
        "neighbor" => "neighbors",
        "metadata" => "metadata address",
        CALLBACKS => "way to the service",
        INTERNET => "internet",
        PROXY => "forward proxy",
        _ => "API server",
    }
}

impl KubernetesInner {
    /// Starts two pods, reports what they reach, and deletes them.
    pub(crate) async fn examine_walls(&self, has_policy: Option<bool>, report: &mut DoctorReport) {
        let mut own = Vec::new();
        let examined = self.probe(&mut own, has_policy, report).await;
        self.delete_probes(&own).await;
        if let Err(cause) = examined {
            report.warn(WHAT, format!("not checked: {cause}"));
        }
    }

    /// Adds the pods that it creates to `own`.
    async fn probe(
        &self,
        own: &mut Vec<Pod>,
        has_policy: Option<bool>,
        report: &mut DoctorReport,
    ) -> Result<(), String> {
        self.delete_ended_probes().await?;
        let listen = ["listen", &PORT.to_string()];
        own.push(self.create_probe(LISTENER, &listen).await?);
        let listener = self
            .wait_for(LISTENER, START_TIMEOUT, PodPhase::Runs)
            .await?;
        let neighbor = address(&listener).ok_or("the cluster gave a pod no address")?;
        let neighbor = if neighbor.contains(':') {
            format!("[{neighbor}]:{PORT}")
        } else {
            format!("{neighbor}:{PORT}")
        };
        let is_listening = answers(&neighbor).await;
        if is_listening {
            report.ok("pods", "the service reaches them");
        } else {
            let text = format!(
                "{neighbor} does not answer: the service has to run in the cluster or to have a route to its pods, and a network policy \
                 has to let it in"
            );
            report.problem("pods", text);
        }
        let service = self.service_targets();
        let wanted = service
            .iter()
            .map(|(name, address)| format!("{name}={address}"));
        let targets = [
            "try".to_owned(),
            format!("neighbor={neighbor}"),
            format!("metadata={METADATA}"),
            format!("{INTERNET}={PUBLIC}"),
        ];
        let targets: Vec<String> = targets.into_iter().chain(wanted).collect();
        let arguments: Vec<&str> = targets.iter().map(String::as_str).collect();
        own.push(self.create_probe(ATTEMPTS, &arguments).await?);
        let limit = START_TIMEOUT + ATTEMPTS_TIMEOUT;
        self.wait_for(ATTEMPTS, limit, PodPhase::Ended).await?;
        let whole = LogParams::default();
        let log = self.cluster.call("reading the log of a pod", || {
            self.cluster.pods.logs(ATTEMPTS, &whole)
        });
        let log: String = log.await.map_err(|error| error.detail())?;
        let line = log.lines().last().unwrap_or_default();
        let facts: WallFacts = serde_json::from_str(line).map_err(|_| {
            format!("a pod of the default template cannot run python3, which agents need: {line}")
        })?;
        let template = self.config.specs.first();
        let pods = ProbedPods {
            lacks_capabilities: template.is_some_and(|spec| spec.capabilities.is_empty()),
            is_listening,
            has_policy,
            is_closed: self.config.enforces_egress,
            service,
        };
        facts.report(&pods, report);
        Ok(())
    }

    /// Where pods reach the service and its forward proxy.
    fn service_targets(&self) -> Vec<(&'static str, String)> {
        let config = &self.config;
        let Some(url) = &config.callback_url else {
            return Vec::new();
        };
        let host = url.host_str().unwrap_or_default();
        let proxy = config.proxy_port.filter(|_| config.has_proxy);
        let ports = [(CALLBACKS, url.port_or_known_default()), (PROXY, proxy)];
        ports
            .into_iter()
            .filter_map(|(name, port)| Some((name, format!("{host}:{}", port?))))
            .collect()
    }

    /// Creates a pod that runs the program as sandboxes run their agent server.
    async fn create_probe(&self, name: &str, arguments: &[&str]) -> Result<Pod, String> {
        let mut pod = self.probe_pod(name).map_err(|error| error.to_string())?;
        if let Some(url) = &self.config.callback_url {
            let found = host_addresses(&self.config, url).await;
            let found = found.map_err(|error| error.to_string())?;
            pod["spec"]["hostAliases"] = host_aliases(url, &found);
        }
        let container = &mut pod["spec"]["containers"][0];
        container["command"] = json!(["python3", "-c", PROGRAM]);
        container["args"] = json!(arguments);
        let created = self
            .cluster
            .create("creating a pod", &self.cluster.pods, &pod);
        let created: Option<Pod> = created.await.map_err(|error| error.detail())?;
        created.ok_or_else(another_check)
    }

    /// The pod of the default template without its keys and its claim.
    fn probe_pod(&self, name: &str) -> Result<Value, SandboxError> {
        let mut pod = self.default_pod()?;
        let meta = &mut pod["metadata"];
        meta["name"] = json!(name);
        meta["labels"] = json!({LABEL: COMPONENT, names::MANAGED_BY: names::MANAGER});
        meta["annotations"] = json!({});
        meta["ownerReferences"] = json!([]);
        let spec = &mut pod["spec"];
        spec["activeDeadlineSeconds"] = json!(LIFETIME_SECONDS);
        spec["terminationGracePeriodSeconds"] = json!(0);
        spec["volumes"] = json!([{"name": "workspace", "emptyDir": {"sizeLimit": "16Mi"}}]);
        // Its certificates would be written for no sandbox.
        spec["initContainers"] = json!([]);
        let container = &mut spec["containers"][0];
        container["envFrom"] = json!([]);
        container["env"] = json!([
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]);
        container["ports"] = json!([]);
        container["resources"] = json!({
            "limits": {"cpu": "500m", "memory": "256Mi"},
            "requests": {"cpu": "10m", "memory": "32Mi"},
        });
        Ok(pod)
    }

    /// Waits until a pod runs or has ended.
    async fn wait_for(&self, name: &str, limit: Duration, wanted: PodPhase) -> Result<Pod, String> {
        let begin = Instant::now();
        loop {
            let pod = self
                .cluster
                .pod(name)
                .await
                .map_err(|error| error.detail())?;
            let pod = pod.ok_or("a pod of the check was deleted")?;
            match phase(&pod) {
                now if now == wanted => return Ok(pod),
                PodPhase::Ended => {
                    let cause = describe_end(&pod);
                    let log = self.quote_log(&pod).await;
                    return Err(sandbox_provider::describe_exit(&cause, &log));
                }
                _ => {}
            }
            let obstacle = Obstacle::of_pod(&pod, &[]);
            if let Some(error) = obstacle.as_ref().and_then(|it| it.give_up(begin.elapsed())) {
                return Err(error.to_string());
            }
            if begin.elapsed() > limit {
                let cause = obstacle.map(|it| it.detail());
                return Err(cause.unwrap_or_else(|| "its pod does not run in time".to_owned()));
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// Deletes what a killed check left. While the pod that listens runs, both belong to another check.
    async fn delete_ended_probes(&self) -> Result<(), String> {
        let mut ended = Vec::new();
        for name in [LISTENER, ATTEMPTS] {
            let found = self.cluster.pod(name).await;
            let found = found.map_err(|error| error.detail())?;
            if found
                .as_ref()
                .is_some_and(|pod| phase(pod) != PodPhase::Ended)
            {
                return Err(another_check());
            }
            ended.extend(found);
        }
        self.delete_probes(&ended).await;
        Ok(())
    }

    /// Deletes pods, and waits for their end. What cannot be deleted ends by itself.
    async fn delete_probes(&self, pods: &[Pod]) {
        let begin = Instant::now();
        let pods = pods.iter().filter_map(|pod| {
            let meta = &pod.metadata;
            Some((meta.name.as_deref()?, meta.uid.as_deref()?))
        });
        for (name, uid) in pods.clone() {
            let what = "deleting a pod of a check";
            let deleted = self
                .cluster
                .delete(what, &self.cluster.pods, name, Some(uid));
            let _ = deleted.await;
        }
        for (name, uid) in pods {
            while begin.elapsed() < END_TIMEOUT
                && let Ok(Some(pod)) = self.cluster.pod(name).await
                && pod.metadata.uid.as_deref() == Some(uid)
            {
                sleep(LOOK_INTERVAL).await;
            }
        }
    }
}

fn another_check() -> String {
    let minutes = LIFETIME_SECONDS / 60;
    format!("another check runs at the same time, or was killed within the last {minutes} minutes")
}

/// Whether a port answers, also one that its program is about to open.
async fn answers(address: &str) -> bool {
    let connected = async {
        while TcpStream::connect(address).await.is_err() {
            sleep(LOOK_INTERVAL).await;
        }
    };
    timeout(CONNECT_TIMEOUT, connected).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of(change: &Value, is_listening: bool) -> (bool, String) {
        report_with(change, is_listening, None)
    }

    fn report_with(change: &Value, is_listening: bool, has_policy: Option<bool>) -> (bool, String) {
        let mut facts = json!({
            "user": 10001, "has_token": false, "no_new_privileges": true, "has_seccomp_filter": true, "reached": [],
        });
        for (name, value) in change.as_object().into_iter().flatten() {
            facts[name] = value.clone();
        }
        let facts: WallFacts = serde_json::from_value(facts).unwrap();
        let mut report = DoctorReport::default();
        let pods = ProbedPods {
            lacks_capabilities: true,
            is_listening,
            has_policy,
            is_closed: true,
            service: vec![(PROXY, "service:3128".to_owned())],
        };
        facts.report(&pods, &mut report);
        (report.is_healthy(), report.render(false))
    }

    #[test]
    fn each_wall_that_does_not_hold_is_a_problem() {
        let (is_healthy, text) = report_of(&json!({}), true);
        assert!(is_healthy, "{text}");
        for (change, expected) in [
            (json!({"user": 0}), "run as root"),
            (json!({"no_new_privileges": false}), "without no_new_privs"),
            (json!({"has_seccomp_filter": false}), "seccomp filter"),
            (json!({"has_token": true}), "token of a service account"),
            (json!({"reached": ["neighbor"]}), "other sandboxes"),
            (json!({"reached": ["metadata"]}), "metadata address"),
            (json!({"reached": ["api_server"]}), "API server"),
            (
                json!({"reached": ["internet"]}),
                "the internet without the service",
            ),
        ] {
            let (is_healthy, text) = report_of(&change, true);
            let problems: Vec<&str> = text
                .lines()
                .filter(|line| line.starts_with("problem"))
                .collect();
            assert!(!is_healthy && problems.len() == 1, "{text}");
            assert!(problems[0].contains(expected), "{text}");
        }
    }

    #[test]
    fn a_proxy_that_is_not_reached_is_named() {
        for (reached, expected) in [
            (json!(["proxy"]), "sandboxes reach service:3128"),
            (json!([]), "sandboxes do not reach service:3128"),
        ] {
            let (is_healthy, text) = report_of(&json!({"reached": reached}), true);
            assert!(is_healthy && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn the_advice_depends_on_the_policies_that_are_there() {
        for (has_policy, expected) in [
            (Some(true), "does not keep its policies"),
            (Some(false), "apply a network policy"),
            (None, "check its network policies"),
        ] {
            let (_, text) = report_with(&json!({"reached": ["neighbor"]}), true, has_policy);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_neighbor_that_may_not_listen_proves_nothing() {
        let (_, text) = report_of(&json!({}), false);
        assert!(text.contains("neighbors: not checked"), "{text}");
        let (is_healthy, text) = report_of(&json!({"reached": ["neighbor"]}), false);
        assert!(!is_healthy, "{text}");
    }
}
