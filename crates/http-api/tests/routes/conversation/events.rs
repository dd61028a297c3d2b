//! Events: reported by sandboxes, read by owners.

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, UNKNOWN, World};

async fn running(world: &World, user: &str) -> (String, String) {
    let id = world.conversation(user).await;
    let key = world.read(user, &id).await["session_api_key"]
        .as_str()
        .unwrap()
        .to_owned();
    (id, key)
}

fn event(id: &str, second: u32, kind: &str) -> Value {
    json!({"id": id, "timestamp": format!("2026-11-21T10:00:0{second}.000000"), "source": "user", "kind": kind})
}

/// A report does not reveal whether a conversation of another sandbox exists.
#[actix_web::test]
async fn reports_about_foreign_and_unknown_conversations_get_the_same_response() {
    let world = World::working().await;
    let (_, key) = running(&world, ADA).await;
    let (foreign, _) = running(&world, BOB).await;
    let events = format!("/api/v1/conversation/{foreign}/events/count");
    let before = (
        world.read(BOB, &foreign).await,
        world.get(BOB, &events).await.json(),
    );
    let mut answers = Vec::new();
    for id in [foreign.as_str(), UNKNOWN] {
        let info = json!({"id": id, "title": "Mine", "execution_status": "error"});
        let of_conversation = world
            .post(&key, "/api/v1/webhooks/conversations", &info)
            .await;
        let hook = format!("/api/v1/webhooks/events/{id}");
        let batch = json!([event("e1", 1, "MessageEvent")]);
        let of_events = world.post(&key, &hook, &batch).await;
        answers.push([of_conversation, of_events].map(|it| (it.status, it.text)));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0][0].0, 200);
    let after = (
        world.read(BOB, &foreign).await,
        world.get(BOB, &events).await.json(),
    );
    assert_eq!(before, after, "and nothing of it was taken in");
    assert_eq!(world.read(ADA, &foreign).await, Value::Null);
}

#[actix_web::test]
async fn events_come_back_as_they_were_sent() {
    let world = World::working().await;
    let (id, key) = running(&world, ADA).await;
    let hook = format!("/api/v1/webhooks/events/{id}");
    let (first, second) = (
        event("a/../b", 1, "MessageEvent"),
        event("e2", 2, "BrandNewEvent"),
    );
    let batch = json!([second, first, 5, {"no": "id"}, null]);
    for _ in 0..2 {
        world
            .post(&key, &hook, &batch)
            .await
            .is(200, &json!({"success": true}));
    }
    let base = format!("/api/v1/conversation/{id}/events");
    world.get(ADA, &format!("{base}/search")).await.is(
        200,
        &json!({"items": [first, second], "next_page_id": null}),
    );
    world
        .get(
            ADA,
            &format!(
                "{base}/search?sort_order=TIMESTAMP_DESC&limit=1&timestamp__lt=2026-11-21T10:00:02Z"
            ),
        )
        .await
        .is(200, &json!({"items": [first], "next_page_id": null}));
    world
        .get(ADA, &format!("{base}/count?kind__eq=MessageEvent"))
        .await
        .is(200, &json!(1));
    world
        .get(ADA, &format!("{base}?id=x&id=&id=e2&id=a%2F..%2Fb"))
        .await
        .is(200, &json!([null, null, second, first]));
    // Unknown or foreign: empty.
    for (user, conversation) in [(BOB, id.as_str()), (ADA, UNKNOWN)] {
        let base = format!("/api/v1/conversation/{conversation}/events");
        world
            .get(user, &format!("{base}/search"))
            .await
            .is(200, &json!({"items": [], "next_page_id": null}));
        world
            .get(user, &format!("{base}/count"))
            .await
            .is(200, &json!(0));
        world
            .get(user, &format!("{base}?id=e2"))
            .await
            .is(200, &json!([null]));
    }
}

#[actix_web::test]
async fn an_unreadable_event_does_not_fail_its_batch() {
    let world = World::working().await;
    let (id, key) = running(&world, ADA).await;
    let hook = format!("/api/v1/webhooks/events/{id}");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let (one, two) = (event("1", 1, "MessageEvent"), event("2", 2, "MessageEvent"));
    let bad = [
        r#"{"id":"x","text":"\ud800"}"#,
        r#"{"id":1e999}"#,
        "NaN",
        &deep,
    ];
    let body = format!("[{one},{},{two}]", bad.join(","));
    let sent = |body: String| {
        TestRequest::post()
            .uri(&hook)
            .insert_header(("X-Session-API-Key", key.as_str()))
            .insert_header(("Content-Type", "application/json"))
            .set_payload(body)
    };
    world
        .send(sent(body))
        .await
        .is(200, &json!({"success": true}));
    let base = format!("/api/v1/conversation/{id}/events");
    world
        .get(ADA, &format!("{base}/search"))
        .await
        .is(200, &json!({"items": [one, two], "next_page_id": null}));
    let cut_off = world.send(sent("[{\"id\": \"3\"}".into())).await;
    assert_eq!(
        (cut_off.status, &cut_off.json()["detail"][0]["type"]),
        (422, &json!("json_invalid"))
    );
    let long = format!("{{\"id\": \"{}\"}}", "x".repeat(100_000));
    let none = world.send(sent(long)).await;
    assert_eq!(
        (none.status, &none.json()["detail"][0]["type"]),
        (422, &json!("list_type"))
    );
}

#[actix_web::test]
async fn answers_of_large_events_are_bounded() {
    let world = World::working().await;
    let (id, key) = running(&world, ADA).await;
    let hook = format!("/api/v1/webhooks/events/{id}");
    for n in 1..=5 {
        let mut large = event(&n.to_string(), n, "MessageEvent");
        large["text"] = "x".repeat(7 * 1024 * 1024).into();
        world.post(&key, &hook, &json!([large])).await.ok();
    }
    let base = format!("/api/v1/conversation/{id}/events");
    let page = world.get(ADA, &format!("{base}/search")).await.ok();
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert!(page["next_page_id"].is_string());
    let some = world
        .get(ADA, &format!("{base}?id=1&id=2&id=nope&id=4"))
        .await;
    assert_eq!(some.ok().as_array().unwrap().len(), 4);
    let all = format!("{base}?id=1&id=2&id=3&id=4&id=5");
    world.get(ADA, &all).await.refuses(
        413,
        "The events are too large for one response: request fewer",
    );
}

#[actix_web::test]
async fn reports_change_the_conversation_of_their_own_sandbox_only() {
    let world = World::working().await;
    let (id, key) = running(&world, ADA).await;
    let (other, _) = running(&world, BOB).await;
    let update = |key: &str, value: Value| {
        json!({"id": format!("u-{key}"), "timestamp": "2026-11-21T10:00:06.000000", "source": "environment",
            "key": key, "value": value, "kind": "ConversationStateUpdateEvent"})
    };
    let usage = json!({"accumulated_cost": 1.5, "accumulated_token_usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    let batch = json!([
        update("execution_status", json!("finished")),
        update("stats", json!({"usage_to_metrics": {"agent": usage}})),
    ]);
    world
        .post(&key, &format!("/api/v1/webhooks/events/{id}"), &batch)
        .await
        .ok();
    let shown = world.read(ADA, &id).await;
    assert_eq!(
        (
            &shown["execution_status"],
            &shown["metrics"]["accumulated_cost"]
        ),
        (&json!("finished"), &json!(1.5))
    );
    assert_eq!(
        shown["metrics"]["accumulated_token_usage"]["prompt_tokens"],
        10
    );

    let info = json!({"id": id, "title": "Told by the agent", "unknown": {"x": []}});
    world
        .post(&key, "/api/v1/webhooks/conversations", &info)
        .await
        .is(200, &json!({"success": true}));
    assert_eq!(world.read(ADA, &id).await["title"], "Told by the agent");

    world
        .post(&key, &format!("/api/v1/webhooks/events/{other}"), &batch)
        .await
        .is(200, &json!({"success": true}));
    assert_eq!(world.read(BOB, &other).await["execution_status"], "idle");
}

#[actix_web::test]
async fn only_a_sandbox_reports_and_only_a_list_is_a_batch() {
    let world = World::working().await;
    let (id, key) = running(&world, ADA).await;
    let hook = format!("/api/v1/webhooks/events/{id}");
    let bare = TestRequest::post().uri(&hook).set_json(json!([]));
    world
        .send(bare)
        .await
        .refuses(401, "X-Session-API-Key header is required");
    for wrong in [ADA, "nope"] {
        world
            .post(wrong, &hook, &json!([]))
            .await
            .refuses(401, "Invalid session API key");
    }
    // The sandbox's key is not a user's.
    assert_eq!(
        world.get(&key, "/api/v1/app-conversations").await.status,
        401
    );
    // Errors do not quote reports, which contain the output of tools.
    let item = json!({"type": "list_type", "loc": ["body"], "msg": "Input should be a valid list"});
    world
        .post(&key, &hook, &json!({}))
        .await
        .is(422, &json!({"detail": [item]}));
    assert_eq!(
        world
            .post(&key, "/api/v1/webhooks/events/zz", &json!([]))
            .await
            .status,
        422
    );
    let bad = world
        .post(&key, "/api/v1/webhooks/conversations", &json!({"id": "x"}))
        .await;
    assert_eq!(
        (bad.status, &bad.json()["detail"][0]["loc"]),
        (422, &json!(["body", "id"]))
    );
}
