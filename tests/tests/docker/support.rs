//! A service whose sandboxes are containers with the stub.

use std::time::Duration;

use acceptance::client::{Conversation, Sandbox};
use acceptance::{Builder, Client, Engine, Sandboxing, World};

/// How fast the wire must follow what the engine reports: two seconds, and time for a machine that does much else.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn world() -> World {
    configured(|builder| builder).await
}

pub(crate) async fn configured(configure: impl FnOnce(Builder) -> Builder) -> World {
    World::on(&Sandboxing::docker(), "", configure).await
}

/// The engine that the suites share.
pub(crate) fn engine() -> Engine {
    Engine::shared()
}

/// A conversation that has come to its end.
pub(crate) async fn finished(user: &Client) -> Conversation {
    let conversation = user.converse("hello").await;
    user.executed(&conversation.id, "finished").await
}

/// The container of a sandbox.
pub(crate) fn container(world: &World, sandbox: &str) -> String {
    let container = world.service.container(sandbox);
    container.unwrap_or_else(|| panic!("sandbox {sandbox} has no container"))
}

/// Resumes a sandbox and goes on with its conversation, on what was in its workspace.
pub(crate) async fn goes_on(world: &World, conversation: &Conversation) {
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world.user.resume(sandbox).await;
    let kept = world.service.workspace_file(sandbox, "stub.txt");
    assert_eq!(
        kept.as_deref(),
        Some("written by the stub"),
        "the workspace"
    );
    world.user.say(id, "go on").await;
    world.user.executed(id, "finished").await;
    world.service.assert_no_orphans(&[&world.user]).await;
}

/// Why a sandbox is as it is.
pub(crate) fn cause(sandbox: &Sandbox) -> &str {
    let cause = sandbox.status_detail.as_deref().unwrap_or_default();
    assert!(!cause.is_empty(), "without a cause: {sandbox:?}");
    cause
}
