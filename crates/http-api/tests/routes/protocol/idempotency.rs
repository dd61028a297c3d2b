//! `Idempotency-Key`: repeated requests take effect once.

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, TestResponse, World};

const CONVERSATIONS: &str = "/api/v1/app-conversations";
const SANDBOXES: &str = "/api/v1/sandboxes";

async fn post(world: &World, user: &str, path: &str, key: &str, body: &Value) -> TestResponse {
    let request = TestRequest::post()
        .uri(path)
        .insert_header(("X-Session-API-Key", user))
        .insert_header(("Idempotency-Key", key))
        .set_json(body);
    world.send(request).await
}

async fn count(world: &World, user: &str, path: &str) -> usize {
    let page = world.get(user, path).await.ok();
    page["items"].as_array().expect("a page").len()
}

#[actix_web::test]
async fn a_repeated_start_replays_the_first_response() {
    let world = World::working().await;
    let body = json!({"title": "once"});
    let first = post(&world, ADA, CONVERSATIONS, "k", &body).await;
    let task = first.ok();
    assert_eq!(task["status"], "WORKING");
    let again = post(&world, ADA, CONVERSATIONS, "k", &body).await;
    again.is(200, &task);
    assert!(again.is_replay && !first.is_replay);
    let tasks = format!("{CONVERSATIONS}/start-tasks/search");
    assert_eq!(count(&world, ADA, &tasks).await, 1);
    assert_eq!(count(&world, ADA, &format!("{SANDBOXES}/search")).await, 1);
    // Both routes to start are one operation; a stream shows the start to its end.
    let stream = format!("{CONVERSATIONS}/stream-start");
    let streamed = post(&world, ADA, &stream, "k", &body).await.ok();
    let states = streamed.as_array().expect("an array");
    assert_eq!(states.last().expect("a state")["status"], "READY");
    assert!(states.iter().all(|state| state["id"] == task["id"]));
}

#[actix_web::test]
async fn a_key_identifies_one_request_of_one_user() {
    let world = World::working().await;
    let task = post(&world, ADA, CONVERSATIONS, "k", &json!({"title": "one"})).await;
    let task = task.ok();
    let other = post(&world, ADA, CONVERSATIONS, "k", &json!({"title": "two"})).await;
    other.is(
        422,
        &json!({"detail": [{
            "type": "value_error", "loc": ["header", "Idempotency-Key"],
            "msg": "Value error, The idempotency key was used for another request before",
            "ctx": {"error": {}},
        }]}),
    );
    let sandbox = post(&world, ADA, SANDBOXES, "k", &json!({})).await;
    assert_eq!(sandbox.status, 422);
    let bobs = post(&world, BOB, CONVERSATIONS, "k", &json!({"title": "one"})).await;
    assert_ne!(bobs.ok()["id"], task["id"]);
}

#[actix_web::test]
async fn a_repeated_sandbox_is_one() {
    let world = World::working().await;
    let first = post(&world, ADA, SANDBOXES, "k", &json!({})).await.ok();
    post(&world, ADA, SANDBOXES, "k", &json!({}))
        .await
        .is(200, &first);
    assert_eq!(count(&world, ADA, &format!("{SANDBOXES}/search")).await, 1);
}

#[actix_web::test]
async fn an_invalid_key_is_refused_before_the_operation() {
    let world = World::working().await;
    let long = "k".repeat(256);
    for key in ["", "with space", &long] {
        let refused = post(&world, ADA, CONVERSATIONS, key, &json!({})).await;
        assert_eq!(refused.status, 422, "{key:?}");
    }
    assert_eq!(count(&world, ADA, &format!("{SANDBOXES}/search")).await, 0);
}

#[actix_web::test]
async fn a_start_that_returns_an_earlier_task_is_replayed_identically() {
    let world = World::working().await;
    let body = json!({"conversation_id": "0123456789abcdef0123456789abcdef", "title": "one"});
    let plain = TestRequest::post()
        .uri(CONVERSATIONS)
        .insert_header(("X-Session-API-Key", ADA))
        .set_json(&body);
    let task = world.send(plain).await.ok();
    // The first request with a key finds that task: with its own body, but no conversation of its own.
    let first = post(&world, ADA, CONVERSATIONS, "k", &body).await;
    assert!(!first.is_replay);
    let answer = first.ok();
    assert_eq!(answer["id"], task["id"]);
    world.start(ADA, &body).await;
    // The task is READY by now; the response is unchanged.
    let again = post(&world, ADA, CONVERSATIONS, "k", &body).await;
    again.is(200, &answer);
    assert!(again.is_replay);
    let other = post(&world, ADA, CONVERSATIONS, "k", &json!({"title": "two"})).await;
    assert_eq!(other.status, 422);
}
