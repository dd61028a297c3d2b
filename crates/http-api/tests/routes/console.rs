//! The web console's files, and the routes that only it uses.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use http_api::Listener;
use serde_json::json;

use crate::fixture::{ADA, ROOT, StreamedResponse, World};

async fn open(world: &World, path: &str, known: Option<&str>) -> StreamedResponse {
    let request = TestRequest::get().uri(path);
    world
        .open_as(match known {
            Some(tag) => request.insert_header(("If-None-Match", tag)),
            None => request,
        })
        .await
}

#[track_caller]
fn header<'a>(answer: &'a StreamedResponse, name: &str) -> &'a str {
    answer.headers.get(name).unwrap().to_str().unwrap()
}

/// Asserts that foreign code cannot run, and that no other page frames this one.
#[track_caller]
fn assert_policy(answer: &StreamedResponse) {
    assert_eq!(header(answer, "x-content-type-options"), "nosniff");
    assert_eq!(header(answer, "x-frame-options"), "DENY");
    assert_eq!(header(answer, "referrer-policy"), "no-referrer");
    let policy = header(answer, "content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self';",
        "connect-src 'self';",
        "frame-ancestors 'none'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(part), "{part} in {policy}");
    }
}

/// In a frame of another site, a click could run an operation.
#[actix_web::test]
async fn the_documentation_forbids_foreign_code_and_framing() {
    let world = World::idle().await;
    for path in [
        "/docs/",
        "/docs/swagger-initializer.js",
        "/docs/swagger-ui.css",
    ] {
        let answer = open(&world, path, None).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_policy(&answer);
    }
}

/// Without a key: the files contain no data.
#[actix_web::test]
async fn console_files_are_cached_and_forbid_foreign_code() {
    let world = World::idle().await;
    for (path, kind) in [
        ("/console/app.js", "text/javascript; charset=utf-8"),
        ("/console/style.css", "text/css; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
    ] {
        let answer = open(&world, path, None).await;
        assert_eq!(
            (answer.status, header(&answer, "content-type")),
            (200, kind)
        );
        assert_eq!(header(&answer, "cache-control"), "no-cache");
        assert_policy(&answer);
        let tag = header(&answer, "etag").to_owned();
        let again = open(&world, path, Some(&tag)).await;
        assert_eq!((again.status, header(&again, "etag")), (304, tag.as_str()));
        assert_eq!(open(&world, path, Some("\"x\"")).await.status, 200);
    }
    for unknown in ["/console/x.js", "/console/../console/app.js", "/console//"] {
        assert_eq!(open(&world, unknown, None).await.status, 404, "{unknown}");
    }
}

/// The pages depend on the service's settings, and contain no data either.
#[actix_web::test]
async fn pages_of_the_console_forbid_foreign_code() {
    let world = World::idle().await;
    for path in ["/console/", "/settings", "/settings/skills"] {
        let answer = open(&world, path, None).await;
        let kind = header(&answer, "content-type");
        assert_eq!((answer.status, kind), (200, "text/html; charset=utf-8"));
        assert_eq!(header(&answer, "cache-control"), "no-cache");
        assert_policy(&answer);
    }
    // Pages of the web application, which this service does not have.
    for other in ["/settings/llm", "/settings/skills/x"] {
        assert_eq!(open(&world, other, None).await.status, 404, "{other}");
    }
}

/// Only the head is checked; the server omits the body.
#[actix_web::test]
async fn head_equals_get_and_other_methods_are_refused() {
    let world = World::idle().await;
    for path in [
        "/console",
        "/console/",
        "/settings",
        "/settings/skills",
        "/console/app.js",
    ] {
        let whole = open(&world, path, None).await;
        let head = world
            .open_as(TestRequest::default().method(Method::HEAD).uri(path))
            .await;
        assert_eq!(head.status, whole.status, "{path}");
        for name in ["location", "etag", "cache-control", "content-type"] {
            assert_eq!(head.headers.get(name), whole.headers.get(name), "{path}");
        }
        if let Some(tag) = whole.headers.get("etag") {
            let known = TestRequest::default()
                .method(Method::HEAD)
                .uri(path)
                .insert_header(("If-None-Match", tag.clone()));
            assert_eq!(world.open_as(known).await.status, 304, "{path}");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let request = TestRequest::default().method(method.clone()).uri(path);
            let refused = world.open_as(request).await;
            assert_eq!(refused.status, 405, "{method} {path}");
            assert_eq!(header(&refused, "allow"), "GET, HEAD");
        }
    }
    let refused = world.open_as(TestRequest::post().uri("/docs/")).await;
    assert_eq!((refused.status, header(&refused, "allow")), (405, "GET"));
}

/// Relative, so that it works under any path of a proxy.
#[actix_web::test]
async fn the_page_is_a_folder() {
    let world = World::idle().await;
    let answer = open(&world, "/console", None).await;
    assert_eq!(
        (answer.status, header(&answer, "location")),
        (307, "console/")
    );
    for path in ["/console", "/console/", "/console/app.js"] {
        let request = TestRequest::get().uri(path);
        let answer = world.send_to(Listener::Callback, request).await;
        assert_eq!(answer.status, 404, "sandboxes have no business there");
    }
}

#[actix_web::test]
async fn callers_read_their_identity_and_role() {
    let world = World::idle().await;
    for (key, user, role) in [(ADA, "ada", "user"), (ROOT, "root", "admin")] {
        let access = world.get(key, "/api/v1/users/me/access").await.ok();
        assert_eq!(
            (&access["user_id"], &access["role"]),
            (&json!(user), &json!(role))
        );
        assert!(access["key_id"].is_string(), "{access}");
    }
    let nobody = world.get("aw_none", "/api/v1/users/me/access").await;
    nobody.refuses(401, "Unauthorized");
}

#[actix_web::test]
async fn the_warm_pool_is_for_administrators() {
    let world = World::idle().await;
    let path = "/api/v1/admin/warm";
    world
        .get(ADA, path)
        .await
        .refuses(403, "Only administrators may do this");
    let pool = world.get(ROOT, path).await.ok();
    assert_eq!(
        pool,
        json!({
            "target": 0, "ready": 0, "booting": 0, "claimed": 0,
            "hits": 0, "misses": 0, "failed_boots": 0, "ended": 0,
        })
    );
}

#[actix_web::test]
async fn hosts_are_listed_and_drained_by_administrators() {
    let world = World::idle().await;
    let path = "/api/v1/admin/hosts";
    let only = "Only administrators may do this";
    let body = json!({"draining": true});
    world.get(ADA, path).await.refuses(403, only);
    let none = format!("{path}/nowhere");
    world.patch(ADA, &none, &body).await.refuses(403, only);
    let listed = world.get(ROOT, path).await.ok();
    assert_eq!(listed, json!({"items": [], "next_page_id": null}));
    world
        .patch(ROOT, &none, &body)
        .await
        .refuses(404, "Host not found");
    world
        .delete(ROOT, &none)
        .await
        .refuses(404, "Host not found");
    let empty = world.patch(ROOT, &none, &json!({})).await;
    assert_eq!(empty.status, 422);
}

#[actix_web::test]
async fn administrators_see_the_starts_of_everybody_without_their_requests() {
    let world = World::idle().await;
    let path = "/api/v1/admin/starts?limit=10";
    world
        .get(ADA, path)
        .await
        .refuses(403, "Only administrators may do this");
    let request = json!({"title": "private", "initial_message": {"content": [{"type": "text", "text": "private"}]}});
    let task = world
        .post(ADA, "/api/v1/app-conversations", &request)
        .await
        .ok();
    let all = world.get(ROOT, path).await.ok();
    assert_eq!(all["items"][0]["id"], task["id"]);
    assert_eq!(all["items"][0]["created_by_user_id"], "ada");
    assert!(!all.to_string().contains("private"), "{all}");
}
