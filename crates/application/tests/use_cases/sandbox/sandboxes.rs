//! Sandboxes follow their owner's intent, and report what happened to them.

use domain::agent::AgentLifecycle;
use domain::conversation::ExecutionStatus;
use domain::error::{Classify, ErrorClass};
use domain::sandbox::{Sandbox, SandboxLifecycle, SandboxStatus};

use crate::fixture::{Fixture, alice, alice_scope, start_input, user_message, wait_for};

async fn reaches(
    fixture: &Fixture,
    sandbox: &domain::id::SandboxId,
    status: SandboxStatus,
) -> Sandbox {
    wait_for(|| async {
        fixture
            .sandbox(sandbox)
            .await
            .filter(|s| s.status == status)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn pause_stops_and_resume_brings_back_the_same_one() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    fixture
        .app
        .sandboxes
        .pause(&alice_scope(), &task.sandbox_id)
        .await
        .expect("paused");
    let view = fixture.view(task.conversation_id).await.expect("it stays");
    assert_eq!(view.sandbox.expect("its row").status, SandboxStatus::Paused);
    assert_eq!(
        view.conversation.execution_status,
        Some(ExecutionStatus::Paused)
    );
    assert_eq!(
        fixture.agents.calls().interrupt,
        1,
        "a run is interrupted first"
    );
    let refused = fixture
        .app
        .conversations
        .send_message(&alice_scope(), task.conversation_id, &user_message("hm"))
        .await;
    let refused = refused.expect_err("it sleeps");
    assert_eq!(refused.class(), ErrorClass::Conflict);
    assert!(refused.public().contains("/resume"));
    fixture
        .app
        .sandboxes
        .resume(&alice_scope(), &task.sandbox_id)
        .await
        .expect("resumes");
    reaches(&fixture, &task.sandbox_id, SandboxStatus::Running).await;
    fixture
        .app
        .conversations
        .send_message(&alice_scope(), task.conversation_id, &user_message("go on"))
        .await
        .expect("sent");
    assert_eq!(
        (
            fixture.backend.count_started_sandboxes(),
            fixture.agents.messages().len()
        ),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_an_error_with_a_cause_and_can_be_resumed() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    fixture.backend.exit(&task.sandbox_id);
    let row = reaches(&fixture, &task.sandbox_id, SandboxStatus::Error).await;
    assert_eq!(row.status_detail.as_deref(), Some("exit code 1"));
    let refused = fixture
        .app
        .conversations
        .send_message(&alice_scope(), task.conversation_id, &user_message("?"))
        .await;
    assert_eq!(
        refused.expect_err("it is down").class(),
        ErrorClass::Unavailable
    );
    fixture
        .app
        .sandboxes
        .resume(&alice_scope(), &task.sandbox_id)
        .await
        .expect("resumes");
    reaches(&fixture, &task.sandbox_id, SandboxStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_removed_from_outside_is_missing() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    fixture.backend.remove_externally(&task.sandbox_id);
    reaches(&fixture, &task.sandbox_id, SandboxStatus::Missing).await;
    let gone = fixture
        .app
        .conversations
        .send_message(&alice_scope(), task.conversation_id, &user_message("?"))
        .await;
    assert_eq!(gone.expect_err("archived").class(), ErrorClass::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_restart_adopts_running_sandboxes_and_removes_orphans() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let orphan = fixture
        .app
        .sandboxes
        .start(&alice(), None)
        .await
        .expect("started");
    reaches(&fixture, &orphan.id, SandboxStatus::Running).await;
    // The row is lost while its process runs, as after a crash between the two.
    domain::sandbox::HostSandboxRepository::remove(fixture.store.as_ref(), &orphan.id)
        .await
        .expect("removed");
    let starts = fixture.backend.starts();
    let fixture = fixture.kill_and_restart().await;
    wait_for(|| async {
        fixture
            .backend
            .inspect(&orphan.id)
            .await
            .expect("listed")
            .is_none()
            .then_some(())
    })
    .await;
    reaches(&fixture, &task.sandbox_id, SandboxStatus::Running).await;
    assert_eq!(fixture.backend.starts(), starts, "nothing was started anew");
}

#[tokio::test(start_paused = true)]
async fn the_next_process_carries_out_an_interrupted_intent() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    fixture.backend.set_hanging(true);
    let (app, id, scope) = (fixture.app.clone(), task.sandbox_id.clone(), alice_scope());
    let pausing = tokio::time::timeout(
        std::time::Duration::from_secs(1),
        app.sandboxes.pause(&scope, &id),
    );
    assert!(
        pausing.await.is_err(),
        "it hangs, with the intent committed"
    );
    let fixture = fixture.kill_and_restart().await;
    fixture.backend.set_hanging(false);
    reaches(&fixture, &task.sandbox_id, SandboxStatus::Paused).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_the_last_conversation_deletes_its_sandbox_and_a_shared_one_stays() {
    let fixture = Fixture::new().await;
    let one = fixture.start_and_wait(start_input(|_| {})).await;
    let two = fixture
        .start_and_wait(start_input(|r| r.sandbox_id = Some(one.sandbox_id.clone())))
        .await;
    fixture
        .app
        .conversations
        .delete(&alice_scope(), one.conversation_id)
        .await
        .expect("deleted");
    wait_for(|| async { (!fixture.agents.has_conversation(one.conversation_id)).then_some(()) })
        .await;
    assert!(
        fixture.sandbox(&one.sandbox_id).await.is_some(),
        "it is still needed"
    );
    fixture
        .app
        .conversations
        .delete(&alice_scope(), two.conversation_id)
        .await
        .expect("deleted");
    wait_for(|| async {
        fixture
            .backend
            .inspect(&one.sandbox_id)
            .await
            .expect("listed")
            .is_none()
            .then_some(())
    })
    .await;
    assert!(fixture.sandbox(&one.sandbox_id).await.is_none());
    let again = fixture
        .app
        .conversations
        .delete(&alice_scope(), two.conversation_id)
        .await;
    assert_eq!(again.expect_err("gone").class(), ErrorClass::NotFound);
}

#[tokio::test(start_paused = true)]
async fn another_user_finds_nothing() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let bob = domain::user::scope::Scope::Owner(domain::id::OwnerId::parse("bob").expect("a name"));
    assert!(
        fixture
            .app
            .conversations
            .find_many(&bob, &[task.conversation_id])
            .await
            .expect("read")[0]
            .is_none()
    );
    let refused = [
        fixture
            .app
            .sandboxes
            .pause(&bob, &task.sandbox_id)
            .await
            .expect_err("not his"),
        fixture
            .app
            .sandboxes
            .delete(&bob, &task.sandbox_id)
            .await
            .expect_err("not his"),
        fixture
            .app
            .conversations
            .delete(&bob, task.conversation_id)
            .await
            .expect_err("not his"),
    ];
    assert!(refused.iter().all(|e| e.class() == ErrorClass::NotFound));
    let url = fixture
        .sandbox(&task.sandbox_id)
        .await
        .and_then(|s| s.agent_url)
        .expect("it runs");
    assert!(fixture.agents.is_alive(&task.sandbox_id, &url).await);
}

#[tokio::test(start_paused = true)]
async fn a_pause_or_deletion_cancels_a_running_start() {
    for delete in [false, true] {
        let fixture = Fixture::new().await;
        fixture
            .agents
            .set_behavior(store_memory::FakeBehavior::Unreachable);
        let task = fixture.start(start_input(|_| {})).await;
        reaches(&fixture, &task.sandbox_id, SandboxStatus::Starting).await;
        wait_for(|| async { (fixture.backend.starts() == 1).then_some(()) }).await;
        if delete {
            fixture
                .app
                .sandboxes
                .delete(&alice_scope(), &task.sandbox_id)
                .await
                .expect("deleted");
        } else {
            fixture
                .app
                .sandboxes
                .pause(&alice_scope(), &task.sandbox_id)
                .await
                .expect("paused");
        }
        let ended = fixture.wait_until_ended(&task).await;
        assert!(ended.detail.expect("a cause").contains("paused or deleted"));
        let left = fixture.sandbox(&task.sandbox_id).await.map(|s| s.status);
        assert_eq!(
            left,
            (!delete).then_some(SandboxStatus::Paused),
            "a paused one stays"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_failed_sandbox_gives_no_access() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let row = fixture.sandbox(&task.sandbox_id).await.expect("it runs");
    let key = fixture
        .app
        .sandboxes
        .session_key(&row)
        .expect("its owner sees the key");
    let key = secrecy::ExposeSecret::expose_secret(&*key);
    assert!(
        fixture
            .app
            .sandbox_keys
            .by_session_key(key)
            .await
            .expect("looked up")
            .is_some()
    );
    fixture.backend.exit(&task.sandbox_id);
    reaches(&fixture, &task.sandbox_id, SandboxStatus::Error).await;
    assert!(
        fixture
            .app
            .sandbox_keys
            .by_session_key(key)
            .await
            .expect("looked up")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_agent_server_does_not_block_other_syncs() {
    let fixture = Fixture::with_policy(|p| {
        p.caps.set(domain::sandbox::SandboxCaps {
            per_user: 50,
            overall: 50,
        });
    })
    .await;
    let mut hanging = Vec::new();
    for _ in 0..3 {
        let task = fixture.start_and_wait(start_input(|_| {})).await;
        let url = fixture
            .sandbox(&task.sandbox_id)
            .await
            .and_then(|s| s.agent_url)
            .expect("it runs");
        hanging.push(url);
    }
    let well = fixture.start_and_wait(start_input(|_| {})).await;
    for url in &hanging {
        fixture.agents.set_behavior_at(
            url,
            store_memory::FakeBehavior::Slow(std::time::Duration::from_secs(3_600)),
        );
    }
    fixture.agents.change(well.conversation_id, |c| {
        c.execution_status = Some(ExecutionStatus::Finished);
        c.updated_at = Some(
            crate::fixture::clock()
                .now()
                .plus(std::time::Duration::from_secs(1)),
        );
    });
    let began = tokio::time::Instant::now();
    wait_for(|| async {
        let view = fixture
            .view(well.conversation_id)
            .await
            .expect("it is there");
        (view.conversation.execution_status == Some(ExecutionStatus::Finished)).then_some(())
    })
    .await;
    assert!(
        began.elapsed() < std::time::Duration::from_secs(60),
        "of paused time: {:?}",
        began.elapsed()
    );
}
