//! Conformance tests of `StartTaskQueue`: releasing leases, and counting unfinished tasks.

use domain::error::StoreError;
use domain::id::HostId;
use domain::start_task::{ClaimLimit, StartQueueCounts, StartStatus};

use super::lifecycle::{advance, claim};
use crate::fixtures::{at, host, start, status_update, task_id};
use crate::{StorePorts, assert_is};

/// After a release, a worker of the host can claim the task at once, and only the new claim may write.
pub async fn a_lease_can_be_released(ports: &StorePorts) {
    let first = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    let foreign_release = ports.start_queue.release(task_id(1), first + 1).await;
    assert_is!(foreign_release, Err(StoreError::Stale { .. }));
    ports.start_queue.release(task_id(1), first).await.unwrap();
    let again = ports.start_queue.release(task_id(1), first).await;
    assert_is!(again, Err(StoreError::Stale { .. }));
    // The released lease had not expired.
    let claimed = ports
        .start_queue
        .claim(&host(), at(1), at(60), ClaimLimit::tasks(9))
        .await
        .unwrap();
    assert_eq!(claimed.len(), 1);
    assert!(claimed[0].fence > first);
    let late = status_update(StartStatus::WaitingForSandbox);
    let late = ports
        .start_queue
        .advance(task_id(1), first, &late, at(2))
        .await;
    assert_is!(late, Err(StoreError::Stale { .. }));
}

/// A task that has ended, or does not exist, has no lease.
pub async fn ended_tasks_have_no_lease_to_release(ports: &StorePorts) {
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    let failed = status_update(StartStatus::Error);
    let ended = ports
        .start_queue
        .fail(task_id(1), fence, &failed, at(2))
        .await;
    ended.unwrap();
    for n in [1, 2] {
        let given_back = ports.start_queue.release(task_id(n), fence).await;
        assert_is!(given_back, Err(StoreError::Stale { .. }));
    }
}

/// Waiting and leased tasks are counted by host; a task with an expired lease counts as waiting.
pub async fn unfinished_tasks_are_counted(ports: &StorePorts) {
    let queue = async |seconds| {
        ports
            .start_queue
            .count_unfinished(&host(), at(seconds))
            .await
            .unwrap()
    };
    assert_eq!(queue(0).await, StartQueueCounts::default());
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    ports.insert_start(&start(2, "alice", "t", at(0))).await;
    let mut elsewhere = start(3, "bob", "u", at(0));
    elsewhere.task.host = HostId::parse("host-2").unwrap();
    ports.insert_start(&elsewhere).await;
    let of = |leased, waiting| StartQueueCounts { leased, waiting };
    assert_eq!(queue(1).await, of(1, 1));
    assert_eq!(queue(100_000).await, of(0, 2), "the lease has expired");
    let failed = status_update(StartStatus::Error);
    let ended = ports
        .start_queue
        .fail(task_id(1), fence, &failed, at(2))
        .await;
    ended.unwrap();
    assert_eq!(queue(2).await, of(0, 1));
}

/// The leases of a host can be ended at start-up: its tasks can be claimed at once, and former holders cannot write.
pub async fn the_leases_of_a_host_can_be_ended(ports: &StorePorts) {
    let stale = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    let mut elsewhere = start(2, "alice", "t", at(0));
    elsewhere.task.host = HostId::parse("host-2").unwrap();
    ports.insert_start(&elsewhere).await;
    let other = elsewhere.task.host.clone();
    ports
        .start_queue
        .claim(&other, at(1), at(60), ClaimLimit::tasks(9))
        .await
        .unwrap();
    assert_eq!(ports.start_queue.release_host(&host()).await.unwrap(), 1);
    assert_eq!(ports.start_queue.release_host(&host()).await.unwrap(), 0);
    assert_is!(
        advance(ports, 1, stale, StartStatus::WaitingForSandbox).await,
        Err(StoreError::Stale { .. })
    );
    let again = claim(ports, 2, 60).await;
    assert_eq!(again.len(), 1);
    assert!(again[0].fence > stale);
    assert_eq!(
        ports
            .start_queue
            .claim(&other, at(2), at(60), ClaimLimit::tasks(9))
            .await
            .unwrap(),
        []
    );
}
