//! `auto`: containers where an engine answers, else processes; and it says which and why.

use acceptance::{Sandboxing, World};

use crate::support::finished;

#[tokio::test]
async fn auto_takes_an_engine_that_answers_and_does_without_one_that_does_not() {
    let world = World::on(&Sandboxing::docker(), "", |builder| {
        builder.env("WORKSPACE_SANDBOX__BACKEND", "auto")
    })
    .await;
    let conversation = finished(&world.user).await;
    assert!(world.service.container(&conversation.sandbox_id).is_some());

    let nobody = "unix:///nowhere/docker.sock";
    let world = World::configured("", |builder| {
        builder
            .env("WORKSPACE_SANDBOX__BACKEND", "auto")
            .env("WORKSPACE_DOCKER__SOCKET", nobody)
    })
    .await;
    finished(&world.user).await;
    assert_eq!(world.service.agent_servers().len(), 1, "a process");
    let log = world.service.log();
    let says_why = log.contains("auto: the container engine does not answer");
    assert!(says_why, "it does not say why:\n{log}");
}
