//! Conformance tests of the deletion of old rows.

use domain::id::{ConversationId, HostId};
use domain::sandbox::DesiredState;
use domain::start_task::{NewStartTask, StartStatus};
use domain::user::scope::Scope;

use crate::StorePorts;
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, sandbox_id, scope, start, start_in,
    status_update, task_id,
};

/// Commits a start and ends it.
async fn store_ended_start(ports: &StorePorts, start: &NewStartTask, end: StartStatus, when: i64) {
    let fence = ports.insert_and_claim_start(start).await.fence;
    let ended = ports
        .start_queue
        .advance(start.task.id, fence, &status_update(end), at(when))
        .await;
    ended.unwrap();
}

async fn tasks(ports: &StorePorts, all: &[u64]) -> Vec<u64> {
    let ids: Vec<_> = all.iter().map(|n| task_id(*n)).collect();
    let found = ports.tasks.find_many(&Scope::System, &ids).await.unwrap();
    let there = all.iter().zip(found).filter(|(_, task)| task.is_some());
    there.map(|(n, _)| *n).collect()
}

/// Pruning deletes ended tasks, longest unchanged first, up to the limit. Younger and unfinished ones stay.
pub async fn ended_start_tasks_are_pruned(ports: &StorePorts) {
    for (n, when) in [(1, 30), (2, 20), (3, 10), (4, 40)] {
        let start = start(n, "alice", &format!("s{n}"), at(0));
        store_ended_start(ports, &start, StartStatus::Ready, when).await;
    }
    ports.insert_start(&start(5, "alice", "s5", at(0))).await;
    let all = [1, 2, 3, 4, 5];
    assert_eq!(ports.start_queue.prune(at(40), 2).await.unwrap(), 2);
    assert_eq!(tasks(ports, &all).await, [1, 4, 5]);
    assert_eq!(ports.start_queue.prune(at(40), 2).await.unwrap(), 1);
    assert_eq!(ports.start_queue.prune(at(40), 2).await.unwrap(), 0);
    assert_eq!(tasks(ports, &all).await, [4, 5]);
}

/// A failed task stays until its sandbox is gone: without it a late report would be adopted.
pub async fn a_failed_start_stays_while_its_sandbox_exists(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let start = start_in(1, "alice", "s", at(0));
    store_ended_start(ports, &start, StartStatus::Error, 2).await;
    assert_eq!(ports.start_queue.prune(at(99), 9).await.unwrap(), 0);
    ports.host_sandboxes.remove(&sandbox_id("s")).await.unwrap();
    assert_eq!(ports.start_queue.prune(at(99), 9).await.unwrap(), 1);
    assert_eq!(tasks(ports, &[1]).await, Vec::<u64>::new());
}

async fn delete(ports: &StorePorts, id: ConversationId, when: i64) {
    let deleted = ports
        .conversations
        .delete(&scope("alice"), id, at(when))
        .await;
    assert!(deleted.unwrap());
}

async fn is_remembered(ports: &StorePorts, n: u64, probe: u64) -> bool {
    let mut start = start(probe, "alice", &format!("probe-{probe}"), at(0));
    start.task.conversation_id = conversation_id(n);
    // On another host, so that no test claims it.
    start.task.host = HostId::parse("probes").unwrap();
    ports.tasks.insert(&start, &AMPLE_CAPS).await.is_err()
}

/// Pruning deletes records of deleted conversations, oldest first, up to the limit, and never while their sandbox
/// exists.
pub async fn records_of_deleted_conversations_are_pruned(ports: &StorePorts) {
    for n in 1..=3 {
        let name = format!("s{n}");
        ports.insert_sandbox(&name, "alice").await;
        let row = conversation(n, "alice", &name, at(0));
        let id = ports.insert_conversation(&row).await;
        delete(ports, id, i64::try_from(n).unwrap() * 10).await;
    }
    assert_eq!(
        ports
            .conversation_deletions
            .prune_deleted(at(99), 9)
            .await
            .unwrap(),
        0
    );
    for n in 1..=3 {
        let id = sandbox_id(&format!("s{n}"));
        let row = ports.sandbox_row(&id).await.unwrap();
        assert_eq!(row.desired, DesiredState::Deleted);
        ports.host_sandboxes.remove(&id).await.unwrap();
    }
    assert_eq!(
        ports
            .conversation_deletions
            .prune_deleted(at(30), 1)
            .await
            .unwrap(),
        1
    );
    assert!(!is_remembered(ports, 1, 101).await);
    assert!(is_remembered(ports, 2, 102).await);
    assert_eq!(
        ports
            .conversation_deletions
            .prune_deleted(at(30), 9)
            .await
            .unwrap(),
        1
    );
    assert!(!is_remembered(ports, 2, 103).await);
    assert!(is_remembered(ports, 3, 104).await, "a younger record stays");
}

/// Generates the conformance tests of pruning. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! pruning_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (store::pruning),
            $fresh,
            [
                ended_start_tasks_are_pruned,
                a_failed_start_stays_while_its_sandbox_exists,
                records_of_deleted_conversations_are_pruned,
            ]
        );
    };
}
