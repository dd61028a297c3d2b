//! A conversation as its user sees it, in one sandbox from its start to its deletion.

use acceptance::Sandboxing;
use acceptance::client::Conversation;
use acceptance::service::Trace;
use acceptance::wait::{wait_for, wait_until};
use serde_json::{Value, json};

use crate::crashes::STATUSES_OF_A_START;
use crate::secrets;
use crate::support::{
    RECONCILE_TIMEOUT, Setup, World, actions, show_timings, user_messages, wait_for_title,
};

/// Each part continues with the conversation and the sandbox of the one before, because a boot costs more than all of them.
pub(crate) async fn a_sandbox_works_from_its_start_to_its_deletion(setup: Setup) {
    let keeps_its_key = matches!(setup.sandboxing, Sandboxing::Docker(_));
    let world = World::start(setup).await;
    let user = &world.user;
    secrets::set(user, 0).await;
    let command = format!("Please.\n{}", secrets::command("secrets-0.txt"));
    let conversation = a_stream_tells_every_status(&world, &command).await;
    secrets::assert_seen(&world, &conversation, "secrets-0.txt", 0);
    another_message_runs(&world, &conversation).await;
    let title = wait_for_title(user, &conversation.id).await;
    assert!(title.to_lowercase().contains("scripted run"), "{title}");
    secrets::a_change_is_seen_by_the_next_command(&world, &conversation, 1).await;
    let key = user.conversation(&conversation.id).await.session_api_key;
    let key = key.expect("it is RUNNING");
    a_pause_costs_nothing(&world, &conversation).await;
    secrets::a_resumed_sandbox_sees_changes(&world, &conversation, &key, keeps_its_key).await;
    let events = world.assert_complete(&conversation.id).await;
    assert_eq!(user_messages(&events).len(), 4);
    world.assert_exactly_one().await;
    a_model_that_refuses_ends_the_run_and_not_the_service(&world, &conversation).await;
    deleted_conversations_leave_nothing(&world, &conversation).await;
}

/// The shortest story.
pub(crate) async fn a_conversation_runs_and_takes_another_message(setup: Setup) {
    let world = World::start(setup).await;
    // The other tests have a model that speaks the protocol of OpenAI.
    let endpoint = world.llm.base_url();
    world
        .user
        .use_model("gemini/scripted", &endpoint, "sk-scripted")
        .await;
    let task = world.user.start_with("RUN: echo one > zero.txt").await;
    assert_eq!(task.status, "WORKING");
    let conversation = world.user.wait_until_ready(&task).await;
    show_timings(&world, &world.user.task(&task.id).await);
    assert_eq!(conversation.sandbox_status, "RUNNING");
    let user = &world.user;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    another_message_runs(&world, &conversation).await;
    world.assert_exactly_one().await;
}

/// Starts a conversation, and waits for the end of its first run.
async fn a_stream_tells_every_status(world: &World, command: &str) -> Conversation {
    let user = &world.user;
    let message = json!({"content": [{"type": "text", "text": command}], "run": true});
    let request = json!({"initial_message": message});
    let stream = user
        .with_long_timeout()
        .post("/api/v1/app-conversations/stream-start", &request)
        .await;
    let states = stream.ok();
    let states = states.as_array().expect("the stream is an array");
    let statuses: Vec<&str> = states
        .iter()
        .filter_map(|task| task["status"].as_str())
        .collect();
    assert_eq!(statuses, STATUSES_OF_A_START);
    let last: &Value = states.last().expect("it is not empty");
    let id = last["app_conversation_id"]
        .as_str()
        .expect("READY names it");
    let task = last["id"].as_str().expect("a task has an id");
    show_timings(world, &user.task(task).await);
    user.wait_for_execution_status(id, "finished").await;
    user.conversation(id).await
}

/// Counts where the key of the model is. The command does not contain it.
const SEARCH_KEY: &str = "(cat /proc/[0-9]*/environ; grep -rshF 'sk-scrip''ted' \"$HOME\" .) 2>/dev/null | \
                          grep -caF 'sk-scrip''ted' > found.txt";

/// The second run of the conversation.
async fn another_message_runs(world: &World, conversation: &Conversation) {
    let (user, id) = (&world.user, &conversation.id);
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 1);
    assert_eq!(
        (actions(&events, "terminal"), actions(&events, "finish")),
        (1, 1)
    );
    let key = world.llm.records().pop().and_then(|record| record.api_key);
    assert_eq!(key.as_deref(), Some("sk-scripted"));

    // The service has made the calls, and the agent's shell does not find the key.
    let page = user.get("/metrics").await.text;
    let answered = "agent_workspace_model_calls_total{outcome=\"answered\"} ";
    let answered = page.lines().find_map(|line| line.strip_prefix(answered));
    assert_ne!(answered.unwrap_or("0"), "0", "{page}");
    let command = format!("Once more.\nRUN: {SEARCH_KEY}; echo two > second.txt");
    user.send_message(id, &command).await;
    user.wait_for_execution_status(id, "finished").await;
    assert_eq!(world.file(conversation, "found.txt").as_deref(), Some("0"));
    assert_eq!(
        world.file(conversation, "second.txt").as_deref(),
        Some("two")
    );
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 2);
    assert_eq!(actions(&events, "finish"), 2);
}

/// Leaves the sandbox paused.
async fn a_pause_costs_nothing(world: &World, conversation: &Conversation) {
    let (user, id) = (&world.user, &conversation.id);
    user.pause(&conversation.sandbox_id).await;
    let left = world.service.processes();
    assert!(left.is_empty(), "a paused sandbox has processes: {left:#?}");
    assert_eq!(user.conversation(id).await.sandbox_status, "PAUSED");
    let path = format!("/api/v1/app-conversations/{id}/send-message");
    let message = json!({"content": [{"type": "text", "text": "hello?"}]});
    assert_eq!(user.post(&path, &message).await.status, 409);
    assert!(
        !user.events(id).await.is_empty(),
        "events can be read while it is paused"
    );
}

/// Two further conversations in the sandbox: one with a model that refuses, and one with a good model.
async fn a_model_that_refuses_ends_the_run_and_not_the_service(
    world: &World,
    conversation: &Conversation,
) {
    let user = &world.user;
    let start = async |model: &str, text: &str| {
        user.use_model(model, &world.llm.base_url(), "sk-good")
            .await;
        let message = json!({"content": [{"type": "text", "text": text}], "run": true});
        let request = json!({"sandbox_id": conversation.sandbox_id, "initial_message": message});
        user.wait_until_ready(&user.start(&request).await).await
    };
    let calls = world.llm.calls();
    let refused = start("openai/refuse", "RUN: echo one > refused.txt").await;
    user.wait_for_execution_status(&refused.id, "error").await;
    assert!(world.llm.calls() > calls);
    assert_eq!(user.get("/ready").await.status, 200);

    let good = start("openai/scripted", "RUN: echo three > third.txt").await;
    user.wait_for_execution_status(&good.id, "finished").await;
    assert_eq!(world.file(&good, "third.txt").as_deref(), Some("three"));
    let refused = user.conversation(&refused.id).await;
    assert_eq!(refused.execution_status.as_deref(), Some("error"));
}

/// Deletes all conversations of the sandbox, which ends with the last one.
async fn deleted_conversations_leave_nothing(world: &World, conversation: &Conversation) {
    let (user, sandbox) = (&world.user, &conversation.sandbox_id);
    let key = user.conversation(&conversation.id).await.session_api_key;
    let traces = world.service.traces_of(sandbox);
    assert!(!traces.is_empty());

    for other in user.conversations().await {
        user.delete_conversation(&other.id).await;
        assert!(user.find_conversation(&other.id).await.is_none());
    }
    wait_for("the sandbox's end", RECONCILE_TIMEOUT, || async {
        user.sandbox(sandbox).await.is_none().then_some(())
    })
    .await;
    wait_until(
        "the end of everything that it had",
        RECONCILE_TIMEOUT,
        || !traces.iter().any(Trace::exists),
    )
    .await;
    assert_eq!(world.service.processes(), []);
    world.service.assert_no_orphans(&[user]).await;

    // Reports of the agent server that arrive after the deletion.
    let late = user.with_key(&key.expect("it was RUNNING"));
    let id = &conversation.id;
    let event = json!([{"id": "late", "kind": "MessageEvent", "timestamp": "2026-01-01T00:00:00"}]);
    let info = json!({"id": id, "execution_status": "running", "agent": {"kind": "Agent"}});
    for (path, body) in [
        (format!("/api/v1/webhooks/events/{id}"), &event),
        ("/api/v1/webhooks/conversations".to_owned(), &info),
    ] {
        let reply = late.post(&path, body).await;
        assert!(matches!(reply.status, 200 | 401), "{path}: {reply:?}");
    }
    assert!(user.find_conversation(id).await.is_none());
    assert_eq!(user.conversations().await.len(), 0);
    assert_eq!(user.count_events(id).await, 0);
}
