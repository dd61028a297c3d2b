//! Messages that are said before a conversation can hear them: each is said once, in its turn, whatever happens between.

use std::time::Duration;

use application::pending::QueuedMessage;
use application::{AppError, Policy};
use domain::conversation::ExecutionStatus;
use domain::error::{Classify, ErrorClass};
use domain::id::{ConversationId, StartTaskId};
use domain::pending::{MessageTarget, PendingMessageRepository};
use domain::sandbox::SandboxStatus;
use domain::start_task::{StartStatus, StartTask};
use store_memory::FakeBehavior;

use crate::world::{World, alice, clock, input, mine, say, until};

async fn queue(world: &World, target: MessageTarget, text: &str) -> Result<QueuedMessage, AppError> {
    world.app.pending.enqueue(&alice(), target, say(text)).await
}

/// A conversation that is READY, and nothing was said to it later.
async fn talk(world: &World) -> StartTask {
    let task = world.started(input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready);
    task
}

/// What was said to it after its first message.
fn said(world: &World, id: ConversationId) -> Vec<String> {
    let messages = world.agents.messages().into_iter();
    let its = messages.filter(|(to, _)| *to == id);
    its.map(|(_, it)| it.content[0]["text"].as_str().unwrap_or("").to_owned())
        .collect()
}

/// Nothing waits any more.
async fn nothing_waits(world: &World, id: ConversationId) {
    until(|| async {
        let waiting = world.store.list_waiting(id).await.expect("readable");
        waiting.is_empty().then_some(())
    })
    .await;
}

/// Much more than any pause or interval.
async fn a_while() {
    tokio::time::sleep(Duration::from_secs(1_000)).await;
}

async fn pause(world: &World, task: &StartTask) {
    let paused = world.app.sandboxes.pause(&mine(), &task.sandbox_id).await;
    paused.expect("paused");
    until(|| async {
        let row = world.sandbox(&task.sandbox_id).await?;
        (row.status == SandboxStatus::Paused).then_some(())
    })
    .await;
}

async fn resume(world: &World, task: &StartTask) {
    let resumed = world.app.sandboxes.resume(&mine(), &task.sandbox_id).await;
    resumed.expect("resumed");
}

#[tokio::test(start_paused = true)]
async fn what_is_said_during_a_start_comes_after_its_first_message_in_order() {
    let world = World::new().await;
    let task = world.start(input(|_| {})).await;
    let id = task.conversation_id;
    for (position, text) in ["one", "two", "three"].into_iter().enumerate() {
        let target = if position == 1 {
            MessageTarget::Conversation(id)
        } else {
            MessageTarget::Task(task.id)
        };
        let placed = queue(&world, target, text).await.expect("queued");
        assert_eq!(placed.position, position + 1);
    }
    assert_eq!(world.ended(&task).await.status, StartStatus::Ready);
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id), ["one", "two", "three"]);
    let launched = world.agents.launches();
    assert_eq!(launched[0].initial_message, Some(say("hi")));
    // Once it can hear, there is no waiting.
    queue(&world, MessageTarget::Task(task.id), "four")
        .await
        .expect("queued");
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id).last().map(String::as_str), Some("four"));
}

#[tokio::test(start_paused = true)]
async fn a_paused_sandbox_hears_when_it_runs_again() {
    let world = World::new().await;
    let task = talk(&world).await;
    let id = task.conversation_id;
    pause(&world, &task).await;
    let placed = queue(&world, MessageTarget::Conversation(id), "later").await;
    assert_eq!(placed.expect("queued").position, 1);
    a_while().await;
    assert_eq!(said(&world, id), [""; 0]);
    resume(&world, &task).await;
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id), ["later"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_answer_is_lost_is_not_said_twice() {
    let world = World::new().await;
    let id = talk(&world).await.conversation_id;
    world.agents.lose_answers_to_messages(true);
    for text in ["same", "same", "other"] {
        queue(&world, MessageTarget::Conversation(id), text)
            .await
            .expect("queued");
    }
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id), ["same", "same", "other"]);
}

/// An agent server takes no message while its agent is at a step, and takes all that were sent once the step is over.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_taken_late_is_not_said_twice() {
    for (status, step) in [
        (ExecutionStatus::Running, 300),
        // It starts the tools of its agent.
        (ExecutionStatus::Idle, 90),
    ] {
        let world = World::new().await;
        let id = talk(&world).await.conversation_id;
        world
            .agents
            .change(id, |it| it.execution_status = Some(status));
        world.agents.hold_messages();
        for text in ["one", "two"] {
            queue(&world, MessageTarget::Conversation(id), text)
                .await
                .expect("queued");
        }
        tokio::time::sleep(Duration::from_secs(step)).await;
        world.agents.take_messages();
        nothing_waits(&world, id).await;
        assert_eq!(said(&world, id), ["one", "two"], "{status:?}");
    }
}

/// Also by a life that knows nothing of what came of it.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_taken_after_a_crash_is_not_said_twice() {
    let world = World::new().await;
    let id = talk(&world).await.conversation_id;
    world.agents.hold_messages();
    queue(&world, MessageTarget::Conversation(id), "once")
        .await
        .expect("queued");
    until(|| async { (world.agents.calls().send == 1).then_some(()) }).await;
    let world = world.killed().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    world.agents.take_messages();
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id), ["once"]);
}

/// What never got there is not waited for for ever.
#[tokio::test(start_paused = true)]
async fn a_message_that_got_lost_on_its_way_is_said_again() {
    let world = World::new().await;
    let id = talk(&world).await.conversation_id;
    world.agents.hold_messages();
    queue(&world, MessageTarget::Conversation(id), "once")
        .await
        .expect("queued");
    until(|| async { (world.agents.calls().send == 1).then_some(()) }).await;
    world.agents.drop_messages();
    // Its agent runs all the time.
    a_while().await;
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id), ["once"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_message_was_said_says_nothing_twice() {
    let world = World::new().await;
    let id = talk(&world).await.conversation_id;
    world.agents.lose_answers_to_messages(true);
    queue(&world, MessageTarget::Conversation(id), "once")
        .await
        .expect("queued");
    until(|| async { (said(&world, id).len() == 1).then_some(()) }).await;
    let world = world.killed().await;
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id), ["once"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_message_was_said_loses_nothing() {
    let world = World::new().await;
    let task = talk(&world).await;
    let id = task.conversation_id;
    pause(&world, &task).await;
    let placed = queue(&world, MessageTarget::Conversation(id), "once").await;
    let message = placed.expect("queued").id;
    let begun = world.store.begin_delivery(message, None, clock().now()).await;
    assert!(begun.expect("stored"));
    let world = world.killed().await;
    resume(&world, &task).await;
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id), ["once"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_server_in_trouble_is_told_when_it_is_well() {
    for mood in [
        FakeBehavior::Unreachable,
        FakeBehavior::Rejecting(503),
        FakeBehavior::Rejecting(409),
    ] {
        let world = World::new().await;
        let task = talk(&world).await;
        let id = task.conversation_id;
        world.agents.set_behavior(mood);
        queue(&world, MessageTarget::Conversation(id), "one")
            .await
            .expect("queued");
        queue(&world, MessageTarget::Conversation(id), "two")
            .await
            .expect("queued");
        a_while().await;
        let waiting = world.store.list_waiting(id).await.expect("readable");
        assert_eq!(waiting.len(), 2, "{mood:?}");
        let calls = world.agents.calls();
        assert!(calls.send <= 1, "looked for before it is said again");
        // A pause doubles: seconds at first, minutes later.
        assert!((2..30).contains(&(calls.send + calls.events)), "{calls:?}");
        world.agents.set_behavior(FakeBehavior::Responsive);
        let up = |it: domain::sandbox::Sandbox| it.status == SandboxStatus::Running;
        if !world.sandbox(&task.sandbox_id).await.is_some_and(up) {
            resume(&world, &task).await;
        }
        nothing_waits(&world, id).await;
        assert_eq!(said(&world, id), ["one", "two"], "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_refused_for_good_does_not_block_those_behind_it() {
    let world = World::new().await;
    let task = talk(&world).await;
    let id = task.conversation_id;
    world.agents.set_behavior(FakeBehavior::Rejecting(422));
    queue(&world, MessageTarget::Conversation(id), "odd")
        .await
        .expect("queued");
    nothing_waits(&world, id).await;
    let notes = world.task(&task).await.notes;
    assert!(notes.iter().any(|note| note.contains("422")), "{notes:?}");
    world.agents.set_behavior(FakeBehavior::Responsive);
    queue(&world, MessageTarget::Conversation(id), "fine")
        .await
        .expect("queued");
    nothing_waits(&world, id).await;
    assert_eq!(said(&world, id), ["fine"]);
}

fn shared(policy: &mut Policy) {
    policy.is_host_shared = true;
}

#[tokio::test(start_paused = true)]
async fn processes_that_share_a_host_say_it_once() {
    let one = World::with(shared).await;
    let two = one.replica(shared);
    let id = talk(&one).await.conversation_id;
    let texts: Vec<_> = (0..10).map(|n| n.to_string()).collect();
    for (n, text) in texts.iter().enumerate() {
        let world = if n % 2 == 0 { &one } else { &two };
        queue(world, MessageTarget::Conversation(id), text)
            .await
            .expect("queued");
    }
    nothing_waits(&one, id).await;
    assert_eq!(said(&one, id), texts);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_that_nobody_will_hear() {
    let world = World::empty(|_| {});
    let unknown = [
        MessageTarget::Task(StartTaskId::new(uuid::Uuid::from_u128(1))),
        MessageTarget::Conversation(ConversationId::new(uuid::Uuid::from_u128(1))),
    ];
    for target in unknown {
        let refused = queue(&world, target, "x").await.expect_err("refused");
        assert_eq!(refused.class(), ErrorClass::NotFound);
    }
    // Without a model no start succeeds.
    let task = world.started(input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Error);
    let refused = queue(&world, MessageTarget::Task(task.id), "x").await;
    let refused = refused.expect_err("refused");
    assert_eq!(refused.class(), ErrorClass::Conflict);
    let cause = task.detail.expect("a cause");
    assert!(refused.public().contains(&cause), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_says_so() {
    let world = World::new().await;
    let task = talk(&world).await;
    pause(&world, &task).await;
    let target = MessageTarget::Task(task.id);
    for n in 1..=10 {
        let placed = queue(&world, target, "x").await.expect("room");
        assert_eq!(placed.position, n);
    }
    let refused = queue(&world, target, "x").await.expect_err("full");
    assert_eq!(refused.class(), ErrorClass::RateLimited);
    assert_eq!(
        refused.public(),
        "Too many pending messages. Maximum 10 messages per conversation."
    );
}

/// Its call is over, and what came of it is not settled: the agent server may be starting the agent's tools.
#[tokio::test(start_paused = true)]
async fn what_another_process_has_begun_is_left_alone_until_it_is_settled() {
    let world = World::with(shared).await;
    let task = talk(&world).await;
    let id = task.conversation_id;
    pause(&world, &task).await;
    let placed = queue(&world, MessageTarget::Conversation(id), "once").await;
    let a_moment_ago = clock().now().minus(Duration::from_secs(100));
    let begun = world
        .store
        .begin_delivery(placed.expect("queued").id, None, a_moment_ago)
        .await;
    assert!(begun.expect("stored"));
    resume(&world, &task).await;
    // The clock of the service stands still.
    a_while().await;
    assert_eq!(said(&world, id), [""; 0]);
}
