//! Quotas: requests above them are refused, reports never, and nothing that an owner has to know is lost.

use application::secrets::NewSecret;
use application::{AppError, Policy};
use domain::agent::document::STATE_UPDATE;
use domain::clock::Timestamp;
use domain::conversation::ExecutionStatus;
use domain::error::{Classify, ErrorClass};
use domain::event::{BULKY_EVENT_BYTES, Event, EventFilter, EventOrder};
use domain::id::ConversationId;
use domain::page::{PageLimit, PageRequest};
use domain::pending::MessageTarget;
use domain::sandbox::Sandbox;
use domain::start_task::StartTask;
use domain::usage::{EventStorage, Quota, QuotaLimits};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::{World, alice, clock, input, mine, say, until};

fn limit(policy: &mut Policy, quota: Quota, limit: u64) {
    policy.quota.change(|it| *it = it.with(quota, Some(limit)));
}

fn is_quota<T: std::fmt::Debug>(answer: Result<T, AppError>, words: &str) {
    let refusal = answer.expect_err("it is refused");
    assert_eq!(refusal.class(), ErrorClass::QuotaExceeded, "{refusal}");
    assert!(refusal.public().contains(words), "{refusal}");
}

async fn started(world: &World) -> (StartTask, Sandbox) {
    let task = world.started(input(|_| {})).await;
    let sandbox = world.sandbox(&task.sandbox_id).await.expect("it runs");
    (task, sandbox)
}

fn large(n: u64, kind: &str) -> Value {
    let text = "x".repeat(2 * BULKY_EVENT_BYTES);
    let at = format!("2026-01-01T00:00:{n:02}");
    json!({"id": format!("e{n}"), "kind": kind, "timestamp": at, "source": "environment",
        "observation": {"content": [{"type": "text", "text": text}]}})
}

fn small(n: u64) -> Value {
    json!({"id": format!("e{n}"), "kind": "A", "timestamp": "2026-01-01T00:00:00", "source": "environment"})
}

fn status(id: &str, status: &str) -> Value {
    let at = clock().now().plus(std::time::Duration::from_secs(1));
    json!({"id": id, "kind": STATE_UPDATE, "timestamp": at, "key": "execution_status", "value": status})
}

async fn report(world: &World, sandbox: &Sandbox, id: ConversationId, batch: Vec<Value>) {
    let taken = world.app.webhooks.events(sandbox, id, batch).await;
    taken.expect("taken in");
}

async fn stored(world: &World, id: ConversationId) -> Vec<Event> {
    let page = PageRequest {
        after: None,
        limit: PageLimit::MAX,
    };
    let (mine, all, order) = (mine(), EventFilter::default(), EventOrder::Timestamp);
    let found = world.app.events.search(&mine, id, &all, order, &page).await;
    found.expect("readable").items
}

async fn seen_status(world: &World, id: ConversationId) -> Option<ExecutionStatus> {
    let view = world.view(id).await.expect("it is there");
    view.conversation.execution_status
}

#[tokio::test(start_paused = true)]
async fn a_conversation_too_many_is_refused_until_one_is_deleted() {
    let world = World::with(|policy| limit(policy, Quota::Conversations, 2)).await;
    let (first, sandbox) = started(&world).await;
    world.started(input(|_| {})).await;
    let again = world.app.starts.start(&alice(), input(|_| {})).await;
    is_quota(again, "2 conversations");
    // One that is there is answered, not refused.
    let id = Some(first.conversation_id);
    let known = world.start(input(|it| it.conversation_id = id)).await;
    assert_eq!(known.id, first.id);
    // Nor does an agent make one more.
    let other = ConversationId::new(Uuid::from_u128(99));
    let adopted = world
        .app
        .webhooks
        .events(&sandbox, other, vec![status("s", "idle")]);
    let refusal = adopted.await.expect_err("it is not adopted");
    assert_eq!(refusal.class(), ErrorClass::NotFound);
    let conversations = &world.app.conversations;
    assert!(
        conversations
            .delete(&mine(), first.conversation_id)
            .await
            .is_ok()
    );
    world.started(input(|_| {})).await;
    let report = world.app.quotas.usage(&alice()).await.expect("readable");
    assert_eq!(report.usage.conversations, 2);
    assert_eq!(report.limits.of(Quota::Conversations), Some(2));
    let refused = world.app.metrics().quotas.refusals;
    assert!(refused.contains(&("conversations", 2)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn large_requests_are_refused_where_small_ones_are_not() {
    let world = World::with(|policy| limit(policy, Quota::RequestBytes, 20_000)).await;
    let long = "x".repeat(20_000);
    let asked = input(|it| it.initial_message = Some(say(&long)));
    is_quota(world.app.starts.start(&alice(), asked).await, "20000");
    let task = world.started(input(|_| {})).await;
    let wait = MessageTarget::Conversation(task.conversation_id);
    let refused = world.app.pending.enqueue(&alice(), wait, say(&long)).await;
    is_quota(refused, "20000");
}

#[tokio::test(start_paused = true)]
async fn secrets_and_waiting_messages_have_quotas() {
    let world = World::with(|policy| {
        limit(policy, Quota::Secrets, 1);
        limit(policy, Quota::PendingMessages, 1);
    });
    let world = world.await;
    let secret = |name: &str, value: &str| NewSecret {
        name: name.to_owned(),
        value: value.to_owned().into(),
        description: None,
    };
    let secrets = &world.app.secrets;
    assert!(
        secrets
            .put(&alice(), &secret("A", "1"))
            .await
            .expect("stored")
    );
    assert!(
        !secrets
            .put(&alice(), &secret("A", "2"))
            .await
            .expect("changed")
    );
    is_quota(secrets.put(&alice(), &secret("B", "1")).await, "1 secrets");
    is_quota(
        secrets.create(&alice(), &secret("B", "1")).await,
        "1 secrets",
    );
    secrets.delete(&alice(), "A").await.expect("deleted");
    secrets
        .create(&alice(), &secret("B", "1"))
        .await
        .expect("stored");

    world.backend.hang(true);
    let task = world.start(input(|_| {})).await;
    let wait = MessageTarget::Task(task.id);
    let pending = &world.app.pending;
    pending.enqueue(&alice(), wait, say("1"))
        .await
        .expect("it waits");
    is_quota(
        pending.enqueue(&alice(), wait, say("2")).await,
        "1 of your messages",
    );
}

#[tokio::test(start_paused = true)]
async fn above_the_quota_of_bytes_long_texts_are_cut_and_no_status_is_lost() {
    let world = World::with(|policy| limit(policy, Quota::EventBytes, 128_000)).await;
    let (task, sandbox) = started(&world).await;
    let id = task.conversation_id;
    report(
        &world,
        &sandbox,
        id,
        (1..=3).map(|n| large(n, "ObservationEvent")).collect(),
    )
    .await;
    let before = stored(&world, id).await;
    assert!(before.iter().all(Event::is_bulky_observation), "complete");
    // This one reaches the quota; from the next one on texts are cut, also those of observations that are stored.
    report(&world, &sandbox, id, vec![large(4, "MessageEvent")]).await;
    report(
        &world,
        &sandbox,
        id,
        vec![large(5, "Odd"), status("s", "finished")],
    )
    .await;
    until(|| async {
        let all = stored(&world, id).await;
        let bulky = all.iter().filter(|it| it.is_bulky_observation()).count();
        (bulky < 3).then_some(())
    })
    .await;
    let after = stored(&world, id).await;
    let ids = |events: &[Event]| -> Vec<_> {
        events
            .iter()
            .map(|it| (it.id.clone(), it.kind.clone()))
            .collect()
    };
    assert_eq!(ids(&after)[..3], ids(&before));
    assert!(
        after[3].is_bulky(),
        "a message that was stored is not touched"
    );
    assert!(!after[4].is_bulky(), "a new event is cut, whatever it is");
    assert_eq!(
        seen_status(&world, id).await,
        Some(ExecutionStatus::Finished)
    );
    let usage = world
        .app
        .quotas
        .usage(&alice())
        .await
        .expect("readable")
        .usage;
    assert!(usage.event_bytes < 128_000, "{usage:?}");
    assert!(usage.shortened_events > 0, "{usage:?}");
    assert!(world.app.metrics().quotas.shortened_events > 0);
}

#[tokio::test(start_paused = true)]
async fn above_the_quota_of_events_none_are_stored_and_no_status_is_lost() {
    let world = World::with(|policy| limit(policy, Quota::Events, 3)).await;
    let (task, sandbox) = started(&world).await;
    let id = task.conversation_id;
    report(
        &world,
        &sandbox,
        id,
        (1..=4).map(|n| large(n, "A")).collect(),
    )
    .await;
    let stored_before = stored(&world, id).await.len();
    report(
        &world,
        &sandbox,
        id,
        vec![large(5, "A"), status("s", "finished")],
    )
    .await;
    assert_eq!(stored(&world, id).await.len(), stored_before);
    assert_eq!(
        seen_status(&world, id).await,
        Some(ExecutionStatus::Finished)
    );
    let report = world.app.quotas.usage(&alice()).await.expect("readable");
    assert_eq!(
        report.limits.event_storage(&report.usage),
        EventStorage::Stopped
    );
    let counts = world.app.metrics().quotas;
    assert_eq!(counts.discarded_events, 2);
    assert_eq!(counts.users, [("near", 0), ("exceeded", 1)]);
    let again = world.app.starts.start(&alice(), input(|_| {})).await;
    is_quota(again, "events");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_reports_too_much_waits_and_its_log_is_read_later() {
    let world = World::with(|policy| {
        let limits = QuotaLimits {
            report_bytes_per_minute: Some(600),
            ..QuotaLimits::default()
        };
        policy.quota.set(limits);
    });
    let world = world.await;
    let (task, sandbox) = started(&world).await;
    let (id, webhooks) = (task.conversation_id, &world.app.webhooks);
    assert!(webhooks.check_rate(&sandbox).is_ok());
    report(&world, &sandbox, id, (1..=9).map(small).collect()).await;
    let refusal = webhooks.check_rate(&sandbox).expect_err("too much");
    assert_eq!(refusal.class(), ErrorClass::RateLimited);
    assert!(refusal.retry_after().is_some_and(|wait| wait.as_secs() > 5));
    assert_eq!(world.app.metrics().quotas.slowed_reports, 1);
    // What was refused is in the agent server's log, and is read once there is room.
    let now: Timestamp = clock().now();
    let lost = Event::from_document(small(10), now).expect("an event");
    world.agents.push_event(id, lost);
    world.agents.change(id, |it| it.updated_at = Some(now));
    until(|| async { (stored(&world, id).await.len() == 10).then_some(()) }).await;
    tokio::time::sleep(std::time::Duration::from_secs(300)).await;
    assert!(webhooks.check_rate(&sandbox).is_ok());
}
