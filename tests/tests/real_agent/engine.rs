//! Containers only: a conversation survives a killed engine and a removed container.

use std::time::Duration;

use acceptance::engine::agent_server_image;
use acceptance::wait::wait_for;
use acceptance::{Engine, PrivateEngine, Sandboxing, Version};

use crate::support::{NOTICE_TIMEOUT, RECONCILE_TIMEOUT, Setup, World, actions, user_messages};

/// Time from the engine's first response until the API shows the right state. Shorter than the 30 s between two periodic
/// lists, so the reconnect itself must cause it.
const SECONDS: Duration = Duration::from_secs(25);

#[tokio::test]
#[ignore = "a part of `cargo xtask nightly`; `docker` kills the engine around a stub"]
async fn a_run_that_its_engine_took_down_is_an_error_and_goes_on_in_its_workspace() {
    let version = Version::V1_58_0;
    let mut engine = PrivateEngine::start();
    engine.load(&agent_server_image(version), &Engine::shared());
    let setup = Setup::new(version, Sandboxing::Docker(engine.engine()));
    let world = World::with_model(setup, "openai/steps-20+slow-300").await;
    let user = &world.user;
    let conversation = user.converse("RUN: echo step >> steps.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    let under_way = world.llm.wait_for_calls(4, RECONCILE_TIMEOUT).await;
    under_way.expect("the run is under way");

    engine.kill9();
    // Containers and the run continue without their engine, so the service must not report an error of the run.
    let calls = world.llm.calls();
    wait_for("a word about the engine", SECONDS, || async {
        let now = user.sandbox(sandbox).await?;
        assert_eq!(now.status, "RUNNING", "the last known state");
        now.status_detail
    })
    .await;
    let goes_on = world.llm.wait_for_calls(calls + 1, RECONCILE_TIMEOUT).await;
    goes_on.expect("the run goes on");

    engine.restart();
    let failed = user
        .wait_for_sandbox_status(sandbox, "ERROR", SECONDS)
        .await;
    assert!(failed.status_detail.is_some_and(|cause| !cause.is_empty()));
    assert_eq!(user.conversation(id).await.sandbox_status, "ERROR");
    wait_for("the end of the run that was shown", SECONDS, || async {
        let now = user.conversation(id).await.execution_status;
        (now.as_deref() != Some("running")).then_some(())
    })
    .await;

    user.use_model("openai/scripted", &world.llm.base_url(), "sk-scripted")
        .await;
    user.resume(sandbox).await;
    let steps = world.file(&conversation, "steps.txt").unwrap_or_default();
    assert!(steps.lines().count() > 1, "the workspace is kept: {steps}");
    user.send_message(id, "Go on.\nRUN: echo two > second.txt")
        .await;
    user.wait_for_execution_status(id, "finished").await;
    assert_eq!(
        world.file(&conversation, "second.txt").as_deref(),
        Some("two")
    );
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 2);
    assert_eq!(actions(&events, "finish"), 1);
    world.assert_exactly_one().await;
    // Dropped before the engine, so that the service can remove its containers.
    drop(world);
}

#[tokio::test]
async fn a_conversation_goes_on_in_a_new_container_around_its_workspace() {
    let world = World::start(Setup::docker(Version::V1_58_0)).await;
    let user = &world.user;
    let conversation = user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    user.wait_for_execution_status(id, "finished").await;
    let container = world.service.container(sandbox).expect("it runs in one");
    Engine::shared().docker(&["rm", "--force", &container]);
    let gone = user
        .wait_for_sandbox_status(sandbox, "MISSING", NOTICE_TIMEOUT)
        .await;
    assert!(gone.status_detail.is_some_and(|cause| !cause.is_empty()));

    user.resume(sandbox).await;
    assert_eq!(
        world.file(&conversation, "first.txt").as_deref(),
        Some("one")
    );
    user.send_message(id, "RUN: echo two > second.txt").await;
    user.wait_for_execution_status(id, "finished").await;
    assert_eq!(
        world.file(&conversation, "second.txt").as_deref(),
        Some("two")
    );
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 2);
    world.assert_exactly_one().await;
}
