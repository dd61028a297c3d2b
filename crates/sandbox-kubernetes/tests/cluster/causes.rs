//! What owners read when a sandbox does not start.

use domain::sandbox::{
    BackendReachability, BackendState, PrepareProgress, SandboxBackend as _, SandboxError,
    SandboxLaunch, SandboxLifecycle as _,
};
use fake_kubernetes::{FakeCluster, PodBehavior};
use futures::StreamExt as _;

use crate::support::{Fresh, assert_empty, launch, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_without_a_valid_name_fails_at_once() {
    for has_sandboxes in [true, false] {
        let fresh = Fresh::new(has_sandboxes).await;
        fresh.cluster.set_behavior(PodBehavior::InvalidImage);
        let launch = launch();
        let error = fresh.start(&launch).await.unwrap_err();
        assert!(
            matches!(error, SandboxError::StartFailed { .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("InvalidImageName") && text.contains("kubernetes.image"),
            "{text}"
        );
        fresh.remove(&launch.id).await.unwrap();
        assert_empty(&fresh.cluster);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_at_once_is_described_without_keys() {
    for has_sandboxes in [true, false] {
        let fresh = Fresh::new(has_sandboxes).await;
        fresh.cluster.set_behavior(PodBehavior::End(3));
        let launch = launch();
        let error = fresh.start(&launch).await.unwrap_err();
        assert!(
            matches!(error, SandboxError::StartFailed { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("exit code 3"), "{error}");
        let state = fresh.inspect(&launch.id).await.unwrap();
        assert!(
            matches!(state, Some(BackendState::Exited { .. })),
            "{state:?}"
        );
        // The operator mends it.
        fresh.cluster.set_behavior(PodBehavior::Run);
        fresh.start(&launch).await.unwrap();
        fresh.remove(&launch.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_named() {
    let fresh = Fresh::new(false).await;
    fresh
        .cluster
        .set_quota(Some("pods \"aw\" is forbidden: exceeded quota: small"));
    let launch = launch();
    let error = fresh.start(&launch).await.unwrap_err();
    assert!(
        matches!(error, SandboxError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("exceeded quota: small"),
        "{error}"
    );
    fresh.cluster.set_quota(None);
    fresh.start(&launch).await.unwrap();
    fresh.remove(&launch.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_does_not_answer_is_unavailable() {
    let fresh = Fresh::new(true).await;
    fresh.check().await.unwrap();
    fresh.cluster.stop().await;
    let error = fresh.check().await.unwrap_err();
    assert!(
        matches!(error, SandboxError::Unavailable { .. }),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_starts_without_its_cluster_finds_it_unreachable() {
    let cluster = FakeCluster::start(false).await;
    cluster.stop().await;
    let backend = open(&cluster, "host").await;
    let found = backend.watch_reachability().next().await;
    assert!(
        matches!(found, Some(BackendReachability::Unreachable { .. })),
        "{found:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_waits_tells_for_what() {
    let fresh = Fresh::new(true).await;
    fresh.cluster.set_behavior(PodBehavior::Unschedulable);
    let (lines, mut reported) = tokio::sync::watch::channel(String::new());
    let launch = SandboxLaunch {
        progress: PrepareProgress::new(move |line| {
            lines.send_replace(line.to_owned());
        }),
        ..launch()
    };
    let reported_and_mended = async {
        let line = reported.wait_for(|line| !line.is_empty()).await.unwrap();
        assert!(
            line.contains("no node of the cluster has room"),
            "{}",
            *line
        );
        drop(line);
        fresh.cluster.set_behavior(PodBehavior::Run);
    };
    let (started, ()) = tokio::join!(fresh.start(&launch), reported_and_mended);
    started.unwrap();
    fresh.remove(&launch.id).await.unwrap();
}
