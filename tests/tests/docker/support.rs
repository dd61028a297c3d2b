//! Worlds whose sandboxes are containers with the stub.

use std::time::Duration;

use acceptance::client::{Conversation, Sandbox};
use acceptance::{Builder, Client, Engine, Sandboxing, World};

/// Until the API shows an event of the engine. Usually two seconds; the rest is for a busy machine.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn world() -> World {
    configured(|builder| builder).await
}

pub(crate) async fn configured(configure: impl FnOnce(Builder) -> Builder) -> World {
    World::with_sandboxing(&Sandboxing::docker(), "", configure).await
}

/// The engine that the suites share.
pub(crate) fn engine() -> Engine {
    Engine::shared()
}

/// Starts a conversation and waits until its run has finished.
pub(crate) async fn start_finished_conversation(user: &Client) -> Conversation {
    let conversation = user.converse("hello").await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await
}

/// The id of a sandbox's container.
pub(crate) fn container(world: &World, sandbox: &str) -> String {
    let container = world.service.container(sandbox);
    container.unwrap_or_else(|| panic!("sandbox {sandbox} has no container"))
}

/// Asserts that a sandbox resumes with its workspace and continues its conversation.
pub(crate) async fn assert_resumes(world: &World, conversation: &Conversation) {
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world.user.resume(sandbox).await;
    let kept = world.service.workspace_file(sandbox, "stub.txt");
    assert_eq!(
        kept.as_deref(),
        Some("written by the stub"),
        "the sandbox lost its workspace"
    );
    world.user.send_message(id, "go on").await;
    world.user.wait_for_execution_status(id, "finished").await;
    world.service.assert_no_orphans(&[&world.user]).await;
}

/// The detail of a sandbox's status, which must not be empty.
pub(crate) fn status_detail(sandbox: &Sandbox) -> &str {
    let cause = sandbox.status_detail.as_deref().unwrap_or_default();
    assert!(
        !cause.is_empty(),
        "the sandbox has no status detail: {sandbox:?}"
    );
    cause
}
