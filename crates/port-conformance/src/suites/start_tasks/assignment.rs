//! Conformance tests of `StartTaskRepository` and `SandboxRepository::list_running`: the sandbox of a start, and its
//! fate when the parent or other conversations are deleted.

use domain::error::{Entity, ReachedCap, StoreError};
use domain::id::SpecId;
use domain::sandbox::{DesiredState, SandboxCaps, SandboxFacts, SandboxOccupancy, SandboxStatus};
use domain::start_task::{
    ClaimLimit, NewStartTask, SandboxAssignment, StartStatus, StartTaskInsertOutcome,
};
use futures::future::join_all;

use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, endpoints, sandbox_id, scope, start_in,
    status_update, task_id, user,
};
use crate::{StorePorts, assert_is};

/// Stores a running sandbox.
async fn start_sandbox(ports: &StorePorts, name: &str, owner: &str) {
    ports.insert_sandbox(name, owner).await;
    let facts = SandboxFacts::Running {
        endpoints: endpoints(1),
    };
    let id = sandbox_id(name);
    let recorded = ports
        .host_sandboxes
        .record_facts(&id, DesiredState::Running, &facts, at(1));
    assert!(recorded.await.expect("record"));
}

/// A start that shares a sandbox.
fn start_in_shared(n: u64, name: &str, max_conversations: u32) -> NewStartTask {
    let mut start = start_in(n, "alice", name, at(2));
    start.assignment = SandboxAssignment::Shared { max_conversations };
    start
}

fn as_sub_conversation(mut start: NewStartTask, parent: u64) -> NewStartTask {
    start.task.request.parent_conversation_id = Some(conversation_id(parent));
    start
}

/// The running sandboxes with their occupancy, by id.
async fn list_running(ports: &StorePorts, owner: &str, spec: &SpecId) -> Vec<SandboxOccupancy> {
    let mut found = ports
        .sandboxes
        .list_running(&user(owner), spec)
        .await
        .unwrap();
    found.sort_by_key(|it| it.sandbox.id.to_string());
    found
}

/// Only sandboxes of this owner and spec are listed that are desired to run and RUNNING.
pub async fn running_sandboxes_are_listed(ports: &StorePorts) {
    for name in ["a", "b", "paused"] {
        start_sandbox(ports, name, "alice").await;
    }
    start_sandbox(ports, "bobs", "bob").await;
    let starting = ports.insert_sandbox("starting", "alice").await;
    let (alice, paused) = (scope("alice"), sandbox_id("paused"));
    let pause =
        ports
            .sandboxes
            .set_desired(&alice, &paused, DesiredState::Paused, &AMPLE_CAPS, at(3));
    pause.await.unwrap();
    let found = list_running(ports, "alice", &starting.spec_id).await;
    let names: Vec<_> = found.iter().map(|it| it.sandbox.id.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        found[0].sandbox,
        ports.sandbox_row(&sandbox_id("a")).await.unwrap()
    );
    let other = SpecId::parse("another-template").unwrap();
    assert_eq!(list_running(ports, "alice", &other).await, []);
}

/// Occupancy counts conversations and starts without one, each once; the last use is the latest of both.
pub async fn occupancy_is_counted(ports: &StorePorts) {
    for name in ["empty", "used"] {
        start_sandbox(ports, name, "alice").await;
    }
    let mut talk = conversation(1, "alice", "used", at(5));
    talk.updated_at = at(40);
    ports.insert_conversation(&talk).await;
    ports
        .insert_conversation(&conversation(2, "alice", "used", at(6)))
        .await;
    ports
        .insert_start(&start_in(3, "alice", "used", at(30)))
        .await;
    let spec = ports
        .sandbox_row(&sandbox_id("used"))
        .await
        .unwrap()
        .spec_id;
    let seen = |found: &[SandboxOccupancy]| -> Vec<_> {
        let figures = found.iter().map(|it| (it.conversations, it.used_at));
        figures.collect()
    };
    let found = list_running(ports, "alice", &spec).await;
    assert_eq!(seen(&found), [(0, at(0)), (3, at(40))]);

    let fence = ports
        .start_queue
        .claim(&found[0].sandbox.host, at(31), at(90), ClaimLimit::tasks(9))
        .await
        .unwrap()[0]
        .fence;
    let begun = status_update(StartStatus::StartingConversation);
    let third = conversation(3, "alice", "used", at(50));
    let stored = ports
        .start_queue
        .begin_conversation(task_id(3), fence, &third, &begun, at(50));
    stored.await.unwrap();
    let found = list_running(ports, "alice", &spec).await;
    assert_eq!(
        seen(&found),
        [(0, at(0)), (3, at(50))],
        "a begun start counts only as its conversation"
    );
}

/// Concurrent starts never exceed the maximum of a shared sandbox.
pub async fn a_race_never_exceeds_the_capacity(ports: &StorePorts) {
    start_sandbox(ports, "s", "alice").await;
    ports
        .insert_conversation(&conversation(99, "alice", "s", at(1)))
        .await;
    let starts: Vec<_> = (1..=20).map(|n| start_in_shared(n, "s", 6)).collect();
    let answers = join_all(starts.iter().map(|it| ports.tasks.insert(it, &AMPLE_CAPS))).await;
    let (new, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(new.len(), 5);
    for answer in refused {
        assert_is!(answer, Err(StoreError::Full { limit: 6, .. }));
    }
}

/// A sandbox that does not run or belongs to another user is not shared, and is not resumed.
pub async fn only_running_sandboxes_are_shared(ports: &StorePorts) {
    ports.insert_sandbox("starting", "alice").await;
    start_sandbox(ports, "bobs", "bob").await;
    start_sandbox(ports, "paused", "alice").await;
    let (alice, paused) = (scope("alice"), sandbox_id("paused"));
    let pause =
        ports
            .sandboxes
            .set_desired(&alice, &paused, DesiredState::Paused, &AMPLE_CAPS, at(3));
    pause.await.unwrap();
    for (n, name) in [(1, "starting"), (2, "bobs"), (3, "paused"), (4, "nowhere")] {
        let answer = ports
            .tasks
            .insert(&start_in_shared(n, name, 20), &AMPLE_CAPS)
            .await;
        assert_is!(
            answer,
            Err(StoreError::NotFound {
                entity: Entity::Sandbox
            })
        );
    }
    let row = ports.sandbox_row(&paused).await.unwrap();
    assert_eq!(row.desired, DesiredState::Paused);
}

/// A named sandbox is resumed in the transaction of the task, or neither is committed.
pub async fn a_named_sandbox_is_resumed_with_the_task(ports: &StorePorts) {
    let alice = scope("alice");
    for name in ["paused", "other"] {
        start_sandbox(ports, name, "alice").await;
    }
    let paused = sandbox_id("paused");
    let pause =
        ports
            .sandboxes
            .set_desired(&alice, &paused, DesiredState::Paused, &AMPLE_CAPS, at(3));
    pause.await.unwrap();
    let one = SandboxCaps {
        per_user: 1,
        overall: 100,
    };
    let start = start_in(1, "alice", "paused", at(4));
    let answer = ports.tasks.insert(&start, &one).await;
    assert_is!(answer, Err(StoreError::CapReached(ReachedCap::PerUser(1))));
    let found = ports.tasks.find_many(&alice, &[task_id(1)]).await.unwrap();
    assert_eq!(found, [None]);
    let orphan = as_sub_conversation(start_in(2, "alice", "paused", at(4)), 77);
    let answer = ports.tasks.insert(&orphan, &AMPLE_CAPS).await;
    assert_is!(
        answer,
        Err(StoreError::NotFound {
            entity: Entity::ParentConversation
        })
    );
    let row = ports.sandbox_row(&paused).await.unwrap();
    assert_eq!(
        row.desired,
        DesiredState::Paused,
        "refused starts resume nothing"
    );

    assert_is!(
        ports.tasks.insert(&start, &AMPLE_CAPS).await,
        Ok(StartTaskInsertOutcome::New)
    );
    let row = ports.sandbox_row(&paused).await.unwrap();
    assert_eq!(
        (row.desired, row.status),
        (DesiredState::Running, SandboxStatus::Starting)
    );
    let other = start_in(3, "alice", "other", at(5));
    assert_is!(
        ports.tasks.insert(&other, &one).await,
        Ok(StartTaskInsertOutcome::New)
    );
    let row = ports.sandbox_row(&sandbox_id("other")).await.unwrap();
    assert_eq!(
        row.status,
        SandboxStatus::Running,
        "a sandbox that is up is unchanged"
    );
}

/// A sub-conversation begins only while its parent exists and belongs to the same user.
pub async fn a_sub_conversation_needs_its_parent(ports: &StorePorts) {
    start_sandbox(ports, "s", "alice").await;
    start_sandbox(ports, "bobs", "bob").await;
    for (n, owner, name) in [(1, "alice", "s"), (2, "bob", "bobs")] {
        ports
            .insert_conversation(&conversation(n, owner, name, at(1)))
            .await;
    }
    let foreign = as_sub_conversation(start_in(10, "alice", "s", at(2)), 2);
    let answer = ports.tasks.insert(&foreign, &AMPLE_CAPS).await;
    assert_is!(
        answer,
        Err(StoreError::NotFound {
            entity: Entity::ParentConversation
        })
    );

    let fence = ports
        .insert_and_claim_start(&as_sub_conversation(start_in(11, "alice", "s", at(2)), 1))
        .await
        .fence;
    let alice = scope("alice");
    let deleted = ports
        .conversations
        .delete(&alice, conversation_id(1), at(3));
    assert!(deleted.await.unwrap());
    let row = ports.sandbox_row(&sandbox_id("s")).await.unwrap();
    assert_eq!(
        row.desired,
        DesiredState::Running,
        "the sub-conversation needs the sandbox"
    );
    let mut part = conversation(11, "alice", "s", at(4));
    part.parent = Some(conversation_id(1));
    let begun = status_update(StartStatus::StartingConversation);
    let answer = ports
        .start_queue
        .begin_conversation(task_id(11), fence, &part, &begun, at(4));
    assert_is!(
        answer.await,
        Err(StoreError::NotFound {
            entity: Entity::ParentConversation
        })
    );
    assert!(ports.view(conversation_id(11)).await.is_none());

    let failed = status_update(StartStatus::Error);
    ports
        .start_queue
        .fail(task_id(11), fence, &failed, at(5))
        .await
        .unwrap();
    let row = ports.sandbox_row(&sandbox_id("s")).await.unwrap();
    assert_eq!(
        row.desired,
        DesiredState::Deleted,
        "no conversation needs the sandbox"
    );
}

/// The clock of the replica that deletes a conversation may be behind that of the replica that accepted the start.
pub async fn clock_skew_leaves_no_orphaned_sandbox(ports: &StorePorts) {
    start_sandbox(ports, "s", "alice").await;
    ports
        .insert_conversation(&conversation(1, "alice", "s", at(1)))
        .await;
    let start = start_in(10, "alice", "s", at(100));
    ports.insert_start(&start).await;
    let limit = ClaimLimit::tasks(1);
    let claimed = ports
        .start_queue
        .claim(&start.task.host, at(100), at(160), limit)
        .await;
    let fence = claimed.unwrap()[0].fence;
    let alice = scope("alice");
    let deleted = ports
        .conversations
        .delete(&alice, conversation_id(1), at(70));
    assert!(deleted.await.unwrap());
    let failed = status_update(StartStatus::Error);
    ports
        .start_queue
        .fail(task_id(10), fence, &failed, at(101))
        .await
        .unwrap();
    let row = ports.sandbox_row(&sandbox_id("s")).await.unwrap();
    assert_eq!(
        row.desired,
        DesiredState::Deleted,
        "no conversation needs the sandbox"
    );
}

/// A failed start deletes a named sandbox only if a deletion left it because of this start.
pub async fn a_named_sandbox_outlives_a_failed_start(ports: &StorePorts) {
    start_sandbox(ports, "s", "alice").await;
    ports
        .insert_conversation(&conversation(1, "alice", "s", at(1)))
        .await;
    let fence = ports
        .insert_and_claim_start(&start_in(10, "alice", "s", at(2)))
        .await
        .fence;
    let failed = status_update(StartStatus::Error);
    ports
        .start_queue
        .fail(task_id(10), fence, &failed, at(5))
        .await
        .unwrap();
    start_sandbox(ports, "empty", "alice").await;
    let fence = ports
        .insert_and_claim_start(&start_in(11, "alice", "empty", at(2)))
        .await
        .fence;
    ports
        .start_queue
        .fail(task_id(11), fence, &failed, at(5))
        .await
        .unwrap();
    for name in ["s", "empty"] {
        let row = ports.sandbox_row(&sandbox_id(name)).await.unwrap();
        assert_eq!(row.desired, DesiredState::Running, "{name}");
    }
}
