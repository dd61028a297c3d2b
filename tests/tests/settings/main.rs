//! Concurrent writers of one user's settings, tokens and secrets: no acknowledged change is lost, and no response is a
//! server error. Also verification of git tokens.

mod verify;

use std::collections::BTreeSet;

use acceptance::{Client, Postgres, Service};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

const SETTINGS: &str = "/api/v1/settings";
const PROVIDERS: [&str; 5] = ["github", "gitlab", "bitbucket", "forgejo", "azure_devops"];
/// Concurrent writers, each of its own value.
const WRITERS: usize = 50;

/// One change.
struct Change {
    path: String,
    body: Value,
    status: u16,
}

impl Change {
    fn new(path: impl Into<String>, body: Value) -> Self {
        let path = path.into();
        let is_new = path.contains("/profiles/") || path.ends_with("/secrets");
        let status = if is_new { 201 } else { 200 };
        Self { path, body, status }
    }
}

/// Fifty changes of different values: model options, plain fields of both APIs, tokens, profiles, secrets.
fn changes() -> Vec<Change> {
    let option = |n: usize| {
        let body =
            json!({"agent_settings_diff": {"llm": {"litellm_extra_body": {format!("w{n}"): n}}}});
        Change::new(SETTINGS, body)
    };
    let token = |(n, provider): (usize, &&str)| {
        let tokens = json!({"provider_tokens": {*provider: {"token": format!("t{n}")}}});
        let path = ["/api/add-git-providers", "/api/v1/secrets/git-providers"][n % 2];
        Change::new(path, tokens)
    };
    let legacy = |field: &&str| Change::new("/api/settings", json!({*field: "x"}));
    let profile = |n: usize| {
        let llm = json!({"model": "openai/m", "api_key": format!("k{n}")});
        Change::new(format!("{SETTINGS}/profiles/p{n}"), json!({"llm": llm}))
    };
    let secret = |n: usize| {
        let path = ["/api/v1/secrets", "/api/secrets"][n % 2];
        Change::new(
            path,
            json!({"name": format!("S{n}"), "value": format!("v{n}")}),
        )
    };
    let fields = [
        "language",
        "agent",
        "email",
        "git_user_name",
        "git_user_email",
    ];
    let mut all: Vec<Change> = (0..20).map(option).collect();
    all.extend(PROVIDERS.iter().enumerate().map(token));
    all.extend(fields.iter().map(legacy));
    all.extend((0..10).map(profile));
    all.extend((0..10).map(secret));
    assert_eq!(all.len(), WRITERS);
    all
}

/// Sends all changes concurrently, in turn through the given clients of one user.
async fn send_all_changes(clients: &[Client]) {
    // Profiles need existing settings.
    let _ = clients[0].post(SETTINGS, &json!({})).await.ok();
    let changes = changes();
    let sent = changes.iter().enumerate().map(|(n, change)| {
        let client = clients[n % clients.len()].clone();
        async move { (change, client.post(&change.path, &change.body).await) }
    });
    for (change, reply) in join_all(sent).await {
        assert_eq!(
            reply.status, change.status,
            "{}: {}",
            change.path, reply.text
        );
    }
    for client in clients {
        assert_nothing_lost(client).await;
    }
}

async fn assert_nothing_lost(client: &Client) {
    let settings = client.get(SETTINGS).await.ok();
    let options = settings["agent_settings"]["llm"]["litellm_extra_body"].clone();
    let expected: Value = (0..20).map(|n| (format!("w{n}"), json!(n))).collect();
    assert_eq!(options, expected);
    let tokens = settings["provider_tokens_set"]
        .as_object()
        .map(serde_json::Map::len);
    assert_eq!(tokens, Some(PROVIDERS.len()), "{settings}");
    let names = |list: &Value| -> BTreeSet<String> {
        let names = list.as_array().into_iter().flatten();
        names
            .filter_map(|item| Some(item["name"].as_str()?.to_owned()))
            .collect()
    };
    let profiles = client.get("/api/v1/settings/profiles").await.ok();
    assert_eq!(
        names(&profiles["profiles"]),
        (0..10).map(|n| format!("p{n}")).collect()
    );
    let secrets = json!(client.get_all_pages("/api/v1/secrets/search").await);
    assert_eq!(names(&secrets), (0..10).map(|n| format!("S{n}")).collect());
    let legacy = client.get("/api/settings").await.ok();
    for field in [
        "language",
        "agent",
        "email",
        "git_user_name",
        "git_user_email",
    ] {
        assert_eq!(legacy[field], "x", "{field}");
    }
}

#[tokio::test]
async fn fifty_concurrent_writers_lose_nothing() {
    let service = Service::start().await;
    send_all_changes(&[service.admin()]).await;
}

#[tokio::test]
async fn fifty_writers_at_two_replicas_lose_nothing() {
    let postgres = Postgres::start();
    let replica = async || Service::builder().postgres(&postgres).start().await;
    let (one, two) = (replica().await, replica().await);
    send_all_changes(&[one.admin(), two.admin()]).await;
}

/// One replica has a long queue. The single writer at the other one gets through, without a server error.
#[tokio::test]
async fn a_busy_replica_does_not_block_writers_of_another_one() {
    let postgres = Postgres::start();
    let replica = async || Service::builder().postgres(&postgres).start().await;
    let (busy, idle) = (replica().await, replica().await);
    let (busy, idle) = (busy.admin(), idle.admin());
    let queue = (0..90).map(|n| {
        let body =
            json!({"agent_settings_diff": {"llm": {"litellm_extra_body": {format!("w{n}"): n}}}});
        let busy = busy.clone();
        async move { busy.call(Method::POST, SETTINGS, Some(&body)).await.status }
    });
    let single_writer = async {
        for n in 0..20 {
            let body = json!({"agent_settings_diff": {"llm": {"litellm_extra_body": {format!("c{n}"): n}}}});
            let _ = idle.post(SETTINGS, &body).await.ok();
        }
    };
    let (statuses, ()) = futures::join!(join_all(queue), single_writer);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let settings = busy.get(SETTINGS).await.ok();
    let options = settings["agent_settings"]["llm"]["litellm_extra_body"].as_object();
    assert_eq!(options.map(serde_json::Map::len), Some(110));
}
