//! The backend on a real cluster (`cargo xtask test-kubernetes`), or else on a simulated one whose pods are processes.
//!
//! It needs what the service needs, and the right to create `pods/proxy` and `pods/eviction` in the namespace of the sandboxes. With
//! `Sandbox` resources it deletes the pods of their controller as well.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod relay;
mod support;

use std::time::Duration;

use domain::sandbox::{
    BackendState, SandboxBackend as _, SandboxError, SandboxLaunch, SandboxLifecycle as _,
};
use sandbox_kubernetes::PodEngine;
use tokio::time::{sleep, timeout};

use crate::support::{Fresh, launch};

/// For everything that a cluster does by itself. A new node may pull an image first.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Generates the tests of an engine. `cargo xtask test-kubernetes` selects an engine by these names.
macro_rules! engine {
    ($name:ident, $engine:expr $(, $more:ident)*) => {
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

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sandboxes_outlive_an_api_server_that_is_away() {
                crate::sandboxes_outlive_an_api_server_that_is_away($engine).await;
            }

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $more() {
                    crate::$more($engine).await;
                }
            )*
        }
    };
}

engine!(
    agent_sandbox,
    PodEngine::AgentSandbox,
    changes_survive_restarts_of_the_controller
);
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

/// Waits until the API server is found to answer, or not to.
async fn wait_for_contact(fresh: &Fresh, expected: bool) {
    let found = async {
        while fresh.check().await.is_ok() != expected {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(CLUSTER_TIMEOUT, found).await.unwrap();
}

async fn sandboxes_outlive_an_api_server_that_is_away(engine: PodEngine) {
    let (fresh, mut relay) = Fresh::behind_relay(engine).await;
    let [before, during, after] = [launch(), launch(), launch()];
    let endpoints = fresh.start(&before).await.unwrap();
    fresh.post(&before.id, "write", "kept").await;

    relay.cut().await;
    wait_for_contact(&fresh, false).await;
    let error = fresh.start(&during).await.unwrap_err();
    assert!(
        matches!(error, SandboxError::Unavailable { .. }),
        "{error:?}"
    );
    sleep(fresh.absence()).await;
    relay.restore();
    wait_for_contact(&fresh, true).await;

    let state = fresh.inspect(&before.id).await.unwrap();
    assert_eq!(state, Some(BackendState::Running(endpoints)));
    assert_eq!(fresh.get(&before.id, "file").await, "kept");
    fresh.start(&after).await.unwrap();
    for launch in [&before, &during, &after] {
        fresh.remove(&launch.id).await.unwrap();
    }
    fresh
        .assert_removed(&[&before.id, &during.id, &after.id])
        .await;
}

/// Of a start, a pause, a resumption and a removal.
async fn changes_survive_restarts_of_the_controller(engine: PodEngine) {
    let fresh = Fresh::new(engine).await;
    let launch = launch();
    for _ in 0..2 {
        let (started, ()) = tokio::join!(fresh.start(&launch), fresh.restart_controller());
        started.unwrap();
        let (stopped, ()) = tokio::join!(fresh.stop(&launch.id), fresh.restart_controller());
        stopped.unwrap();
        assert_eq!(fresh.pod_uid(&launch.id).await, None);
    }
    let (removed, ()) = tokio::join!(fresh.remove(&launch.id), fresh.restart_controller());
    removed.unwrap();
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
