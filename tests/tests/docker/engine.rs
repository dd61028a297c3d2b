//! An engine that is killed, restarted, or hangs. Each test starts an engine of its own.

use std::time::Duration;

use acceptance::engine::stub_image;
use acceptance::wait::{wait_for, within};
use acceptance::world::RECONCILE_TIMEOUT;
use acceptance::{Engine, PrivateEngine, Sandboxing, World};

use crate::support::{assert_resumes, start_finished_conversation, status_detail};

/// Until the service notices that the engine is gone or back. It must notice by the connection, because it compares rows and
/// containers only every 30 s.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(25);

/// Fields are dropped in order: the service removes its containers before the engine ends.
struct EngineWorld {
    world: World,
    engine: PrivateEngine,
}

impl EngineWorld {
    async fn start() -> Self {
        let engine = PrivateEngine::start();
        engine.load(&stub_image(), &Engine::shared());
        let sandboxing = Sandboxing::Docker(engine.engine());
        let world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
        Self { world, engine }
    }

    /// Waits until a sandbox that is still shown as RUNNING has a detail; returns it.
    async fn wait_for_doubt(&self, sandbox: &str) -> String {
        wait_for("a detail about the engine", NOTICE_TIMEOUT, || async {
            let now = self.world.user.sandbox(sandbox).await?;
            assert_eq!(
                now.status, "RUNNING",
                "the sandbox must keep its last known state"
            );
            now.status_detail
        })
        .await
    }
}

#[tokio::test]
async fn killed_engine_keeps_the_last_known_state_and_its_sandboxes_can_be_resumed() {
    let mut setup = EngineWorld::start().await;
    let conversation = start_finished_conversation(&setup.world.user).await;
    let paused = start_finished_conversation(&setup.world.user).await;
    setup.world.user.pause(&paused.sandbox_id).await;
    let sandbox = &conversation.sandbox_id;

    setup.engine.kill9();
    let detail = setup.wait_for_doubt(sandbox).await;
    assert!(detail.contains("last known"), "{detail}");
    // `/ready` repeats a result for a second.
    wait_for("a service that is not ready", RECONCILE_TIMEOUT, || async {
        (setup.world.user.get("/ready").await.status == 503).then_some(())
    })
    .await;
    assert!(!setup.world.user.events(&conversation.id).await.is_empty());

    setup.engine.restart();
    // Without `live-restore` an engine ends its containers when it restarts.
    let failed = setup
        .world
        .user
        .wait_for_sandbox_status(sandbox, "ERROR", NOTICE_TIMEOUT)
        .await;
    let detail = status_detail(&failed);
    assert!(!detail.contains("last known"), "{detail}");
    // The service inspects one sandbox after the other.
    wait_for(
        "a paused sandbox without a detail",
        RECONCILE_TIMEOUT,
        || async {
            let other = setup.world.user.sandbox(&paused.sandbox_id).await?;
            assert_eq!(other.status, "PAUSED");
            other.status_detail.is_none().then_some(())
        },
    )
    .await;
    // `/ready` repeats a result for a second.
    wait_for("readiness", RECONCILE_TIMEOUT, || async {
        (setup.world.user.get("/ready").await.status == 200).then_some(())
    })
    .await;
    assert_resumes(&setup.world, &conversation).await;
    assert_resumes(&setup.world, &paused).await;
}

#[tokio::test]
async fn absent_engine_blocks_no_request_and_fails_new_sandboxes_with_a_cause() {
    let mut setup = EngineWorld::start().await;
    let conversation = start_finished_conversation(&setup.world.user).await;
    setup.engine.kill9();
    setup.wait_for_doubt(&conversation.sandbox_id).await;
    let task = setup.world.user.start_with("hello").await;
    let ended = setup.world.user.wait_for_end(&task).await;
    assert_eq!(ended.status, "ERROR", "{ended:?}");
    assert!(ended.detail.unwrap_or_default().contains("engine"));
    setup.world.user.delete_conversation(&conversation.id).await;
    assert!(
        setup
            .world
            .user
            .find_conversation(&conversation.id)
            .await
            .is_none()
    );

    // A service that starts without its engine waits for it.
    setup.world.service.kill9();
    setup.world.service.restart().await;
    assert!(setup.world.user.conversations().await.is_empty());
    setup.engine.restart();
    setup.world.assert_nothing_left().await;
    start_finished_conversation(&setup.world.user).await;
}

#[tokio::test]
async fn hanging_engine_does_not_block_readers_and_leaves_no_doubt_when_it_continues() {
    let setup = EngineWorld::start().await;
    let conversation = start_finished_conversation(&setup.world.user).await;
    let before = setup.world.service.agent_servers();
    setup.engine.set_hanging(true);
    let read_lists = async || {
        for _ in 0..10 {
            assert_eq!(setup.world.user.conversations().await.len(), 1);
            assert_eq!(setup.world.user.sandboxes().await.len(), 1);
        }
    };
    within(
        "lists before and after the service notices the hang",
        RECONCILE_TIMEOUT,
        async {
            read_lists().await;
            while setup.world.user.get("/ready").await.status != 503 {
                read_lists().await;
            }
            read_lists().await;
        },
    )
    .await;
    // Agent servers answer without the engine.
    setup
        .world
        .user
        .send_message(&conversation.id, "more")
        .await;
    setup
        .world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    setup.engine.set_hanging(false);
    wait_for(
        "a running sandbox without a detail",
        RECONCILE_TIMEOUT,
        || async {
            let now = setup.world.user.sandbox(&conversation.sandbox_id).await?;
            (now.status == "RUNNING" && now.status_detail.is_none()).then_some(())
        },
    )
    .await;
    assert_eq!(
        setup.world.service.agent_servers(),
        before,
        "the agent server must be the same process"
    );
}
