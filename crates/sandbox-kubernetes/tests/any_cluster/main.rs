//! The backend on a real cluster (`cargo xtask test-kubernetes`), or else on a simulated one whose pods are processes.
//!
//! It needs what the service needs, and the right to create `pods/proxy` and `pods/eviction` in the namespace of the sandboxes.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod support;

use std::time::Duration;

use domain::sandbox::{BackendState, SandboxBackend as _, SandboxLaunch, SandboxLifecycle as _};
use sandbox_kubernetes::PodEngine;
use tokio::time::{sleep, timeout};

use crate::support::{Fresh, launch};

/// For everything that a cluster does by itself. A new node may pull an image first.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Generates the tests of an engine. `cargo xtask test-kubernetes` selects an engine by these names.
macro_rules! engine {
    ($name:ident, $engine:expr) => {
        mod $name {
            use sandbox_kubernetes::PodEngine;

            use crate::support::{Fresh, exit, launch, write_log_line};

            port_conformance::sandbox_backend_conformance!(
                fresh: Fresh::new($engine),
                launch: launch,
                exit: exit,
                write_log_line: write_log_line,
                keeps_logs: false,
            );

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_agent_server_of_the_image_answers() {
                crate::the_agent_server_of_the_image_answers($engine).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_workspace_outlives_pauses_deleted_pods_and_drained_nodes() {
                crate::a_workspace_outlives_pods($engine).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_restarted_service_finds_its_sandboxes() {
                crate::a_restarted_service_finds_its_sandboxes($engine).await;
            }
        }
    };
}

engine!(agent_sandbox, PodEngine::AgentSandbox);
engine!(pods, PodEngine::Pods);

async fn the_agent_server_of_the_image_answers(engine: PodEngine) {
    let fresh = Fresh::with_agent_server(engine).await;
    let launch = launch();
    fresh.start(&launch).await.unwrap();
    fresh.get(&launch.id, "alive").await;
    fresh.remove(&launch.id).await.unwrap();
    fresh.assert_removed(&[&launch.id]).await;
}

/// Waits until the sandbox has another pod, or none, and lets it run again.
async fn run_again(fresh: &Fresh, launch: &SandboxLaunch, before: &str) {
    let replaced = async {
        while fresh.pod_uid(&launch.id).await.as_deref() == Some(before) {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(CLUSTER_TIMEOUT, replaced).await.unwrap();
    // A plain pod is not made again by the cluster.
    fresh.start(launch).await.unwrap();
    let state = fresh.inspect(&launch.id).await.unwrap();
    assert!(matches!(state, Some(BackendState::Running(_))), "{state:?}");
}

async fn a_workspace_outlives_pods(engine: PodEngine) {
    let fresh = Fresh::new(engine).await;
    let launch = launch();
    fresh.start(&launch).await.unwrap();
    fresh.post(&launch.id, "write", "kept").await;

    fresh.stop(&launch.id).await.unwrap();
    assert_eq!(fresh.pod_uid(&launch.id).await, None);
    fresh.start(&launch).await.unwrap();
    assert_eq!(fresh.get(&launch.id, "file").await, "kept");

    let before = fresh.pod_uid(&launch.id).await.unwrap();
    fresh.delete_pod(&launch.id).await;
    run_again(&fresh, &launch, &before).await;
    assert_eq!(fresh.get(&launch.id, "file").await, "kept");

    let before = fresh.pod_uid(&launch.id).await.unwrap();
    fresh.evict_pod(&launch.id).await;
    run_again(&fresh, &launch, &before).await;
    assert_eq!(fresh.get(&launch.id, "file").await, "kept");

    fresh.remove(&launch.id).await.unwrap();
    fresh.assert_removed(&[&launch.id]).await;
}

async fn a_restarted_service_finds_its_sandboxes(engine: PodEngine) {
    let mut fresh = Fresh::new(engine).await;
    let (running, stopped) = (launch(), launch());
    let (one, two) = futures::join!(fresh.start(&running), fresh.start(&stopped));
    let (one, _) = (one.unwrap(), two.unwrap());
    fresh.stop(&stopped.id).await.unwrap();
    fresh.restart().await;
    fresh.check().await.unwrap();
    assert_eq!(fresh.list().await.unwrap().len(), 2);
    let state = fresh.inspect(&running.id).await.unwrap();
    assert_eq!(state, Some(BackendState::Running(one)));
    let state = fresh.inspect(&stopped.id).await.unwrap();
    assert_eq!(state, Some(BackendState::Stopped));
    for launch in [&running, &stopped] {
        fresh.remove(&launch.id).await.unwrap();
    }
    fresh.assert_removed(&[&running.id, &stopped.id]).await;
}
