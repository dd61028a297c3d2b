//! A callback token opens look-ups of secrets and the MCP server only.

use domain::agent::LaunchSecret;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, World};

fn text(read: &Value, name: &str) -> String {
    read[name].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn a_callback_token_opens_look_ups_only() {
    let world = World::working().await;
    let secret = json!({"name": "MINE", "value": "v"});
    let created = world.post(ADA, "/api/v1/secrets", &secret).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let read = world.read(ADA, &world.conversation(ADA).await).await;
    let (id, key) = (text(&read, "sandbox_id"), text(&read, "session_api_key"));
    let launch = world.agents.launches().pop().unwrap();
    let LaunchSecret::LookUp { headers, .. } = &launch.secrets["MINE"] else {
        panic!("{:?}", launch.secrets);
    };
    let token = headers["X-Session-API-Key"].expose_secret().to_owned();
    let other = world.read(BOB, &world.conversation(BOB).await).await;
    let other = text(&other, "sandbox_id");
    let path = |of: &str| format!("/api/v1/sandboxes/{of}/settings/secrets");
    let found = world.get(&token, &format!("{}/MINE", path(&id))).await;
    assert_eq!((found.status, found.text.as_str()), (200, "v"));
    world.get(&token, &path(&id)).await.ok();
    let refusal = "Session API key does not match sandbox";
    world.get(&token, &path(&other)).await.refuses(403, refusal);

    let conversation = launch.conversation_id;
    for closed in [
        "/api/v1/users/me?expose_secrets=true".to_owned(),
        "/api/v1/users/me".to_owned(),
        "/api/v1/sandboxes/search".to_owned(),
        format!("/api/v1/conversation/{conversation}/events/search"),
        format!("/api/conversations/{conversation}"),
    ] {
        let answer = world.get(&token, &closed).await;
        assert!(
            [401, 404].contains(&answer.status),
            "{closed}: {}",
            answer.text
        );
    }
    let events = format!("/api/v1/webhooks/events/{conversation}");
    let report = world.post(&token, &events, &json!([])).await;
    report.refuses(401, "Invalid session API key");
    world.post(&key, &events, &json!([])).await.ok();

    world
        .post(ADA, &format!("/api/v1/sandboxes/{id}/pause"), &json!({}))
        .await
        .ok();
    let paused = world.get(&token, &path(&id)).await;
    paused.refuses(401, "Sandbox is not running");
}
