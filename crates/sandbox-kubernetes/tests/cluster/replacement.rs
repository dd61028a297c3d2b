//! Pods that the cluster ends or replaces.

use domain::sandbox::{BackendState, SandboxBackend as _, SandboxLifecycle as _};
use fake_kubernetes::FakeCluster;
use futures::StreamExt as _;

use crate::support::{Fresh, assert_empty, launch, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_sandbox_runs_at_another_address() {
    let fresh = Fresh::new(true).await;
    let launch = launch();
    let before = fresh.start(&launch).await.unwrap();
    fresh.cluster.drain(launch.id.as_str());
    // It counts as running all the time.
    let mut moved = None;
    while moved.is_none() {
        match fresh.inspect(&launch.id).await.unwrap() {
            Some(BackendState::Running(now)) if now != before => moved = Some(now),
            Some(BackendState::Running(_)) => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    }
    let found = fresh.start(&launch).await.unwrap();
    assert_eq!(Some(found), moved);
    fresh.remove(&launch.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_plain_pod_leaves_its_volume() {
    let fresh = Fresh::new(false).await;
    let launch = launch();
    let mut facts = fresh.watch();
    fresh.start(&launch).await.unwrap();
    fresh.cluster.drain(launch.id.as_str());
    let fact = facts.next().await.unwrap();
    assert_eq!((&fact.id, fact.state), (&launch.id, BackendState::Remains));
    fresh.start(&launch).await.unwrap();
    fresh.remove(&launch.id).await.unwrap();
    assert_empty(&fresh.cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_a_forgotten_version_starts_again() {
    let fresh = Fresh::new(true).await;
    let launch = launch();
    fresh.start(&launch).await.unwrap();
    let mut facts = fresh.watch();
    fresh.cluster.compact();
    fresh.cluster.end_process(launch.id.as_str(), 3);
    let fact = facts.next().await.unwrap();
    assert!(
        matches!(fact.state, BackendState::Exited { .. }),
        "{fact:?}"
    );
    fresh.remove(&launch.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installations_do_not_see_each_other() {
    let cluster = FakeCluster::start(true).await;
    let (one, other) = (open(&cluster, "one").await, open(&cluster, "other").await);
    let launch = launch();
    one.start(&launch).await.unwrap();
    assert!(other.list().await.unwrap().is_empty());
    assert_eq!(other.inspect(&launch.id).await.unwrap(), None);
    other.remove(&launch.id).await.unwrap();
    assert_eq!(one.list().await.unwrap().len(), 1);
    // Two services of one installation see the same.
    let same = open(&cluster, "one").await;
    same.stop(&launch.id).await.unwrap();
    assert_eq!(
        one.inspect(&launch.id).await.unwrap(),
        Some(BackendState::Stopped)
    );
    one.check().await.unwrap();
    one.remove(&launch.id).await.unwrap();
}
