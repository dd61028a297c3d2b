//! Sandboxes and their specs.

use domain::id::{SandboxId, UserId};
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, NOW, SPECS, StreamedResponse, World};

const BASE: &str = "/api/v1/sandboxes";

fn spec(id: &str) -> Value {
    json!({
        "id": id, "command": null, "created_at": NOW, "initial_env": {"TZ": "UTC"}, "working_dir": "/workspace/project",
    })
}

#[actix_web::test]
async fn a_new_sandbox_hides_its_key_until_it_runs() {
    let world = World::idle().await;
    world.backend.set_hanging(true);
    let answer = world
        .post(
            ADA,
            &format!("{BASE}?sandbox_spec_id={}", SPECS[1]),
            &json!({"ignored": 1}),
        )
        .await;
    let id = answer.json()["id"].clone();
    answer.is(200, &json!({
        "id": id, "created_by_user_id": "ada", "sandbox_spec_id": SPECS[1], "status": "STARTING",
        "session_api_key": null, "exposed_urls": null, "created_at": NOW, "status_detail": null, "egress_allow": null,
    }));
    world
        .post(ADA, &format!("{BASE}?sandbox_spec_id=nope"), &json!({}))
        .await
        .refuses(404, "Sandbox spec not found");
}

#[actix_web::test]
async fn a_running_sandbox_shows_its_urls_to_its_owner() {
    let world = World::working().await;
    let task = world.start(ADA, &json!({})).await;
    let id = task["sandbox_id"].as_str().unwrap();
    let found = world.get(ADA, &format!("{BASE}/search")).await;
    let key = found.json()["items"][0]["session_api_key"].clone();
    let expected = json!({
        "id": id, "created_by_user_id": "ada", "sandbox_spec_id": SPECS[0], "status": "RUNNING",
        "session_api_key": key,
        "exposed_urls": [{"name": "AGENT_SERVER", "url": "http://127.0.0.1:9001", "port": 9001}],
        "created_at": NOW, "status_detail": null, "egress_allow": null,
    });
    assert!(
        key.as_str().is_some_and(|key| key.starts_with("secret")),
        "{key}"
    );
    found.is(
        200,
        &json!({"items": [expected.clone()], "next_page_id": null}),
    );
    world
        .get(ADA, &format!("{BASE}?id=zz&id={id}&id=no%2Fsuch&id={id}"))
        .await
        .is(200, &json!([null, expected, null, expected]));
    world
        .get(BOB, &format!("{BASE}/search"))
        .await
        .is(200, &json!({"items": [], "next_page_id": null}));
    world
        .get(BOB, &format!("{BASE}?id={id}"))
        .await
        .is(200, &json!([null]));
}

#[actix_web::test]
async fn commands_are_idempotent_and_restricted_to_the_owner() {
    let world = World::working().await;
    let id = world.start(ADA, &json!({})).await["sandbox_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for command in ["pause", "pause", "resume", "resume"] {
        let path = format!("{BASE}/{id}/{command}");
        world
            .post(BOB, &path, &json!({}))
            .await
            .refuses(404, "Not Found");
        world
            .post(ADA, &path, &json!({}))
            .await
            .is(200, &json!({"success": true}));
    }
    for unknown in ["nope", "..", "a%20b", "a%2Fb"] {
        assert_eq!(
            world
                .post(ADA, &format!("{BASE}/{unknown}/pause"), &json!({}))
                .await
                .status,
            404,
            "{unknown}"
        );
    }
    world
        .delete(ADA, &format!("{BASE}/nope"))
        .await
        .refuses(404, "Not Found");
    world
        .delete(BOB, &format!("{BASE}/{id}"))
        .await
        .refuses(404, "Not Found");
    let other = world
        .delete(ADA, &format!("{BASE}/{id}?sandbox_id=other"))
        .await;
    assert_eq!(
        (other.status, &other.json()["detail"][0]["loc"]),
        (422, &json!(["query", "sandbox_id"]))
    );
    world
        .delete(ADA, &format!("{BASE}/{id}?sandbox_id={id}"))
        .await
        .is(200, &json!({"success": true}));
    world
        .delete(ADA, &format!("{BASE}/{id}"))
        .await
        .refuses(404, "Not Found");
}

#[actix_web::test]
async fn specs_are_paged_and_found() {
    let world = World::idle().await;
    let base = "/api/v1/sandbox-specs";
    let all = json!({"items": SPECS.map(spec), "next_page_id": null});
    world
        .get(ADA, &format!("{base}/search"))
        .await
        .is(200, &all);
    let first = world.get(ADA, &format!("{base}/search?limit=1")).await.ok();
    assert_eq!(first["items"], json!([spec(SPECS[0])]));
    let next = first["next_page_id"].as_str().unwrap();
    let rest = json!({"items": [spec(SPECS[1])], "next_page_id": null});
    world
        .get(ADA, &format!("{base}/search?limit=1&page_id={next}"))
        .await
        .is(200, &rest);
    world
        .get(ADA, &format!("{base}?id=nope&id={}", SPECS[1]))
        .await
        .is(200, &json!([null, spec(SPECS[1])]));
    assert_eq!(world.get("", &format!("{base}/search")).await.status, 401);
}

/// Reads up to and with a text, or to the end.
async fn read_to(opened: &mut StreamedResponse, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        match opened.next().await {
            Some(more) => text.push_str(&more),
            None => return text,
        }
    }
    text
}

#[actix_web::test]
async fn only_the_owner_reads_and_follows_a_log_without_keys() {
    let world = World::working().await;
    let id = world.start(ADA, &json!({})).await["sandbox_id"].clone();
    let id = SandboxId::parse(id.as_str().unwrap()).unwrap();
    let path = format!("{BASE}/{id}/logs");
    let shown = world.get(ADA, &format!("{BASE}?id={id}")).await.json();
    let key = shown[0]["session_api_key"].as_str().unwrap();
    for line in ["one", &format!("two {key}"), "three"] {
        world.backend.append_log_line(&id, line);
    }
    let answer = world.get(ADA, &path).await;
    assert_eq!(
        (
            answer.status,
            answer.content_type.as_str(),
            answer.text.as_str()
        ),
        (200, "text/plain; charset=utf-8", "one\ntwo ***\nthree\n")
    );
    let last = world.get(ADA, &format!("{path}?lines=1")).await;
    assert_eq!(last.text, "three\n");
    for (query, kind) in [
        ("lines=-1", "greater_than_equal"),
        ("lines=10001", "less_than_equal"),
        ("follow=perhaps", "bool_parsing"),
    ] {
        let refused = world.get(ADA, &format!("{path}?{query}")).await;
        assert_eq!(
            (refused.status, &refused.json()["detail"][0]["type"]),
            (422, &json!(kind))
        );
    }
    for (key, unknown) in [(BOB, path.as_str()), (ADA, "/api/v1/sandboxes/nope/logs")] {
        world.get(key, unknown).await.refuses(404, "Not Found");
    }
    assert_eq!(world.get("", &path).await.status, 401);
    let follow = format!("{path}?lines=1&follow=true");
    let mut opened = world.open(ADA, &follow, None).await;
    assert_eq!(read_to(&mut opened, "three\n").await, "three\n");
    world.backend.append_log_line(&id, "four");
    assert_eq!(read_to(&mut opened, "four\n").await, "four\n");
    let pause = format!("{BASE}/{id}/pause");
    world.post(ADA, &pause, &json!({})).await.ok();
    assert_eq!(read_to(&mut opened, "\0").await, "");
    // The log of a paused sandbox can be read, of a deleted one not.
    assert_eq!(
        world
            .get(ADA, &format!("{path}?lines=2&follow=true"))
            .await
            .text,
        "three\nfour\n"
    );
    world.delete(ADA, &format!("{BASE}/{id}")).await.ok();
    world.get(ADA, &path).await.refuses(404, "Not Found");
}

#[actix_web::test]
async fn a_user_follows_ten_logs_until_the_service_stops_or_the_key_is_revoked() {
    let world = World::working().await;
    let id = world.start(ADA, &json!({})).await["sandbox_id"].clone();
    let path = format!("{BASE}/{}/logs?follow=true", id.as_str().unwrap());
    let mut all = Vec::new();
    for _ in 0..10 {
        all.push(world.open(ADA, &path, None).await);
        assert_eq!(all.last().map(|opened| opened.status), Some(200));
    }
    let refused = world.get(ADA, &path).await;
    assert_eq!(refused.status, 429, "{}", refused.text);
    let user = UserId::parse("ada").unwrap();
    for key in world.keys.list(Some(&user)).await.unwrap() {
        assert!(world.keys.revoke(key.id).await.unwrap());
    }
    assert_eq!(read_to(&mut all.pop().unwrap(), "\0").await, "");
    world.app.event_streams.end_all();
    for mut opened in all {
        assert_eq!(read_to(&mut opened, "\0").await, "");
    }
}
