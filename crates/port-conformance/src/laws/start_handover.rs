//! Laws of `StartTaskRepository`: leases that are given back.

use domain::error::StoreError;
use domain::start_task::{ClaimLimit, StartStatus};

use crate::fixtures::{at, host, start, step, task_id};
use crate::{Ports, assert_is};

/// Whoever serves the host may claim at once, and only the new claim counts from then on.
pub async fn a_lease_can_be_given_back(ports: &Ports) {
    let first = ports.claimed(&start(1, "alice", "s", at(0))).await.fence;
    let nobody_elses = ports.tasks.release(task_id(1), first + 1).await;
    assert_is!(nobody_elses, Err(StoreError::Stale { .. }));
    ports.tasks.release(task_id(1), first).await.unwrap();
    let again = ports.tasks.release(task_id(1), first).await;
    assert_is!(again, Err(StoreError::Stale { .. }));
    // The lease that was given back had not run out.
    let claimed = ports
        .tasks
        .claim(&host(), at(1), at(60), ClaimLimit::tasks(9))
        .await
        .unwrap();
    assert_eq!(claimed.len(), 1);
    assert!(claimed[0].fence > first);
    let late = step(StartStatus::WaitingForSandbox);
    let late = ports.tasks.advance(task_id(1), first, &late, at(2)).await;
    assert_is!(late, Err(StoreError::Stale { .. }));
}

/// A task that has ended has no lease, nor one that is not there.
pub async fn what_has_ended_is_not_given_back(ports: &Ports) {
    let fence = ports.claimed(&start(1, "alice", "s", at(0))).await.fence;
    let failed = step(StartStatus::Error);
    let ended = ports.tasks.fail(task_id(1), fence, &failed, at(2)).await;
    ended.unwrap();
    for n in [1, 2] {
        let given_back = ports.tasks.release(task_id(n), fence).await;
        assert_is!(given_back, Err(StoreError::Stale { .. }));
    }
}
