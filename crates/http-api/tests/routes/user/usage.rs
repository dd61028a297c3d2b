//! Usage and quotas, and the errors of exhausted quotas.

use domain::user::usage::{Quota, QuotaLimits};
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, ROOT, World};

const OWN: &str = "/api/v1/usage";
const ADAS: &str = "/api/v1/admin/users/ada/usage";

fn limited(world: &World, quota: Quota, limit: u64) {
    let limits = QuotaLimits::default().with(quota, Some(limit));
    world.app.set_quota(limits);
}

#[actix_web::test]
async fn users_read_their_own_usage_and_administrators_all() {
    let world = World::working().await;
    world.conversation(ADA).await;
    limited(&world, Quota::Conversations, 7);
    let usage = world.get(ADA, OWN).await.ok();
    assert_eq!(usage["conversations"], json!({"used": 1, "limit": 7}));
    assert_eq!(usage["secrets"], json!({"used": 0, "limit": 1000}));
    assert_eq!(usage["events"]["limit"], Value::Null);
    assert_eq!(usage["event_storage"], "complete");
    assert_eq!(usage["shortened_events"], 0);
    assert!(
        usage["request_bytes"]["used"].as_u64().unwrap() > 0,
        "{usage}"
    );
    assert_eq!(world.get(ROOT, ADAS).await.ok(), usage);
    let bobs = world.get(BOB, OWN).await.ok();
    assert_eq!(bobs["conversations"], json!({"used": 0, "limit": 7}));
    assert_eq!(world.get(BOB, ADAS).await.status, 403);
    let nobodys = world.get(ROOT, "/api/v1/admin/users/nobody/usage").await;
    assert_eq!(nobodys.status, 404);
    assert_eq!(world.get("aw_wrong", OWN).await.status, 401);
}

#[actix_web::test]
async fn a_start_above_the_quota_is_507_and_says_what_to_do() {
    let world = World::working().await;
    world.conversation(ADA).await;
    limited(&world, Quota::Conversations, 1);
    let refused = world
        .post(ADA, "/api/v1/app-conversations", &json!({}))
        .await;
    assert_eq!(refused.status, 507, "{}", refused.text);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("1 conversations") && detail.contains("Delete"),
        "{detail}"
    );
    let metrics = world.get(ROOT, "/metrics").await.text;
    let line = "agent_workspace_quota_refusals_total{quota=\"conversations\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[actix_web::test]
async fn excessive_reports_get_retry_after() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let key = world.read(ADA, &id).await["session_api_key"].clone();
    let (key, hook) = (
        key.as_str().unwrap(),
        format!("/api/v1/webhooks/events/{id}"),
    );
    world.app.set_quota(QuotaLimits {
        report_bytes_per_minute: Some(1_000),
        ..QuotaLimits::default()
    });
    let event = |id: &str| json!({"id": id, "kind": "A", "timestamp": "2026-01-01T00:00:00", "text": "x".repeat(2_000)});
    let first = world.post(key, &hook, &json!([event("1")])).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let second = world.post(key, &hook, &json!([event("2")])).await;
    assert_eq!(second.status, 429, "{}", second.text);
    assert!(second.json()["detail"].is_string(), "{}", second.text);
    let record = json!({"id": id, "execution_status": "finished"});
    let response = world
        .post(key, "/api/v1/webhooks/conversations", &record)
        .await;
    assert_eq!(response.status, 200, "a status is taken: {}", response.text);
}
