//! Sandboxes follow what their owner wants, and say what became of them.

use domain::agent::AgentRuntime;
use domain::conversation::ExecutionStatus;
use domain::error::{Classify, ErrorClass};
use domain::sandbox::{Sandbox, SandboxBackend, SandboxStatus};

use crate::world::{World, alice, input, mine, say, until};

async fn reaches(world: &World, sandbox: &domain::id::SandboxId, status: SandboxStatus) -> Sandbox {
    until(|| async { world.sandbox(sandbox).await.filter(|s| s.status == status) }).await
}

#[tokio::test(start_paused = true)]
async fn pause_stops_and_resume_brings_back_the_same_one() {
    let world = World::new().await;
    let task = world.started(input(|_| {})).await;
    world
        .app
        .sandboxes
        .pause(&mine(), &task.sandbox_id)
        .await
        .expect("paused");
    let view = world.view(task.conversation_id).await.expect("it stays");
    assert_eq!(view.sandbox.expect("its row").status, SandboxStatus::Paused);
    assert_eq!(
        view.conversation.execution_status,
        Some(ExecutionStatus::Paused)
    );
    assert_eq!(
        world.agents.calls().interrupt,
        1,
        "a run is interrupted first"
    );
    let refused = world
        .app
        .conversations
        .send_message(&mine(), task.conversation_id, &say("hm"))
        .await;
    let refused = refused.expect_err("it sleeps");
    assert_eq!(refused.class(), ErrorClass::Conflict);
    assert!(refused.public().contains("/resume"));
    world
        .app
        .sandboxes
        .resume(&mine(), &task.sandbox_id)
        .await
        .expect("resumes");
    reaches(&world, &task.sandbox_id, SandboxStatus::Running).await;
    world
        .app
        .conversations
        .send_message(&mine(), task.conversation_id, &say("go on"))
        .await
        .expect("sent");
    assert_eq!(
        (world.backend.launched(), world.agents.messages().len()),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_an_error_with_a_cause_and_can_be_resumed() {
    let world = World::new().await;
    let task = world.started(input(|_| {})).await;
    world.backend.exit(&task.sandbox_id);
    let row = reaches(&world, &task.sandbox_id, SandboxStatus::Error).await;
    assert_eq!(row.status_detail.as_deref(), Some("exit code 1"));
    let refused = world
        .app
        .conversations
        .send_message(&mine(), task.conversation_id, &say("?"))
        .await;
    assert_eq!(
        refused.expect_err("it is down").class(),
        ErrorClass::Unavailable
    );
    world
        .app
        .sandboxes
        .resume(&mine(), &task.sandbox_id)
        .await
        .expect("resumes");
    reaches(&world, &task.sandbox_id, SandboxStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn one_removed_behind_our_back_is_missing() {
    let world = World::new().await;
    let task = world.started(input(|_| {})).await;
    world.backend.lose(&task.sandbox_id);
    reaches(&world, &task.sandbox_id, SandboxStatus::Missing).await;
    let gone = world
        .app
        .conversations
        .send_message(&mine(), task.conversation_id, &say("?"))
        .await;
    assert_eq!(gone.expect_err("archived").class(), ErrorClass::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_restart_adopts_what_runs_and_removes_what_nobody_owns() {
    let world = World::new().await;
    let task = world.started(input(|_| {})).await;
    let orphan = world
        .app
        .sandboxes
        .start(&alice(), None)
        .await
        .expect("started");
    reaches(&world, &orphan.id, SandboxStatus::Running).await;
    // Its row is lost without its process being told: what a crash between the two could leave.
    domain::sandbox::SandboxRepository::remove(world.store.as_ref(), &orphan.id)
        .await
        .expect("removed");
    let starts = world.backend.starts();
    let world = world.killed().await;
    until(|| async {
        world
            .backend
            .inspect(&orphan.id)
            .await
            .expect("listed")
            .is_none()
            .then_some(())
    })
    .await;
    reaches(&world, &task.sandbox_id, SandboxStatus::Running).await;
    assert_eq!(world.backend.starts(), starts, "nothing was started anew");
}

#[tokio::test(start_paused = true)]
async fn an_intent_that_was_cut_off_is_followed_by_the_next_process() {
    let world = World::new().await;
    let task = world.started(input(|_| {})).await;
    world.backend.hang(true);
    let (app, id, scope) = (world.app.clone(), task.sandbox_id.clone(), mine());
    let pausing = tokio::time::timeout(
        std::time::Duration::from_secs(1),
        app.sandboxes.pause(&scope, &id),
    );
    assert!(
        pausing.await.is_err(),
        "it hangs, with the intent committed"
    );
    let world = world.killed().await;
    world.backend.hang(false);
    reaches(&world, &task.sandbox_id, SandboxStatus::Paused).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_the_last_conversation_deletes_its_sandbox_and_a_shared_one_stays() {
    let world = World::new().await;
    let one = world.started(input(|_| {})).await;
    let two = world
        .started(input(|r| r.sandbox_id = Some(one.sandbox_id.clone())))
        .await;
    world
        .app
        .conversations
        .delete(&mine(), one.conversation_id)
        .await
        .expect("deleted");
    until(|| async { (!world.agents.knows(one.conversation_id)).then_some(()) }).await;
    assert!(
        world.sandbox(&one.sandbox_id).await.is_some(),
        "it is still needed"
    );
    world
        .app
        .conversations
        .delete(&mine(), two.conversation_id)
        .await
        .expect("deleted");
    until(|| async {
        world
            .backend
            .inspect(&one.sandbox_id)
            .await
            .expect("listed")
            .is_none()
            .then_some(())
    })
    .await;
    assert!(world.sandbox(&one.sandbox_id).await.is_none());
    let again = world
        .app
        .conversations
        .delete(&mine(), two.conversation_id)
        .await;
    assert_eq!(again.expect_err("gone").class(), ErrorClass::NotFound);
}

#[tokio::test(start_paused = true)]
async fn another_user_finds_nothing() {
    let world = World::new().await;
    let task = world.started(input(|_| {})).await;
    let bob = domain::scope::Scope::User(domain::id::UserId::parse("bob").expect("a name"));
    assert!(
        world
            .app
            .conversations
            .find_many(&bob, &[task.conversation_id])
            .await
            .expect("read")[0]
            .is_none()
    );
    let refused = [
        world
            .app
            .sandboxes
            .pause(&bob, &task.sandbox_id)
            .await
            .expect_err("not his"),
        world
            .app
            .sandboxes
            .delete(&bob, &task.sandbox_id)
            .await
            .expect_err("not his"),
        world
            .app
            .conversations
            .delete(&bob, task.conversation_id)
            .await
            .expect_err("not his"),
    ];
    assert!(refused.iter().all(|e| e.class() == ErrorClass::NotFound));
    let url = world
        .sandbox(&task.sandbox_id)
        .await
        .and_then(|s| s.agent_url)
        .expect("it runs");
    assert!(world.agents.is_alive(&task.sandbox_id, &url).await);
}

#[tokio::test(start_paused = true)]
async fn a_pause_or_delete_ends_a_start_that_is_under_way() {
    for delete in [false, true] {
        let world = World::new().await;
        world.agents.set_behavior(store_memory::FakeBehavior::Unreachable);
        let task = world.start(input(|_| {})).await;
        reaches(&world, &task.sandbox_id, SandboxStatus::Starting).await;
        until(|| async { (world.backend.starts() == 1).then_some(()) }).await;
        if delete {
            world
                .app
                .sandboxes
                .delete(&mine(), &task.sandbox_id)
                .await
                .expect("deleted");
        } else {
            world
                .app
                .sandboxes
                .pause(&mine(), &task.sandbox_id)
                .await
                .expect("paused");
        }
        let ended = world.ended(&task).await;
        assert!(ended.detail.expect("a cause").contains("paused or deleted"));
        let left = world.sandbox(&task.sandbox_id).await.map(|s| s.status);
        assert_eq!(
            left,
            (!delete).then_some(SandboxStatus::Paused),
            "a paused one stays"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_crashed_sandbox_opens_nothing() {
    let world = World::new().await;
    let task = world.started(input(|_| {})).await;
    let row = world.sandbox(&task.sandbox_id).await.expect("it runs");
    let key = world
        .app
        .sandboxes
        .session_key(&row)
        .expect("its owner sees the key");
    let key = secrecy::ExposeSecret::expose_secret(&*key);
    assert!(
        world
            .app
            .authenticate
            .sandbox(key)
            .await
            .expect("looked up")
            .is_some()
    );
    world.backend.exit(&task.sandbox_id);
    reaches(&world, &task.sandbox_id, SandboxStatus::Error).await;
    assert!(
        world
            .app
            .authenticate
            .sandbox(key)
            .await
            .expect("looked up")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_agent_server_keeps_no_other_from_being_compared() {
    let world = World::with(|p| {
        p.caps.set(domain::sandbox::SandboxCaps {
            per_user: 50,
            overall: 50,
        });
    })
    .await;
    let mut hanging = Vec::new();
    for _ in 0..3 {
        let task = world.started(input(|_| {})).await;
        let url = world
            .sandbox(&task.sandbox_id)
            .await
            .and_then(|s| s.agent_url)
            .expect("it runs");
        hanging.push(url);
    }
    let well = world.started(input(|_| {})).await;
    for url in &hanging {
        world.agents.set_behavior_at(
            url,
            store_memory::FakeBehavior::Slow(std::time::Duration::from_secs(3_600)),
        );
    }
    world.agents.change(well.conversation_id, |c| {
        c.execution_status = Some(ExecutionStatus::Finished);
        c.updated_at = Some(
            crate::world::clock()
                .now()
                .plus(std::time::Duration::from_secs(1)),
        );
    });
    let began = tokio::time::Instant::now();
    until(|| async {
        let view = world.view(well.conversation_id).await.expect("it is there");
        (view.conversation.execution_status == Some(ExecutionStatus::Finished)).then_some(())
    })
    .await;
    assert!(
        began.elapsed() < std::time::Duration::from_secs(60),
        "of paused time: {:?}",
        began.elapsed()
    );
}
