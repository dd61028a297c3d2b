//! Quotas: requests above them are refused, reports are not, and nothing that the owner must know is lost.

use application::secrets::NewSecret;
use application::{AppError, Policy};
use domain::agent::document::STATE_UPDATE;
use domain::clock::Timestamp;
use domain::conversation::ExecutionStatus;
use domain::conversation::pending::MessageTarget;
use domain::error::{Classify, ErrorClass};
use domain::event::{BULKY_EVENT_BYTES, Event, EventFilter, EventOrder};
use domain::id::ConversationId;
use domain::page::{PageLimit, PageRequest};
use domain::sandbox::Sandbox;
use domain::start_task::StartTask;
use domain::user::usage::{EventStorage, Quota, QuotaLimits};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fixture::{Fixture, alice, alice_scope, clock, start_input, user_message, wait_for};

fn limit(policy: &mut Policy, quota: Quota, limit: u64) {
    policy.quota.change(|it| *it = it.with(quota, Some(limit)));
}

fn is_quota<T: std::fmt::Debug>(answer: Result<T, AppError>, words: &str) {
    let refusal = answer.expect_err("it is refused");
    assert_eq!(refusal.class(), ErrorClass::QuotaExceeded, "{refusal}");
    assert!(refusal.public().contains(words), "{refusal}");
}

async fn start_ready_conversation(fixture: &Fixture) -> (StartTask, Sandbox) {
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let sandbox = fixture.sandbox(&task.sandbox_id).await.expect("it runs");
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

async fn report(fixture: &Fixture, sandbox: &Sandbox, id: ConversationId, batch: Vec<Value>) {
    let taken = fixture.app.webhooks.events(sandbox, id, batch).await;
    taken.expect("taken in");
}

async fn stored(fixture: &Fixture, id: ConversationId) -> Vec<Event> {
    let page = PageRequest {
        after: None,
        limit: PageLimit::MAX,
    };
    let (mine, all, order) = (alice_scope(), EventFilter::default(), EventOrder::Timestamp);
    let found = fixture
        .app
        .events
        .search(&mine, id, &all, order, &page)
        .await;
    found.expect("readable").items
}

async fn seen_status(fixture: &Fixture, id: ConversationId) -> Option<ExecutionStatus> {
    let view = fixture.view(id).await.expect("it is there");
    view.conversation.execution_status
}

#[tokio::test(start_paused = true)]
async fn conversations_above_the_quota_are_refused_until_one_is_deleted() {
    let fixture = Fixture::with_policy(|policy| limit(policy, Quota::Conversations, 2)).await;
    let (first, sandbox) = start_ready_conversation(&fixture).await;
    fixture.start_and_wait(start_input(|_| {})).await;
    let again = fixture
        .app
        .starts
        .start(&alice(), start_input(|_| {}))
        .await;
    is_quota(again, "2 conversations");
    // An existing one is returned, not refused.
    let id = Some(first.conversation_id);
    let known = fixture
        .start(start_input(|it| it.conversation_id = id))
        .await;
    assert_eq!(known.id, first.id);
    // Nor does an agent create one more.
    let other = ConversationId::new(Uuid::from_u128(99));
    let adopted = fixture
        .app
        .webhooks
        .events(&sandbox, other, vec![status("s", "idle")]);
    let refusal = adopted.await.expect_err("it is not adopted");
    assert_eq!(refusal.class(), ErrorClass::NotFound);
    let conversations = &fixture.app.conversations;
    assert!(
        conversations
            .delete(&alice_scope(), first.conversation_id)
            .await
            .is_ok()
    );
    fixture.start_and_wait(start_input(|_| {})).await;
    let report = fixture.app.quotas.usage(&alice()).await.expect("readable");
    assert_eq!(report.usage.conversations, 2);
    assert_eq!(report.limits.of(Quota::Conversations), Some(2));
    let refused = fixture.app.metrics().quotas.refusals;
    assert!(refused.contains(&("conversations", 2)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn large_requests_are_refused_where_small_ones_are_not() {
    let fixture = Fixture::with_policy(|policy| limit(policy, Quota::RequestBytes, 20_000)).await;
    let long = "x".repeat(20_000);
    let asked = start_input(|it| it.initial_message = Some(user_message(&long)));
    is_quota(fixture.app.starts.start(&alice(), asked).await, "20000");
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let wait = MessageTarget::Conversation(task.conversation_id);
    let refused = fixture
        .app
        .pending
        .enqueue(&alice(), wait, user_message(&long))
        .await;
    is_quota(refused, "20000");
}

#[tokio::test(start_paused = true)]
async fn secrets_and_waiting_messages_have_quotas() {
    let fixture = Fixture::with_policy(|policy| {
        limit(policy, Quota::Secrets, 1);
        limit(policy, Quota::PendingMessages, 1);
    });
    let fixture = fixture.await;
    let secret = |name: &str, value: &str| NewSecret {
        name: name.to_owned(),
        value: value.to_owned().into(),
        description: None,
        hosts: None,
        exposed: None,
    };
    let secrets = &fixture.app.secrets;
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

    fixture.backend.set_hanging(true);
    let task = fixture.start(start_input(|_| {})).await;
    let wait = MessageTarget::Task(task.id);
    let pending = &fixture.app.pending;
    pending
        .enqueue(&alice(), wait, user_message("1"))
        .await
        .expect("it waits");
    is_quota(
        pending.enqueue(&alice(), wait, user_message("2")).await,
        "1 of your messages",
    );
}

#[tokio::test(start_paused = true)]
async fn above_the_quota_of_bytes_long_texts_are_cut_and_no_status_is_lost() {
    let fixture = Fixture::with_policy(|policy| limit(policy, Quota::EventBytes, 128_000)).await;
    let (task, sandbox) = start_ready_conversation(&fixture).await;
    let id = task.conversation_id;
    report(
        &fixture,
        &sandbox,
        id,
        (1..=3).map(|n| large(n, "ObservationEvent")).collect(),
    )
    .await;
    let before = stored(&fixture, id).await;
    assert!(before.iter().all(Event::is_bulky_observation), "complete");
    // This report reaches the quota. From the next one on texts are cut, also in stored observations.
    report(&fixture, &sandbox, id, vec![large(4, "MessageEvent")]).await;
    report(
        &fixture,
        &sandbox,
        id,
        vec![large(5, "Odd"), status("s", "finished")],
    )
    .await;
    wait_for(|| async {
        let all = stored(&fixture, id).await;
        let bulky = all.iter().filter(|it| it.is_bulky_observation()).count();
        (bulky < 3).then_some(())
    })
    .await;
    let after = stored(&fixture, id).await;
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
        seen_status(&fixture, id).await,
        Some(ExecutionStatus::Finished)
    );
    let usage = fixture
        .app
        .quotas
        .usage(&alice())
        .await
        .expect("readable")
        .usage;
    assert!(usage.event_bytes < 128_000, "{usage:?}");
    assert!(usage.shortened_events > 0, "{usage:?}");
    assert!(fixture.app.metrics().quotas.shortened_events > 0);
}

#[tokio::test(start_paused = true)]
async fn above_the_quota_of_events_none_are_stored_and_no_status_is_lost() {
    let fixture = Fixture::with_policy(|policy| limit(policy, Quota::Events, 3)).await;
    let (task, sandbox) = start_ready_conversation(&fixture).await;
    let id = task.conversation_id;
    report(
        &fixture,
        &sandbox,
        id,
        (1..=4).map(|n| large(n, "A")).collect(),
    )
    .await;
    let stored_before = stored(&fixture, id).await.len();
    report(
        &fixture,
        &sandbox,
        id,
        vec![large(5, "A"), status("s", "finished")],
    )
    .await;
    assert_eq!(stored(&fixture, id).await.len(), stored_before);
    assert_eq!(
        seen_status(&fixture, id).await,
        Some(ExecutionStatus::Finished)
    );
    let report = fixture.app.quotas.usage(&alice()).await.expect("readable");
    assert_eq!(
        report.limits.event_storage(&report.usage),
        EventStorage::Stopped
    );
    let counts = fixture.app.metrics().quotas;
    assert_eq!(counts.discarded_events, 2);
    assert_eq!(counts.users, [("near", 0), ("exceeded", 1)]);
    let again = fixture
        .app
        .starts
        .start(&alice(), start_input(|_| {}))
        .await;
    is_quota(again, "events");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_reports_too_much_waits_and_its_log_is_read_later() {
    let fixture = Fixture::with_policy(|policy| {
        let limits = QuotaLimits {
            report_bytes_per_minute: Some(600),
            ..QuotaLimits::default()
        };
        policy.quota.set(limits);
    });
    let fixture = fixture.await;
    let (task, sandbox) = start_ready_conversation(&fixture).await;
    let (id, webhooks) = (task.conversation_id, &fixture.app.webhooks);
    assert!(webhooks.check_rate(&sandbox).is_ok());
    report(&fixture, &sandbox, id, (1..=9).map(small).collect()).await;
    let refusal = webhooks.check_rate(&sandbox).expect_err("too much");
    assert_eq!(refusal.class(), ErrorClass::RateLimited);
    assert!(refusal.retry_after().is_some_and(|wait| wait.as_secs() > 5));
    assert_eq!(fixture.app.metrics().quotas.rate_limited_reports, 1);
    // Refused events are in the agent server's log, and are read once there is room.
    let now: Timestamp = clock().now();
    let lost = Event::from_document(small(10), now).expect("an event");
    fixture.agents.push_event(id, lost);
    fixture.agents.change(id, |it| it.updated_at = Some(now));
    wait_for(|| async { (stored(&fixture, id).await.len() == 10).then_some(()) }).await;
    tokio::time::sleep(std::time::Duration::from_secs(300)).await;
    assert!(webhooks.check_rate(&sandbox).is_ok());
}
