//! The backend `auto`: containers if an engine answers, else processes. The log names the reason.

use acceptance::{Sandboxing, World};

use crate::support::start_finished_conversation;

#[tokio::test]
async fn auto_uses_containers_only_if_the_engine_answers() {
    let world = World::with_sandboxing(&Sandboxing::docker(), "", |builder| {
        builder.env("WORKSPACE_SANDBOX__BACKEND", "auto")
    })
    .await;
    let conversation = start_finished_conversation(&world.user).await;
    assert!(world.service.container(&conversation.sandbox_id).is_some());

    let no_engine = "unix:///nowhere/docker.sock";
    let world = World::configured("", |builder| {
        builder
            .env("WORKSPACE_SANDBOX__BACKEND", "auto")
            .env("WORKSPACE_DOCKER__SOCKET", no_engine)
    })
    .await;
    start_finished_conversation(&world.user).await;
    assert_eq!(
        world.service.agent_servers().len(),
        1,
        "the sandbox must be a process"
    );
    let log = world.service.log();
    let says_why = log.contains("auto: the container engine does not answer");
    assert!(
        says_why,
        "the log does not say why `auto` chose processes:\n{log}"
    );
}
