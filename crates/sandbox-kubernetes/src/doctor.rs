//! What `doctor` says about the cluster.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Api;
use kube::api::{ListParams, PostParams};
use sandbox_provider::{CallbackCheck, DoctorReport};

use crate::KubernetesSandboxes;
use crate::backend::KubernetesInner;
use crate::cluster::Answer;
use crate::config::PodEngine;

/// The rights that the service needs in the namespace of the sandboxes: group, resource and verbs. The chart grants these.
const RIGHTS: [(&str, &str, &[&str]); 5] = [
    ("", "pods", &["get", "list", "watch", "create", "delete"]),
    ("", "pods/log", &["get"]),
    (
        "",
        "persistentvolumeclaims",
        &["get", "list", "create", "patch", "delete"],
    ),
    ("", "secrets", &["create", "patch", "delete"]),
    ("", "events", &["list"]),
];
/// The same with the engine `agent_sandbox`.
const SANDBOX_RIGHTS: (&str, &str, &[&str]) = (
    "agents.x-k8s.io",
    "sandboxes",
    &["get", "list", "watch", "create", "patch", "delete"],
);
/// Of version 1: the oldest with all that manifests and the chart use.
const OLDEST_MINOR: u32 = 29;
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

impl KubernetesSandboxes {
    /// Checks the cluster. `None` if no sandbox could start.
    pub(crate) async fn examine(&self, report: &mut DoctorReport) -> Option<CallbackCheck> {
        let inner = self.inner();
        let version = inner.cluster.call("asking the API server", || {
            inner.cluster.client().apiserver_version()
        });
        match version.await {
            Ok(version) => report_version(&version, report),
            Err(error) => {
                report.problem("cluster", error.detail());
                return None;
            }
        }
        let engine = match inner.cluster.engine().await {
            Ok(engine) => engine,
            Err(error) => {
                report.problem("engine", error.detail());
                return None;
            }
        };
        let (name, is_served) = match engine {
            PodEngine::AgentSandbox => (
                "Sandbox resources",
                inner.cluster.resource().await.is_ok_and(|it| it.is_some()),
            ),
            PodEngine::Pods => ("plain pods", true),
        };
        if is_served {
            report.ok("engine", name);
        } else {
            report.problem(
                "engine",
                "the cluster serves no Sandbox resources: install agent-sandbox 0.5.4 or newer",
            );
        }
        let are_granted = inner.examine_rights(engine, report).await;
        inner.examine_storage(report).await;
        let has_policy = inner.examine_network(report).await;
        if is_served && are_granted {
            inner.examine_walls(has_policy, report).await;
        }
        (is_served && are_granted).then_some(CallbackCheck { gateway: None })
    }
}

impl KubernetesInner {
    async fn examine_rights(&self, engine: PodEngine, report: &mut DoctorReport) -> bool {
        let of_sandboxes = (engine == PodEngine::AgentSandbox).then_some(SANDBOX_RIGHTS);
        let mut missing = Vec::new();
        for (group, resource, verbs) in RIGHTS.into_iter().chain(of_sandboxes) {
            for verb in verbs {
                match self.may(group, resource, verb).await {
                    Ok(true) => {}
                    Ok(false) => missing.push(format!("{verb} {resource}")),
                    Err(error) => {
                        report.problem("rights", error.detail());
                        return false;
                    }
                }
            }
        }
        let namespace = &self.config.namespace;
        if missing.is_empty() {
            report.ok(
                "rights",
                format!("all that are needed in the namespace {namespace}"),
            );
            return true;
        }
        let missing = missing.join(", ");
        report.problem("rights", format!("missing in the namespace {namespace}: {missing}; bind a Role with them to the service"));
        false
    }

    async fn may(&self, group: &str, resource: &str, verb: &str) -> Answer<bool> {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(group.to_owned()),
                    namespace: Some(self.config.namespace.clone()),
                    resource: Some(resource.to_owned()),
                    subresource,
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.cluster.client().clone());
        let params = PostParams::default();
        let answer = self.cluster.call("asking for the service's rights", || {
            reviews.create(&params, &review)
        });
        Ok(answer.await?.status.is_some_and(|it| it.allowed))
    }

    async fn examine_storage(&self, report: &mut DoctorReport) {
        let classes: Api<StorageClass> = Api::all(self.cluster.client().clone());
        let all = ListParams::default();
        let Ok(classes) = self
            .cluster
            .call("listing the storage classes", || classes.list(&all))
            .await
        else {
            return report.warn(
                "storage",
                "the service may not list storage classes, so that none could be checked",
            );
        };
        let is_default = |class: &&StorageClass| {
            let annotations = class.metadata.annotations.as_ref();
            annotations
                .and_then(|it| it.get(DEFAULT_CLASS))
                .is_some_and(|it| it == "true")
        };
        let found = match &self.config.storage_class {
            Some(name) => classes
                .items
                .iter()
                .find(|it| it.metadata.name.as_ref() == Some(name)),
            None => classes.items.iter().find(is_default),
        };
        match (found, &self.config.storage_class) {
            (Some(class), _) => {
                report.ok("storage", class.metadata.name.clone().unwrap_or_default());
            }
            (None, Some(name)) => report.problem(
                "storage",
                format!(
                    "the cluster has no storage class {name}: correct kubernetes.storage_class"
                ),
            ),
            (None, None) => report.problem(
                "storage",
                "the cluster has no default storage class: set kubernetes.storage_class",
            ),
        }
    }

    /// Whether the namespace has network policies, if the service may list them.
    async fn examine_network(&self, report: &mut DoctorReport) -> Option<bool> {
        let client = self.cluster.client().clone();
        let policies: Api<NetworkPolicy> = Api::namespaced(client, &self.config.namespace);
        let all = ListParams::default();
        let listed = self
            .cluster
            .call("listing the network policies", || policies.list(&all))
            .await;
        let has_policy = listed.ok().map(|list| !list.items.is_empty());
        match has_policy {
            Some(true) => report.ok("network policy", "there is one; whether it is kept depends on the cluster's network"),
            Some(false) => report.warn("network policy", "the namespace has none, so that sandboxes reach each other, the cluster's services and the cloud's metadata address"),
            None => report.warn("network policy", "the service may not list network policies, so that none could be checked"),
        }
        has_policy
    }
}

/// Says whether this version is one that the service is made for.
fn report_version(version: &Info, report: &mut DoctorReport) {
    let name = &version.git_version;
    // A provider adds a `+` to the number of a minor version that it has changed.
    let minor: Option<u32> = version.minor.trim_end_matches('+').parse().ok();
    if version.major == "1" && minor.is_some_and(|minor| minor < OLDEST_MINOR) {
        let text = format!("Kubernetes {name} is older than 1.{OLDEST_MINOR}: upgrade the cluster");
        report.warn("cluster", text);
    } else {
        report.ok("cluster", format!("Kubernetes {name}"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use super::*;

    fn manifests(name: &str) -> Vec<Value> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes/");
        let text = fs::read_to_string(format!("{root}{name}")).unwrap();
        serde_saphyr::from_multiple(&text).unwrap()
    }

    /// The object, if its type knows every field.
    fn typed<T: DeserializeOwned + Serialize>(object: &Value) -> T {
        let typed: T = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(&typed).unwrap(), *object);
        typed
    }

    #[test]
    fn the_role_grants_what_doctor_checks() {
        let mut granted = BTreeSet::new();
        for object in manifests("sandboxes.yaml") {
            match object["kind"].as_str().unwrap() {
                "Role" => {
                    for rule in typed::<Role>(&object).rules.unwrap() {
                        let (groups, resources) =
                            (rule.api_groups.unwrap(), rule.resources.unwrap());
                        for verb in rule.verbs {
                            granted.insert((groups[0].clone(), resources[0].clone(), verb));
                        }
                    }
                }
                "Namespace" => drop(typed::<Namespace>(&object)),
                "RoleBinding" => drop(typed::<RoleBinding>(&object)),
                "NetworkPolicy" => drop(typed::<NetworkPolicy>(&object)),
                other => panic!("{other}"),
            }
        }
        let needed = RIGHTS.into_iter().chain([SANDBOX_RIGHTS]);
        let needed = needed.flat_map(|(group, resource, verbs)| {
            let right = |verb: &&str| (group.to_owned(), resource.to_owned(), (*verb).to_owned());
            verbs.iter().map(right).collect::<Vec<_>>()
        });
        let for_doctor = ("networking.k8s.io", "networkpolicies", "list");
        let (group, resource, verb) = for_doctor;
        let for_doctor = [(group.to_owned(), resource.to_owned(), verb.to_owned())];
        let needed: BTreeSet<_> = needed.chain(for_doctor).collect();
        assert_eq!(granted, needed);
    }

    #[test]
    fn an_old_cluster_is_a_warning() {
        for (minor, is_old) in [
            ("20", true),
            ("28+", true),
            ("29", false),
            ("33+", false),
            ("", false),
        ] {
            let version = Info {
                major: "1".to_owned(),
                minor: minor.to_owned(),
                ..Info::default()
            };
            let mut report = DoctorReport::default();
            report_version(&version, &mut report);
            let text = report.render(false);
            assert_eq!(text.contains("older than 1.29"), is_old, "{minor}: {text}");
        }
    }

    #[test]
    fn the_manifests_of_the_service_are_valid() {
        for object in manifests("service.yaml") {
            match object["kind"].as_str().unwrap() {
                "Namespace" => drop(typed::<Namespace>(&object)),
                "ServiceAccount" => drop(typed::<ServiceAccount>(&object)),
                "Deployment" => drop(typed::<Deployment>(&object)),
                "Service" => drop(typed::<Service>(&object)),
                "PodDisruptionBudget" => drop(typed::<PodDisruptionBudget>(&object)),
                other => panic!("{other}"),
            }
        }
    }
}
