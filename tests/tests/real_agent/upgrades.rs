//! The operator moves to another release of the agent server while a sandbox is paused.

use acceptance::engine::agent_server_image;
use acceptance::{Engine, Sandboxing, Version};
use serde_json::json;

use crate::support::{LATE, Setup, World, said_by_user};

/// What is configured, by kind of sandbox.
fn configure(world: &mut World, sandboxing: &Sandboxing, version: Version) {
    let (name, value) = match sandboxing {
        Sandboxing::Process => ("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", version.command()),
        Sandboxing::Docker(_) => ("WORKSPACE_DOCKER__IMAGE", agent_server_image(version)),
    };
    world.service.set(name, &value);
}

/// Asks for a resume that cannot succeed; what the owner is told.
async fn cause_of_failed_resume(world: &World, sandbox: &str) -> String {
    let path = format!("/api/v1/sandboxes/{sandbox}/resume");
    world.user.post(&path, &json!({})).await;
    let failed = world.user.sandbox_becomes(sandbox, "ERROR", LATE).await;
    failed.status_detail.unwrap_or_default()
}

pub(crate) async fn a_sandbox_of_the_former_release_goes_on(setup: Setup) {
    let sandboxing = setup.sandboxing.clone();
    let mut world = World::start(setup).await;
    let conversation = world.user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world.user.executed(id, "finished").await;
    world.user.pause(sandbox).await;
    world.user.sandbox_becomes(sandbox, "PAUSED", LATE).await;

    world.service.stop().await;
    configure(&mut world, &sandboxing, Version::V1_58_0);
    world.service.restart().await;
    world.user = world.service.admin();
    world.user.resume(sandbox).await;
    world.user.say(id, "RUN: echo two > second.txt").await;
    world.user.executed(id, "finished").await;
    for (name, text) in [("first.txt", "one"), ("second.txt", "two")] {
        let file = world.file(&conversation, name);
        assert_eq!(file.as_deref(), Some(text), "{name}");
    }
    let events = world.assert_complete(id).await;
    assert_eq!(said_by_user(&events).len(), 2);
    let info = world.user.conversation(id).await;
    let url = info.conversation_url.as_deref().expect("it runs");
    let (server, _) = url.split_once("/api/").expect("a URL of an agent server");
    let key = info.session_api_key.as_deref().expect("it runs");
    let told = acceptance::Client::new(server.to_owned(), key);
    let told = told.get("/server_info").await.ok();
    // A container keeps its image; a process is started by the command of today.
    let expected = match &sandboxing {
        Sandboxing::Process => "1.58.0",
        Sandboxing::Docker(_) => "1.34.0",
    };
    assert_eq!(told["version"], expected, "{told}");

    world.user.pause(sandbox).await;
    world.user.sandbox_becomes(sandbox, "PAUSED", LATE).await;
    what_is_gone_is_told(&mut world, &sandboxing, sandbox).await;
}

/// Without its program, or its container and template, a sandbox cannot go on; its owner learns what to do.
async fn what_is_gone_is_told(world: &mut World, sandboxing: &Sandboxing, sandbox: &str) {
    let cause = match sandboxing {
        Sandboxing::Process => {
            world.service.stop().await;
            world.service.set(
                "WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND",
                "/nowhere/python -m openhands.agent_server",
            );
            world.service.restart().await;
            world.user = world.service.admin();
            cause_of_failed_resume(world, sandbox).await
        }
        Sandboxing::Docker(_) => {
            let container = world.service.container(sandbox).expect("it is stopped");
            Engine::shared().docker(&["rm", "--force", &container]);
            cause_of_failed_resume(world, sandbox).await
        }
    };
    assert!(cause.contains("the operator has to"), "{cause}");
}
