//! Scenarios of users.

use acceptance::service::Trace;
use acceptance::wait::{wait_for, wait_until};
use serde_json::{Value, json};

use crate::support::{
    RECONCILE_TIMEOUT, Setup, World, actions, show_timings, user_messages, wait_for_title,
};

pub(crate) async fn a_conversation_runs_and_takes_another_message(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;

    let task = user.start_with("Please.\nRUN: echo one > first.txt").await;
    assert_eq!(task.status, "WORKING");
    let conversation = user.wait_until_ready(&task).await;
    show_timings(&world, &user.task(&task.id).await);
    assert_eq!(conversation.sandbox_status, "RUNNING");
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;

    assert_eq!(
        world.file(&conversation, "first.txt").as_deref(),
        Some("one")
    );
    let events = world.assert_complete(&conversation.id).await;
    assert_eq!(user_messages(&events).len(), 1);
    assert_eq!(
        (actions(&events, "terminal"), actions(&events, "finish")),
        (1, 1)
    );
    let key = world.llm.records().pop().and_then(|record| record.api_key);
    assert_eq!(key.as_deref(), Some("sk-scripted"));

    user.send_message(&conversation.id, "Once more.\nRUN: echo two > second.txt")
        .await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    assert_eq!(
        world.file(&conversation, "second.txt").as_deref(),
        Some("two")
    );
    let events = world.assert_complete(&conversation.id).await;
    assert_eq!(user_messages(&events).len(), 2);
    assert_eq!(actions(&events, "finish"), 2);
    world.assert_exactly_one().await;
}

pub(crate) async fn a_paused_sandbox_costs_nothing_and_goes_on_after_resume(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    let conversation = user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    user.wait_for_execution_status(id, "finished").await;

    user.pause(sandbox).await;
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

    user.resume(sandbox).await;
    user.send_message(id, "RUN: echo two > second.txt").await;
    user.wait_for_execution_status(id, "finished").await;
    assert_eq!(
        world.file(&conversation, "first.txt").as_deref(),
        Some("one")
    );
    assert_eq!(
        world.file(&conversation, "second.txt").as_deref(),
        Some("two")
    );
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 2);
    world.assert_exactly_one().await;
}

pub(crate) async fn a_deleted_conversation_leaves_nothing_and_stays_deleted(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    let conversation = user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    user.wait_for_execution_status(id, "finished").await;
    let traces = world.service.traces_of(sandbox);
    assert!(!traces.is_empty());

    user.delete_conversation(id).await;
    assert!(user.find_conversation(id).await.is_none());
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
    let key = conversation.session_api_key.expect("it was RUNNING");
    let late = user.with_key(&key);
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

pub(crate) async fn a_model_that_refuses_ends_the_run_and_not_the_service(setup: Setup) {
    let world = World::with_model(setup, "openai/refuse").await;
    let user = &world.user;
    let conversation = user.converse("RUN: echo one > first.txt").await;
    user.wait_for_execution_status(&conversation.id, "error")
        .await;
    assert!(world.llm.calls() > 0);
    assert_eq!(user.get("/ready").await.status, 200);

    // With a valid key, the next conversation in the same sandbox works.
    user.use_model("openai/scripted", &world.llm.base_url(), "sk-good")
        .await;
    let message =
        json!({"content": [{"type": "text", "text": "RUN: echo two > second.txt"}], "run": true});
    let request = json!({"sandbox_id": conversation.sandbox_id, "initial_message": message});
    let second = user.start(&request).await;
    let second = user.wait_until_ready(&second).await;
    user.wait_for_execution_status(&second.id, "finished").await;
    assert_eq!(world.file(&second, "second.txt").as_deref(), Some("two"));
    assert_eq!(
        user.conversation(&conversation.id)
            .await
            .execution_status
            .as_deref(),
        Some("error")
    );
}

pub(crate) async fn a_stream_tells_every_status_and_the_title_appears(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    let message =
        json!({"content": [{"type": "text", "text": "RUN: echo one > first.txt"}], "run": true});
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
    let expected = [
        "WORKING",
        "WAITING_FOR_SANDBOX",
        "PREPARING_REPOSITORY",
        "RUNNING_SETUP_SCRIPT",
        "SETTING_UP_GIT_HOOKS",
        "SETTING_UP_SKILLS",
        "STARTING_CONVERSATION",
        "READY",
    ];
    assert_eq!(statuses, expected);
    let last: &Value = states.last().expect("it is not empty");
    let id = last["app_conversation_id"]
        .as_str()
        .expect("READY names it");
    user.wait_for_execution_status(id, "finished").await;
    let title = wait_for_title(user, id).await;
    assert!(title.to_lowercase().contains("scripted run"), "{title}");
}
