//! Lists of hosts to which owners limit their sandboxes.

use application::EgressControl;
use application::settings::McpConfigUpdate;
use domain::egress_list::EgressList;
use domain::error::{Classify as _, ErrorClass};
use domain::sandbox::SandboxStatus;
use domain::start_task::{StartStatus, StartTask};
use serde_json::{Value, json};

use crate::fixture::{Fixture, alice, alice_scope, start_input, wait_for};

async fn limited() -> Fixture {
    Fixture::with_policy(|policy| policy.egress = EgressControl::Lists).await
}

async fn settings(fixture: &Fixture, change: Value) {
    let change = change.as_object().expect("an object").clone();
    let settings = &fixture.app.settings;
    let owner = alice();
    let stored = settings.update_v1(&owner, &change, McpConfigUpdate::Replace);
    stored.await.expect("settings are stored");
}

async fn start(fixture: &Fixture, hosts: Option<&[&str]>) -> StartTask {
    let hosts = hosts.map(|all| all.iter().map(|it| (*it).to_owned()).collect());
    let task = fixture.start_and_wait(start_input(|r| r.egress_allow = hosts));
    let task = task.await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    task
}

async fn own_list(fixture: &Fixture, task: &StartTask) -> Option<String> {
    let lists = fixture.app.egress.lists(&task.sandbox_id).await;
    let own = lists.expect("lists").own;
    own.as_ref().map(EgressList::to_string)
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_has_the_list_of_its_start_or_of_the_settings() {
    let fixture = limited().await;
    let plain = start(&fixture, None).await;
    assert_eq!(own_list(&fixture, &plain).await, None);
    settings(&fixture, json!({"egress_allow": ["git", "example.org"]})).await;
    let usual = start(&fixture, None).await;
    let expected = Some("git example.org".to_owned());
    assert_eq!(own_list(&fixture, &usual).await, expected);
    let named = start(&fixture, Some(&["api.example.org:8443"])).await;
    let expected = Some("api.example.org:8443".to_owned());
    assert_eq!(own_list(&fixture, &named).await, expected);
    let nothing = start(&fixture, Some(&[])).await;
    assert_eq!(own_list(&fixture, &nothing).await, Some(String::new()));
    // A sandbox that is created without a conversation.
    let created = fixture
        .app
        .sandboxes
        .start(&alice(), None)
        .await
        .expect("a sandbox");
    let list = created.egress.as_ref().map(EgressList::to_string);
    assert_eq!(list.as_deref(), Some("git example.org"));
    // Earlier sandboxes keep theirs.
    assert_eq!(own_list(&fixture, &plain).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_does_not_run_reaches_nothing() {
    let fixture = limited().await;
    let task = start(&fixture, None).await;
    let scope = alice_scope();
    let paused = fixture.app.sandboxes.pause(&scope, &task.sandbox_id);
    paused.await.expect("it pauses");
    assert_eq!(own_list(&fixture, &task).await, Some(String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_with_a_list_does_not_start_where_nothing_enforces_it() {
    let fixture = limited().await;
    let task = start(&fixture, Some(&["git"])).await;
    let (scope, id) = (alice_scope(), task.sandbox_id);
    let paused = fixture.app.sandboxes.pause(&scope, &id).await;
    paused.expect("it pauses");
    let fixture = fixture.restart_with(|_| {}).await;
    let resumed = fixture.app.sandboxes.resume(&scope, &id).await;
    resumed.expect("the intent is stored");
    let failed = wait_for(async || {
        let row = fixture.sandbox(&id).await;
        row.filter(|row| row.status == SandboxStatus::Error)
    });
    let detail = failed.await.status_detail.expect("a cause");
    assert!(detail.contains("egress.policy is open"), "{detail}");
    let fixture = fixture
        .restart_with(|policy| policy.egress = EgressControl::Lists)
        .await;
    let resumed = fixture.app.sandboxes.resume(&scope, &id).await;
    resumed.expect("the intent is stored");
    wait_for(async || {
        let row = fixture.sandbox(&id).await;
        row.filter(|row| row.status == SandboxStatus::Running)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn conversations_share_a_sandbox_only_with_the_same_list() {
    let fixture = limited().await;
    settings(&fixture, json!({"sandbox_grouping_strategy": "ADD_TO_ANY"})).await;
    let wide = start(&fixture, None).await;
    let narrow = start(&fixture, Some(&["git"])).await;
    let again = start(&fixture, Some(&["git"])).await;
    assert_ne!(narrow.sandbox_id, wide.sandbox_id);
    assert_eq!(again.sandbox_id, narrow.sandbox_id);
    assert_eq!(start(&fixture, None).await.sandbox_id, wide.sandbox_id);
    // A named sandbox has its list already.
    for (hosts, fits) in [(None, true), (Some("git"), true), (Some("packages"), false)] {
        let input = start_input(|request| {
            request.sandbox_id = Some(narrow.sandbox_id.clone());
            request.egress_allow = hosts.map(|host| vec![host.to_owned()]);
        });
        let started = fixture.app.starts.start(&alice(), input).await;
        assert_eq!(started.is_ok(), fits, "{hosts:?}");
        if let Err(error) = started {
            assert!(error.to_string().contains("egress_allow"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_enforced_or_read_is_refused() {
    let open = Fixture::new().await;
    let limited = limited().await;
    for (fixture, host, class) in [
        (&open, "git", ErrorClass::Conflict),
        (&limited, "https://example.org", ErrorClass::Invalid),
    ] {
        let input = start_input(|r| r.egress_allow = Some(vec![host.to_owned()]));
        let error = fixture.app.starts.start(&alice(), input).await;
        let error = error.expect_err("a refusal");
        assert_eq!(error.class(), class, "{error}");
    }
    // Nor is a list in the settings ignored.
    settings(&open, json!({"egress_allow": []})).await;
    let started = open.app.starts.start(&alice(), start_input(|_| {})).await;
    let error = started.expect_err("a refusal");
    assert!(error.to_string().contains("egress.policy"), "{error}");
    settings(&open, json!({"egress_allow": null})).await;
    start(&open, None).await;
}
