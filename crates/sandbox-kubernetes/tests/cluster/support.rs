//! A backend on a fake cluster.

use std::ops::Deref;

use domain::id::{HostId, SandboxId, SpecId};
use domain::sandbox::SandboxLaunch;
use fake_kubernetes::FakeCluster;
use port_conformance::suites::sandboxes::backend::launch as new_launch;
use sandbox_kubernetes::{ClusterAccess, KubernetesConfig, KubernetesSandboxes};
use url::Url;

/// The kinds of objects of a sandbox.
pub(crate) const KINDS: [&str; 4] = ["persistentvolumeclaims", "secrets", "sandboxes", "pods"];

pub(crate) struct Fresh {
    pub(crate) cluster: FakeCluster,
    backend: KubernetesSandboxes,
}

impl Deref for Fresh {
    type Target = KubernetesSandboxes;
    fn deref(&self) -> &Self::Target {
        &self.backend
    }
}

impl Fresh {
    pub(crate) async fn new(has_sandboxes: bool) -> Self {
        let cluster = FakeCluster::start(has_sandboxes).await;
        let backend = open(&cluster, "host").await;
        Self { cluster, backend }
    }

    /// The service as it is after a crash: nothing in its memory.
    pub(crate) async fn restart(&mut self) {
        self.backend = open(&self.cluster, "host").await;
    }
}

pub(crate) fn is_empty(cluster: &FakeCluster) -> bool {
    KINDS.iter().all(|kind| cluster.objects(kind).is_empty())
}

/// Asserts that nothing of any sandbox is left.
pub(crate) fn assert_empty(cluster: &FakeCluster) {
    for kind in KINDS {
        let left = cluster.objects(kind);
        assert!(left.is_empty(), "{kind}: {left:?}");
    }
}

/// The backend of an installation on a cluster.
pub(crate) async fn open(cluster: &FakeCluster, instance: &str) -> KubernetesSandboxes {
    open_at(cluster.url(), instance).await
}

pub(crate) async fn open_at(cluster: Url, instance: &str) -> KubernetesSandboxes {
    open_with(cluster, instance, |_| ()).await
}

/// The same with other settings.
pub(crate) async fn open_with(
    cluster: Url,
    instance: &str,
    change: impl FnOnce(&mut KubernetesConfig),
) -> KubernetesSandboxes {
    let mut config = KubernetesConfig::new(HostId::parse(instance).unwrap());
    config.access = ClusterAccess::Address(cluster);
    let mut spec = config.specs[0].clone();
    spec.id = SpecId::parse("example").unwrap();
    spec.secret_env
        .insert("TOKEN".to_owned(), "canary-7151".into());
    config.specs = vec![spec];
    change(&mut config);
    KubernetesSandboxes::new(config).await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "each test takes a new id")]
pub(crate) fn launch() -> SandboxLaunch {
    new_launch(uuid::Uuid::new_v4(), &SpecId::parse("example").unwrap())
}

pub(crate) async fn exit(fresh: &Fresh, id: SandboxId) {
    fresh.cluster.end_process(id.as_str(), 3);
}

pub(crate) async fn write_log_line(fresh: &Fresh, id: SandboxId, line: String) {
    fresh.cluster.write_log_line(id.as_str(), &line);
}
