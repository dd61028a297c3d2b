//! Lists are answered by the store alone.

use std::time::{Duration, Instant};

use acceptance::Sandboxing;
use acceptance::wait::wait_for;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{RECONCILE_TIMEOUT, World};

pub(crate) async fn a_hundred_conversations_in_ten_sandboxes_are_listed_without_a_call_to_one(
    sandboxing: Sandboxing,
) {
    let world = World::on(&sandboxing, "", |builder| builder).await;
    let user = &world.user;
    let message = json!({"content": [{"type": "text", "text": "hello"}], "run": true});
    let mut tasks = Vec::new();
    // With titles: the service asks agent servers now and then for those that are missing.
    for _ in 0..10 {
        let request = json!({"title": "named", "initial_message": message});
        let first = user.start(&request).await;
        let first = user.ready(&first).await;
        let request =
            json!({"title": "named", "sandbox_id": first.sandbox_id, "initial_message": message});
        for _ in 0..9 {
            tasks.push(user.start(&request).await);
        }
    }
    for task in &tasks {
        user.ready(task).await;
    }
    wait_for("the end of all runs", RECONCILE_TIMEOUT, || async {
        let all = user.conversations().await;
        let done = |c: &acceptance::client::Conversation| {
            c.execution_status.as_deref() == Some("finished")
        };
        (all.len() == 100 && all.iter().all(done)).then_some(())
    })
    .await;
    // Every minute the service compares all sandboxes with their agent servers, perhaps just while this reads. It does so
    // once, and a list that asks a sandbox does so each time.
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls = calls_while_it_is_read(&world).await;
        if calls.is_empty() {
            break;
        }
    }
    assert!(calls.is_empty(), "{calls:#?}");
}

/// What agent servers were asked while everything was read.
async fn calls_while_it_is_read(world: &World) -> Vec<String> {
    let user = &world.user;
    // What the service itself still has to compare with the agent servers comes to rest.
    let before = rest(world).await;

    // A sandbox that was asked would not answer.
    let servers = world.service.agent_servers();
    assert_eq!(servers.len(), 10);
    for server in &servers {
        server.signal(Signal::STOP);
    }
    for path in [
        "/api/v1/app-conversations?limit=100",
        "/api/v1/app-conversations/search?limit=100",
        "/api/v1/sandboxes/search?limit=100",
    ] {
        let page = user.get(path).await.ok();
        let items = page["items"].as_array().map_or(0, Vec::len);
        assert_eq!(
            items,
            if path.contains("sandboxes") { 10 } else { 100 },
            "{path}"
        );
    }
    assert_eq!(user.get("/api/v1/app-conversations/count").await.ok(), 100);
    for conversation in user.conversations().await {
        assert_eq!(conversation.sandbox_status, "RUNNING");
        user.conversation(&conversation.id).await;
        user.count_events(&conversation.id).await;
    }
    for server in &servers {
        server.signal(Signal::CONT);
    }
    // Requests that had come in meanwhile would be written down now, before this one.
    let first = user.conversations().await.swap_remove(0);
    user.events_at_agent_server(&first).await;
    let mut calls = world.stub.calls().split_off(before);
    let own = format!("/api/conversations/{}/events/search", first.id);
    let own = calls
        .iter()
        .position(|call| call.replace('-', "").contains(&own.replace('-', "")));
    calls.remove(own.expect("this one"));
    calls
}

/// Waits until nothing has called a sandbox for a while; returns how many calls there were.
async fn rest(world: &World) -> usize {
    let limit = Instant::now() + RECONCILE_TIMEOUT;
    let mut calls = world.stub.calls().len();
    loop {
        // There is no event for something that does not happen.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = world.stub.calls().len();
        if std::mem::replace(&mut calls, now) == now {
            return now;
        }
        assert!(
            Instant::now() < limit,
            "the service calls its sandboxes without end"
        );
    }
}
