//! Where the sandboxes of a soak run, and where their rows are.

use std::collections::BTreeMap;
use std::process::Command;

use acceptance::{Cluster, Engine, Postgres, Sandboxing, Service};

/// What runs the sandboxes.
pub(crate) enum Place {
    /// Containers of an engine, named after the installation. Rows are in the service's `SQLite`.
    Engine { engine: Engine, instance: String },
    /// Pods of a simulated cluster.
    Cluster {
        cluster: Cluster,
        postgres: Postgres,
    },
}

/// A container or pod of a sandbox.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) sandbox: String,
    pub(crate) is_up: bool,
}

impl Place {
    /// The engine of a service.
    pub(crate) fn engine_of(service: &Service) -> Self {
        match (service.sandboxing(), service.instance()) {
            (Sandboxing::Docker(engine), Some(instance)) => Self::Engine {
                engine: engine.clone(),
                instance,
            },
            _ => panic!("the service runs no containers"),
        }
    }

    pub(crate) fn units(&self) -> Vec<Unit> {
        match self {
            Self::Engine { engine, instance } => {
                let containers = engine.containers_of(instance).into_iter();
                let unit = containers.map(|it| Unit {
                    is_up: it.is_up(),
                    sandbox: it.sandbox,
                });
                unit.collect()
            }
            Self::Cluster { cluster, .. } => pods(cluster),
        }
    }

    /// The number of rows of sandboxes, also of those that the API hides.
    pub(crate) fn rows(&self, service: &Service) -> String {
        let count = "select count(*) from sandboxes";
        match self {
            Self::Engine { .. } => service.query(count),
            Self::Cluster { postgres, .. } => postgres.query(count),
        }
    }

    /// What is left of sandboxes.
    pub(crate) fn left(&self) -> Option<String> {
        match self {
            Self::Engine { engine, instance } => {
                let containers = engine.containers_of(instance);
                let volumes = engine.volumes_of(instance);
                let networks = engine.networks_of(instance);
                let rules = metadata_rules(instance);
                let is_empty = containers.is_empty()
                    && volumes.is_empty()
                    && networks.is_empty()
                    && rules.is_empty();
                (!is_empty).then(|| format!("{containers:?} {volumes:?} {networks:?} {rules:?}"))
            }
            Self::Cluster { cluster, .. } => {
                let kinds = ["sandboxes", "pods", "persistentvolumeclaims", "secrets"];
                let counts = kinds.map(|kind| (kind, cluster.fake.objects(kind).len()));
                (!cluster.is_empty()).then(|| format!("{counts:?}"))
            }
        }
    }
}

/// Claims say whose they are; a pod has the name of its claim.
fn pods(cluster: &Cluster) -> Vec<Unit> {
    let name = |object: &serde_json::Value| object["metadata"]["name"].as_str().map(str::to_owned);
    let claims = cluster.fake.objects("persistentvolumeclaims");
    let owners: BTreeMap<_, _> = claims
        .iter()
        .filter_map(|claim| {
            let sandbox = &claim["metadata"]["annotations"]["agent-workspace/sandbox"];
            Some((name(claim)?, sandbox.as_str()?.to_owned()))
        })
        .collect();
    let pods = cluster.fake.objects("pods");
    let unit = pods.iter().map(|pod| Unit {
        sandbox: name(pod)
            .and_then(|name| owners.get(&name).cloned())
            .unwrap_or_default(),
        is_up: pod["status"]["phase"] == "Running"
            && pod["metadata"]["deletionTimestamp"].is_null(),
    });
    unit.collect()
}

/// The rules about the metadata address. Without permission there are none.
fn metadata_rules(instance: &str) -> Vec<String> {
    let rules = Command::new("iptables").args(["-w", "10", "-S"]).output();
    let rules = rules.map(|it| it.stdout).unwrap_or_default();
    let rules = String::from_utf8_lossy(&rules).into_owned();
    let own = rules.lines().filter(|rule| rule.contains(instance));
    own.map(str::to_owned).collect()
}
