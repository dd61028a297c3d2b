//! Webhook reports are hints: stored once, never trusted to move a conversation, completed from the log.

use std::time::Duration;

use domain::agent::AgentConversation;
use domain::agent::document::STATE_UPDATE;
use domain::conversation::ExecutionStatus;
use domain::event::{Event, EventFilter};
use domain::id::ConversationId;
use domain::sandbox::{DesiredState, Sandbox, SandboxCaps, SandboxRepository as _};
use domain::start_task::StartTask;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fixture::{Fixture, alice_scope, clock, start_input, wait_for};

async fn start_ready_conversation(fixture: &Fixture) -> (StartTask, Sandbox) {
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let sandbox = fixture.sandbox(&task.sandbox_id).await.expect("it runs");
    (task, sandbox)
}

fn event(id: &str, kind: &str) -> Value {
    json!({"id": id, "kind": kind, "timestamp": "2026-01-01T00:00:00.5", "source": "agent"})
}

fn status(id: &str, status: &str) -> Value {
    // Later than anything in the store, as a real report would be.
    let at = clock()
        .now()
        .plus(std::time::Duration::from_secs(1))
        .to_string();
    json!({"id": id, "kind": STATE_UPDATE, "timestamp": at, "key": "execution_status", "value": status})
}

async fn count(fixture: &Fixture, id: ConversationId) -> u64 {
    fixture
        .app
        .events
        .count(&alice_scope(), id, &EventFilter::default())
        .await
        .expect("readable")
}

#[tokio::test(start_paused = true)]
async fn events_are_stored_once_and_change_the_row() {
    let fixture = Fixture::new().await;
    let (task, sandbox) = start_ready_conversation(&fixture).await;
    let batch = vec![
        event("../../etc/passwd", "MessageEvent"),
        event("b", "AKindOfTomorrow"),
        event("d", "StreamingDeltaEvent"),
        json!({"kind": "NoId"}),
        json!(5),
        status("c", "finished"),
    ];
    for _ in 0..2 {
        fixture
            .app
            .webhooks
            .events(&sandbox, task.conversation_id, batch.clone())
            .await
            .expect("taken in");
    }
    assert_eq!(count(&fixture, task.conversation_id).await, 3);
    let view = fixture
        .view(task.conversation_id)
        .await
        .expect("it is there");
    assert_eq!(
        view.conversation.execution_status,
        Some(ExecutionStatus::Finished)
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_triggers_a_sync() {
    let fixture = Fixture::new().await;
    let (task, sandbox) = start_ready_conversation(&fixture).await;
    let id = task.conversation_id;
    for n in 0..250 {
        let lost = Event::from_document(event(&format!("e{n}"), "ActionEvent"), clock().now());
        fixture.agents.push_event(id, lost.expect("an event"));
    }
    fixture
        .agents
        .change(id, |c| c.updated_at = Some(clock().now()));
    fixture
        .app
        .webhooks
        .events(&sandbox, id, vec![status("last", "finished")])
        .await
        .expect("taken in");
    wait_for(|| async { (count(&fixture, id).await == 251).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_made_inside_the_sandbox_is_adopted() {
    let fixture = Fixture::new().await;
    let (_, sandbox) = start_ready_conversation(&fixture).await;
    let id = ConversationId::new(Uuid::from_u128(99));
    fixture
        .app
        .webhooks
        .events(&sandbox, id, vec![event("x", "MessageEvent")])
        .await
        .expect("taken in");
    let view = fixture.view(id).await.expect("adopted");
    assert_eq!(
        (view.conversation.sandbox_id, view.conversation.owner),
        (sandbox.id, sandbox.owner)
    );
    assert_eq!(count(&fixture, id).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_report_neither_resurrects_nor_moves_a_conversation() {
    let fixture = Fixture::new().await;
    let (task, sandbox) = start_ready_conversation(&fixture).await;
    let (other, elsewhere) = start_ready_conversation(&fixture).await;
    let events = count(&fixture, task.conversation_id).await;
    fixture
        .app
        .webhooks
        .events(&elsewhere, task.conversation_id, vec![event("x", "M")])
        .await
        .expect("answered like a report about an unknown conversation");
    fixture
        .app
        .webhooks
        .conversation(&elsewhere, &info(task.conversation_id, "error"))
        .await
        .expect("answered like a report about an unknown conversation");
    assert_eq!(count(&fixture, task.conversation_id).await, events);
    let before = fixture
        .view(task.conversation_id)
        .await
        .expect("it is there")
        .conversation;
    let info = info(task.conversation_id, "running");
    fixture
        .app
        .webhooks
        .conversation(&sandbox, &info)
        .await
        .expect("taken in");
    let after = fixture
        .view(task.conversation_id)
        .await
        .expect("it is there")
        .conversation;
    assert_eq!(
        (after.created_at, after.sandbox_id),
        (before.created_at, before.sandbox_id)
    );
    fixture
        .app
        .conversations
        .delete(&alice_scope(), task.conversation_id)
        .await
        .expect("deleted");
    fixture
        .app
        .webhooks
        .conversation(&sandbox, &info)
        .await
        .expect("accepted and dropped");
    fixture
        .app
        .webhooks
        .events(&sandbox, task.conversation_id, vec![event("y", "M")])
        .await
        .expect("dropped");
    assert!(fixture.view(task.conversation_id).await.is_none());
    assert!(fixture.view(other.conversation_id).await.is_some());
}

fn info(id: ConversationId, status: &str) -> AgentConversation {
    let document = json!({"id": id.dashed(), "execution_status": status, "title": "T", "updated_at": "2999-01-01T00:00:00Z"});
    AgentConversation::from_document(&document).expect("an info")
}

#[tokio::test(start_paused = true)]
async fn titles_are_automatic_until_the_owner_sets_one() {
    let fixture = Fixture::new().await;
    let (task, sandbox) = start_ready_conversation(&fixture).await;
    let title = || async {
        fixture
            .view(task.conversation_id)
            .await
            .and_then(|v| v.conversation.title)
    };
    assert!(title().await.expect("a title").starts_with("Conversation "));
    fixture.agents.change(task.conversation_id, |c| {
        c.title = Some("By the model".to_owned());
    });
    wait_for(|| async { title().await.filter(|t| t == "By the model") }).await;
    let change = domain::conversation::ConversationChange {
        title: domain::patch::Patch::Set("By me".to_owned()),
        ..Default::default()
    };
    fixture
        .app
        .conversations
        .update(&alice_scope(), task.conversation_id, &change)
        .await
        .expect("renamed");
    fixture
        .app
        .webhooks
        .conversation(&sandbox, &info(task.conversation_id, "idle"))
        .await
        .expect("taken in");
    assert_eq!(title().await.as_deref(), Some("By me"));
}

#[tokio::test(start_paused = true)]
async fn a_reporting_sandbox_is_cached_until_it_changes() {
    let fixture = Fixture::new().await;
    let (_, sandbox) = start_ready_conversation(&fixture).await;
    let key = fixture
        .app
        .sandboxes
        .session_key(&sandbox)
        .expect("it runs");
    let who = || async {
        let found = fixture
            .app
            .sandbox_keys
            .by_report_key(key.expose_secret())
            .await;
        found.expect("asked").map(|it| it.id.clone())
    };
    assert_eq!(who().await, Some(sandbox.id.clone()));
    fixture
        .app
        .sandboxes
        .pause(&alice_scope(), &sandbox.id)
        .await
        .expect("paused");
    assert_eq!(who().await, Some(sandbox.id.clone()), "for trailing events");
    fixture
        .app
        .sandboxes
        .delete(&alice_scope(), &sandbox.id)
        .await
        .expect("deleted");
    assert_eq!(who().await, None);
    let late = vec![event("late", "MessageEvent")];
    let made = ConversationId::new(Uuid::from_u128(77));
    let adopted = fixture.app.webhooks.events(&sandbox, made, late).await;
    assert!(
        adopted.is_err(),
        "who was just deleted makes no conversation"
    );
    assert!(fixture.view(made).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_deleted_by_another_process_reports_for_at_most_a_second() {
    let fixture = Fixture::new().await;
    let (_, sandbox) = start_ready_conversation(&fixture).await;
    let key = fixture
        .app
        .sandboxes
        .session_key(&sandbox)
        .expect("it runs");
    let who = || async {
        let found = fixture
            .app
            .sandbox_keys
            .by_report_key(key.expose_secret())
            .await;
        found.expect("asked").map(|it| it.id.clone())
    };
    assert_eq!(who().await, Some(sandbox.id.clone()));
    let (scope, caps) = (
        alice_scope(),
        SandboxCaps {
            per_user: 9,
            overall: 9,
        },
    );
    let deleted = fixture.store.set_desired(
        &scope,
        &sandbox.id,
        DesiredState::Deleted,
        &caps,
        clock().now(),
    );
    assert!(deleted.await.expect("stored").is_some());
    let exact = fixture
        .app
        .sandbox_keys
        .by_session_key(key.expose_secret())
        .await;
    assert_eq!(
        exact.expect("asked").map(|it| it.id),
        None,
        "what reads asks each time"
    );
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    assert_eq!(who().await, None);
}
