//! Pending messages; see `docs/reference/wire/pending-messages.md`.

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, TestResponse, UNKNOWN, World};

fn path(name: &str) -> String {
    format!("/api/v1/conversations/{name}/pending-messages")
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

async fn queue(world: &World, name: &str, body: &Value) -> TestResponse {
    world.post(ADA, &path(name), body).await
}

/// A start task that does not advance: its id, and its name in paths.
async fn start(world: &World) -> (String, String) {
    let conversation = "0123456789abcdef0123456789abcdef";
    let body = json!({"conversation_id": conversation});
    let task = world.post(ADA, "/api/v1/app-conversations", &body).await;
    let id = task.ok()["id"].as_str().unwrap().to_owned();
    (id.clone(), format!("task-{id}"))
}

#[actix_web::test]
async fn a_message_waits_under_either_name() {
    let world = World::idle().await;
    let (id, task) = start(&world).await;
    let dashed = format!(
        "task-{}-{}-{}-{}-{}",
        &id[..8],
        &id[8..12],
        &id[12..16],
        &id[16..20],
        &id[20..]
    );
    let names = [
        task.as_str(),
        &dashed,
        "0123456789abcdef0123456789abcdef",
        "01234567-89AB-CDEF-0123-456789ABCDEF",
    ];
    for (n, name) in names.into_iter().enumerate() {
        let answer = queue(&world, name, &text("héllo ✓ 漢字")).await;
        assert_eq!(answer.status, 201, "{name}: {}", answer.text);
        let placed = answer.json();
        let id: uuid::Uuid = placed["id"].as_str().unwrap().parse().unwrap();
        answer.is(
            201,
            &json!({"id": id.to_string(), "queued": true, "position": n + 1}),
        );
    }
    for n in 5..=10 {
        let placed = queue(&world, &task, &text("x")).await.json();
        assert_eq!(placed["position"], n);
    }
    queue(&world, &task, &text("11th")).await.refuses(
        429,
        "Too many pending messages. Maximum 10 messages per conversation.",
    );
}

#[actix_web::test]
async fn body_errors_are_400_and_precede_errors_of_the_target() {
    let world = World::idle().await;
    let (_, task) = start(&world).await;
    let content = json!([{"type": "text", "text": "x"}]);
    for name in [task.as_str(), "task-x"] {
        for body in ["{bad", "[]", "\"text\"", "null", "5", "", "[1, 2]"] {
            let request = TestRequest::post()
                .uri(&path(name))
                .insert_header(("X-Session-API-Key", ADA))
                .insert_header(("Content-Type", "application/json"))
                .set_payload(body);
            let answer = world.send(request).await;
            answer.refuses(400, "Invalid request body");
        }
        for body in [
            json!({}),
            json!({"content": []}),
            json!({"content": "x"}),
            json!({"content": null}),
            json!({"content": {}}),
        ] {
            let answer = queue(&world, name, &body).await;
            answer.refuses(400, "content must be a non-empty list");
        }
        for role in [json!(5), json!(null), json!(["user"])] {
            let body = json!({"role": role, "content": content});
            let answer = queue(&world, name, &body).await;
            answer.refuses(400, "role must be a string");
        }
    }
    let odd = json!({"role": "system", "content": content});
    let refused = queue(&world, &task, &odd).await;
    refused.refuses(400, "role must be user: agents accept no other role");
    let odd = json!({"content": [{"type": "nope"}]});
    queue(&world, &task, &odd).await.refuses(
        400,
        "Invalid content format: 4 validation errors\n\
         0.TextContent.type\n  Input should be 'text'\n\
         0.TextContent.text\n  Field required\n\
         0.ImageContent.type\n  Input should be 'image'\n\
         0.ImageContent.image_urls\n  Field required",
    );
    let nul = text("a\u{0}b");
    assert_eq!(queue(&world, &task, &nul).await.status, 400);
    let named = json!({"role": "user", "content": content, "more": 1});
    assert_eq!(queue(&world, &task, &named).await.json()["position"], 1);
}

#[actix_web::test]
async fn unknown_and_foreign_targets_are_404() {
    let world = World::idle().await;
    let (_, task) = start(&world).await;
    let unknown = format!("task-{UNKNOWN}");
    for name in [UNKNOWN, &unknown, "task-x", "x", "task-", "%00"] {
        let answer = queue(&world, name, &text("x")).await;
        assert_eq!(answer.status, 404, "{name}: {}", answer.text);
    }
    for name in [task.as_str(), "0123456789abcdef0123456789abcdef"] {
        let answer = world.post(BOB, &path(name), &text("x")).await;
        answer.refuses(404, "Conversation not found");
    }
    let anonymous = TestRequest::post().uri(&path(&task)).set_json(text("x"));
    assert_eq!(world.send(anonymous).await.status, 401);
    assert_eq!(world.get(ADA, &path(&task)).await.status, 405);
    assert_eq!(world.delete(ADA, &path(&task)).await.status, 405);
}

#[actix_web::test]
async fn a_message_with_a_key_waits_once() {
    let world = World::idle().await;
    let (_, task) = start(&world).await;
    let post = async |name: &str, body: &Value| {
        let request = TestRequest::post()
            .uri(&path(name))
            .insert_header(("X-Session-API-Key", ADA))
            .insert_header(("Idempotency-Key", "k"));
        world.send(request.set_json(body)).await
    };
    queue(&world, &task, &text("before")).await;
    let first = post(&task, &text("x")).await;
    assert_eq!((first.status, first.is_replay), (201, false));
    assert_eq!(first.json()["position"], 2);
    let again = post(&task, &text("x")).await;
    again.is(201, &first.json());
    assert!(again.is_replay);
    for (name, body) in [(task.as_str(), "y"), (UNKNOWN, "x")] {
        assert_eq!(post(name, &text(body)).await.status, 422, "{name} {body}");
    }
    let next = queue(&world, &task, &text("behind")).await;
    assert_eq!(next.json()["position"], 3);
}

#[actix_web::test]
async fn messages_to_a_running_conversation_are_delivered_immediately() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let answer = queue(&world, &id, &text("now")).await;
    assert_eq!(answer.json()["position"], 1);
    for _ in 0..1_000 {
        if !world.agents.messages().is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let messages = world.agents.messages();
    assert_eq!(messages.len(), 1);
    assert!(messages[0].1.run);
    assert_eq!(
        messages[0].1.content,
        [json!({"cache_prompt": false, "type": "text", "text": "now"})]
    );
}

#[actix_web::test]
async fn a_start_that_failed_says_why() {
    let world = World::idle().await;
    application::background::spawn(&world.app);
    // Without a model the start fails.
    let stream = "/api/v1/app-conversations/stream-start";
    let states = world.post(ADA, stream, &json!({})).await.ok();
    let last = states.as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["status"], "ERROR");
    let name = format!("task-{}", last["id"].as_str().unwrap());
    let refused = queue(&world, &name, &text("x")).await;
    let cause = last["detail"].as_str().unwrap();
    refused.refuses(
        409,
        &format!("The conversation could not be started: {cause}"),
    );
}
