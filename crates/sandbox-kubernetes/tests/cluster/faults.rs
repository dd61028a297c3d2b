//! Whichever request fails, and wherever the service ends, the next operation finds everything.

use domain::sandbox::{BackendState, SandboxLifecycle as _};
use fake_kubernetes::{FakeCluster, Fault};
use tokio::runtime::Runtime;

use crate::support::{Fresh, assert_empty, launch, open, open_at};

/// More than any operation needs.
const MAX_REQUESTS: usize = 40;

/// Starts, stops, starts and removes a sandbox. One request fails, the operation is repeated by a service that remembers
/// nothing, and nothing is left or double at the end.
async fn survives(has_sandboxes: bool, fault: Fault) {
    let mut fresh = Fresh::new(has_sandboxes).await;
    for failing in 0..MAX_REQUESTS {
        let launch = launch();
        let id = &launch.id;
        fresh.cluster.fail_change(failing, fault);
        if fresh.start(&launch).await.is_err() {
            fresh.restart().await;
            fresh.start(&launch).await.unwrap();
        }
        let state = fresh.inspect(id).await.unwrap();
        assert!(
            matches!(state, Some(BackendState::Running(_))),
            "{failing}: {state:?}"
        );
        if fresh.stop(id).await.is_err() {
            fresh.restart().await;
            fresh.stop(id).await.unwrap();
        }
        assert_eq!(
            fresh.inspect(id).await.unwrap(),
            Some(BackendState::Stopped),
            "{failing}"
        );
        assert!(fresh.cluster.objects("pods").is_empty());
        if fresh.start(&launch).await.is_err() {
            fresh.restart().await;
            fresh.start(&launch).await.unwrap();
        }
        assert_eq!(fresh.cluster.objects("pods").len(), 1, "{failing}");
        if fresh.remove(id).await.is_err() {
            fresh.restart().await;
            fresh.remove(id).await.unwrap();
        }
        assert_empty(&fresh.cluster);
        if fresh.cluster.changes() <= failing {
            return;
        }
    }
    panic!("an operation repeats requests without an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_refused_for_the_moment_are_repeated() {
    for has_sandboxes in [true, false] {
        survives(has_sandboxes, Fault::Before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_whose_answer_is_lost_are_not_done_twice() {
    for has_sandboxes in [true, false] {
        survives(has_sandboxes, Fault::After).await;
    }
}

/// Every beginning of a start is what a killed service leaves.
#[test]
fn a_start_that_ends_anywhere_is_continued_or_removed() {
    for has_sandboxes in [true, false] {
        let mut finished = 0;
        while leaves_nothing_after_a_kill(has_sandboxes, finished) {
            finished += 1;
        }
        assert!(finished > 3, "a start needs more requests: {finished}");
    }
}

/// Kills the service when it has sent this number of requests that change something. `false` if the start was complete.
fn leaves_nothing_after_a_kill(has_sandboxes: bool, finished: usize) -> bool {
    let test = Runtime::new().unwrap();
    test.block_on(async {
        let cluster = FakeCluster::start(has_sandboxes).await;
        cluster.hold_changes(finished);
        let (url, launch) = (cluster.url(), launch());
        let killed = Runtime::new().unwrap();
        let id = launch.id.clone();
        let again = launch.clone();
        let start = killed.spawn(async move { open_at(url, "host").await.start(&launch).await });
        let is_killed = tokio::select! {
            () = cluster.wait_until_held() => true,
            started = start => {
                started.unwrap().unwrap();
                false
            }
        };
        killed.shutdown_background();
        cluster.release();
        let next = open(&cluster, "host").await;
        assert!(next.list().await.unwrap().len() <= 1);
        if finished.is_multiple_of(2) {
            next.start(&again).await.unwrap();
            assert_eq!(cluster.objects("pods").len(), 1);
        }
        next.remove(&id).await.unwrap();
        assert_empty(&cluster);
        is_killed
    })
}

/// A stop may end between its intent and its deed; the next start runs the sandbox.
#[test]
fn a_stop_that_ends_anywhere_is_undone_by_a_start() {
    for has_sandboxes in [true, false] {
        let mut finished = 0;
        while runs_after_a_killed_stop(has_sandboxes, finished) {
            finished += 1;
        }
        assert!(finished > 1, "a stop needs more requests: {finished}");
    }
}

/// Kills the service when its stop has sent this number of requests. `false` if the stop was complete.
fn runs_after_a_killed_stop(has_sandboxes: bool, finished: usize) -> bool {
    let test = Runtime::new().unwrap();
    test.block_on(async {
        let cluster = FakeCluster::start(has_sandboxes).await;
        let (url, launch) = (cluster.url(), launch());
        let next = open(&cluster, "host").await;
        next.start(&launch).await.unwrap();
        cluster.hold_changes(finished);
        let (killed, id) = (Runtime::new().unwrap(), launch.id.clone());
        let stop = killed.spawn(async move { open_at(url, "host").await.stop(&id).await });
        let is_killed = tokio::select! {
            () = cluster.wait_until_held() => true,
            stopped = stop => {
                stopped.unwrap().unwrap();
                false
            }
        };
        killed.shutdown_background();
        cluster.release();
        next.start(&launch).await.unwrap();
        let state = next.inspect(&launch.id).await.unwrap();
        assert!(matches!(state, Some(BackendState::Running(_))), "{state:?}");
        next.remove(&launch.id).await.unwrap();
        assert_empty(&cluster);
        is_killed
    })
}
