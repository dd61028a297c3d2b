//! A Kubernetes cluster whose pods are processes of this machine.

use std::path::PathBuf;

use fake_kubernetes::FakeCluster;
use serde_json::json;
use tempfile::TempDir;

use crate::agent_server::built_program;
use crate::{Builder, Stub, Version};

/// The kinds of objects of a sandbox.
const KINDS: [&str; 4] = ["persistentvolumeclaims", "secrets", "sandboxes", "pods"];

/// A cluster, and the files of its volumes.
pub struct Cluster {
    /// The API server and its controllers.
    pub fake: FakeCluster,
    files: TempDir,
}

impl Cluster {
    /// Starts a cluster with or without the controller of `Sandbox` resources.
    ///
    /// # Panics
    /// When no file can be written, or no port is free.
    pub async fn start(has_sandboxes: bool) -> Self {
        let cluster = Self::without_processes(has_sandboxes).await;
        std::fs::create_dir(cluster.volume()).expect("cannot create the mount point");
        cluster.fake.run_processes(cluster.claims());
        cluster
    }

    /// Starts a cluster whose pods run in name only: each gets an address, at which something else may listen.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub async fn without_processes(has_sandboxes: bool) -> Self {
        let files = tempfile::Builder::new().prefix("aw-cluster-").tempdir();
        let files = files.expect("cannot create a temporary directory");
        let cluster = Self {
            fake: FakeCluster::start(has_sandboxes).await,
            files,
        };
        let context = json!({"name": "fake", "context": {"cluster": "fake", "user": "fake"}});
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake", "contexts": [context],
            "clusters": [{"name": "fake", "cluster": {"server": cluster.fake.url()}}],
            "users": [{"name": "fake", "user": {}}],
        });
        let written = std::fs::write(cluster.kubeconfig(), kubeconfig.to_string());
        written.expect("cannot write the kubeconfig");
        cluster
    }

    /// Runs sandboxes as pods with the stub.
    #[must_use]
    pub fn with_stub(&self, builder: Builder, stub: &Stub) -> Builder {
        let program = built_program("stub-agent-server");
        let program = program.display().to_string();
        self.with_program(
            builder,
            &format!("'{program}' --dir '{}'", stub.dir().display()),
        )
    }

    /// Runs sandboxes as pods with this real agent server.
    #[must_use]
    pub fn with_agent_server(&self, builder: Builder, version: Version) -> Builder {
        self.with_program(builder, &version.command())
    }

    fn with_program(&self, builder: Builder, program: &str) -> Builder {
        let volume = self.volume();
        let path = |path: PathBuf| path.display().to_string();
        self.connect(builder)
            .env("WORKSPACE_KUBERNETES__ENTRYPOINT", program)
            .env(
                "WORKSPACE_KUBERNETES__COMMAND",
                "--host '$(POD_IP)' --port 8000",
            )
            .env(
                "WORKSPACE_KUBERNETES__WORKING_DIR",
                &path(volume.join("project")),
            )
            .env("WORKSPACE_KUBERNETES__VOLUME", &path(volume))
    }

    /// Runs sandboxes as pods of this cluster.
    #[must_use]
    pub fn connect(&self, builder: Builder) -> Builder {
        builder
            .env("WORKSPACE_SANDBOX__BACKEND", "kubernetes")
            .env("WORKSPACE_SANDBOX__CALLBACK_URL", "http://127.0.0.1:{port}")
            .env(
                "WORKSPACE_KUBERNETES__KUBECONFIG",
                &self.kubeconfig().display().to_string(),
            )
    }

    /// The content of a file in the workspace of the only sandbox, if it exists.
    ///
    /// # Panics
    /// Without a claim.
    #[must_use]
    pub fn workspace_file(&self, name: &str) -> Option<String> {
        let claims = self.fake.objects("persistentvolumeclaims");
        let claim = claims[0]["metadata"]["name"].as_str();
        let claim = claim.expect("a claim has a name");
        let workspace = self.claims().join(claim).join("project");
        std::fs::read_to_string(workspace.join(name)).ok()
    }

    /// Whether the cluster has no object of a sandbox.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        KINDS.iter().all(|kind| self.fake.objects(kind).is_empty())
    }

    /// Where pods mount their claim.
    fn volume(&self) -> PathBuf {
        self.files.path().join("volume")
    }

    fn claims(&self) -> PathBuf {
        self.files.path().join("claims")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }
}
