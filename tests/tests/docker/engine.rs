//! The engine itself: killed, back, and hanging. Each test has an engine of its own.

use std::time::{Duration, Instant};

use acceptance::engine::stub_image;
use acceptance::wait::wait_for;
use acceptance::world::RECONCILE_TIMEOUT;
use acceptance::{Engine, PrivateEngine, Sandboxing, World};

use crate::support::{EVENT_TIMEOUT, cause, finished, goes_on};

/// Until the service has noticed that nobody answers, or that somebody does again: by that itself, since all is compared every
/// 30 s only.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(25);
/// What may wait for such a comparison.
const COMPARED: Duration = Duration::from_secs(60);

/// The service ends what it has on the engine before the engine ends.
struct EngineWorld {
    world: World,
    engine: PrivateEngine,
}

impl EngineWorld {
    async fn start() -> Self {
        let engine = PrivateEngine::start();
        engine.load(&stub_image(), &Engine::shared());
        let sandboxing = Sandboxing::Docker(engine.engine());
        let world = World::on(&sandboxing, "", |builder| builder).await;
        Self { world, engine }
    }

    /// The detail of a sandbox that is still shown as RUNNING, once it has one.
    async fn doubt(&self, sandbox: &str) -> String {
        wait_for("a word about the engine", NOTICE_TIMEOUT, || async {
            let now = self.world.user.sandbox(sandbox).await?;
            assert_eq!(now.status, "RUNNING", "the last known state");
            now.status_detail
        })
        .await
    }
}

#[tokio::test]
async fn an_engine_that_is_killed_leaves_the_last_state_and_what_ended_with_it_can_be_resumed() {
    let mut lab = EngineWorld::start().await;
    let conversation = finished(&lab.world.user).await;
    let paused = finished(&lab.world.user).await;
    lab.world.user.pause(&paused.sandbox_id).await;
    let sandbox = &conversation.sandbox_id;

    lab.engine.kill9();
    let detail = lab.doubt(sandbox).await;
    assert!(detail.contains("last known"), "{detail}");
    // (What was seen while it was there is said for a second.)
    wait_for("a service that is not ready", COMPARED, || async {
        (lab.world.user.get("/ready").await.status == 503).then_some(())
    })
    .await;
    assert!(!lab.world.user.events(&conversation.id).await.is_empty());

    lab.engine.restart();
    // An engine that was not told to keep containers ends them when it is back.
    let failed = lab
        .world
        .user
        .sandbox_becomes(sandbox, "ERROR", NOTICE_TIMEOUT)
        .await;
    let why = cause(&failed);
    assert!(!why.contains("last known"), "{why}");
    // One sandbox after the other is looked at again.
    wait_for("a pause without a doubt", COMPARED, || async {
        let other = lab.world.user.sandbox(&paused.sandbox_id).await?;
        assert_eq!(other.status, "PAUSED");
        other.status_detail.is_none().then_some(())
    })
    .await;
    // What was seen while it was gone is said for a second.
    wait_for("readiness", COMPARED, || async {
        (lab.world.user.get("/ready").await.status == 200).then_some(())
    })
    .await;
    goes_on(&lab.world, &conversation).await;
    goes_on(&lab.world, &paused).await;
}

#[tokio::test]
async fn while_the_engine_is_gone_nothing_hangs_and_a_new_sandbox_fails_with_a_cause() {
    let mut lab = EngineWorld::start().await;
    let conversation = finished(&lab.world.user).await;
    lab.engine.kill9();
    lab.doubt(&conversation.sandbox_id).await;
    let task = lab.world.user.start_with("hello").await;
    let ended = lab.world.user.ended(&task).await;
    assert_eq!(ended.status, "ERROR", "{ended:?}");
    assert!(ended.detail.unwrap_or_default().contains("engine"));
    lab.world.user.delete_conversation(&conversation.id).await;
    assert!(
        lab.world
            .user
            .find_conversation(&conversation.id)
            .await
            .is_none()
    );

    // A service that starts without its engine waits for it.
    lab.world.service.kill9();
    lab.world.service.restart().await;
    assert!(lab.world.user.conversations().await.is_empty());
    lab.engine.restart();
    lab.world.assert_nothing_left().await;
    finished(&lab.world.user).await;
}

#[tokio::test]
async fn an_engine_that_hangs_makes_no_reader_wait_and_is_forgotten_when_it_goes_on() {
    let lab = EngineWorld::start().await;
    let conversation = finished(&lab.world.user).await;
    let before = lab.world.service.agent_servers();
    lab.engine.hang(true);
    for _ in 0..30 {
        let asked = Instant::now();
        assert_eq!(lab.world.user.conversations().await.len(), 1);
        assert_eq!(lab.world.user.sandboxes().await.len(), 1);
        assert!(
            asked.elapsed() < EVENT_TIMEOUT,
            "a list took {:?}",
            asked.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The agent server answers without its engine.
    lab.world.user.say(&conversation.id, "more").await;
    lab.world.user.executed(&conversation.id, "finished").await;
    lab.engine.hang(false);
    wait_for("a state without a doubt", RECONCILE_TIMEOUT, || async {
        let now = lab.world.user.sandbox(&conversation.sandbox_id).await?;
        (now.status == "RUNNING" && now.status_detail.is_none()).then_some(())
    })
    .await;
    assert_eq!(
        lab.world.service.agent_servers(),
        before,
        "the same process"
    );
}
