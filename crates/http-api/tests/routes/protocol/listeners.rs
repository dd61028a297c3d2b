//! The callback and metrics listeners: they serve their own routes and no others.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use http_api::Listener;
use serde_json::json;

use crate::fixture::{ADA, UNKNOWN, World};

fn request(method: &str, path: &str, key: &str) -> TestRequest {
    let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    TestRequest::default()
        .method(method)
        .uri(path)
        .insert_header(("X-Session-API-Key", key))
}

#[actix_web::test]
async fn the_callback_listener_accepts_reports_with_the_sandbox_key_only() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let key = world.read(ADA, &id).await["session_api_key"].clone();
    let event = json!({"id": "e1", "timestamp": "2026-11-21T10:00:01", "source": "user", "kind": "MessageEvent"});
    let report = |key: &str| {
        request("post", &format!("/api/v1/webhooks/events/{id}"), key).set_json(json!([event]))
    };
    let answer = world.send_to(Listener::Callback, report(ADA)).await;
    answer.refuses(401, "Invalid session API key");
    let answer = world
        .send_to(Listener::Callback, report(key.as_str().unwrap()))
        .await;
    answer.is(200, &json!({"success": true}));
    let alive = request("get", "/alive", "");
    let answer = world.send_to(Listener::Callback, alive).await;
    answer.is(200, &json!({"status": "ok"}));
    world
        .get(ADA, &format!("/api/v1/conversation/{id}/events/count"))
        .await
        .is(200, &json!(1));
}

#[actix_web::test]
async fn the_metrics_listener_serves_metrics_without_a_key_and_nothing_else() {
    let world = World::idle().await;
    let ask = async |method: &str, path: &str| {
        world
            .send_to(Listener::Metrics, request(method, path, ""))
            .await
    };
    let page = ask("get", "/metrics").await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("agent_workspace_build_info"),
        "{}",
        page.text
    );
    ask("get", "/alive").await.is(200, &json!({"status": "ok"}));
    ask("post", "/metrics")
        .await
        .refuses(405, "Method Not Allowed");
    let document = http_api::openapi_document();
    let others = document["paths"].as_object().unwrap().keys();
    let others = others
        .map(String::as_str)
        .chain(["/", "/docs", "/openapi.json", "/console/"]);
    let mut refused = 0;
    for path in others.filter(|path| !["/metrics", "/alive"].contains(path)) {
        let filled = path.replace(['{', '}'], "");
        // Also with a key: this listener identifies no callers.
        let asked = request("get", &filled, ADA);
        let answer = world.send_to(Listener::Metrics, asked).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
        refused += 1;
    }
    assert!(refused > 30, "{refused} paths were tried");
}

#[actix_web::test]
async fn the_callback_listener_serves_no_user_routes() {
    let world = World::idle().await;
    let document = http_api::openapi_document();
    let paths = document["paths"].as_object().unwrap();
    let is_for_sandboxes = |path: &str| {
        path == "/alive"
            || path.starts_with("/api/v1/webhooks/")
            || path.contains("/settings/secrets")
            || path == "/mcp/mcp"
    };
    let mut refused = 0;
    for (path, operations) in paths.iter().filter(|(path, _)| !is_for_sandboxes(path)) {
        let filled: Vec<&str> = path
            .split('/')
            .map(|part| if part.starts_with('{') { UNKNOWN } else { part })
            .collect();
        for method in operations
            .as_object()
            .into_iter()
            .flat_map(|all| all.keys())
        {
            let asked = request(method, &filled.join("/"), ADA);
            let answer = world.send_to(Listener::Callback, asked).await;
            assert_eq!(
                (answer.status, answer.text.as_str()),
                (404, r#"{"detail":"Not Found"}"#),
                "{method} {path}"
            );
            refused += 1;
        }
    }
    assert!(refused > 30, "{refused} operations were tried");
    for path in [
        "/",
        "/docs",
        "/docs/",
        "/openapi.json",
        "/openapi.json/",
        "/health/",
    ] {
        let answer = world
            .send_to(Listener::Callback, request("get", path, ADA))
            .await;
        assert_eq!(answer.status, 404, "{path}");
    }
    // Routes for sandbox keys refuse user keys.
    for (path, text) in [
        (
            "/api/v1/sandboxes/s/settings/secrets",
            "Invalid session API key",
        ),
        (
            "/api/v1/sandboxes/s/settings/secrets/A",
            "Invalid session API key",
        ),
        ("/api/v1/webhooks/secrets", "Unauthorized"),
    ] {
        let asked = request("get", path, ADA);
        world
            .send_to(Listener::Callback, asked)
            .await
            .refuses(401, text);
    }
    // The public routes are unchanged after the other listener was used first.
    let answer = world.get(ADA, "/openapi.json").await;
    assert_eq!(answer.json()["info"], document["info"]);
    let health = world.send(request("get", "/health/", ADA)).await;
    assert_eq!(health.status, 307);
}
