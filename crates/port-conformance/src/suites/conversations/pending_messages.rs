//! Conformance tests of `PendingMessageRepository`.

use domain::conversation::MessageInput;
use domain::conversation::pending::{
    EnqueueOutcome, MAX_PENDING_MESSAGES, MAX_START_TASK_NOTES, MessageTarget, NewPendingMessage,
};
use domain::coordination::idempotency::{IdempotencyCheck, IdempotentRequest, IdempotentResponse};
use domain::id::HostId;
use domain::sandbox::{DesiredState, SandboxFacts};
use domain::start_task::{ClaimLimit, StartStatus, StartTask};
use domain::user::scope::Scope;
use futures::future::join_all;
use serde_json::json;

use crate::StorePorts;
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, endpoints, host, sandbox_id, scope, start,
    start_in, status_update, task_id, user, uuid,
};

/// The two targets of conversation `n`: itself and its start task.
const TASK: fn(u64) -> MessageTarget = |n| MessageTarget::Task(task_id(n));
const CONVERSATION: fn(u64) -> MessageTarget = |n| MessageTarget::Conversation(conversation_id(n));

/// A message that was sent at second `n`.
pub fn message(n: u64, owner: &str, target: MessageTarget) -> NewPendingMessage {
    NewPendingMessage {
        id: uuid(n),
        owner: user(owner),
        target,
        message: MessageInput {
            role: "user".to_owned(),
            content: vec![json!({"type": "text", "text": format!("{n} \u{0} é")})],
            run: true,
        },
        created_at: at(i64::try_from(n).unwrap()),
        responses: Vec::new(),
    }
}

async fn queue(ports: &StorePorts, n: u64, target: MessageTarget) -> EnqueueOutcome {
    let message = message(n, "alice", target);
    ports.pending.enqueue(&message).await.expect("queue")
}

async fn waiting(ports: &StorePorts, n: u64) -> Vec<u64> {
    let found = ports.pending.list_waiting(conversation_id(n)).await;
    let number = |id| (0..1_000).find(|n| uuid(*n) == id);
    let found = found.expect("waiting").into_iter();
    found.filter_map(|it| number(it.id)).collect()
}

async fn list_deliverable(ports: &StorePorts) -> Vec<u64> {
    let found = ports.pending.list_deliverable(&host(), 9).await.unwrap();
    let number = |id| (0..1_000).find(|n| conversation_id(*n) == id);
    found.into_iter().filter_map(number).collect()
}

async fn start_sandbox(ports: &StorePorts, name: &str) {
    let facts = SandboxFacts::Running {
        endpoints: endpoints(1),
    };
    let id = sandbox_id(name);
    let recorded = ports
        .host_sandboxes
        .record_facts(&id, DesiredState::Running, &facts, at(1));
    assert!(recorded.await.expect("record"));
}

/// Stores conversation `n` in a running sandbox of its own.
async fn store_conversation(ports: &StorePorts, n: u64) {
    let name = format!("s{n}");
    ports.insert_sandbox(&name, "alice").await;
    start_sandbox(ports, &name).await;
    ports
        .insert_conversation(&conversation(n, "alice", &name, at(1)))
        .await;
}

/// Makes the leased start `n` store its conversation.
async fn begin(ports: &StorePorts, n: u64, fence: i64) {
    let row = conversation(n, "alice", &format!("s{n}"), at(2));
    let begun = status_update(StartStatus::StartingConversation);
    let begun = ports
        .start_queue
        .begin_conversation(task_id(n), fence, &row, &begun, at(2));
    begun.await.unwrap();
}

async fn end(ports: &StorePorts, n: u64, fence: i64) {
    let ready = status_update(StartStatus::Ready);
    let ready = ports.start_queue.advance(task_id(n), fence, &ready, at(3));
    ready.await.unwrap();
}

/// Makes start `n` READY.
async fn ready(ports: &StorePorts, n: u64) {
    let start = start(n, "alice", &format!("s{n}"), at(1));
    let fence = ports.insert_and_claim_start(&start).await.fence;
    begin(ports, n, fence).await;
    end(ports, n, fence).await;
}

/// A conversation and its start share one queue, in order of arrival, regardless of time stamps. Messages are stored
/// unchanged.
pub async fn messages_are_queued_in_order_of_arrival(ports: &StorePorts) {
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s1", at(0)))
        .await
        .fence;
    for (position, n, name) in [(1, 30, TASK(1)), (2, 20, CONVERSATION(1)), (3, 10, TASK(1))] {
        assert_eq!(
            queue(ports, n, name).await,
            EnqueueOutcome::Queued(position)
        );
    }
    assert_eq!(
        waiting(ports, 1).await,
        [0; 0],
        "the conversation does not exist yet"
    );
    begin(ports, 1, fence).await;
    assert_eq!(waiting(ports, 1).await, [30, 20, 10]);
    let found = ports
        .pending
        .list_waiting(conversation_id(1))
        .await
        .unwrap();
    assert_eq!(found[0].message, message(30, "alice", TASK(1)).message);
    assert_eq!(found[0].tried_at, None);
    ports.pending.complete_delivery(uuid(20)).await.unwrap();
    ports.pending.complete_delivery(uuid(20)).await.unwrap();
    assert_eq!(
        queue(ports, 40, CONVERSATION(1)).await,
        EnqueueOutcome::Queued(3)
    );
    assert_eq!(waiting(ports, 1).await, [30, 10, 40]);
}

/// The limit applies to both targets together. A delivered message makes room.
pub async fn the_queue_of_a_conversation_is_bounded(ports: &StorePorts) {
    ports.insert_start(&start(1, "alice", "s1", at(0))).await;
    store_conversation(ports, 2).await;
    for (n, position) in (1..).zip(1..=MAX_PENDING_MESSAGES) {
        let name = if n % 2 == 0 { TASK } else { CONVERSATION };
        assert_eq!(
            queue(ports, n, name(1)).await,
            EnqueueOutcome::Queued(position)
        );
    }
    for name in [TASK(1), CONVERSATION(1)] {
        assert_eq!(queue(ports, 50, name).await, EnqueueOutcome::Full);
    }
    assert_eq!(
        queue(ports, 51, CONVERSATION(2)).await,
        EnqueueOutcome::Queued(1)
    );
    ports.pending.complete_delivery(uuid(3)).await.unwrap();
    assert_eq!(
        queue(ports, 52, TASK(1)).await,
        EnqueueOutcome::Queued(MAX_PENDING_MESSAGES)
    );
}

/// Of many concurrent messages, one gets the last position.
pub async fn the_last_position_is_assigned_once(ports: &StorePorts) {
    store_conversation(ports, 1).await;
    for n in 1..MAX_PENDING_MESSAGES as u64 {
        queue(ports, n, CONVERSATION(1)).await;
    }
    let requests = (100..108).map(|n| queue(ports, n, CONVERSATION(1)));
    let given = join_all(requests).await;
    let last = |it: &&EnqueueOutcome| **it == EnqueueOutcome::Queued(MAX_PENDING_MESSAGES);
    assert_eq!(given.iter().filter(last).count(), 1, "{given:?}");
    assert_eq!(waiting(ports, 1).await.len(), MAX_PENDING_MESSAGES);
}

/// A target of another user is unknown. A failed start reports its cause, until another start creates the conversation.
pub async fn messages_need_a_visible_conversation(ports: &StorePorts) {
    for name in [TASK(1), CONVERSATION(1)] {
        assert_eq!(queue(ports, 1, name).await, EnqueueOutcome::Unknown);
    }
    store_conversation(ports, 2).await;
    ports.insert_start(&start(3, "alice", "own-3", at(0))).await;
    for name in [CONVERSATION(2), TASK(3), CONVERSATION(3)] {
        let queued = ports.pending.enqueue(&message(1, "bob", name)).await;
        assert_eq!(queued.unwrap(), EnqueueOutcome::Unknown);
    }
    let (host, limit) = (host(), ClaimLimit::tasks(1));
    let claimed = ports.start_queue.claim(&host, at(1), at(60), limit);
    let fence = claimed.await.unwrap()[0].fence;
    assert_eq!(queue(ports, 4, TASK(3)).await, EnqueueOutcome::Queued(1));
    let mut failed = status_update(StartStatus::Error);
    failed.detail = Some("no model".to_owned());
    let ended = ports.start_queue.fail(task_id(3), fence, &failed, at(2));
    ended.await.unwrap();
    for name in [TASK(3), CONVERSATION(3)] {
        let cause = Some("no model".to_owned());
        assert_eq!(queue(ports, 5, name).await, EnqueueOutcome::Failed(cause));
    }
    let mut again = start(6, "alice", "s6", at(3));
    again.task.conversation_id = conversation_id(3);
    ports.insert_start(&again).await;
    assert_eq!(
        queue(ports, 7, CONVERSATION(3)).await,
        EnqueueOutcome::Queued(2)
    );
    assert_eq!(queue(ports, 8, TASK(6)).await, EnqueueOutcome::Queued(3));
}

/// A conversation is deliverable if its start has ended and its sandbox on this host is RUNNING and desired to run.
/// Conversations with the latest attempts come last.
pub async fn deliverable_messages_are_listed(ports: &StorePorts) {
    for n in 1..=5 {
        store_conversation(ports, n).await;
        queue(ports, n, CONVERSATION(n)).await;
        queue(ports, n + 20, CONVERSATION(n)).await;
    }
    store_conversation(ports, 6).await;
    assert_eq!(list_deliverable(ports).await, [1, 2, 3, 4, 5]);
    let other = HostId::parse("host-2").unwrap();
    assert_eq!(ports.pending.list_deliverable(&other, 9).await.unwrap(), []);
    for (n, when) in [(2, 50), (1, 60)] {
        assert!(
            ports
                .pending
                .begin_delivery(uuid(n), None, at(when))
                .await
                .unwrap()
        );
    }
    assert_eq!(list_deliverable(ports).await, [3, 4, 5, 2, 1]);
    let two = ports.pending.list_deliverable(&host(), 2).await.unwrap();
    assert_eq!(two, [conversation_id(3), conversation_id(4)]);
    let (alice, id) = (scope("alice"), sandbox_id("s3"));
    let pause = ports
        .sandboxes
        .set_desired(&alice, &id, DesiredState::Paused, &AMPLE_CAPS, at(7));
    pause.await.unwrap();
    for n in [4, 24] {
        ports.pending.complete_delivery(uuid(n)).await.unwrap();
    }
    assert_eq!(list_deliverable(ports).await, [5, 2, 1]);
}

/// A message is not deliverable before its start is READY, even if the conversation exists.
pub async fn messages_wait_for_the_end_of_a_start(ports: &StorePorts) {
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s1", at(1)))
        .await
        .fence;
    queue(ports, 7, TASK(1)).await;
    start_sandbox(ports, "s1").await;
    assert_eq!(list_deliverable(ports).await, [0; 0]);
    begin(ports, 1, fence).await;
    assert_eq!(list_deliverable(ports).await, [0; 0]);
    end(ports, 1, fence).await;
    assert_eq!(list_deliverable(ports).await, [1]);
    assert_eq!(queue(ports, 8, TASK(1)).await, EnqueueOutcome::Queued(2));
    assert_eq!(waiting(ports, 1).await, [7, 8]);
}

/// One of several concurrent attempts begins; the others see that it did.
pub async fn one_of_many_begins_a_delivery(ports: &StorePorts) {
    store_conversation(ports, 1).await;
    queue(ports, 1, CONVERSATION(1)).await;
    let attempt = |last, when| ports.pending.begin_delivery(uuid(1), last, at(when));
    let begun = join_all((10..18).map(|when| attempt(None, when))).await;
    let first = begun.iter().position(|it| *it.as_ref().unwrap());
    let winners = begun.iter().filter(|it| *it.as_ref().unwrap()).count();
    assert_eq!(winners, 1, "{begun:?}");
    let tried = at(10 + i64::try_from(first.unwrap()).unwrap());
    let found = ports
        .pending
        .list_waiting(conversation_id(1))
        .await
        .unwrap();
    assert_eq!(found[0].tried_at, Some(tried));
    assert!(!attempt(None, 20).await.unwrap());
    assert!(!attempt(Some(at(99)), 20).await.unwrap());
    assert!(attempt(Some(tried), 20).await.unwrap());
    ports.pending.complete_delivery(uuid(1)).await.unwrap();
    assert!(!attempt(Some(at(20)), 21).await.unwrap());
}

async fn task(ports: &StorePorts, n: u64) -> StartTask {
    let found = ports.tasks.find_many(&Scope::System, &[task_id(n)]).await;
    found.unwrap().pop().flatten().expect("an existing task")
}

/// A dropped message is deleted, the messages behind it stay, and a note tells the owner. The number of notes is
/// limited.
pub async fn a_dropped_message_leaves_a_note(ports: &StorePorts) {
    ready(ports, 1).await;
    queue(ports, 1, TASK(1)).await;
    queue(ports, 2, TASK(1)).await;
    ports
        .pending
        .drop_with_note(uuid(1), "Too odd.")
        .await
        .unwrap();
    ports
        .pending
        .drop_with_note(uuid(1), "Again.")
        .await
        .unwrap();
    assert_eq!(waiting(ports, 1).await, [2]);
    let noted = task(ports, 1).await;
    assert_eq!(noted.notes, ["Too odd."]);
    assert_eq!(noted.detail.as_deref(), Some("Too odd."));
    for n in 3..3 + MAX_START_TASK_NOTES as u64 {
        queue(ports, n, TASK(1)).await;
        ports
            .pending
            .drop_with_note(uuid(n), "More.")
            .await
            .unwrap();
    }
    assert_eq!(task(ports, 1).await.notes.len(), MAX_START_TASK_NOTES);
    // Without a task there is no place for the note.
    store_conversation(ports, 2).await;
    queue(ports, 50, CONVERSATION(2)).await;
    ports
        .pending
        .drop_with_note(uuid(50), "Gone.")
        .await
        .unwrap();
    assert_eq!(waiting(ports, 2).await, [0; 0]);
}

/// Messages are deleted with their conversation, under both targets; those of other conversations stay.
pub async fn messages_are_deleted_with_their_conversation(ports: &StorePorts) {
    for n in [1, 2] {
        ready(ports, n).await;
    }
    for (n, name) in [(1, TASK(1)), (2, CONVERSATION(1)), (3, TASK(2))] {
        queue(ports, n, name).await;
    }
    let (alice, id) = (scope("alice"), conversation_id(1));
    let deleted = ports.conversations.delete(&alice, id, at(9));
    assert!(deleted.await.unwrap());
    for n in [1, 2] {
        assert!(
            !ports
                .pending
                .begin_delivery(uuid(n), None, at(9))
                .await
                .unwrap()
        );
    }
    assert_eq!(waiting(ports, 2).await, [3]);
    for name in [TASK(1), CONVERSATION(1)] {
        assert_eq!(queue(ports, 4, name).await, EnqueueOutcome::Unknown);
    }
}

/// Messages are deleted with the last start of their owner that could have created their conversation.
pub async fn messages_are_deleted_with_a_pruned_start(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for n in [1, 2] {
        let fence = ports
            .insert_and_claim_start(&start_in(n, "alice", "s", at(0)))
            .await
            .fence;
        queue(ports, n, TASK(n)).await;
        let failed = status_update(StartStatus::Error);
        let ended = ports.start_queue.fail(task_id(n), fence, &failed, at(1));
        ended.await.unwrap();
    }
    let mut again = start(3, "alice", "s3", at(2));
    again.task.conversation_id = conversation_id(2);
    // No test claims it.
    again.task.host = HostId::parse("elsewhere").unwrap();
    ports.insert_start(&again).await;
    ports.host_sandboxes.remove(&sandbox_id("s")).await.unwrap();
    assert_eq!(ports.start_queue.prune(at(50), 9).await.unwrap(), 2);
    assert!(
        !ports
            .pending
            .begin_delivery(uuid(1), None, at(9))
            .await
            .unwrap()
    );
    assert!(
        ports
            .pending
            .begin_delivery(uuid(2), None, at(9))
            .await
            .unwrap()
    );
    // A READY task leaves its conversation behind.
    ready(ports, 4).await;
    queue(ports, 4, TASK(4)).await;
    assert_eq!(ports.start_queue.prune(at(50), 9).await.unwrap(), 1);
    assert_eq!(waiting(ports, 4).await, [4]);
}

/// Pruning deletes the oldest messages first, up to the limit.
pub async fn old_messages_are_pruned(ports: &StorePorts) {
    store_conversation(ports, 1).await;
    for n in [4, 3, 2, 1] {
        queue(ports, n, CONVERSATION(1)).await;
    }
    assert_eq!(ports.pending.prune(at(4), 2).await.unwrap(), 2);
    assert_eq!(waiting(ports, 1).await, [4, 3]);
    assert_eq!(ports.pending.prune(at(4), 2).await.unwrap(), 1);
    assert_eq!(ports.pending.prune(at(4), 2).await.unwrap(), 0);
    assert_eq!(waiting(ports, 1).await, [4]);
}

/// The stored response is that of the assigned position. A repetition gets it even if the queue is full.
pub async fn a_repeated_message_is_queued_once(ports: &StorePorts) {
    store_conversation(ports, 1).await;
    let keyed = |n: u64, fingerprint: &str| {
        let mut message = message(n, "alice", CONVERSATION(1));
        let response = |position| IdempotentResponse {
            request: IdempotentRequest {
                owner: user("alice"),
                key: "k".to_owned(),
                fingerprint: fingerprint.to_owned(),
                since: at(0),
            },
            response: format!("{n} is {position}"),
            at: at(1),
        };
        message.responses = (1..=MAX_PENDING_MESSAGES).map(response).collect();
        message
    };
    queue(ports, 1, CONVERSATION(1)).await;
    let first = ports.pending.enqueue(&keyed(2, "a")).await.unwrap();
    assert_eq!(first, EnqueueOutcome::Queued(2));
    for n in 10..18 {
        queue(ports, n, CONVERSATION(1)).await;
    }
    let again = ports.pending.enqueue(&keyed(3, "a")).await.unwrap();
    let same = IdempotencyCheck::Replay("2 is 2".to_owned());
    assert_eq!(again, EnqueueOutcome::KeyUsed(same));
    let other = ports.pending.enqueue(&keyed(4, "b")).await.unwrap();
    assert_eq!(other, EnqueueOutcome::KeyUsed(IdempotencyCheck::Mismatch));
    assert_eq!(waiting(ports, 1).await.len(), MAX_PENDING_MESSAGES);
}

/// Generates the conformance tests of `PendingMessageRepository`. `$fresh` is a future of a value that derefs to
/// [`StorePorts`].
#[macro_export]
macro_rules! pending_message_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (conversations::pending_messages),
            $fresh,
            [
                messages_are_queued_in_order_of_arrival,
                the_queue_of_a_conversation_is_bounded,
                the_last_position_is_assigned_once,
                messages_need_a_visible_conversation,
                deliverable_messages_are_listed,
                messages_wait_for_the_end_of_a_start,
                one_of_many_begins_a_delivery,
                a_dropped_message_leaves_a_note,
                messages_are_deleted_with_their_conversation,
                messages_are_deleted_with_a_pruned_start,
                old_messages_are_pruned,
                a_repeated_message_is_queued_once,
            ]
        );
    };
}
