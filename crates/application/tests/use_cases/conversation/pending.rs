//! Pending messages: each is delivered once, in order, whatever happens in between.

use std::time::Duration;

use application::pending::QueuedMessage;
use application::{AppError, Policy};
use domain::conversation::ExecutionStatus;
use domain::conversation::pending::{MessageTarget, PendingMessageRepository};
use domain::error::{Classify, ErrorClass};
use domain::id::{ConversationId, StartTaskId};
use domain::sandbox::SandboxStatus;
use domain::start_task::{StartStatus, StartTask};
use store_memory::FakeBehavior;

use crate::fixture::{Fixture, alice, alice_scope, clock, start_input, user_message, wait_for};

async fn queue(
    fixture: &Fixture,
    target: MessageTarget,
    text: &str,
) -> Result<QueuedMessage, AppError> {
    fixture
        .app
        .pending
        .enqueue(&alice(), target, user_message(text))
        .await
}

/// A READY conversation without later messages.
async fn talk(fixture: &Fixture) -> StartTask {
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready);
    task
}

/// Messages after its first one.
fn said(fixture: &Fixture, id: ConversationId) -> Vec<String> {
    let messages = fixture.agents.messages().into_iter();
    let its = messages.filter(|(to, _)| *to == id);
    its.map(|(_, it)| it.content[0]["text"].as_str().unwrap_or("").to_owned())
        .collect()
}

/// Waits until no message is pending.
async fn nothing_waits(fixture: &Fixture, id: ConversationId) {
    wait_for(|| async {
        let waiting = fixture.store.list_waiting(id).await.expect("readable");
        waiting.is_empty().then_some(())
    })
    .await;
}

/// Longer than any pause or interval.
async fn wait_for_passes() {
    tokio::time::sleep(Duration::from_secs(1_000)).await;
}

async fn pause(fixture: &Fixture, task: &StartTask) {
    let paused = fixture
        .app
        .sandboxes
        .pause(&alice_scope(), &task.sandbox_id)
        .await;
    paused.expect("paused");
    wait_for(|| async {
        let row = fixture.sandbox(&task.sandbox_id).await?;
        (row.status == SandboxStatus::Paused).then_some(())
    })
    .await;
}

async fn resume(fixture: &Fixture, task: &StartTask) {
    let resumed = fixture
        .app
        .sandboxes
        .resume(&alice_scope(), &task.sandbox_id)
        .await;
    resumed.expect("resumed");
}

#[tokio::test(start_paused = true)]
async fn messages_during_a_start_follow_its_first_message_in_order() {
    let fixture = Fixture::new().await;
    let task = fixture.start(start_input(|_| {})).await;
    let id = task.conversation_id;
    for (position, text) in ["one", "two", "three"].into_iter().enumerate() {
        let target = if position == 1 {
            MessageTarget::Conversation(id)
        } else {
            MessageTarget::Task(task.id)
        };
        let placed = queue(&fixture, target, text).await.expect("queued");
        assert_eq!(placed.position, position + 1);
    }
    assert_eq!(
        fixture.wait_until_ended(&task).await.status,
        StartStatus::Ready
    );
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id), ["one", "two", "three"]);
    let launched = fixture.agents.launches();
    assert_eq!(launched[0].initial_message, Some(user_message("hi")));
    // A ready conversation gets messages at once.
    queue(&fixture, MessageTarget::Task(task.id), "four")
        .await
        .expect("queued");
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id).last().map(String::as_str), Some("four"));
}

#[tokio::test(start_paused = true)]
async fn a_paused_sandbox_gets_its_messages_after_a_resume() {
    let fixture = Fixture::new().await;
    let task = talk(&fixture).await;
    let id = task.conversation_id;
    pause(&fixture, &task).await;
    let placed = queue(&fixture, MessageTarget::Conversation(id), "later").await;
    assert_eq!(placed.expect("queued").position, 1);
    wait_for_passes().await;
    assert_eq!(said(&fixture, id), [""; 0]);
    resume(&fixture, &task).await;
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id), ["later"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_with_a_lost_response_is_not_sent_twice() {
    let fixture = Fixture::new().await;
    let id = talk(&fixture).await.conversation_id;
    fixture.agents.lose_message_responses(true);
    for text in ["same", "same", "other"] {
        queue(&fixture, MessageTarget::Conversation(id), text)
            .await
            .expect("queued");
    }
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id), ["same", "same", "other"]);
}

/// An agent server takes no message during a step of its agent, and all of them after it.
#[tokio::test(start_paused = true)]
async fn a_late_message_is_not_sent_twice() {
    for (status, step) in [
        (ExecutionStatus::Running, 300),
        // It starts its agent's tools.
        (ExecutionStatus::Idle, 90),
    ] {
        let fixture = Fixture::new().await;
        let id = talk(&fixture).await.conversation_id;
        fixture
            .agents
            .change(id, |it| it.execution_status = Some(status));
        fixture.agents.hold_messages();
        for text in ["one", "two"] {
            queue(&fixture, MessageTarget::Conversation(id), text)
                .await
                .expect("queued");
        }
        tokio::time::sleep(Duration::from_secs(step)).await;
        fixture.agents.accept_messages();
        nothing_waits(&fixture, id).await;
        assert_eq!(said(&fixture, id), ["one", "two"], "{status:?}");
    }
}

/// Also by a process that does not know the outcome.
#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_after_a_crash_is_not_sent_twice() {
    let fixture = Fixture::new().await;
    let id = talk(&fixture).await.conversation_id;
    fixture.agents.hold_messages();
    queue(&fixture, MessageTarget::Conversation(id), "once")
        .await
        .expect("queued");
    wait_for(|| async { (fixture.agents.calls().send == 1).then_some(()) }).await;
    let fixture = fixture.kill_and_restart().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    fixture.agents.accept_messages();
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id), ["once"]);
}

/// The service does not wait forever for a message that never arrived.
#[tokio::test(start_paused = true)]
async fn a_lost_message_is_sent_again() {
    let fixture = Fixture::new().await;
    let id = talk(&fixture).await.conversation_id;
    fixture.agents.hold_messages();
    queue(&fixture, MessageTarget::Conversation(id), "once")
        .await
        .expect("queued");
    wait_for(|| async { (fixture.agents.calls().send == 1).then_some(()) }).await;
    fixture.agents.drop_messages();
    // Its agent runs all the time.
    wait_for_passes().await;
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id), ["once"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_delivery_repeats_nothing() {
    let fixture = Fixture::new().await;
    let id = talk(&fixture).await.conversation_id;
    fixture.agents.lose_message_responses(true);
    queue(&fixture, MessageTarget::Conversation(id), "once")
        .await
        .expect("queued");
    wait_for(|| async { (said(&fixture, id).len() == 1).then_some(()) }).await;
    let fixture = fixture.kill_and_restart().await;
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id), ["once"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_delivery_loses_nothing() {
    let fixture = Fixture::new().await;
    let task = talk(&fixture).await;
    let id = task.conversation_id;
    pause(&fixture, &task).await;
    let placed = queue(&fixture, MessageTarget::Conversation(id), "once").await;
    let message = placed.expect("queued").id;
    let begun = fixture
        .store
        .begin_delivery(message, None, clock().now())
        .await;
    assert!(begun.expect("stored"));
    let fixture = fixture.kill_and_restart().await;
    resume(&fixture, &task).await;
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id), ["once"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_agent_server_gets_its_messages_after_recovery() {
    for behavior in [
        FakeBehavior::Unreachable,
        FakeBehavior::Rejecting(503),
        FakeBehavior::Rejecting(409),
    ] {
        let fixture = Fixture::new().await;
        let task = talk(&fixture).await;
        let id = task.conversation_id;
        fixture.agents.set_behavior(behavior);
        queue(&fixture, MessageTarget::Conversation(id), "one")
            .await
            .expect("queued");
        queue(&fixture, MessageTarget::Conversation(id), "two")
            .await
            .expect("queued");
        wait_for_passes().await;
        let waiting = fixture.store.list_waiting(id).await.expect("readable");
        assert_eq!(waiting.len(), 2, "{behavior:?}");
        let calls = fixture.agents.calls();
        assert!(calls.send <= 1, "looked for before it is said again");
        // A pause doubles: seconds at first, minutes later.
        assert!((2..30).contains(&(calls.send + calls.events)), "{calls:?}");
        fixture.agents.set_behavior(FakeBehavior::Responsive);
        let up = |it: domain::sandbox::Sandbox| it.status == SandboxStatus::Running;
        if !fixture.sandbox(&task.sandbox_id).await.is_some_and(up) {
            resume(&fixture, &task).await;
        }
        nothing_waits(&fixture, id).await;
        assert_eq!(said(&fixture, id), ["one", "two"], "{behavior:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanently_refused_message_does_not_block_later_ones() {
    let fixture = Fixture::new().await;
    let task = talk(&fixture).await;
    let id = task.conversation_id;
    fixture.agents.set_behavior(FakeBehavior::Rejecting(422));
    queue(&fixture, MessageTarget::Conversation(id), "odd")
        .await
        .expect("queued");
    nothing_waits(&fixture, id).await;
    let notes = fixture.current_task(&task).await.notes;
    assert!(notes.iter().any(|note| note.contains("422")), "{notes:?}");
    fixture.agents.set_behavior(FakeBehavior::Responsive);
    queue(&fixture, MessageTarget::Conversation(id), "fine")
        .await
        .expect("queued");
    nothing_waits(&fixture, id).await;
    assert_eq!(said(&fixture, id), ["fine"]);
}

fn shared(policy: &mut Policy) {
    policy.is_host_shared = true;
}

#[tokio::test(start_paused = true)]
async fn processes_of_a_host_deliver_a_message_once() {
    let one = Fixture::with_policy(shared).await;
    let two = one.replica(shared);
    let id = talk(&one).await.conversation_id;
    let texts: Vec<_> = (0..10).map(|n| n.to_string()).collect();
    for (n, text) in texts.iter().enumerate() {
        let fixture = if n % 2 == 0 { &one } else { &two };
        queue(fixture, MessageTarget::Conversation(id), text)
            .await
            .expect("queued");
    }
    nothing_waits(&one, id).await;
    assert_eq!(said(&one, id), texts);
}

#[tokio::test(start_paused = true)]
async fn undeliverable_messages_are_refused() {
    let fixture = Fixture::without_settings(|_| {});
    let unknown = [
        MessageTarget::Task(StartTaskId::new(uuid::Uuid::from_u128(1))),
        MessageTarget::Conversation(ConversationId::new(uuid::Uuid::from_u128(1))),
    ];
    for target in unknown {
        let refused = queue(&fixture, target, "x").await.expect_err("refused");
        assert_eq!(refused.class(), ErrorClass::NotFound);
    }
    // Without a model no start succeeds.
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Error);
    let refused = queue(&fixture, MessageTarget::Task(task.id), "x").await;
    let refused = refused.expect_err("refused");
    assert_eq!(refused.class(), ErrorClass::Conflict);
    let cause = task.detail.expect("a cause");
    assert!(refused.public().contains(&cause), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_messages() {
    let fixture = Fixture::new().await;
    let task = talk(&fixture).await;
    pause(&fixture, &task).await;
    let target = MessageTarget::Task(task.id);
    for n in 1..=10 {
        let placed = queue(&fixture, target, "x").await.expect("room");
        assert_eq!(placed.position, n);
    }
    let refused = queue(&fixture, target, "x").await.expect_err("full");
    assert_eq!(refused.class(), ErrorClass::RateLimited);
    assert_eq!(
        refused.public(),
        "Too many pending messages. Maximum 10 messages per conversation."
    );
}

/// Its call is over and its outcome unknown: the agent server may be starting the agent's tools.
#[tokio::test(start_paused = true)]
async fn deliveries_of_other_processes_are_left_alone_until_they_end() {
    let fixture = Fixture::with_policy(shared).await;
    let task = talk(&fixture).await;
    let id = task.conversation_id;
    pause(&fixture, &task).await;
    let placed = queue(&fixture, MessageTarget::Conversation(id), "once").await;
    let a_moment_ago = clock().now().minus(Duration::from_secs(100));
    let begun = fixture
        .store
        .begin_delivery(placed.expect("queued").id, None, a_moment_ago)
        .await;
    assert!(begun.expect("stored"));
    resume(&fixture, &task).await;
    // The clock of the service stands still.
    wait_for_passes().await;
    assert_eq!(said(&fixture, id), [""; 0]);
}
