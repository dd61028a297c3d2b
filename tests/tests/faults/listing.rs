//! Lists are answered from the store alone.

use std::collections::BTreeMap;

use acceptance::Sandboxing;
use acceptance::client::Conversation;
use acceptance::wait::wait_for;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{RECONCILE_TIMEOUT, World};

const SANDBOXES: usize = 10;
const CONVERSATIONS: usize = 100;
/// How often everything is read.
const READS: usize = 5;

pub(crate) async fn lists_are_answered_without_calls_to_sandboxes(sandboxing: Sandboxing) {
    let world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let conversations = start_conversations(&world).await;
    let before = world.stub.calls().len();

    // A request to a stopped agent server gets no response.
    let servers = world.service.agent_servers();
    assert_eq!(servers.len(), SANDBOXES);
    for server in &servers {
        server.signal(Signal::STOP);
    }
    for _ in 0..READS {
        read_everything(&world).await;
    }
    for server in &servers {
        server.signal(Signal::CONT);
    }

    // The agent servers respond to these requests after those that came while they were stopped.
    let by_sandbox = conversations.iter().map(|it| (&it.sandbox_id, it));
    for conversation in by_sandbox.collect::<BTreeMap<_, _>>().into_values() {
        world.user.events_at_agent_server(conversation).await;
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for call in world.stub.calls().split_off(before) {
        *counts.entry(call).or_default() += 1;
    }
    // The service itself compares a sandbox with its agent server after runs and every minute. A list that called sandboxes
    // would call each of them at every read.
    counts.retain(|_, count| *count >= READS);
    let calls: usize = counts.values().sum();
    assert!(
        calls < READS * SANDBOXES,
        "lists called sandboxes: {counts:#?}"
    );
}

/// Starts the same number of conversations in each sandbox, and waits until all of their runs have finished.
async fn start_conversations(world: &World) -> Vec<Conversation> {
    let user = &world.user;
    let message = json!({"content": [{"type": "text", "text": "hello"}], "run": true});
    let mut tasks = Vec::new();
    // With titles, because the service asks agent servers for missing ones.
    for _ in 0..SANDBOXES {
        let request = json!({"title": "named", "initial_message": message});
        let first = user.start(&request).await;
        let first = user.wait_until_ready(&first).await;
        let request =
            json!({"title": "named", "sandbox_id": first.sandbox_id, "initial_message": message});
        for _ in 1..CONVERSATIONS / SANDBOXES {
            tasks.push(user.start(&request).await);
        }
    }
    for task in &tasks {
        user.wait_until_ready(task).await;
    }
    wait_for("the end of all runs", RECONCILE_TIMEOUT, || async {
        let all = user.conversations().await;
        let has_finished = |it: &Conversation| it.execution_status.as_deref() == Some("finished");
        (all.len() == CONVERSATIONS && all.iter().all(has_finished)).then_some(all)
    })
    .await
}

async fn read_everything(world: &World) {
    let user = &world.user;
    for (path, expected) in [
        ("/api/v1/app-conversations?limit=100", CONVERSATIONS),
        ("/api/v1/app-conversations/search?limit=100", CONVERSATIONS),
        ("/api/v1/sandboxes/search?limit=100", SANDBOXES),
    ] {
        let page = user.get(path).await.ok();
        let items = page["items"].as_array().map_or(0, Vec::len);
        assert_eq!(items, expected, "{path}");
    }
    let count = user.get("/api/v1/app-conversations/count").await.ok();
    assert_eq!(count, CONVERSATIONS);
    for conversation in user.conversations().await {
        assert_eq!(conversation.sandbox_status, "RUNNING");
        user.conversation(&conversation.id).await;
        user.count_events(&conversation.id).await;
    }
}
