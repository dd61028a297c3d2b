//! Pending messages and `kill -9`.

use acceptance::client::Conversation;
use acceptance::wait::wait_for;
use serde_json::json;

use crate::support::{RECONCILE_TIMEOUT, World};

async fn queue_message(world: &World, name: &str, text: &str) {
    let path = format!("/api/v1/conversations/{name}/pending-messages");
    let body = json!({"content": acceptance::client::text(text)});
    let reply = world.user.post(&path, &body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
}

/// Waits until the agent server has this many messages; returns their texts.
async fn wait_for_messages(
    world: &World,
    conversation: &Conversation,
    count: usize,
) -> Vec<String> {
    wait_for(
        "the messages at the agent server",
        RECONCILE_TIMEOUT,
        || async {
            let log = world.user.events_at_agent_server(conversation).await;
            let messages = log.iter().filter(|event| event["source"] == "user");
            let texts = messages.map(|it| it["llm_message"]["content"][0]["text"].to_string());
            let texts: Vec<String> = texts.collect();
            (texts.len() >= count).then_some(texts)
        },
    )
    .await
}

#[tokio::test]
async fn pending_messages_are_delivered_once_and_in_order_across_kills() {
    let mut world = World::with_faults("").await;
    let task = world.user.start_with("hello").await;
    let name = format!("task-{}", task.id);
    for text in ["one", "two", "three"] {
        queue_message(&world, &name, text).await;
    }
    world.service.kill9();
    world.service.restart().await;
    let conversation = world.user.wait_until_ready(&task).await;
    wait_for_messages(&world, &conversation, 4).await;
    // The next message arrives, but its response does not.
    world.stub.set_faults("send-mute");
    queue_message(&world, &conversation.id, "four").await;
    wait_for_messages(&world, &conversation, 5).await;
    world.service.kill9();
    world.stub.set_faults("");
    world.service.restart().await;
    queue_message(&world, &conversation.id, "five").await;
    let messages = wait_for_messages(&world, &conversation, 6).await;
    let expected = ["hello", "one", "two", "three", "four", "five"];
    assert_eq!(messages, expected.map(|text| format!("{text:?}")));
}
