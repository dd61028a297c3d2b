//! What belongs to a shared organization: model profiles, provider connections and agent profiles.

use serde_json::{Value, json};

use super::organization_matrix::{Crew, crew};
use crate::fixture::{ADA, TestResponse, World};
use crate::user::tenancy::request_at;

/// A request that acts in the organization of the crew.
async fn act(
    world: &World,
    crew: &Crew,
    key: &str,
    operation: &str,
    body: Option<&Value>,
) -> TestResponse {
    let path = operation.split_once(' ').unwrap().1;
    let request =
        request_at(Some(key), operation, path).insert_header(("X-Org-Id", crew.id.as_str()));
    let request = match body {
        Some(body) => request.set_json(body),
        None => request,
    };
    world.send(request).await
}

#[actix_web::test]
async fn members_use_the_profiles_that_editors_keep() {
    let world = World::working().await;
    let crew = crew(&world).await;
    let call = async |key: &str, operation: &str, body: Option<&Value>| {
        act(&world, &crew, key, operation, body).await
    };
    let settings = "GET /api/v1/settings";
    let before = call(&crew.member, settings, None).await.ok();
    assert_eq!(before["llm_api_key_set"], false);
    let llm = json!({"llm": {"model": "openai/fast", "api_key": "sk-canary", "base_url": "https://llm.example/v1"}});
    let save = "POST /api/v1/settings/profiles/fast";
    let refused = call(&crew.member, save, Some(&llm)).await;
    refused.refuses(403, "Your role in this organization does not allow this");
    assert_eq!(call(&crew.admin, save, Some(&llm)).await.status, 201);
    // The first one is active.
    let list = "GET /api/v1/settings/profiles";
    for key in [&crew.member, &crew.owner] {
        let listed = call(key, list, None).await;
        assert!(!listed.text.contains("canary"), "{}", listed.text);
        let listed = listed.ok();
        assert_eq!(listed["active_profile"], "fast", "{listed}");
        assert_eq!(listed["profiles"][0]["api_key_set"], true);
    }
    let shown = call(&crew.member, settings, None).await;
    assert!(!shown.text.contains("canary"), "{}", shown.text);
    let shown = shown.ok();
    assert_eq!(shown["llm_api_key_set"], true);
    assert_eq!(shown["agent_settings"]["llm"]["model"], "openai/fast");
    // Personal settings are not affected.
    let personal = world.get(ADA, "/api/v1/settings/profiles").await.ok();
    assert_eq!(personal["profiles"], json!([]));
    // A member's own model, until they activate a profile. Members may not.
    let own = json!({"agent_settings_diff": {"llm": {"model": "openai/own", "api_key": "sk-own"}}});
    for key in [&crew.member, &crew.owner] {
        let stored = call(key, "POST /api/v1/settings", Some(&own)).await;
        assert_eq!(stored.status, 200, "{}", stored.text);
    }
    let other = json!({"llm": {"model": "openai/other", "api_key": "sk-2"}});
    call(
        &crew.owner,
        "POST /api/v1/settings/profiles/other",
        Some(&other),
    )
    .await;
    let listed = call(&crew.admin, list, None).await.ok();
    assert_eq!(listed["active_profile"], "fast", "still");
    let activate = "POST /api/v1/settings/profiles/other/activate";
    let refused = call(&crew.member, activate, Some(&json!({}))).await;
    assert_eq!(refused.status, 403);
    let activated = call(&crew.owner, activate, Some(&json!({}))).await.ok();
    assert_eq!(activated["model"], "openai/other");
    for (key, model) in [
        (&crew.member, "openai/own"),
        (&crew.owner, "openai/other"),
        (&crew.admin, "openai/other"),
    ] {
        let shown = call(key, settings, None).await.ok();
        assert_eq!(shown["agent_settings"]["llm"]["model"], model);
    }
    // What is in force for the caller becomes a profile of all.
    let mine = "POST /api/v1/settings/profiles/mine";
    assert_eq!(call(&crew.admin, mine, None).await.status, 201);
    let listed = call(&crew.member, list, None).await.ok();
    assert_eq!(listed["profiles"][2]["model"], "openai/other", "{listed}");
    // Without profiles there is no model, and no key is left.
    for name in ["other", "fast", "mine"] {
        let delete = format!("DELETE /api/v1/settings/profiles/{name}");
        call(&crew.admin, &delete, None).await.ok();
    }
    let shown = call(&crew.admin, settings, None).await.ok();
    assert_eq!(shown["llm_api_key_set"], false);
}

#[actix_web::test]
async fn the_active_agent_profile_is_the_members_own() {
    let world = World::working().await;
    let crew = crew(&world).await;
    let call = async |key: &str, operation: &str, body: Option<&Value>| {
        act(&world, &crew, key, operation, body).await
    };
    let (all, save) = ("GET /api/agent-profiles", "POST /api/agent-profiles/helper");
    let values = json!({"agent_kind": "acp"});
    assert_eq!(call(&crew.member, save, Some(&values)).await.status, 403);
    assert_eq!(call(&crew.admin, save, Some(&values)).await.status, 201);
    let listed = call(&crew.member, all, None).await.ok();
    let id = listed["profiles"][0]["id"].as_str().unwrap().to_owned();
    let activate = format!("POST /api/agent-profiles/{id}/activate");
    call(&crew.member, &activate, Some(&json!({}))).await.ok();
    for (key, expected) in [(&crew.member, json!(id)), (&crew.admin, json!(null))] {
        let listed = call(key, all, None).await.ok();
        assert_eq!(listed["active_agent_profile_id"], expected);
    }
    for operation in [
        "DELETE /api/agent-profiles/helper",
        "POST /api/agent-profiles/helper/rename",
    ] {
        let refused = call(&crew.member, operation, Some(&json!({"new_name": "x"}))).await;
        assert_eq!(refused.status, 403, "{operation}");
    }
    let delete = "DELETE /api/agent-profiles/helper";
    call(&crew.owner, delete, None).await.ok();
    let listed = call(&crew.member, all, None).await.ok();
    assert_eq!(listed["active_agent_profile_id"], json!(null));
}
