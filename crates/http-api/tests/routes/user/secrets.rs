//! Custom secrets in both APIs, and the secrets that an active sandbox may read.

use std::time::Duration;

use actix_web::test::TestRequest;
use application::secrets::NewSecret;
use domain::id::OwnerId;
use domain::user::secret::MAX_SECRETS_PER_USER;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, TestResponse, World};

const V1: &str = "/api/v1/secrets";
const LEGACY: &str = "/api/secrets";

fn message(text: &str) -> Value {
    json!({"message": text})
}

async fn create(world: &World, key: &str, body: &Value) {
    let created = world.post(key, V1, body).await;
    created.is(201, &message("Secret created successfully"));
}

/// The location and kind of every error.
fn faults(answer: &TestResponse) -> Vec<(Value, Value)> {
    assert_eq!(answer.status, 422, "{}", answer.text);
    let detail = answer.json()["detail"].clone();
    let items = detail.as_array().unwrap().iter();
    items
        .map(|item| (item["loc"].clone(), item["type"].clone()))
        .collect()
}

/// A running sandbox of that user: its id and key.
async fn sandbox(world: &World, key: &str) -> (String, String) {
    let id = world.conversation(key).await;
    let read = world.read(key, &id).await;
    let text = |name: &str| read[name].as_str().unwrap().to_owned();
    (text("sandbox_id"), text("session_api_key"))
}

#[actix_web::test]
async fn a_secret_is_stored_found_changed_and_deleted() {
    let world = World::idle().await;
    for (name, description) in [("MY_KEY", "d"), ("EMPTY", ""), ("b_KEY", "")] {
        create(
            &world,
            ADA,
            &json!({"name": name, "value": "s3cr3t", "description": description}),
        )
        .await;
    }
    let shown = |name: &str, description: &str| json!({"name": name, "description": description, "exposed": true});
    let page = world.get(ADA, &format!("{V1}/search?limit=2")).await.json();
    assert_eq!(
        page["items"],
        json!([shown("EMPTY", ""), shown("MY_KEY", "d")])
    );
    let next = page["next_page_id"].as_str().unwrap();
    let second = format!("{V1}/search?limit=2&page_id={next}");
    let second = world.get(ADA, &second).await;
    second.is(
        200,
        &json!({"items": [shown("b_KEY", "")], "next_page_id": null}),
    );
    let found = world
        .get(ADA, &format!("{V1}/search?name__contains=y_k"))
        .await;
    found.is(
        200,
        &json!({"items": [shown("MY_KEY", "d")], "next_page_id": null}),
    );

    // Stored again with another value: the description stays.
    create(&world, ADA, &json!({"name": "MY_KEY", "value": "new"})).await;
    let found = world
        .get(ADA, &format!("{V1}/search?name__contains=MY"))
        .await;
    assert_eq!(found.json()["items"], json!([shown("MY_KEY", "d")]));

    let renamed = world
        .put(ADA, &format!("{V1}/MY_KEY"), &json!({"name": "MY_KEY2"}))
        .await;
    renamed.is(200, &message("Secret updated successfully"));
    let found = world
        .get(ADA, &format!("{V1}/search?name__contains=MY"))
        .await;
    assert_eq!(found.json()["items"], json!([shown("MY_KEY2", "")]));
    world
        .put(ADA, &format!("{V1}/MY_KEY2"), &json!({"name": "EMPTY"}))
        .await
        .refuses(400, "Secret EMPTY already exists");
    world
        .put(ADA, &format!("{V1}/MY_KEY"), &json!({"name": "A"}))
        .await
        .refuses(404, "Secret with ID MY_KEY not found");

    let deleted = world.delete(ADA, &format!("{V1}/MY_KEY2")).await;
    deleted.is(200, &message("Secret deleted successfully"));
    for name in ["MY_KEY2", "git", "a%2Fb", "a%00b"] {
        let again = world.delete(ADA, &format!("{V1}/{name}")).await;
        assert_eq!(again.status, 404, "{name}: {}", again.text);
    }
}

#[actix_web::test]
async fn what_contradicts_the_hosts_is_refused() {
    let world = World::idle().await;
    let hosts = json!(["api.example.org"]);
    for (body, refused) in [
        (json!({"exposed": true, "hosts": hosts}), Some("leave out")),
        (json!({"exposed": false}), Some("needs `hosts`")),
        (
            json!({"exposed": false, "hosts": []}),
            Some("needs `hosts`"),
        ),
        (json!({"exposed": false, "hosts": hosts}), None),
        (json!({"exposed": false}), None),
        // It clears the stored hosts.
        (json!({"exposed": true}), None),
        (json!({"exposed": false}), Some("needs `hosts`")),
        (json!({}), None),
    ] {
        let mut body = body;
        body["name"] = json!("KEY");
        let changed = world.put(ADA, &format!("{V1}/KEY"), &body).await;
        body["value"] = json!("v");
        let stored = world.post(ADA, V1, &body).await;
        match refused {
            Some(text) => {
                assert_eq!(stored.status, 422, "{body}");
                assert!(stored.text.contains(text), "{body}: {}", stored.text);
                assert!(matches!(changed.status, 404 | 422), "{body}");
            }
            None => assert_eq!(stored.status, 201, "{body}: {}", stored.text),
        }
    }
    let found = world.get(ADA, &format!("{V1}/search")).await.json();
    assert_eq!(found["items"][0]["exposed"], true);
}

#[actix_web::test]
async fn hosts_are_stored_kept_and_removed() {
    let world = World::idle().await;
    let path = format!("{V1}/KEY");
    let first =
        json!({"name": "KEY", "value": "v", "hosts": ["API.example.org", " *.example.net:8443"]});
    create(&world, ADA, &first).await;
    let shown = json!(["api.example.org", "*.example.net:8443"]);
    // Clients that know no hosts keep them.
    create(&world, ADA, &json!({"name": "KEY", "value": "new"})).await;
    for (change, hosts) in [
        (json!({"name": "KEY"}), &shown),
        (json!({"name": "KEY", "hosts": null}), &shown),
        (
            json!({"name": "KEY", "hosts": ["[::1]:1"]}),
            &json!(["[::1]:1"]),
        ),
        (json!({"name": "KEY", "hosts": []}), &Value::Null),
    ] {
        let _ = world.put(ADA, &path, &change).await.ok();
        let listed = world.get(ADA, LEGACY).await.json();
        assert_eq!(&listed["custom_secrets"][0]["hosts"], hosts, "{change}");
        let found = world.get(ADA, &format!("{V1}/search")).await.json();
        assert_eq!(&found["items"][0]["hosts"], hosts, "{change}");
        let exposed = &found["items"][0]["exposed"];
        assert_eq!(exposed, &json!(hosts.is_null()), "{change}");
    }
    let many = vec!["a.example"; 33];
    for wrong in [
        json!(["https://x.example"]),
        json!([""]),
        json!(many),
        json!("a.example"),
        json!([1]),
    ] {
        let body = json!({"name": "KEY", "value": "v", "hosts": wrong});
        for answer in [
            world.post(ADA, V1, &body).await,
            world.put(ADA, &path, &body).await,
        ] {
            let (place, _) = &faults(&answer)[0];
            assert_eq!(place[1], "hosts", "{wrong}: {}", answer.text);
        }
    }
}

#[actix_web::test]
async fn the_legacy_api_has_words_of_its_own() {
    let world = World::idle().await;
    world
        .get(ADA, LEGACY)
        .await
        .is(200, &json!({"custom_secrets": []}));
    for name in ["DB_PASS", "ALPHA"] {
        world.clock.advance(Duration::from_secs(1));
        let body = json!({"name": name, "value": "hunter2", "description": "db", "zzz": 1});
        let created = world.post(ADA, LEGACY, &body).await;
        created.is(201, &message("Secret created successfully"));
    }
    let again = json!({"name": "DB_PASS", "value": "other"});
    let taken = message("Secret DB_PASS already exists");
    world.post(ADA, LEGACY, &again).await.is(400, &taken);
    let path = format!("{LEGACY}/ALPHA");
    let clash = world.put(ADA, &path, &json!({"name": "DB_PASS"})).await;
    clash.is(400, &taken);
    let updated = world
        .put(ADA, &path, &json!({"name": "B", "description": "x"}))
        .await;
    updated.is(200, &message("Secret updated successfully"));
    world.get(ADA, LEGACY).await.is(
        200,
        &json!({"custom_secrets": [{"name": "DB_PASS", "description": "db"}, {"name": "B", "description": "x"}]}),
    );
    let missing = json!({"error": "Secret with ID NOPE not found"});
    let nope = format!("{LEGACY}/NOPE");
    world
        .put(ADA, &nope, &json!({"name": "A"}))
        .await
        .is(404, &missing);
    world.delete(ADA, &nope).await.is(404, &missing);
    world
        .delete(ADA, &format!("{LEGACY}/B"))
        .await
        .is(200, &message("Secret deleted successfully"));
    let refused = world
        .post(ADA, LEGACY, &json!({"value": "zz-secret"}))
        .await;
    assert_eq!(
        (refused.status, refused.text.as_str()),
        (
            422,
            r#"{"detail":[{"loc":["body","name"],"msg":"Field required","type":"missing"}]}"#
        )
    );
    let nobody = world.send(TestRequest::get().uri(LEGACY)).await;
    assert_eq!(nobody.status, 401);
    assert_eq!(nobody.json()["detail"][0]["type"], "missing");
}

#[actix_web::test]
async fn names_and_values_are_validated_and_never_quoted() {
    let world = World::idle().await;
    for name in [
        "",
        "1BAD-NAME",
        "clé",
        "a b",
        "A\u{0}",
        "a/b c=$(id)",
        "LLM_API_KEY",
        "worker_1",
        &"n".repeat(256),
    ] {
        for path in [V1, LEGACY] {
            let body = json!({"name": name, "value": "canary-value"});
            let answer = world.post(ADA, path, &body).await;
            let expected = vec![(json!(["body", "name"]), json!("value_error"))];
            assert_eq!(faults(&answer), expected, "{name:?}");
            assert!(!answer.text.contains("canary-value"), "{}", answer.text);
        }
        if name.is_empty() {
            continue;
        }
        let body = json!({"name": name, "value": "canary-value"});
        let answer = world.put(ADA, &format!("{V1}/A"), &body).await;
        assert_eq!(faults(&answer).len(), 1, "{name:?}");
    }
    for (value, kind) in [
        (json!(null), "string_type"),
        (json!(5), "string_type"),
        (json!("canary-value".repeat(6_000)), "value_error"),
        (json!("canary-value\u{0}"), "value_error"),
        (json!("**********"), "value_error"),
    ] {
        let answer = world
            .post(ADA, V1, &json!({"name": "A", "value": value}))
            .await;
        assert_eq!(
            faults(&answer),
            [(json!(["body", "value"]), json!(kind))],
            "{kind}"
        );
        assert!(!answer.text.contains("canary-value"), "{}", answer.text);
    }
    let answer = world
        .post(
            ADA,
            V1,
            &json!({"name": "A", "value": "v", "description": "d".repeat(4_097)}),
        )
        .await;
    assert_eq!(
        faults(&answer),
        [(json!(["body", "description"]), json!("value_error"))]
    );
    let all = world.get(ADA, LEGACY).await;
    all.is(200, &json!({"custom_secrets": []}));
    let page = world.get(ADA, &format!("{V1}/search?page_id=MY_KEY")).await;
    assert_eq!(
        faults(&page),
        [(json!(["query", "page_id"]), json!("value_error"))]
    );
}

#[actix_web::test]
async fn a_user_may_keep_so_many() {
    let world = World::idle().await;
    let ada = OwnerId::parse("ada").unwrap();
    for n in 0..MAX_SECRETS_PER_USER {
        let secret = NewSecret {
            name: format!("S{n}"),
            value: SecretString::from("v"),
            description: None,
            hosts: None,
            exposed: None,
        };
        assert!(world.app.secrets.put(&ada, &secret).await.unwrap());
    }
    let more = json!({"name": "MORE", "value": "v"});
    for path in [V1, LEGACY] {
        let text = "limit of 1000 secrets reached: delete one first";
        world.post(ADA, path, &more).await.refuses(409, text);
    }
    create(&world, BOB, &more).await;
    create(&world, ADA, &json!({"name": "S1", "value": "another"})).await;
}

#[actix_web::test]
async fn only_an_active_sandbox_reads_its_owners_secrets() {
    let world = World::working().await;
    let (id, key) = sandbox(&world, ADA).await;
    let (other, _) = sandbox(&world, BOB).await;
    let path = format!("/api/v1/sandboxes/{id}/settings/secrets");
    create(
        &world,
        ADA,
        &json!({"name": "MINE", "value": "first\nline – é", "description": "d"}),
    )
    .await;
    create(&world, ADA, &json!({"name": "NOTHING", "value": ""})).await;
    create(&world, BOB, &json!({"name": "THEIRS", "value": "bob's"})).await;
    let tokens = json!({"provider_tokens": {"github": {"token": "gh-1"}, "bitbucket_data_center": {"token": "bb-1", "host": "git.example.com"}}});
    world
        .post(ADA, "/api/v1/secrets/git-providers", &tokens)
        .await
        .ok();

    world.get(&key, &path).await.is(
        200,
        &json!({"secrets": [
            {"name": "MINE", "description": "d"},
            {"name": "NOTHING", "description": null},
            {"name": "github_token", "description": "github authentication token"},
            {"name": "bitbucket_data_center_token", "description": "bitbucket_data_center authentication token"},
        ]}),
    );
    for (name, value) in [
        ("MINE", "first\nline – é"),
        ("github_token", "gh-1"),
        ("GITHUB_TOKEN", "gh-1"),
        ("BITBUCKET_DATA_CENTER_TOKEN", "bb-1"),
    ] {
        let answer = world.get(&key, &format!("{path}/{name}")).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, value));
        assert_eq!(answer.content_type, "text/plain; charset=utf-8");
    }
    for (name, text) in [
        ("NOTHING", "Secret has no value"),
        ("THEIRS", "Secret not found"),
        ("gitlab_token", "Secret not found"),
        ("Github_Token", "Secret not found"),
        ("a%2Fb", "Secret not found"),
    ] {
        let answer = world.get(&key, &format!("{path}/{name}")).await;
        answer.refuses(404, text);
    }

    // A custom secret takes precedence over a provider's token of that name.
    create(
        &world,
        ADA,
        &json!({"name": "GITHUB_TOKEN", "value": "own"}),
    )
    .await;
    let answer = world.get(&key, &format!("{path}/GITHUB_TOKEN")).await;
    assert_eq!(answer.text, "own");

    let nobody = world.send(TestRequest::get().uri(&path)).await;
    nobody.refuses(401, "X-Session-API-Key header is required");
    for wrong in ["bad", ADA] {
        let answer = world.get(wrong, &path).await;
        answer.refuses(401, "Invalid session API key");
    }
    for others in [other.as_str(), "nope"] {
        let path = format!("/api/v1/sandboxes/{others}/settings/secrets");
        let text = "Session API key does not match sandbox";
        world.get(&key, &path).await.refuses(403, text);
        world
            .get(&key, &format!("{path}/MINE"))
            .await
            .refuses(403, text);
    }

    // Events may still arrive after a pause; secrets are no longer revealed.
    world
        .post(ADA, &format!("/api/v1/sandboxes/{id}/pause"), &json!({}))
        .await
        .ok();
    world
        .get(&key, &path)
        .await
        .refuses(401, "Sandbox is not running");
    world
        .get(&key, &format!("{path}/MINE"))
        .await
        .refuses(401, "Sandbox is not running");
    world
        .delete(ADA, &format!("/api/v1/sandboxes/{id}"))
        .await
        .ok();
    world
        .get(&key, &path)
        .await
        .refuses(401, "Invalid session API key");
}

#[actix_web::test]
async fn a_value_changes_under_a_live_sandbox() {
    let world = World::working().await;
    let (id, key) = sandbox(&world, ADA).await;
    let path = format!("/api/v1/sandboxes/{id}/settings/secrets/A");
    let seen = async || world.get(&key, &path).await.text;
    create(&world, ADA, &json!({"name": "A", "value": "one"})).await;
    assert_eq!(seen().await, "one");
    create(&world, ADA, &json!({"name": "A", "value": "two"})).await;
    assert_eq!(seen().await, "two");
    for (body, value) in [
        (json!({"name": "A", "value": "three"}), "three"),
        (json!({"name": "A", "description": "kept"}), "three"),
        (json!({"name": "A", "value": null}), "three"),
        (json!({"name": "A", "value": "**********"}), "three"),
    ] {
        let changed = world.put(ADA, &format!("{V1}/A"), &body).await;
        changed.is(200, &message("Secret updated successfully"));
        assert_eq!(seen().await, value, "{body}");
    }
    let changed = world
        .put(
            ADA,
            &format!("{LEGACY}/A"),
            &json!({"name": "A", "value": "four"}),
        )
        .await;
    changed.is(200, &message("Secret updated successfully"));
    assert_eq!(seen().await, "four");
}

#[actix_web::test]
async fn every_access_token_is_refused() {
    let world = World::working().await;
    let (_, key) = sandbox(&world, ADA).await;
    let long = "x".repeat(5_000);
    for token in [
        "",
        "garbage",
        "eyJhbGciOiAiSFMyNTYifQ.e30.AAAA",
        &key,
        ADA,
        &long,
    ] {
        let request = TestRequest::get()
            .uri("/api/v1/webhooks/secrets")
            .insert_header(("X-Access-Token", token));
        world.send(request).await.refuses(401, "Unauthorized");
    }
}
