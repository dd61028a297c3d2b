//! The reconciler: preparation, loss of contact, retirement.

use std::convert::Infallible;
use std::time::Duration;

use domain::conversation::ExecutionStatus;
use domain::sandbox::{BackendReachability, Sandbox, SandboxSpec, SandboxStatus};
use domain::start_task::StartStatus;
use store_memory::FakeSpecs;

use crate::fixture::{Fixture, alice, alice_scope, start_input, wait_for};

/// Little real time passes in these tests (tokio's clock jumps), and the age of rows is real time.
const SHORT_AGE: Duration = Duration::from_millis(1);
const LONG_AGE: Duration = Duration::from_secs(3600);

fn spec(name: &str, idle_stop: Option<Duration>, lifetime: Option<Duration>) -> SandboxSpec {
    SandboxSpec {
        idle_stop,
        lifetime,
        egress: None,
        ..FakeSpecs::spec(name)
    }
}

async fn sandbox(fixture: &Fixture) -> Sandbox {
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    let id = started.expect("within the caps").id;
    is(fixture, &id, SandboxStatus::Running).await
}

async fn is(fixture: &Fixture, id: &domain::id::SandboxId, status: SandboxStatus) -> Sandbox {
    wait_for(|| async { fixture.sandbox(id).await.filter(|s| s.status == status) }).await
}

/// Long enough for several passes of every loop.
async fn wait_for_passes() {
    tokio::time::sleep(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_preparation_or_start_shows_in_task_and_sandbox_until_it_ends() {
    let minute = Duration::from_secs(60);
    let (preparing, starting) = (Fixture::new().await, Fixture::new().await);
    preparing
        .backend
        .prepare_slowly("pulling image: 3 of 7 layers", minute);
    starting
        .backend
        .start_slowly("no node of the cluster has room", minute);
    shows_progress(&preparing, "pulling image: 3 of 7 layers").await;
    shows_progress(&starting, "no node of the cluster has room").await;
}

async fn shows_progress(fixture: &Fixture, line: &str) {
    let task = fixture.start(start_input(|_| {})).await;
    wait_for(|| async {
        let found = fixture
            .app
            .starts
            .find_many(&alice_scope(), &[task.id])
            .await;
        let now = found.expect("readable").pop().flatten().expect("there");
        (now.status == StartStatus::WaitingForSandbox && now.detail.as_deref() == Some(line))
            .then_some(())
    })
    .await;
    wait_for(|| async {
        let row = fixture.sandbox(&task.sandbox_id).await.expect("a row");
        (row.status == SandboxStatus::Starting && row.status_detail.as_deref() == Some(line))
            .then_some(())
    })
    .await;
    let ended = fixture.wait_until_ended(&task).await;
    assert_eq!((ended.status, ended.detail), (StartStatus::Ready, None));
    let row = fixture.sandbox(&task.sandbox_id).await.expect("a row");
    assert_eq!(row.status_detail, None);
}

#[tokio::test(start_paused = true)]
async fn advice_about_a_sandbox_becomes_a_note() {
    let fixture = Fixture::new().await;
    fixture
        .backend
        .set_warnings(&["reports cannot reach the service"]);
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready);
    assert_eq!(task.notes, ["reports cannot reach the service"]);
}

#[tokio::test(start_paused = true)]
async fn without_contact_the_last_state_is_shown_with_the_reason() {
    let fixture = Fixture::new().await;
    let row = sandbox(&fixture).await;
    fixture
        .backend
        .set_reachability(BackendReachability::Unreachable {
            detail: "the engine does not answer".to_owned(),
        });
    let row = wait_for(|| async {
        let now = fixture.sandbox(&row.id).await;
        now.filter(|row| row.status_detail.is_some())
    })
    .await;
    assert_eq!(row.status, SandboxStatus::Running);
    let detail = row.status_detail.unwrap_or_default();
    assert!(detail.contains("the engine does not answer"), "{detail}");
    wait_for_passes().await;
    is(&fixture, &row.id, SandboxStatus::Running).await;
    fixture
        .backend
        .set_reachability(BackendReachability::Reachable);
    wait_for(|| async {
        let now = fixture.sandbox(&row.id).await;
        now.filter(|row| row.status_detail.is_none())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn ends_without_contact_are_found_after_a_reconnect() {
    let fixture = Fixture::new().await;
    let row = sandbox(&fixture).await;
    fixture
        .backend
        .set_reachability(BackendReachability::Unreachable {
            detail: "gone".to_owned(),
        });
    wait_for(|| async {
        let now = fixture.sandbox(&row.id).await;
        now.filter(|row| row.status_detail.is_some())
    })
    .await;
    // No fact is reported: watchers have no contact either.
    fixture.backend.exit_without_event(&row.id);
    fixture
        .backend
        .set_reachability(BackendReachability::Reachable);
    let row = is(&fixture, &row.id, SandboxStatus::Error).await;
    assert_eq!(row.status_detail.as_deref(), Some("exit code 1"));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_requested_without_contact_starts_after_a_reconnect() {
    let fixture = Fixture::new().await;
    fixture
        .backend
        .set_reachability(BackendReachability::Unreachable {
            detail: "gone".to_owned(),
        });
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    let id = started.expect("committed").id;
    wait_for_passes().await;
    let row = is(&fixture, &id, SandboxStatus::Starting).await;
    assert!(row.status_detail.is_some_and(|why| why.contains("gone")));
    fixture
        .backend
        .set_reachability(BackendReachability::Reachable);
    is(&fixture, &id, SandboxStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_sandbox_with_a_workspace_left_is_missing_and_can_be_brought_back() {
    let fixture = Fixture::new().await;
    let row = sandbox(&fixture).await;
    fixture.backend.lose_all_but_workspace(&row.id);
    let row = is(&fixture, &row.id, SandboxStatus::Missing).await;
    assert!(
        row.status_detail
            .is_some_and(|why| why.contains("workspace"))
    );
    let resumed = fixture.app.sandboxes.resume(&alice_scope(), &row.id).await;
    resumed.expect("it can be resumed");
    is(&fixture, &row.id, SandboxStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_sandbox_is_paused_but_never_while_a_conversation_runs() {
    let fixture = Fixture::new().await;
    fixture.specs.set(vec![spec("fake", Some(SHORT_AGE), None)]);
    let busy = fixture.start_and_wait(start_input(|_| {})).await;
    let view = fixture.view(busy.conversation_id).await.expect("there");
    assert_eq!(
        view.conversation.execution_status,
        Some(ExecutionStatus::Running)
    );
    let idle = sandbox(&fixture).await;
    is(&fixture, &idle.id, SandboxStatus::Paused).await;
    wait_for_passes().await;
    is(&fixture, &busy.sandbox_id, SandboxStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_used_directly_is_not_idle() {
    let fixture = Fixture::new().await;
    fixture.specs.set(vec![spec("fake", Some(SHORT_AGE), None)]);
    fixture.agents.set_idle_time(Some(Duration::ZERO));
    let row = sandbox(&fixture).await;
    wait_for_passes().await;
    is(&fixture, &row.id, SandboxStatus::Running).await;
    fixture.agents.set_idle_time(Some(LONG_AGE));
    is(&fixture, &row.id, SandboxStatus::Paused).await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_at_the_end_of_its_life_is_deleted() {
    let fixture = Fixture::new().await;
    let row = sandbox(&fixture).await;
    wait_for_passes().await;
    is(&fixture, &row.id, SandboxStatus::Running).await;
    fixture.specs.set(vec![spec("fake", None, Some(SHORT_AGE))]);
    wait_for(|| async { fixture.sandbox(&row.id).await.is_none().then_some(()) }).await;
    wait_for(|| async { (fixture.backend.count_sandboxes() == 0).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn each_spec_has_its_limits_and_a_missing_one_has_the_defaults() {
    let fixture = Fixture::new().await;
    fixture
        .specs
        .set(vec![spec("lasting", Some(LONG_AGE), None)]);
    let lasting = sandbox(&fixture).await;
    fixture.specs.set(vec![spec("old", None, None)]);
    let old = sandbox(&fixture).await;
    fixture.specs.set(vec![
        spec("short", Some(SHORT_AGE), None),
        spec("lasting", Some(LONG_AGE), None),
    ]);
    is(&fixture, &old.id, SandboxStatus::Paused).await;
    is(&fixture, &lasting.id, SandboxStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn the_spec_of_the_settings_is_used_if_it_exists() {
    let fixture = Fixture::new().await;
    fixture
        .specs
        .set(vec![FakeSpecs::spec("one"), FakeSpecs::spec("two")]);
    let prefer = async |name: &str| {
        let user = alice();
        let changed = fixture.app.settings.update(&user, |mut settings| {
            settings.default_sandbox_spec_id = Some(name.to_owned());
            Ok::<_, Infallible>(settings)
        });
        changed.await.expect("stored");
    };
    prefer("two").await;
    assert_eq!(sandbox(&fixture).await.spec_id.as_str(), "two");
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let row = fixture.sandbox(&task.sandbox_id).await.expect("a row");
    assert_eq!(row.spec_id.as_str(), "two");
    prefer("gone").await;
    assert_eq!(sandbox(&fixture).await.spec_id.as_str(), "one");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_paused_and_resumed_during_its_start_ends_running() {
    let fixture = Fixture::new().await;
    fixture.backend.set_hanging(true);
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    let id = started.expect("within the caps").id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sandboxes = &fixture.app.sandboxes;
    let scope = alice_scope();
    // The pause waits for a hanging backend; it is revoked before that ends.
    let pause = tokio::time::timeout(Duration::from_millis(1), sandboxes.pause(&scope, &id));
    pause.await.expect_err("the backend hangs");
    sandboxes.resume(&scope, &id).await.expect("resumes");
    fixture.backend.set_hanging(false);
    let row = is(&fixture, &id, SandboxStatus::Running).await;
    assert_eq!(row.status_detail, None);
    wait_for_passes().await;
    is(&fixture, &id, SandboxStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_of_which_nothing_is_left_never_comes_back_empty() {
    let fixture = Fixture::new().await;
    let row = sandbox(&fixture).await;
    fixture.backend.remove_externally(&row.id);
    is(&fixture, &row.id, SandboxStatus::Missing).await;
    let starts = fixture.backend.starts();
    let resumed = fixture.app.sandboxes.resume(&alice_scope(), &row.id).await;
    resumed.expect("it is tried");
    let row = is(&fixture, &row.id, SandboxStatus::Missing).await;
    assert!(row.status_detail.is_some_and(|why| why.contains("gone")));
    assert_eq!(fixture.backend.starts(), starts);
}

#[tokio::test(start_paused = true)]
async fn a_paused_sandbox_of_which_nothing_is_left_is_missing() {
    let fixture = Fixture::new().await;
    let row = sandbox(&fixture).await;
    let paused = fixture.app.sandboxes.pause(&alice_scope(), &row.id).await;
    paused.expect("paused");
    fixture.backend.remove_externally(&row.id);
    is(&fixture, &row.id, SandboxStatus::Missing).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_served_a_host_removes_nothing_from_it() {
    let fixture = Fixture::new().await;
    let row = sandbox(&fixture).await;
    let other = fixture.with_an_empty_store();
    wait_for_passes().await;
    assert_eq!(other.backend.count_sandboxes(), 1, "{}", row.id);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_paused_before_it_was_made_is_paused_and_can_be_resumed() {
    let fixture = Fixture::new().await;
    fixture
        .backend
        .prepare_slowly("pulling", Duration::from_secs(600));
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    let id = started.expect("within the caps").id;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let paused = fixture.app.sandboxes.pause(&alice_scope(), &id).await;
    paused.expect("paused");
    is(&fixture, &id, SandboxStatus::Paused).await;
    fixture.backend.prepare_slowly("pulled", Duration::ZERO);
    let resumed = fixture.app.sandboxes.resume(&alice_scope(), &id).await;
    resumed.expect("resumes");
    is(&fixture, &id, SandboxStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn notifications_of_own_changes_do_not_delay_a_start() {
    let fixture = Fixture::new().await;
    fixture
        .backend
        .prepare_slowly("pulling", Duration::from_secs(60));
    let row = sandbox(&fixture).await;
    let asked = fixture.agents.calls().is_alive;
    wait_for_passes().await;
    is(&fixture, &row.id, SandboxStatus::Running).await;
    assert_eq!(
        fixture.agents.calls().is_alive,
        asked,
        "no task waited to act again"
    );
    assert_eq!(asked, 1);
}
