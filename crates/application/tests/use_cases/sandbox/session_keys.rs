//! A resume replaces the session key of a sandbox. The callback token that its conversations hold remains valid.

use std::sync::Arc;

use domain::agent::LaunchSecret;
use domain::id::SandboxId;
use domain::sandbox::{
    HostSandboxRepository, Sandbox, SandboxCaps, SandboxRepository, SandboxStatus,
};
use domain::user::identity::KeyHash;
use secrecy::{ExposeSecret, SecretString};
use store_memory::FakeBehavior;

use crate::fixture::{Fixture, alice, alice_scope, start_input, wait_for};

async fn wait_for_status(fixture: &Fixture, id: &SandboxId, status: SandboxStatus) -> Sandbox {
    wait_for(|| async { fixture.sandbox(id).await.filter(|it| it.status == status) }).await
}

/// The session key that the owner sees.
fn session_key(fixture: &Fixture, sandbox: &Sandbox) -> String {
    let key = fixture.app.sandboxes.session_key(sandbox).expect("it runs");
    key.expose_secret().to_owned()
}

async fn pause(fixture: &Fixture, id: &SandboxId) -> Sandbox {
    let paused = fixture.app.sandboxes.pause(&alice_scope(), id).await;
    paused.expect("paused");
    wait_for_status(fixture, id, SandboxStatus::Paused).await
}

async fn resume(fixture: &Fixture, id: &SandboxId) -> Sandbox {
    let resumed = fixture.app.sandboxes.resume(&alice_scope(), id).await;
    resumed.expect("resumed");
    wait_for_status(fixture, id, SandboxStatus::Running).await
}

/// The sandbox that the session key opens, for all its uses.
async fn sandbox_by_key(fixture: &Fixture, key: &str) -> Option<SandboxId> {
    let (sandbox_keys, gateway) = (&fixture.app.sandbox_keys, &fixture.app.gateway);
    let exact = sandbox_keys.by_session_key(key).await.expect("looked up");
    let exact = exact.map(|it| it.id);
    let reporter = sandbox_keys.by_report_key(key).await.expect("looked up");
    assert_eq!(reporter.map(|it| it.id.clone()), exact);
    let route = gateway.by_key(key).await.expect("looked up");
    assert_eq!(route.map(|it| it.sandbox), exact);
    exact
}

/// The sandbox whose look-ups of secrets and MCP calls accept this credential.
async fn sandbox_by_callback(fixture: &Fixture, credential: &str) -> Option<SandboxId> {
    let found = fixture.app.sandbox_keys.by_callback_key(credential).await;
    found.expect("looked up").map(|it| it.id)
}

/// The credential that the last launch got for look-ups.
fn launched_credential(fixture: &Fixture) -> String {
    let launch = fixture.agents.launches().pop().expect("a launch");
    let LaunchSecret::LookUp { headers, .. } = &launch.secrets["MINE"] else {
        panic!("the secret is a look-up")
    };
    headers["X-Session-API-Key"].expose_secret().to_owned()
}

async fn fixture_with_secret() -> Fixture {
    let fixture = Fixture::new().await;
    let secret = application::secrets::NewSecret {
        name: "MINE".to_owned(),
        value: "v0".to_owned().into(),
        description: None,
        hosts: None,
        exposed: None,
    };
    let stored = fixture.app.secrets.create(&alice(), &secret).await;
    stored.expect("stored");
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_resume_replaces_the_session_key_and_keeps_the_callback_token() {
    let fixture = fixture_with_secret().await;
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    let row = fixture.sandbox(&id).await.expect("it runs");
    let (old, token) = (session_key(&fixture, &row), launched_credential(&fixture));
    assert_eq!(sandbox_by_key(&fixture, &old).await, Some(id.clone()));
    assert_eq!(
        sandbox_by_callback(&fixture, &token).await,
        Some(id.clone())
    );
    assert_eq!(
        sandbox_by_key(&fixture, &token).await,
        None,
        "a callback token is not a session key"
    );
    let paused = pause(&fixture, &id).await;
    assert_eq!(paused.key_hash, row.key_hash, "late reports need the key");
    let row = resume(&fixture, &id).await;
    let new = session_key(&fixture, &row);
    assert_ne!(new, old);
    assert_eq!(row.key_hash, KeyHash::of(&new));
    assert_eq!(sandbox_by_key(&fixture, &new).await, Some(id.clone()));
    assert_eq!(sandbox_by_key(&fixture, &old).await, None);
    assert_eq!(sandbox_by_callback(&fixture, &old).await, None);
    assert_eq!(sandbox_by_callback(&fixture, &new).await, Some(id.clone()));
    assert_eq!(
        sandbox_by_callback(&fixture, &token).await,
        Some(id.clone())
    );
    fixture
        .start_and_wait(start_input(|r| r.sandbox_id = Some(id.clone())))
        .await;
    assert_eq!(
        launched_credential(&fixture),
        token,
        "another conversation gets the same token"
    );
}

#[tokio::test(start_paused = true)]
async fn a_callback_token_is_valid_as_long_as_a_session_key() {
    let fixture = fixture_with_secret().await;
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    let token = launched_credential(&fixture);
    fixture.backend.exit(&id);
    wait_for_status(&fixture, &id, SandboxStatus::Error).await;
    assert_eq!(sandbox_by_callback(&fixture, &token).await, None);
    resume(&fixture, &id).await;
    assert_eq!(
        sandbox_by_callback(&fixture, &token).await,
        Some(id.clone())
    );
    let deleted = fixture.app.sandboxes.delete(&alice_scope(), &id).await;
    deleted.expect("deleted");
    assert_eq!(sandbox_by_callback(&fixture, &token).await, None);
    for unknown in ["", "cb_", "cb_nothing", &format!("{token}0")] {
        assert_eq!(
            sandbox_by_callback(&fixture, unknown).await,
            None,
            "{unknown}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_resume_after_a_crash_replaces_the_session_key() {
    let fixture = Fixture::new().await;
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    let row = fixture.sandbox(&id).await.expect("it runs");
    let old = session_key(&fixture, &row);
    fixture.backend.exit(&id);
    wait_for_status(&fixture, &id, SandboxStatus::Error).await;
    let row = resume(&fixture, &id).await;
    assert_eq!(
        sandbox_by_key(&fixture, &session_key(&fixture, &row)).await,
        Some(id.clone())
    );
    assert_eq!(sandbox_by_key(&fixture, &old).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_sandbox_keeps_its_session_key() {
    let fixture = Fixture::new().await;
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    pause(&fixture, &id).await;
    let row = resume(&fixture, &id).await;
    let fixture = fixture.kill_and_restart().await;
    let found = fixture.app.sandboxes.resume(&alice_scope(), &id).await;
    found.expect("it runs");
    let now = wait_for_status(&fixture, &id, SandboxStatus::Running).await;
    assert_eq!(now.key_hash, row.key_hash);
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_replacement_leaves_a_sandbox_that_can_be_resumed() {
    let fixture = Fixture::new().await;
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    let before = pause(&fixture, &id).await;
    // The service crashes between the replacement and the start.
    fixture
        .backend
        .prepare_slowly("fetching", std::time::Duration::from_secs(9_999));
    let resumed = fixture.app.sandboxes.resume(&alice_scope(), &id).await;
    resumed.expect("resumed");
    let replaced = wait_for(|| async {
        let row = fixture.sandbox(&id).await?;
        (row.key_hash != before.key_hash).then_some(row)
    })
    .await;
    assert_eq!(replaced.status, SandboxStatus::Starting);
    assert_eq!(replaced.agent_url, None, "the new key has no address yet");
    assert!(fixture.app.sandboxes.session_key(&replaced).is_none());
    let fixture = fixture.kill_and_restart().await;
    fixture
        .backend
        .prepare_slowly("fetching", std::time::Duration::ZERO);
    let row = wait_for_status(&fixture, &id, SandboxStatus::Running).await;
    assert_eq!(
        sandbox_by_key(&fixture, &session_key(&fixture, &row)).await,
        Some(id.clone())
    );
    // A crash between the start and the record of RUNNING: the sandbox is adopted and keeps its key.
    pause(&fixture, &id).await;
    fixture.agents.set_behavior(FakeBehavior::Unreachable);
    let starts = fixture.backend.starts();
    let resumed = fixture.app.sandboxes.resume(&alice_scope(), &id).await;
    resumed.expect("resumed");
    wait_for(|| async { (fixture.backend.starts() > starts).then_some(()) }).await;
    let begun = fixture.sandbox(&id).await.expect("it starts");
    let fixture = fixture.kill_and_restart().await;
    fixture.agents.set_behavior(FakeBehavior::default());
    let row = wait_for_status(&fixture, &id, SandboxStatus::Running).await;
    assert_eq!(row.key_hash, begun.key_hash);
}

#[tokio::test(start_paused = true)]
async fn a_resume_after_a_failed_start_replaces_the_session_key() {
    let fixture = Fixture::new().await;
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    pause(&fixture, &id).await;
    fixture.backend.fail_starts(2);
    let resumed = fixture.app.sandboxes.resume(&alice_scope(), &id).await;
    resumed.expect("resumed");
    let failed = wait_for_status(&fixture, &id, SandboxStatus::Error).await;
    let row = resume(&fixture, &id).await;
    assert_ne!(row.key_hash, failed.key_hash);
    assert_eq!(
        sandbox_by_key(&fixture, &session_key(&fixture, &row)).await,
        Some(id)
    );
}

#[tokio::test(start_paused = true)]
async fn a_backend_with_a_fixed_environment_keeps_the_session_key() {
    let fixture = Fixture::new().await;
    fixture.backend.set_keeps_environment(true);
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    let before = pause(&fixture, &id).await;
    assert_eq!(resume(&fixture, &id).await.key_hash, before.key_hash);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_without_a_callback_token_keeps_its_session_key() {
    let fixture = fixture_with_secret().await;
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    let paused = pause(&fixture, &id).await;
    // The migration leaves rows like this.
    let (store, caps) = (
        &fixture.store,
        SandboxCaps {
            per_user: 9,
            overall: 9,
        },
    );
    let older = Sandbox {
        callback_token_hash: None,
        ..paused
    };
    let removed = HostSandboxRepository::remove(store.as_ref(), &id).await;
    assert!(removed.expect("writable"));
    let repository: Arc<dyn SandboxRepository> = Arc::clone(store) as _;
    repository.insert(&older, &caps).await.expect("stored");
    let row = resume(&fixture, &id).await;
    assert_eq!(row.key_hash, older.key_hash);
    fixture
        .start_and_wait(start_input(|r| r.sandbox_id = Some(id.clone())))
        .await;
    assert_eq!(launched_credential(&fixture), session_key(&fixture, &row));
    assert_eq!(
        sandbox_by_callback(&fixture, &launched_credential(&fixture)).await,
        Some(id)
    );
}

#[test]
fn a_callback_token_reveals_no_key_and_belongs_to_one_sandbox() {
    let id = |text: &str| SandboxId::parse(text).expect("an id");
    let secret_key = SecretString::from("secret-key");
    let token = |of: &str| Sandbox::callback_token(&id(of), &secret_key);
    let (one, two) = (token("one"), token("two"));
    assert_eq!(one.expose_secret(), token("one").expose_secret());
    assert_ne!(one.expose_secret(), two.expose_secret());
    assert!(!one.expose_secret().contains("secret-key"));
}
