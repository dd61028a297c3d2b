//! Objects of other users are not accessible, on all present and future routes that name one in their path.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use domain::id::{OrganizationId, UserId};
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, TestResponse, World};

/// An unused id.
pub(crate) const UNUSED_ID: &str = "ffffffffffffffffffffffffffffffff";

/// The input that a route needs before it looks for the object.
fn needs(operation: &str) -> (&'static str, Option<Value>) {
    let message = json!({"role": "user", "content": [{"type": "text", "text": "x"}]});
    let body = match operation.rsplit('/').next() {
        Some("send-message" | "pending-messages") => Some(message),
        Some("switch_profile") => Some(json!({"profile_name": "fast"})),
        Some("switch_acp_model") => Some(json!({"model": "x"})),
        Some("rename") => Some(json!({"new_name": "quick"})),
        _ if operation.starts_with("PUT ") && operation.contains("/secrets/") => {
            Some(json!({"name": "SECRET"}))
        }
        Some("invite") if operation.starts_with("POST ") => {
            Some(json!({"emails": ["someone@example.org"]}))
        }
        Some("{user_id}") if operation.contains("/members/") => Some(json!({"role": "member"})),
        Some("{organization_id}") if operation.starts_with("PATCH ") => {
            Some(json!({"name": "Renamed"}))
        }
        Some("provider-connections") if operation.starts_with("POST ") => {
            Some(json!({"display_name": "Team", "api_key": "sk-1"}))
        }
        Some("{connection_id}") => Some(json!({"display_name": "Crew"})),
        _ if operation == "POST /api/agent-profiles/{name}" => Some(json!({"agent_kind": "acp"})),
        _ if operation.starts_with("PATCH ") => Some(json!({"title": "mine now"})),
        _ => None,
    };
    let query = match operation {
        it if it.contains("/git/") => "?path=a",
        it if it.ends_with("/events") => "?id=00000000-0000-0000-0000-000000000001",
        _ => "",
    };
    (query, body)
}

async fn ask(world: &World, operation: &str, id: &str) -> TestResponse {
    ask_as(world, Some(BOB), operation, id).await
}

async fn ask_as(world: &World, key: Option<&str>, operation: &str, id: &str) -> TestResponse {
    let path = operation.split_once(' ').unwrap().1;
    let path = path
        .replace("{conversation_id}", id)
        .replace("{sandbox_id}", id)
        .replace("{organization_id}", id)
        .replace("{user_id}", "someone")
        .replace("{invitation_id}", UNUSED_ID)
        .replace("{connection_id}", UNUSED_ID)
        .replace("{profile_id}", UNUSED_ID)
        .replace("{secret_name}", "X")
        .replace("{name}", "fast");
    world.send(request_at(key, operation, &path)).await
}

/// A request of this operation with the input that it needs.
pub(crate) fn request_at(key: Option<&str>, operation: &str, path: &str) -> TestRequest {
    let method = operation.split_once(' ').unwrap().0;
    let (query, body) = needs(operation);
    let request =
        TestRequest::with_uri(&format!("{path}{query}")).method(method.parse::<Method>().unwrap());
    let request = match key {
        Some(key) => request.insert_header(("X-Session-API-Key", key)),
        None => request,
    };
    match body {
        Some(body) => request.set_json(body),
        None => request,
    }
}

/// Operations with this parameter in their path, for users.
pub(super) fn operations(parameter: &str) -> Vec<String> {
    let document = http_api::openapi_document();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        // Reports are authenticated by a sandbox's key.
        if path.contains(parameter) && !path.contains("/webhooks/") {
            let methods = methods.as_object().unwrap().keys();
            let methods = methods.filter(|it| !matches!(it.as_str(), "parameters" | "summary"));
            found.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
        }
    }
    found
}

/// The text without the id, in both spellings.
pub(crate) fn anonymous(text: &str, id: &str) -> String {
    let dashed = uuid::Uuid::parse_str(id).map(|id| id.to_string());
    let text = text.replace(id, "ID");
    dashed.map_or(text.clone(), |dashed| text.replace(&dashed, "ID"))
}

#[actix_web::test]
async fn foreign_and_unknown_objects_get_the_same_response() {
    let world = World::working().await;
    let profile = json!({"llm": {"model": "openai/fast", "api_key": "sk-2"}});
    let saved = "/api/v1/settings/profiles/fast";
    for user in [ADA, BOB] {
        assert_eq!(world.post(user, saved, &profile).await.status, 201);
    }
    let id = world.conversation(ADA).await;
    let before = world.read(ADA, &id).await;
    let sandbox = before["sandbox_id"].as_str().unwrap().to_owned();
    let of_conversations = operations("{conversation_id}");
    let of_sandboxes = operations("{sandbox_id}");
    assert!(of_conversations.len() >= 20 && of_sandboxes.len() >= 5);
    let of_organizations = operations("{organization_id}");
    assert!(of_organizations.len() >= 20);
    let organization = OrganizationId::personal(&UserId::parse("ada").unwrap()).to_string();
    let profiles = world.get(ADA, "/api/v1/settings/profiles").await.ok();
    for (operations, id) in [
        (of_conversations, &id),
        (of_sandboxes, &sandbox),
        (of_organizations, &organization),
    ] {
        for operation in operations {
            let theirs = ask(&world, &operation, id).await;
            let unused = ask(&world, &operation, UNUSED_ID).await;
            assert_eq!(
                (theirs.status, anonymous(&theirs.text, id)),
                (unused.status, anonymous(&unused.text, UNUSED_ID)),
                "{operation}"
            );
            // A refusal before the look-up reveals nothing.
            let is_answer = matches!(theirs.status, 200 | 404) || operation.contains("/secrets");
            assert!(is_answer, "{operation}: {} {}", theirs.status, theirs.text);
        }
    }
    assert_eq!(
        world.read(ADA, &id).await,
        before,
        "and nothing happens to it"
    );
    let now = world.get(ADA, "/api/v1/settings/profiles").await.ok();
    assert_eq!(now, profiles, "nor to the settings");
}

/// A key that is no longer valid.
pub(crate) async fn spent_key(world: &World, end: &str) -> String {
    let keys = "/api/v1/keys";
    let made = world.post(BOB, keys, &json!({})).await.json();
    let id = made["record"]["id"].as_str().unwrap();
    let ended = if end == "revoked" {
        world.delete(BOB, &format!("{keys}/{id}")).await.status
    } else {
        let rotate = format!("{keys}/{id}/rotate");
        let over = json!({"grace_period": 0});
        world.post(BOB, &rotate, &over).await.status
    };
    assert!(matches!(ended, 200 | 201), "{end}: {ended}");
    made["key"].as_str().unwrap().to_owned()
}

/// On every path: without a key, with a wrong, revoked or expired one, and with that of a foreign sandbox.
#[actix_web::test]
async fn a_key_that_opens_nothing_learns_nothing() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let sandbox = world.read(ADA, &id).await["sandbox_id"].clone();
    let sandbox = sandbox.as_str().unwrap();
    let bobs = world.conversation(BOB).await;
    let of_bobs_sandbox = world.read(BOB, &bobs).await["session_api_key"].clone();
    let of_bobs_sandbox = of_bobs_sandbox.as_str().unwrap();
    let (revoked, expired) = (
        spent_key(&world, "revoked").await,
        spent_key(&world, "expired").await,
    );
    let keys = [
        None,
        Some("aw_wrong"),
        Some(revoked.as_str()),
        Some(expired.as_str()),
        Some(of_bobs_sandbox),
    ];
    let objects = [
        ("{conversation_id}", id.as_str()),
        ("{sandbox_id}", sandbox),
    ];
    for (parameter, there) in objects {
        let operations = operations(parameter).into_iter();
        // On other paths a sandbox's key means its own agent server.
        for operation in operations.filter(|it| it.contains(" /api/v1/")) {
            for key in keys {
                let theirs = ask_as(&world, key, &operation, there).await;
                let unused = ask_as(&world, key, &operation, UNUSED_ID).await;
                assert_eq!(
                    (theirs.status, anonymous(&theirs.text, there)),
                    (unused.status, anonymous(&unused.text, UNUSED_ID)),
                    "{operation} {key:?}"
                );
                // On these paths the key is not that of the sandbox in the path.
                let is_refusal = theirs.status == 401
                    || key == Some(of_bobs_sandbox) && matches!(theirs.status, 403 | 404);
                assert!(is_refusal, "{operation} {key:?}: {}", theirs.status);
            }
        }
    }
}
