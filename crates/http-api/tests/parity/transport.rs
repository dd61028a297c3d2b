//! Properties of every route of the public listener; see `docs/reference/wire/conventions.md`. The layers, with origins and
//! headers, have their own tests.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use http_api::Listener;
use serde_json::json;

use crate::fixture::{ADA, BOB, World};

/// More requests than a user or a sandbox may send per second; the clock of the fixture stands still.
const FLOOD: usize = 1_100;

#[actix_web::test]
async fn routes_refuse_head_and_options_and_redirect_trailing_slashes() {
    let document = http_api::openapi_document();
    let paths = document["paths"].as_object().unwrap();
    let paths: Vec<String> = paths
        .keys()
        .map(|path| path.replace(['{', '}'], ""))
        .collect();
    assert!(paths.len() > 60);
    let world = World::idle().await;
    for method in [Method::HEAD, Method::OPTIONS] {
        // An invalid key: the methods of a path are checked before the key.
        let requests = paths.iter().map(|path| {
            TestRequest::default()
                .method(method.clone())
                .uri(path.as_str())
        });
        let answers = world.send_all(Listener::Public, requests).await;
        for (path, answer) in paths.iter().zip(answers) {
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.json(), json!({"detail": "Method Not Allowed"}));
        }
    }
    let requests = paths.iter().map(|path| {
        TestRequest::default()
            .method(Method::PUT)
            .uri(&format!("{path}/"))
    });
    let answers = world.send_all(Listener::Public, requests).await;
    for (path, answer) in paths.iter().zip(answers) {
        assert_eq!((answer.status, answer.text.as_str()), (307, ""), "{path}/");
    }
}

#[actix_web::test]
async fn a_users_flood_is_refused_and_affects_no_other_user() {
    let world = World::working().await;
    // Refusals above the first ones are held.
    tokio::time::pause();
    let id = world.conversation(ADA).await;
    let conversation = world.read(ADA, &id).await;
    let sandbox = conversation["session_api_key"].as_str().unwrap();
    let asking = |path: &str, key: &str| {
        TestRequest::get()
            .uri(path)
            .insert_header(("X-Session-API-Key", key))
    };

    let flood = (0..FLOOD).map(|_| asking("/api/v1/sandbox-specs/search", ADA));
    let answers = world.send_all(Listener::Public, flood).await;
    let refused = answers.iter().filter(|answer| answer.status == 429).count();
    assert!((100..200).contains(&refused), "{refused}");
    let refusal = world.open(ADA, "/api/v1/sandbox-specs/search", None).await;
    assert_eq!(refusal.status, 429);
    assert_eq!(refusal.headers.get("retry-after").unwrap(), "1");
    assert!(refusal.headers.contains_key("cache-control"));
    let expected = json!({"message": "Too many requests"});
    assert_eq!(refusal.whole().await, expected);

    world.get(BOB, "/api/v1/sandbox-specs/search").await.ok();
    world.get(ADA, "/health").await.ok();
    // The same user's sandbox reports without this limit, and looks up what it needs.
    let reports = format!("/api/v1/webhooks/events/{id}");
    let reports = (0..FLOOD).map(|_| {
        TestRequest::post()
            .uri(&reports)
            .insert_header(("X-Session-API-Key", sandbox))
            .set_json(json!([]))
    });
    for answer in world.send_all(Listener::Public, reports).await {
        answer.ok();
    }
    let secrets = conversation["sandbox_id"].as_str().unwrap();
    let secrets = format!("/api/v1/sandboxes/{secrets}/settings/secrets");
    world.get(sandbox, &secrets).await.ok();
    // Its look-ups have their own limit.
    let flood = (0..FLOOD).map(|_| asking(&secrets, sandbox));
    let answers = world.send_all(Listener::Callback, flood).await;
    let refused = answers.iter().filter(|answer| answer.status == 429).count();
    assert!((100..200).contains(&refused), "{refused}");
}
