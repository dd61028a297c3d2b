//! Placeholders of secrets: what a sandbox gets, and for whom the service opens them.

use application::secrets::NewSecret;
use application::settings::McpConfigUpdate;
use application::{SecretExposure, SecretForm};
use domain::agent::McpServer;
use domain::id::SandboxId;
use domain::sandbox::{Sandbox, SandboxStatus};
use domain::user::secret::PLACEHOLDER_PREFIX;
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::fixture::{Fixture, alice, alice_scope, start_input, wait_for};

const HOSTS: &str = "api.example.org *.example.net:8443";

async fn store(fixture: &Fixture, name: &str, value: &str, hosts: &str) {
    let secret = NewSecret {
        name: name.to_owned(),
        value: value.to_owned().into(),
        description: None,
        hosts: Some(hosts.parse().expect("valid hosts")),
        exposed: None,
    };
    let stored = fixture.app.secrets.put(&alice(), &secret).await;
    stored.expect("stored");
}

async fn with_placeholders() -> Fixture {
    Fixture::with_policy(|policy| policy.secrets_in_sandboxes = SecretForm::Placeholder).await
}

async fn running(fixture: &Fixture) -> Sandbox {
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    fixture.sandbox(&id).await.expect("it runs")
}

async fn revealed(fixture: &Fixture, sandbox: &Sandbox, name: &str) -> String {
    let value = fixture.app.secrets.reveal(sandbox, name).await;
    value.expect("there").expose_secret().to_owned()
}

/// Value and hosts of a placeholder that comes from this sandbox.
async fn opened(fixture: &Fixture, from: &SandboxId, text: &str) -> Option<(String, String)> {
    let opened = fixture.app.secrets.open_placeholder(from, text).await;
    let opened = opened.expect("looked up")?;
    let value = opened.value.expose_secret().to_owned();
    Some((value, opened.hosts.to_string()))
}

#[tokio::test(start_paused = true)]
async fn a_placeholder_opens_for_its_running_sandbox_with_the_newest_value() {
    let fixture = with_placeholders().await;
    store(&fixture, "BOUND", "v0", HOSTS).await;
    store(&fixture, "FREE", "v1", "").await;
    let (sandbox, other) = (running(&fixture).await, running(&fixture).await);
    assert_eq!(revealed(&fixture, &sandbox, "FREE").await, "v1");
    let placeholder = revealed(&fixture, &sandbox, "BOUND").await;
    assert!(placeholder.starts_with(PLACEHOLDER_PREFIX), "{placeholder}");
    assert_eq!(revealed(&fixture, &sandbox, "BOUND").await, placeholder);
    assert_ne!(revealed(&fixture, &other, "BOUND").await, placeholder);

    let expected = |value: &str| Some((value.to_owned(), HOSTS.to_owned()));
    let open = async |text: &str| opened(&fixture, &sandbox.id, text).await;
    assert_eq!(open(&placeholder).await, expected("v0"));
    store(&fixture, "BOUND", "v2", HOSTS).await;
    assert_eq!(open(&placeholder).await, expected("v2"));
    assert_eq!(opened(&fixture, &other.id, &placeholder).await, None);
    for wrong in ["", "workspace_secret_", &placeholder[1..]] {
        assert_eq!(open(wrong).await, None, "{wrong}");
    }

    let scope = alice_scope();
    let paused = fixture.app.sandboxes.pause(&scope, &sandbox.id).await;
    paused.expect("paused");
    let is_paused = |it: &Sandbox| it.status == SandboxStatus::Paused;
    wait_for(|| async { fixture.sandbox(&sandbox.id).await.filter(is_paused) }).await;
    assert_eq!(open(&placeholder).await, None);
    assert_eq!(hosts(&fixture, &sandbox.id).await, "");

    let of_other = revealed(&fixture, &other, "BOUND").await;
    let deleted = fixture.app.secrets.delete(&alice(), "BOUND").await;
    deleted.expect("deleted");
    assert_eq!(opened(&fixture, &other.id, &of_other).await, None);
}

async fn hosts(fixture: &Fixture, sandbox: &SandboxId) -> String {
    let hosts = fixture.app.secrets.hosts(sandbox).await;
    hosts.expect("looked up").to_string()
}

#[tokio::test(start_paused = true)]
async fn the_hosts_are_those_of_the_owners_secrets() {
    let fixture = with_placeholders().await;
    let sandbox = running(&fixture).await;
    assert_eq!(hosts(&fixture, &sandbox.id).await, "");
    store(&fixture, "FREE", "v1", "").await;
    store(&fixture, "BOUND", "v0", HOSTS).await;
    assert_eq!(hosts(&fixture, &sandbox.id).await, HOSTS);
    let unknown = SandboxId::parse("unknown").expect("valid");
    assert_eq!(hosts(&fixture, &unknown).await, "");
    let seeds = [&sandbox.id, &unknown].map(|id| fixture.app.secrets.authority_seed(id));
    assert_ne!(seeds[0].expose_secret(), seeds[1].expose_secret());
}

#[tokio::test(start_paused = true)]
async fn without_a_proxy_a_sandbox_gets_values_and_its_owner_a_note() {
    let without_proxy = with_placeholders().await;
    without_proxy.backend.leave_proxy_out();
    for (fixture, is_exposed) in [
        (Fixture::new().await, true),
        (with_placeholders().await, false),
        (without_proxy, true),
    ] {
        store(&fixture, "BOUND", "v0", HOSTS).await;
        store(&fixture, "FREE", "v1", "").await;
        let task = fixture.start_and_wait(start_input(|_| {})).await;
        let sandbox = fixture.sandbox(&task.sandbox_id).await.expect("it runs");
        let value = revealed(&fixture, &sandbox, "BOUND").await;
        assert_eq!(value == "v0", is_exposed);
        let warns = |note: &String| note.contains("BOUND") && !note.contains("FREE");
        assert_eq!(task.notes.iter().any(warns), is_exposed, "{:?}", task.notes);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_mcp_servers_stay_outside() {
    let fixture = with_placeholders().await;
    let server = |url: &str| json!({"url": url, "headers": {"Authorization": "Bearer key"}});
    let servers = json!({
        "bound": server("https://tools.example.org:8443/mcp"),
        "open": {"url": "https://open.example.org/mcp"},
        "plain": server("http://plain.example.org/mcp"),
        "inside": server("https://localhost:8443/mcp"),
    });
    let change = json!({"agent_settings_diff": {"mcp_config": servers}});
    let change = change.as_object().expect("an object");
    let (user, update) = (alice(), McpConfigUpdate::Replace);
    let stored = fixture.app.settings.update_v1(&user, change, update);
    stored.await.expect("settings are stored");
    let sandbox = running(&fixture).await;
    let launch = fixture.agents.launches().pop().expect("a launch");
    let key = |name: &str| {
        let key = launch.mcp.iter().find_map(|server| match server {
            McpServer::Remote { api_key, .. } if server.name() == name => api_key.as_ref(),
            _ => None,
        });
        key.map(|key| key.expose_secret().to_owned())
    };
    assert_eq!(key("open"), None);
    assert_eq!(key("plain").as_deref(), Some("key"));
    assert_eq!(key("inside").as_deref(), Some("key"));
    let placeholder = key("bound").expect("a key");
    let host = "tools.example.org:8443";
    let expected = Some(("key".to_owned(), host.to_owned()));
    assert_eq!(opened(&fixture, &sandbox.id, &placeholder).await, expected);
    assert_eq!(hosts(&fixture, &sandbox.id).await, host);
}

#[tokio::test(start_paused = true)]
async fn where_exposure_is_a_choice_a_new_secret_needs_it_or_hosts() {
    let fixture = Fixture::with_policy(|policy| {
        policy.secret_exposure = SecretExposure::OnRequest;
    })
    .await;
    let secret = |name: &str, hosts: Option<&str>, exposed| NewSecret {
        name: name.to_owned(),
        value: "v".to_owned().into(),
        description: None,
        hosts: hosts.map(|hosts| hosts.parse().expect("valid hosts")),
        exposed,
    };
    for (secret, is_stored) in [
        (secret("A", None, None), false),
        (secret("A", Some(""), None), false),
        (secret("A", None, Some(false)), false),
        (secret("A", Some(HOSTS), None), true),
        // The stored hosts stay, and are not removed without the choice.
        (secret("A", None, None), true),
        (secret("A", Some(""), None), false),
        (secret("A", Some(""), Some(true)), true),
        // It was chosen before.
        (secret("A", None, None), true),
        (secret("B", None, Some(true)), true),
    ] {
        let stored = fixture.app.secrets.put(&alice(), &secret).await;
        assert_eq!(stored.is_ok(), is_stored, "{secret:?}: {stored:?}");
    }
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let note = "The agent can read 2 of your secrets (A, B), because they have no hosts.";
    assert_eq!(task.notes, [note]);
}
