//! Hosts that sandboxes ask their owners for.

use std::time::Duration;

use domain::id::SandboxId;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, ROOT, UNKNOWN, World};

const REQUESTS: &str = "/api/v1/egress/requests";

/// The sandbox of a new conversation.
async fn sandbox(world: &World, key: &str) -> SandboxId {
    let id = world.conversation(key).await;
    let conversation = world.read(key, &id).await;
    SandboxId::parse(conversation["sandbox_id"].as_str().unwrap()).unwrap()
}

async fn is_approved(world: &World, sandbox: &SandboxId, host: &str) -> bool {
    let asked = world.app.egress.is_approved(sandbox, host, 443);
    asked.await.unwrap()
}

async fn list(world: &World, key: &str, query: &str) -> Vec<Value> {
    let found = world.get(key, &format!("{REQUESTS}/search{query}")).await;
    found.ok()["items"].as_array().unwrap().clone()
}

#[actix_web::test]
async fn an_owner_decides_about_hosts() {
    let world = World::working().await;
    let (first, second) = (sandbox(&world, ADA).await, sandbox(&world, ADA).await);
    let host = "api.example.org";
    assert!(!is_approved(&world, &first, host).await);
    assert!(!is_approved(&world, &first, host).await, "asked again");
    let pending = list(&world, ADA, "?decision__eq=pending").await;
    assert_eq!(pending.len(), 1);
    let asked = &pending[0];
    assert_eq!(
        (&asked["host"], &asked["port"], &asked["sandbox_id"]),
        (&json!(host), &json!(443), &json!(first.as_str()))
    );
    let path = format!("{REQUESTS}/{}", asked["id"].as_str().unwrap());

    let approved = world
        .post(ADA, &format!("{path}/approve"), &json!({}))
        .await;
    assert_eq!(approved.ok()["decision"], "approved_for_sandbox");
    assert!(is_approved(&world, &first, host).await);
    assert!(!is_approved(&world, &second, host).await);
    assert!(!is_approved(&world, &first, "other.example.org").await);

    let for_all = json!({"for_all_sandboxes": true});
    let approved = world.post(ADA, &format!("{path}/approve"), &for_all).await;
    assert_eq!(approved.ok()["decision"], "approved");
    assert!(is_approved(&world, &second, host).await);
    assert_eq!(list(&world, ADA, "?decision__eq=approved").await.len(), 1);

    let denied = world.post(ADA, &format!("{path}/deny"), &json!({})).await;
    assert_eq!(denied.ok()["decision"], "denied");
    assert!(!is_approved(&world, &first, host).await);

    world.delete(ADA, &path).await.ok();
    assert_eq!(world.delete(ADA, &path).await.status, 404);
    assert!(!is_approved(&world, &first, host).await);
    assert_eq!(list(&world, ADA, "?decision__eq=pending").await.len(), 2);

    assert!(world.app.audit.finish(Duration::from_secs(30)).await);
    let log = world.get(ROOT, "/api/v1/audit?actor=user:ada").await.ok();
    let details = log["items"].as_array().unwrap().iter();
    let details = details.filter(|it| it["detail"] == "host:api.example.org:443");
    assert_eq!(details.count(), 3, "{log:#}");
}

#[actix_web::test]
async fn requests_belong_to_their_owner() {
    let world = World::working().await;
    let hers = sandbox(&world, ADA).await;
    let his = sandbox(&world, BOB).await;
    assert!(!is_approved(&world, &hers, "api.example.org").await);
    assert!(!is_approved(&world, &his, "api.example.org").await);
    let id = list(&world, ADA, "").await[0]["id"].clone();
    let path = format!("{REQUESTS}/{}", id.as_str().unwrap());
    for other in [path, format!("{REQUESTS}/{UNKNOWN}")] {
        for decision in ["approve", "deny"] {
            let path = format!("{other}/{decision}");
            let decided = world.post(BOB, &path, &json!({})).await;
            assert_eq!(decided.status, 404, "{path}");
        }
        assert_eq!(world.delete(BOB, &other).await.status, 404, "{other}");
    }
    let all = list(&world, ADA, "").await;
    assert_eq!((all.len(), &all[0]["decision"]), (1, &json!("pending")));
    // An approval of one user is none of another one.
    let his_id = list(&world, BOB, "").await[0]["id"].clone();
    let approve = format!("{REQUESTS}/{}/approve", his_id.as_str().unwrap());
    let for_all = json!({"for_all_sandboxes": true});
    world.post(BOB, &approve, &for_all).await.ok();
    assert!(is_approved(&world, &his, "api.example.org").await);
    assert!(!is_approved(&world, &hers, "api.example.org").await);
}

/// A sandbox that its owner paused asks for nothing.
#[actix_web::test]
async fn a_paused_sandbox_reaches_nothing() {
    let world = World::working().await;
    let paused = sandbox(&world, ADA).await;
    let path = format!("/api/v1/sandboxes/{paused}/pause");
    world.post(ADA, &path, &json!({})).await.ok();
    assert!(!is_approved(&world, &paused, "api.example.org").await);
    assert!(list(&world, ADA, "").await.is_empty());
}

/// An agent that asks for everything keeps neither its owner nor the store busy.
#[actix_web::test]
async fn a_sandbox_asks_for_a_bounded_number_of_hosts() {
    let world = World::working().await;
    let eager = sandbox(&world, ADA).await;
    for n in 0..110 {
        let host = format!("host-{n}.example.org");
        assert!(!is_approved(&world, &eager, &host).await);
    }
    assert_eq!(list(&world, ADA, "?limit=100").await.len(), 100);
    let next = world
        .get(ADA, &format!("{REQUESTS}/search?limit=100"))
        .await;
    assert_eq!(next.ok()["next_page_id"], Value::Null);
}
