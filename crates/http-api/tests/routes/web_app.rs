//! The web application at `/`.

use std::fs;
use std::sync::Arc;

use actix_web::test::TestRequest;
use application::AuthMode;
use http_api::{AddressConfig, HttpConfig, Listener, WebAppSite};
use web_app::{WebApp, WebAppSlot, WebAppStatus};

use crate::fixture::{ADA, StreamedResponse, World};

const INDEX: &str =
    "<!DOCTYPE html><html><head></head><body><script>start()</script></body></html>";

fn build() -> Arc<WebApp> {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("assets")).unwrap();
    for (name, content) in [
        ("index.html", INDEX),
        ("favicon.svg", "<svg/>"),
        ("sound.mp3", "sound"),
        ("assets/a~b-1.js", "a()"),
    ] {
        fs::write(dir.path().join(name), content).unwrap();
    }
    Arc::new(WebApp::load(dir.path()).unwrap())
}

async fn world(status: WebAppStatus) -> World {
    let public = "http://127.0.0.1:3000/";
    let slot = WebAppSlot::default();
    slot.set(status);
    let config = HttpConfig {
        addresses: AddressConfig {
            public_url: public.parse().ok(),
            ..AddressConfig::default()
        },
        web_app: Some(WebAppSite {
            slot,
            public_url: public.parse().unwrap(),
            is_url_configured: false,
            sandbox_url: None,
        }),
        ..HttpConfig::default()
    };
    World::build(config, AuthMode::ApiKey).await
}

async fn ready() -> World {
    world(WebAppStatus::Ready(build())).await
}

fn request(path: &str) -> TestRequest {
    TestRequest::get()
        .uri(path)
        .insert_header(("Host", "127.0.0.1:3000"))
}

#[track_caller]
fn header<'a>(answer: &'a StreamedResponse, name: &str) -> &'a str {
    answer.headers.get(name).unwrap().to_str().unwrap()
}

#[actix_web::test]
async fn pages_of_the_router_get_the_page_with_its_parameters() {
    let world = ready().await;
    for path in ["/", "/conversations/1", "/settings/llm", "/mcp", "/?a=b"] {
        let page = world.send(request(path)).await;
        assert_eq!(
            (page.status, page.content_type.as_str()),
            (200, "text/html; charset=utf-8")
        );
        let lock = "window.__AGENT_CANVAS_LOCK_TO_CLOUD__=\"http://127.0.0.1:3000\";";
        assert!(page.text.contains(lock), "{}", page.text);
        assert!(page.text.contains("__AGENT_CANVAS_DO_NOT_TRACK__=true"));
    }
    let page = world.open_as(request("/")).await;
    assert_eq!(header(&page, "cache-control"), "no-cache");
    assert_eq!(header(&page, "x-content-type-options"), "nosniff");
    let policy = header(&page, "content-security-policy");
    assert_eq!(policy.matches("'sha256-").count(), 2, "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"));
    let other = request("/").insert_header(("Host", "192.168.1.5:3000"));
    let page = world.send(other).await;
    assert!(page.text.contains("\"http://192.168.1.5:3000\""));
    assert!(!page.text.contains("ids="), "no one is signed in");
    let signed_in = request("/").insert_header(("X-Session-API-Key", ADA));
    let page = world.send(signed_in).await;
    assert!(page.text.contains("ids=[\""), "{}", page.text);
    // A name that no one but the client knows is not written into the page.
    let evil = request("/").insert_header(("Host", "evil.example"));
    let page = world.send(evil).await;
    assert!(page.text.contains("\"http://127.0.0.1:3000\"") && !page.text.contains("evil"));
    let other = request("/skills").insert_header(("Host", "localhost:3000"));
    let page = world.open_as(other).await;
    assert_eq!(page.status, 307);
    assert_eq!(header(&page, "location"), "http://127.0.0.1:3000/skills");
}

#[actix_web::test]
async fn files_are_compressed_and_cached() {
    let world = ready().await;
    let gzip = |path| request(path).insert_header(("Accept-Encoding", "gzip, br"));
    for path in ["/assets/a~b-1.js", "/assets/a%7Eb-1.js"] {
        let file = world.open_as(gzip(path)).await;
        assert_eq!(file.status, 200, "{path}");
        assert_eq!(
            header(&file, "content-type"),
            "text/javascript; charset=utf-8"
        );
        assert_eq!(
            header(&file, "cache-control"),
            "public, max-age=31536000, immutable"
        );
        assert_eq!(header(&file, "content-encoding"), "gzip");
        assert_eq!(header(&file, "vary"), "Accept-Encoding");
        assert!(!file.headers.contains_key("expires"));
    }
    let plain = world.send(request("/assets/a~b-1.js")).await;
    assert_eq!(plain.text, "a()");
    let icon = world.open_as(gzip("/favicon.svg")).await;
    assert_eq!(header(&icon, "cache-control"), "no-cache");
    let known = request("/favicon.svg").insert_header(("If-None-Match", header(&icon, "etag")));
    assert_eq!(world.send(known).await.status, 304);
    let sound = world.open_as(gzip("/sound.mp3")).await;
    assert!(!sound.headers.contains_key("content-encoding"));
    let head = TestRequest::default()
        .method(actix_web::http::Method::HEAD)
        .uri("/sound.mp3");
    assert_eq!(world.send(head).await.status, 200);
}

#[actix_web::test]
async fn the_service_keeps_its_paths() {
    let world = ready().await;
    for (path, status, kind) in [
        ("/assets/missing.js", 404, "application/json"),
        ("/index.html", 404, "application/json"),
        ("/conversations/x.js", 404, "application/json"),
        ("/api/unknown", 404, "application/json"),
        ("/api/v1/unknown", 404, "application/json"),
        ("/v1/models", 401, "application/json"),
        ("/mcp/mcp", 405, "application/json"),
        ("/s/a/b/c/", 404, "application/json"),
        ("/settings", 200, "text/html; charset=utf-8"),
        ("/settings/skills", 200, "text/html; charset=utf-8"),
        ("/invite/token", 404, "text/html; charset=utf-8"),
        ("/console/", 200, "text/html; charset=utf-8"),
        ("/alive", 200, "application/json"),
    ] {
        let answer = world.send(request(path)).await;
        assert_eq!(
            (answer.status, answer.content_type.as_str()),
            (status, kind),
            "{path}"
        );
        assert!(!answer.text.contains("__AGENT_CANVAS"), "{path}");
    }
    let post = TestRequest::post().uri("/conversations");
    assert_eq!(world.send(post).await.status, 404);
    for listener in [Listener::Callback, Listener::Metrics] {
        assert_eq!(world.send_to(listener, request("/")).await.status, 404);
    }
    assert_eq!(World::idle().await.send(request("/")).await.status, 404);
}

#[actix_web::test]
async fn until_it_is_installed_a_page_says_what_happens() {
    let installing = WebAppStatus::Installing {
        step: "downloaded 5 of <17> MB".to_owned(),
    };
    let world = self::world(installing).await;
    let page = world.send(request("/")).await;
    assert_eq!(page.status, 503);
    assert!(
        page.text.contains("downloaded 5 of &lt;17&gt; MB"),
        "{}",
        page.text
    );
    assert!(page.text.contains("http-equiv=\"refresh\""));
    assert_eq!(world.send(request("/assets/a.js")).await.status, 404);
    let world = self::world(WebAppStatus::Failed).await;
    let page = world.send(request("/skills")).await;
    assert_eq!(page.status, 503);
    assert!(page.text.contains("web install --from FILE"));
}

#[actix_web::test]
async fn events_about_the_use_are_dropped() {
    let world = World::idle().await;
    let post = |body: &str| {
        TestRequest::post()
            .uri("/api/analytics/events")
            .insert_header(("X-Session-API-Key", ADA))
            .set_payload(body.to_owned())
    };
    for body in ["{\"event_type\":\"canvas_authenticated\"}", "", "no json"] {
        assert_eq!(world.send(post(body)).await.status, 204, "{body}");
    }
    let large = "x".repeat(3 << 20);
    assert_eq!(world.send(post(&large)).await.status, 413);
    let unknown = TestRequest::post().uri("/api/analytics/events");
    assert_eq!(world.send(unknown).await.status, 401);
}
