//! Conformance tests of `ConversationRepository::delete` and its consequences, and `ConversationDeletionRepository`.

use domain::conversation::{Conversation, ConversationReport, PendingAgentDeletion};
use domain::error::StoreError;
use domain::event::{AppendOutcome, EventFilter};
use domain::id::ConversationId;
use domain::sandbox::{DesiredState, SandboxFacts};
use domain::start_task::{ClaimLimit, StartStatus, StartTaskInsertOutcome};
use domain::user::scope::Scope;

use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, endpoints, event, sandbox_id, scope, start,
    start_in, status_update, task_id,
};
use crate::{StorePorts, assert_is};

async fn delete(ports: &StorePorts, id: ConversationId) -> bool {
    let deleted = ports.conversations.delete(&scope("alice"), id, at(9)).await;
    deleted.expect("delete")
}

async fn append(ports: &StorePorts, sandbox: &str, id: ConversationId) -> AppendOutcome {
    let events = [event("e", "MessageEvent", at(1))];
    let nothing = ConversationReport::default();
    let stored = ports
        .events
        .append(&sandbox_id(sandbox), id, &events, &nothing, at(1))
        .await;
    stored.expect("append")
}

async fn desired(ports: &StorePorts, sandbox: &str) -> DesiredState {
    let row = ports.sandbox_row(&sandbox_id(sandbox)).await;
    row.expect("an existing sandbox").desired
}

async fn list_pending_agent_deletions(ports: &StorePorts) -> Vec<PendingAgentDeletion> {
    ports
        .conversation_deletions
        .list_pending_agent_deletions(10)
        .await
        .expect("forgotten")
}

async fn run(ports: &StorePorts, sandbox: &str) {
    let running = SandboxFacts::Running {
        endpoints: endpoints(8000),
    };
    let known = ports
        .host_sandboxes
        .record_facts(&sandbox_id(sandbox), DesiredState::Running, &running, at(1))
        .await;
    assert!(known.expect("record"));
}

fn part(n: u64, of: u64, sandbox: &str) -> Conversation {
    Conversation {
        parent: Some(conversation_id(of)),
        ..conversation(n, "alice", sandbox, at(0))
    }
}

/// A user whose start with the same id failed keeps the failed task.
pub async fn a_failed_start_of_another_user_stays(ports: &StorePorts) {
    for (n, owner, end) in [
        (1, "bob", StartStatus::Error),
        (2, "alice", StartStatus::Ready),
    ] {
        let mut new = start(n, owner, &format!("of-{owner}"), at(0));
        new.task.conversation_id = conversation_id(9);
        let fence = ports.insert_and_claim_start(&new).await.fence;
        let begun = status_update(StartStatus::StartingConversation);
        let row = conversation(9, owner, &format!("of-{owner}"), at(0));
        let id = new.task.id;
        ports
            .start_queue
            .begin_conversation(id, fence, &row, &begun, at(1))
            .await
            .unwrap();
        ports
            .start_queue
            .advance(id, fence, &status_update(end), at(2))
            .await
            .unwrap();
    }
    assert!(delete(ports, conversation_id(9)).await);
    let ids = [task_id(1), task_id(2)];
    let left = ports.tasks.find_many(&Scope::System, &ids).await.unwrap();
    assert_eq!(
        left[0].as_ref().map(|it| it.status),
        Some(StartStatus::Error)
    );
    assert_eq!(left[1], None);
}

/// A deletion includes sub-conversations of any depth and events. A deleted conversation cannot be deleted again.
pub async fn sub_conversations_are_deleted_with_their_parent(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let root = ports
        .insert_conversation(&conversation(1, "alice", "s", at(0)))
        .await;
    for (n, of) in [(2, 1), (3, 2)] {
        ports.insert_conversation(&part(n, of, "s")).await;
        append(ports, "s", conversation_id(n)).await;
    }
    assert!(delete(ports, root).await);
    assert!(!delete(ports, root).await);
    for n in 1..=3 {
        let id = conversation_id(n);
        assert_eq!(ports.view(id).await, None, "{n}");
        let count = ports
            .events
            .count(&Scope::System, id, &EventFilter::default())
            .await;
        assert_eq!(count.unwrap(), 0);
        assert_eq!(append(ports, "s", id).await, AppendOutcome::Deleted);
    }
    assert!(
        !delete(ports, conversation_id(7)).await,
        "an unknown conversation"
    );
}

/// After a deletion, late reports are dropped, and the id can be neither adopted nor started, also not by another user.
pub async fn deleted_messages_stay_deleted(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let row = conversation(1, "alice", "s", at(0));
    let id = ports.insert_conversation(&row).await;
    ports
        .insert_conversation(&conversation(2, "alice", "s", at(0)))
        .await;
    assert!(delete(ports, id).await);
    assert_eq!(append(ports, "s", id).await, AppendOutcome::Deleted);
    let adopted = ports.conversation_reports.adopt(&row).await.unwrap();
    assert_eq!(adopted, AppendOutcome::Deleted);
    for new in [
        start(1, "alice", "new", at(3)),
        start_in(1, "alice", "s", at(3)),
        start(1, "bob", "new", at(3)),
    ] {
        let inserted = ports.tasks.insert(&new, &AMPLE_CAPS).await;
        assert_is!(inserted, Err(StoreError::Conflict { .. }));
    }
    assert_eq!(ports.sandbox_row(&sandbox_id("new")).await, None);
    assert_eq!(ports.view(id).await, None);
}

/// A sandbox without other conversations is marked for deletion, and no agent deletion is pending.
pub async fn an_unneeded_sandbox_is_deleted_too(ports: &StorePorts) {
    for id in ["s", "t"] {
        ports.insert_sandbox(id, "alice").await;
        run(ports, id).await;
    }
    let root = ports
        .insert_conversation(&conversation(1, "alice", "s", at(0)))
        .await;
    ports.insert_conversation(&part(2, 1, "s")).await;
    ports.insert_conversation(&part(3, 1, "t")).await;
    assert!(delete(ports, root).await);
    assert_eq!(desired(ports, "s").await, DesiredState::Deleted);
    assert_eq!(desired(ports, "t").await, DesiredState::Deleted);
    assert_eq!(list_pending_agent_deletions(ports).await, []);
}

/// A sandbox with another conversation stays, and one agent deletion is pending.
pub async fn a_shared_sandbox_stays_with_a_pending_deletion(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    run(ports, "s").await;
    for n in [1, 2] {
        ports
            .insert_conversation(&conversation(n, "alice", "s", at(0)))
            .await;
    }
    assert!(delete(ports, conversation_id(1)).await);
    assert_eq!(desired(ports, "s").await, DesiredState::Running);
    let entry = PendingAgentDeletion {
        id: conversation_id(1),
        sandbox_id: sandbox_id("s"),
    };
    assert_eq!(list_pending_agent_deletions(ports).await, [entry]);
    ports
        .conversation_deletions
        .complete_agent_deletion(conversation_id(1))
        .await
        .unwrap();
    assert_eq!(list_pending_agent_deletions(ports).await, []);
    assert_eq!(
        append(ports, "s", conversation_id(1)).await,
        AppendOutcome::Deleted
    );
}

/// A sandbox with an unfinished start stays, too; a finished start does not keep it.
pub async fn a_sandbox_that_a_start_needs_stays(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    ports
        .insert_conversation(&conversation(1, "alice", "s", at(0)))
        .await;
    ports.insert_start(&start_in(2, "alice", "s", at(0))).await;
    assert!(delete(ports, conversation_id(1)).await);
    assert_eq!(desired(ports, "s").await, DesiredState::Running);

    let claimed = ports
        .start_queue
        .claim(
            &crate::fixtures::host(),
            at(1),
            at(60),
            ClaimLimit::tasks(1),
        )
        .await
        .unwrap();
    let begun = ports
        .start_queue
        .begin_conversation(
            task_id(2),
            claimed[0].fence,
            &conversation(2, "alice", "s", at(2)),
            &status_update(StartStatus::StartingConversation),
            at(2),
        )
        .await;
    begun.unwrap();
    ports
        .start_queue
        .advance(
            task_id(2),
            claimed[0].fence,
            &status_update(StartStatus::Ready),
            at(3),
        )
        .await
        .unwrap();
    assert!(delete(ports, conversation_id(2)).await);
    assert_eq!(desired(ports, "s").await, DesiredState::Deleted);
    // The READY task was deleted with its conversation.
    let found = ports.tasks.find_many(&scope("alice"), &[task_id(2)]).await;
    assert_eq!(found.unwrap(), [None]);
}

/// An unfinished start of a deleted conversation ends in ERROR and loses its secrets; its worker's writes are stale.
pub async fn an_unfinished_start_ends_with_its_conversation(ports: &StorePorts) {
    let claimed = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await;
    let status = StartStatus::StartingConversation;
    ports
        .start_queue
        .begin_conversation(
            task_id(1),
            claimed.fence,
            &conversation(1, "alice", "s", at(2)),
            &status_update(status),
            at(2),
        )
        .await
        .unwrap();
    assert!(delete(ports, conversation_id(1)).await);
    let found = ports.tasks.find_many(&scope("alice"), &[task_id(1)]).await;
    let task = found.unwrap().remove(0).expect("an existing task");
    assert_eq!((task.status, task.updated_at), (StartStatus::Error, at(9)));
    assert!(task.detail.is_some());
    assert_eq!(task.sealed_secrets, None);
    assert_eq!(desired(ports, "s").await, DesiredState::Deleted);
    for status in [StartStatus::Ready, StartStatus::Error] {
        let late = ports
            .start_queue
            .advance(task_id(1), claimed.fence, &status_update(status), at(10))
            .await;
        assert_is!(late, Err(StoreError::Stale { .. }));
    }
    assert_is!(
        ports
            .start_queue
            .renew(task_id(1), claimed.fence, at(99))
            .await,
        Err(StoreError::Stale { .. })
    );
    let host = crate::fixtures::host();
    let nothing = ports
        .start_queue
        .claim(&host, at(99), at(100), ClaimLimit::tasks(9))
        .await;
    assert_eq!(nothing.unwrap(), []);
}

/// Other conversations, users and sandboxes are unaffected. A cycle of parents terminates.
pub async fn others_are_unaffected(ports: &StorePorts) {
    for (id, owner) in [("s", "alice"), ("b", "bob"), ("e", "alice")] {
        ports.insert_sandbox(id, owner).await;
    }
    for (n, of) in [(1, 2), (2, 1)] {
        ports.insert_conversation(&part(n, of, "s")).await;
    }
    let bobs = Conversation {
        parent: Some(conversation_id(1)),
        ..conversation(3, "bob", "b", at(0))
    };
    ports.insert_conversation(&bobs).await;
    append(ports, "b", bobs.id).await;
    let before = ports.view(bobs.id).await;
    let inserted = ports
        .tasks
        .insert(&start(4, "alice", "n", at(0)), &AMPLE_CAPS)
        .await;
    assert_eq!(inserted.unwrap(), StartTaskInsertOutcome::New);
    assert!(delete(ports, conversation_id(1)).await);
    assert_eq!(ports.view(conversation_id(2)).await, None);
    assert_eq!(ports.view(bobs.id).await, before);
    let events = ports
        .events
        .count(&scope("bob"), bobs.id, &EventFilter::default())
        .await;
    assert_eq!(events.unwrap(), 1);
    for (sandbox, expected) in [
        ("s", DesiredState::Deleted),
        ("b", DesiredState::Running),
        ("e", DesiredState::Running),
        ("n", DesiredState::Running),
    ] {
        assert_eq!(desired(ports, sandbox).await, expected, "{sandbox}");
    }
    let task = ports.tasks.find_many(&scope("alice"), &[task_id(4)]).await;
    assert!(task.unwrap()[0].is_some());
}

/// Pending deletions are listed oldest first, up to the limit, while their sandbox runs. They are deleted with their
/// sandbox.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
pub async fn pending_deletions_are_listed_while_sandboxes_run(ports: &StorePorts) {
    for sandbox in ["s", "t"] {
        ports.insert_sandbox(sandbox, "alice").await;
    }
    for (n, sandbox) in [(1, "s"), (2, "s"), (3, "s"), (4, "t"), (5, "t")] {
        ports
            .insert_conversation(&conversation(n, "alice", sandbox, at(0)))
            .await;
    }
    for (n, when) in [(4, 1), (2, 2), (1, 3)] {
        let deleted = ports
            .conversations
            .delete(&scope("alice"), conversation_id(n), at(when))
            .await;
        assert!(deleted.unwrap());
    }
    assert_eq!(
        list_pending_agent_deletions(ports).await,
        [],
        "no sandbox runs"
    );
    for sandbox in ["s", "t"] {
        run(ports, sandbox).await;
    }
    let ids: Vec<_> = list_pending_agent_deletions(ports)
        .await
        .into_iter()
        .map(|it| it.id)
        .collect();
    assert_eq!(ids, [4, 2, 1].map(conversation_id));
    assert_eq!(
        ports
            .conversation_deletions
            .list_pending_agent_deletions(1)
            .await
            .unwrap()
            .len(),
        1
    );
    let id = sandbox_id("t");
    ports
        .sandboxes
        .set_desired(
            &scope("alice"),
            &id,
            DesiredState::Paused,
            &AMPLE_CAPS,
            at(4),
        )
        .await
        .unwrap();
    ports
        .host_sandboxes
        .record_facts(&id, DesiredState::Paused, &SandboxFacts::Paused, at(4))
        .await
        .unwrap();
    let ids: Vec<_> = list_pending_agent_deletions(ports)
        .await
        .into_iter()
        .map(|it| it.id)
        .collect();
    assert_eq!(ids, [2, 1].map(conversation_id));
    assert!(ports.host_sandboxes.remove(&sandbox_id("s")).await.unwrap());
    assert_eq!(list_pending_agent_deletions(ports).await, []);
}
