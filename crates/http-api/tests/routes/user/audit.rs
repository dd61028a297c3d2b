//! The audit log.

use std::time::Duration;

use actix_web::test::TestRequest;
use serde_json::{Value, json};
use store_memory::FakeBehavior;

use crate::fixture::{ADA, BOB, ROOT, World};

const AUDIT: &str = "/api/v1/audit";

/// The entries of the log, newest first.
async fn log(world: &World, query: &str) -> Vec<Value> {
    assert!(world.app.audit.finish(Duration::from_secs(30)).await);
    let page = world.get(ROOT, &format!("{AUDIT}?{query}")).await.ok();
    page["items"].as_array().unwrap().clone()
}

fn brief(entry: &Value) -> [&str; 4] {
    ["actor", "action", "object", "outcome"].map(|member| entry[member].as_str().unwrap_or("-"))
}

#[actix_web::test]
async fn changes_are_audited_without_secrets() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let secret = json!({"name": "TOKEN", "value": "canary-of-a-secret"});
    assert_eq!(
        world.post(ADA, "/api/v1/secrets", &secret).await.status,
        201
    );
    let path = format!("/api/v1/app-conversations/{id}");
    let title = json!({"title": "canary-of-a-title"});
    world.patch(ADA, &path, &title).await.ok();
    assert_eq!(world.patch(BOB, &path, &title).await.status, 404);
    world.get(ADA, "/api/v1/settings").await.ok();
    let all = log(&world, "").await;
    let object = format!("conversation:{id}");
    let route = "PATCH /api/v1/app-conversations/{conversation_id}";
    let expected = [
        ["user:bob", route, &object, "refused"],
        ["user:ada", route, &object, "ok"],
        ["user:ada", "POST /api/v1/secrets", "-", "ok"],
    ];
    for line in expected {
        assert!(
            all.iter().any(|it| brief(it) == line),
            "{line:?} in {all:#?}"
        );
    }
    assert!(
        all.iter()
            .all(|it| !it["action"].as_str().unwrap().starts_with("GET"))
    );
    let text = Value::from(all).to_string();
    for secret in ["canary", ADA, BOB, ROOT, "sk-secret"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[actix_web::test]
async fn user_changes_are_one_entry_with_the_request_id() {
    let world = World::idle().await;
    let request = TestRequest::post()
        .uri("/api/v1/admin/users/bob/keys?x=canary")
        .insert_header(("X-Session-API-Key", ROOT))
        .insert_header(("X-Request-Id", "r-77"))
        .peer_addr("192.0.2.7:1234".parse().unwrap());
    let made = world.send(request.set_json(json!({}))).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let lines = log(&world, "actor=user:root").await;
    let [line] = lines.as_slice() else {
        panic!("one line: {lines:#?}");
    };
    let key = format!("key:{}", made["record"]["id"].as_str().unwrap());
    assert_eq!(
        brief(line),
        [
            "user:root",
            "POST /api/v1/admin/users/{user_id}/keys",
            &key,
            "ok"
        ]
    );
    assert_eq!(
        (&line["status"], &line["detail"]),
        (&json!(201), &json!("user:bob"))
    );
    assert_eq!(line["request_id"], "r-77");
    assert_eq!(line["source"], "192.0.2.7");
    assert!(line["key_id"].is_string());
    assert!(!line.to_string().contains(made["key"].as_str().unwrap()));
}

#[actix_web::test]
async fn the_same_refusal_again_is_counted() {
    let world = World::idle().await;
    for _ in 0..5 {
        assert_eq!(world.get("aw_wrong", "/api/v1/keys").await.status, 401);
        assert_eq!(world.get(ADA, AUDIT).await.status, 403);
    }
    for actor in ["unknown", "user:ada"] {
        let lines = log(&world, &format!("actor={actor}&outcome=refused")).await;
        let mut counts: Vec<_> = lines
            .iter()
            .map(|it| it["count"].as_u64().unwrap())
            .collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 4], "{actor}");
    }
}

#[actix_web::test]
async fn secret_reads_of_sandboxes_are_audited() {
    let world = World::working().await;
    let secret = json!({"name": "TOKEN", "value": "canary"});
    assert_eq!(
        world.post(ADA, "/api/v1/secrets", &secret).await.status,
        201
    );
    let id = world.conversation(ADA).await;
    let read = world.read(ADA, &id).await;
    let (sandbox, key) = (
        read["sandbox_id"].as_str().unwrap(),
        read["session_api_key"].as_str().unwrap(),
    );
    let path = format!("/api/v1/sandboxes/{sandbox}/settings/secrets/TOKEN");
    assert_eq!(world.get(key, &path).await.status, 200);
    let lines = log(&world, &format!("actor=sandbox:{sandbox}")).await;
    let line = lines.first().expect("a line");
    assert_eq!(line["object"], format!("sandbox:{sandbox}"));
    assert_eq!(
        (&line["detail"], &line["outcome"]),
        (&json!("secret:TOKEN"), &json!("ok"))
    );
    assert!(!line.to_string().contains("canary"));
}

#[actix_web::test]
async fn entries_are_paged_and_filtered() {
    let world = World::idle().await;
    for name in ["A", "B", "C"] {
        let secret = json!({"name": name, "value": "v"});
        assert_eq!(
            world.post(ADA, "/api/v1/secrets", &secret).await.status,
            201
        );
    }
    assert_eq!(log(&world, "actor=user:ada").await.len(), 3);
    assert_eq!(log(&world, "action=POST%20/api/v1/secrets").await.len(), 3);
    assert_eq!(
        log(&world, "since=2026-01-01T00:00:00Z&actor=user:ada")
            .await
            .len(),
        3
    );
    assert!(log(&world, "until=2026-01-01T00:00:00Z").await.is_empty());
    assert!(log(&world, "object=secret:A").await.is_empty());
    let first = world
        .get(ROOT, &format!("{AUDIT}?actor=user:ada&limit=2"))
        .await
        .ok();
    let next = first["next_page_id"].as_str().unwrap().replace('|', "%7C");
    let path = format!("{AUDIT}?actor=user:ada&limit=2&page_id={next}");
    let second = world.get(ROOT, &path).await.ok();
    assert_eq!(second["items"].as_array().unwrap().len(), 1);
    for wrong in [
        "actor=ada",
        "outcome=good",
        "since=x",
        "limit=0",
        "page_id=2",
    ] {
        let answer = world.get(ROOT, &format!("{AUDIT}?{wrong}")).await;
        assert_eq!(answer.status, 422, "{wrong}");
    }
}

#[actix_web::test]
async fn changes_of_disconnected_clients_are_audited() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    world
        .agents
        .set_behavior(FakeBehavior::Slow(Duration::from_secs(3600)));
    let path = format!("/api/v1/app-conversations/{id}/send-message");
    let message = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
    let before = world.agents.calls().send;
    {
        let mut sending = std::pin::pin!(world.post(ADA, &path, &message));
        while world.agents.calls().send == before {
            assert!(futures::poll!(sending.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    let object = format!("conversation:{id}");
    let lines = log(&world, &format!("object={object}&outcome=failed")).await;
    let [line] = lines.as_slice() else {
        panic!("one line: {lines:#?}");
    };
    let action = "POST /api/v1/app-conversations/{conversation_id}/send-message";
    assert_eq!(brief(line), ["user:ada", action, &object, "failed"]);
    assert_eq!(line["status"], Value::Null);
    assert!(line["key_id"].is_string());
}
