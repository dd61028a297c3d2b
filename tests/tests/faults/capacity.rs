//! Limits on running sandboxes under load: exactly as many are accepted, and refusals name the limit.

use acceptance::Sandboxing;
use acceptance::client::Reply;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{World, configure_model, wait_for_messages_and_runs};

const START_PATH: &str = "/api/v1/app-conversations";

fn assert_refused(reply: &Reply, limit: &str) {
    assert_eq!(reply.status, 429, "{reply:?}");
    let wait = reply
        .headers
        .get("retry-after")
        .expect("the refusal has no Retry-After");
    let wait: u64 = wait
        .to_str()
        .unwrap_or("")
        .parse()
        .expect("Retry-After is not a number of seconds");
    assert!(wait > 0);
    let detail = reply.body["detail"].as_str().unwrap_or_default();
    assert!(
        detail.contains(limit) && detail.contains("sandboxes"),
        "{detail}"
    );
}

pub(crate) async fn fifty_concurrent_starts_are_accepted_up_to_the_user_limit(
    sandboxing: Sandboxing,
) {
    let world = World::with_sandboxing(&sandboxing, "", |builder| {
        builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "5")
    })
    .await;
    let request = json!({});
    let starts = (0..50).map(|_| world.user.post(START_PATH, &request));
    let replies = join_all(starts).await;
    let (accepted, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|r| r.status == 200);
    assert_eq!(accepted.len(), 5);
    for reply in refused {
        assert_refused(reply, "5");
    }

    let mut conversations = Vec::new();
    for reply in accepted {
        let id = reply.body["id"].as_str().expect("the task has no id");
        let task = world.user.task(id).await;
        conversations.push(world.user.wait_until_ready(&task).await);
    }
    assert_eq!(world.service.agent_servers().len(), 5);
    world.service.assert_no_orphans(&[&world.user]).await;

    // A paused sandbox frees its place, and cannot be resumed while no place is free.
    let first = &conversations[0].sandbox_id;
    world.user.pause(first).await;
    world.user.converse("takes its place").await;
    let resume = format!("/api/v1/sandboxes/{first}/resume");
    assert_refused(&world.user.post(&resume, &json!({})).await, "5");
    assert_eq!(
        world
            .user
            .conversation(&conversations[1].id)
            .await
            .sandbox_status,
        "RUNNING"
    );
    let deleted = &conversations[1];
    world.user.delete_conversation(&deleted.id).await;
    world.user.resume(first).await;
}

pub(crate) async fn installation_limit_counts_the_sandboxes_of_all_users(sandboxing: Sandboxing) {
    let world = World::with_sandboxing(&sandboxing, "", |builder| {
        builder.env("WORKSPACE_SANDBOX__MAX_RUNNING", "2")
    })
    .await;
    let other = world.service.user("other");
    configure_model(&other).await;
    world.user.converse("one").await;
    other.converse("two").await;
    assert_refused(&other.post(START_PATH, &json!({})).await, "2");
    assert_refused(&world.user.post("/api/v1/sandboxes", &json!({})).await, "2");
}

pub(crate) async fn concurrent_starts_with_one_conversation_id_make_one_conversation(
    sandboxing: Sandboxing,
) {
    let world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let id = "00112233445566778899aabbccddeeff";
    let message = json!({"content": [{"type": "text", "text": "hello"}], "run": true});
    let request = json!({"conversation_id": id, "initial_message": message});
    let replies = join_all((0..20).map(|_| world.user.post(START_PATH, &request))).await;
    let tasks: Vec<&Value> = replies.iter().map(|reply| &reply.body["id"]).collect();
    assert!(
        replies.iter().all(|reply| reply.status == 200),
        "{replies:?}"
    );
    assert!(tasks.iter().all(|task| *task == tasks[0]), "{tasks:?}");
    let task = world.user.task(tasks[0].as_str().unwrap_or_default()).await;
    assert_eq!(world.user.wait_until_ready(&task).await.id, id);
    world.user.wait_for_execution_status(id, "finished").await;
    assert_eq!(world.user.sandboxes().await.len(), 1);
    wait_for_messages_and_runs(&world.user, id, 1, 1).await;
    // The same request again, after the conversation exists.
    let again = world.user.start(&request).await;
    assert_eq!(world.user.wait_until_ready(&again).await.id, id);
    assert_eq!(world.stub.starts(), 1);
    wait_for_messages_and_runs(&world.user, id, 1, 1).await;
}
