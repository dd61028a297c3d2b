//! A sandbox paused with one release of the agent server continues with another one, newer or older.

use acceptance::client::text;
use acceptance::{Sandboxing, Version};
use serde_json::{Value, json};

use crate::support::{Setup, World, actions, user_messages, wait_for_title};

/// From one tested release to the other one.
pub(crate) async fn a_paused_sandbox_goes_on_with_the_release_of_now(setup: Setup) {
    let mut world = World::start(setup.clone()).await;
    let conversation = world.user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world.user.wait_for_execution_status(id, "finished").await;
    assert_eq!(release(&world, id).await, setup.version.to_string());
    let before = world.assert_complete(id).await;
    let title = Some(wait_for_title(&world.user, id).await);
    world.user.pause(sandbox).await;

    let now = match setup.version {
        Version::V1_34_0 => Version::V1_58_0,
        Version::V1_58_0 => Version::V1_34_0,
    };
    resumes_with(&mut world, now, sandbox).await;
    // A container keeps its image.
    let expected = match &setup.sandboxing {
        Sandboxing::Process | Sandboxing::UnconfinedProcess => now.to_string(),
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
        .send_message(id, "RUN: cat first.txt first.txt > second.txt")
        .await;
    world.user.wait_for_execution_status(id, "finished").await;
    assert_eq!(
        world.file(&conversation, "second.txt").as_deref(),
        Some("one\none")
    );
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 2);
    assert_eq!(actions(&events, "finish"), 2);
    assert_eq!(world.user.conversation(id).await.title, title);
    world.assert_exactly_one().await;
}

/// A process of an older release cannot read the files of a newer one. The service reports that, and with the newer release
/// everything is available again.
pub(crate) async fn what_an_older_release_cannot_read_is_reported_and_kept(setup: Setup) {
    let mut world = World::start(setup.clone()).await;
    let conversation = world.user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world.user.wait_for_execution_status(id, "finished").await;
    let before = world.assert_complete(id).await;
    let title = Some(wait_for_title(&world.user, id).await);
    world.user.pause(sandbox).await;

    resumes_with(&mut world, Version::V1_34_0, sandbox).await;
    assert_eq!(release(&world, id).await, "1.34.0");
    let path = format!("/api/v1/app-conversations/{id}/send-message");
    let message = json!({"role": "user", "content": text("RUN: cat first.txt")});
    let refused = world.user.post(&path, &message).await;
    let said = refused.body["detail"].as_str().unwrap_or_default();
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(said.contains("newer"), "{said}");
    assert_eq!(world.user.conversation(id).await.title, title);
    // The pause may have added an event.
    assert!(world.user.count_events(id).await >= before.len());
    world.user.pause(sandbox).await;

    resumes_with(&mut world, setup.version, sandbox).await;
    let log = world.assert_complete(id).await;
    assert!(before.iter().all(|event| log.contains(event)), "{log:#?}");
    world
        .user
        .send_message(id, "RUN: cat first.txt first.txt > second.txt")
        .await;
    world.user.wait_for_execution_status(id, "finished").await;
    assert_eq!(
        world.file(&conversation, "second.txt").as_deref(),
        Some("one\none")
    );
    world.assert_complete(id).await;
    assert_eq!(world.user.conversation(id).await.title, title);
    world.assert_exactly_one().await;
}

/// Restarts the service with this release, and resumes the sandbox.
async fn resumes_with(world: &mut World, release: Version, sandbox: &str) {
    world.service.stop().await;
    world.service.set_agent_server(release);
    world.service.restart().await;
    world.user.resume(sandbox).await;
}

/// The release that the conversation's agent server reports.
async fn release(world: &World, id: &str) -> Value {
    let conversation = world.user.conversation(id).await;
    let key = conversation.session_api_key.expect("it runs");
    let info = world.user.with_key(&key).get("/server_info").await.ok();
    info["version"].clone()
}
