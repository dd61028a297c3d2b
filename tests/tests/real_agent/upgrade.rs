//! What was paused with one release of the agent server goes on with a newer one.

use acceptance::engine::agent_server_image;
use acceptance::{Sandboxing, Version};
use serde_json::Value;

use crate::support::{Setup, World, actions, said_by_user, titled};

/// From the older release to the newer one.
pub(crate) async fn a_paused_sandbox_goes_on_with_the_release_of_now(setup: Setup) {
    let mut world = World::start(setup.clone()).await;
    let conversation = world.user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world.user.executed(id, "finished").await;
    assert_eq!(release(&world, id).await, "1.34.0");
    let before = world.assert_complete(id).await;
    let title = Some(titled(&world.user, id).await);
    world.user.pause(sandbox).await;

    world.service.stop().await;
    let now = Version::V1_58_0;
    match &setup.sandboxing {
        Sandboxing::Process => {
            let command = now.command();
            let name = "WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND";
            world.service.set(name, &command);
        }
        Sandboxing::Docker(_) => {
            let image = agent_server_image(now);
            world.service.set("WORKSPACE_DOCKER__IMAGE", &image);
        }
    }
    world.service.restart().await;
    world.user.resume(sandbox).await;
    // A container keeps the image that it was made from.
    let expected = match &setup.sandboxing {
        Sandboxing::Process => now.to_string(),
        Sandboxing::Docker(_) => setup.version.to_string(),
    };
    assert_eq!(release(&world, id).await, expected);

    assert_eq!(
        world.file(&conversation, "first.txt").as_deref(),
        Some("one")
    );
    assert_eq!(world.user.conversation(id).await.title, title);
    let log = world.assert_complete(id).await;
    assert!(before.iter().all(|event| log.contains(event)), "{log:#?}");
    world
        .user
        .say(id, "RUN: cat first.txt first.txt > second.txt")
        .await;
    world.user.executed(id, "finished").await;
    assert_eq!(
        world.file(&conversation, "second.txt").as_deref(),
        Some("one\none")
    );
    let events = world.assert_complete(id).await;
    assert_eq!(said_by_user(&events).len(), 2);
    assert_eq!(actions(&events, "finish"), 2);
    assert_eq!(world.user.conversation(id).await.title, title);
    world.assert_exactly_one().await;
}

/// What the agent server of a conversation says that it is.
async fn release(world: &World, id: &str) -> Value {
    let conversation = world.user.conversation(id).await;
    let key = conversation.session_api_key.expect("it runs");
    let info = world.user.with_key(&key).get("/server_info").await.ok();
    info["version"].clone()
}
