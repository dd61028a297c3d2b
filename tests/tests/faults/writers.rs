//! Concurrent writers of one user's secrets and tokens: no update is lost, and no writer is refused because of the others.

use std::collections::BTreeSet;

use acceptance::Client;
use acceptance::client::Reply;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::World;

const WRITERS: usize = 50;
/// Providers whose tokens need no host.
const PROVIDERS: [&str; 5] = ["github", "gitlab", "bitbucket", "forgejo", "azure_devops"];

/// Looks up a secret as a sandbox does.
async fn look_up_secret(inside: &Client, sandbox: &str, name: &str) -> Reply {
    let path = format!("/api/v1/sandboxes/{sandbox}/settings/secrets/{name}");
    inside.get(&path).await
}

async fn put(user: &Client, path: &str, body: &Value) -> Reply {
    user.call(Method::PUT, path, Some(body)).await
}

/// Creates a secret, stores a token, changes the secret's value and name. Every fifth writer deletes its secret.
async fn change_secret_and_token(user: &Client, n: usize) {
    let (name, other) = (format!("S{n}"), format!("T{n}"));
    let path = if n.is_multiple_of(2) {
        "/api/v1/secrets"
    } else {
        "/api/secrets"
    };
    let first = json!({"name": name, "value": "first", "description": "d"});
    let created = user.post(path, &first).await;
    assert_eq!(created.status, 201, "{created:?}");
    let provider = PROVIDERS[n % PROVIDERS.len()];
    let tokens = json!({"provider_tokens": {provider: {"token": format!("token-{n}")}}});
    let _ = user.post("/api/add-git-providers", &tokens).await.ok();
    let value = json!({"name": name, "value": format!("value-{n}")});
    let path = format!("{path}/{name}");
    let _ = put(user, &path, &value).await.ok();
    let renamed = json!({"name": other, "description": format!("was {name}")});
    let _ = put(user, &path, &renamed).await.ok();
    if n.is_multiple_of(5) {
        let path = format!("/api/v1/secrets/{other}");
        let _ = user.delete(&path).await.ok();
    }
}

#[tokio::test]
async fn fifty_concurrent_writers_lose_no_update_and_are_not_refused() {
    // Look-ups answer with the tokens themselves.
    let world = World::configured("", |it| it.env("WORKSPACE_BROKER__SECRETS", "false")).await;
    let user = &world.user;
    let task = user.start(&json!({})).await;
    let conversation = user.wait_until_ready(&task).await;
    let key = conversation
        .session_api_key
        .expect("the conversation has no session key");
    let (inside, sandbox) = (user.with_key(&key), conversation.sandbox_id);

    join_all((0..WRITERS).map(|n| change_secret_and_token(user, n))).await;

    let listed = user.get_all_pages("/api/v1/secrets/search").await;
    let names: BTreeSet<_> = listed.iter().map(|it| it["name"].to_string()).collect();
    assert_eq!((listed.len(), names.len()), (40, 40), "{listed:#?}");
    for n in 0..WRITERS {
        let reply = look_up_secret(&inside, &sandbox, &format!("T{n}")).await;
        let expected = if n.is_multiple_of(5) {
            (404, r#"{"detail":"Secret not found"}"#.to_owned())
        } else {
            (200, format!("value-{n}"))
        };
        assert_eq!((reply.status, reply.text), expected);
    }
    for (index, provider) in PROVIDERS.iter().enumerate() {
        let reply = look_up_secret(&inside, &sandbox, &format!("{provider}_token")).await;
        let newest_writer = reply.text.strip_prefix("token-").map(str::parse::<usize>);
        let newest_writer = newest_writer
            .expect("the provider has no token")
            .expect("the token has no number");
        assert_eq!(
            newest_writer % PROVIDERS.len(),
            index,
            "{provider} has the token of another provider"
        );
    }
}

#[tokio::test]
async fn one_of_many_concurrent_writers_gets_a_contested_name() {
    let world = World::with_faults("").await;
    let user = &world.user;
    let contested = json!({"name": "ONE", "value": "v"});
    let replies = join_all((0..WRITERS).map(|_| user.post("/api/secrets", &contested))).await;
    let created = replies.iter().filter(|reply| reply.status == 201).count();
    let refused = replies.iter().filter(|reply| reply.status == 400).count();
    assert_eq!((created, refused), (1, WRITERS - 1), "{replies:#?}");

    let replies = join_all((0..WRITERS).map(|_| user.post("/api/v1/secrets", &contested))).await;
    assert!(
        replies.iter().all(|reply| reply.status == 201),
        "{replies:#?}"
    );
    let names = (0..WRITERS).map(|n| format!("N{n}"));
    for name in names.clone() {
        let secret = json!({"name": name, "value": "v"});
        assert_eq!(user.post("/api/secrets", &secret).await.status, 201);
    }
    let new_name = json!({"name": "WON"});
    let replies = join_all(names.map(|name| {
        let new_name = &new_name;
        async move { put(user, &format!("/api/v1/secrets/{name}"), new_name).await }
    }))
    .await;
    let renamed = replies.iter().filter(|reply| reply.status == 200).count();
    let refused = replies.iter().filter(|reply| reply.status == 400).count();
    assert_eq!((renamed, refused), (1, WRITERS - 1), "{replies:#?}");
    let all = user.get("/api/secrets").await.ok();
    assert_eq!(
        all["custom_secrets"].as_array().map(Vec::len),
        Some(WRITERS + 1)
    );
}
