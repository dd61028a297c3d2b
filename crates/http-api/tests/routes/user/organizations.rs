//! The organization of each user, as the web front end of the 1.20 line uses it.

use actix_web::test::TestRequest;
use domain::id::{OrganizationId, UserId};
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, World};

fn organization(user: &str) -> String {
    OrganizationId::personal(&UserId::parse(user).unwrap()).to_string()
}

fn path(user: &str, rest: &str) -> String {
    format!("/api/organizations/{}/{rest}", organization(user))
}

#[actix_web::test]
async fn everybody_owns_one_which_is_their_own() {
    let world = World::idle().await;
    for (key, user) in [(ADA, "ada"), (BOB, "bob")] {
        let id = organization(user);
        let one = json!({"id": id, "name": user, "is_personal": true, "month_budget": null});
        world
            .get(key, "/api/organizations")
            .await
            .is(200, &json!({"items": [one], "current_org_id": id}));
        let me = world.get(key, &path(user, "me")).await.ok();
        // The front end takes an organization for the personal one if both ids are the same.
        assert_eq!((&me["org_id"], &me["user_id"]), (&json!(id), &json!(id)));
        assert_eq!(me["role"], "owner");
        let permissions = me["permissions"].as_array().unwrap();
        assert!(permissions.contains(&json!("edit_org_settings")), "{me}");
        // Without automations, the front end must not ask for them.
        assert!(
            !me["permissions"].to_string().contains("automations"),
            "{me}"
        );
        world
            .get(key, &path(user, "provider-connections"))
            .await
            .is(200, &json!({"connections": []}));
    }
    // In any spelling.
    let dashed = organization("ada")
        .parse::<OrganizationId>()
        .unwrap()
        .dashed();
    let me = format!("/api/organizations/{}/me", dashed.to_uppercase());
    assert_eq!(
        world.get(ADA, &me).await.ok()["org_id"],
        organization("ada")
    );
    assert_eq!(
        world.get("aw_wrong", "/api/organizations").await.status,
        401
    );
    assert_eq!(world.get("aw_wrong", &me).await.status, 401);
}

/// A browser may keep the selection of another user, or of an organization that the user has left.
#[actix_web::test]
async fn the_list_is_found_with_any_selection() {
    let world = World::idle().await;
    for selected in [organization("bob").as_str(), "no id"] {
        let list = TestRequest::get()
            .uri("/api/organizations")
            .insert_header(("X-Session-API-Key", ADA))
            .insert_header(("X-Org-Id", selected));
        let list = world.send(list).await.ok();
        assert_eq!(list["current_org_id"], organization("ada"), "{selected}");
    }
}

#[actix_web::test]
async fn automations_are_plainly_absent() {
    let world = World::idle().await;
    let health = "/api/automation/health";
    let shown = world.get(ADA, health).await.ok();
    assert_eq!(shown["status"], "error");
    assert!(
        shown["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    world
        .get("aw_wrong", health)
        .await
        .refuses(401, "Unauthorized");
}

#[actix_web::test]
async fn its_profiles_are_those_of_the_user() {
    let world = World::working().await;
    let profiles = path("ada", "profiles");
    let own = "/api/v1/settings/profiles";
    // The front end names a provider connection, which does not exist.
    let llm = json!({"llm": {"model": "openai/fast", "api_key": "sk-canary", "provider_connection_id": null}});
    let post = async |rest: &str, body: &Value| {
        let path = format!("{profiles}{rest}");
        world.post(ADA, &path, body).await
    };
    let both = async |rest: &str| -> Value {
        let here = world.get(ADA, &format!("{profiles}{rest}")).await;
        let there = world.get(ADA, &format!("{own}{rest}")).await;
        assert_eq!((here.status, &here.text), (there.status, &there.text));
        assert!(!here.text.contains("canary"), "{}", here.text);
        here.ok()
    };
    let saved = json!({"name": "fast", "message": "Profile 'fast' saved"});
    post("/fast", &llm).await.is(201, &saved);
    assert_eq!(both("").await["profiles"][0]["name"], "fast");
    assert_eq!(both("/fast").await["config"]["model"], "openai/fast");
    let activated = post("/fast/activate", &json!({})).await.ok();
    assert_eq!(activated["model"], "openai/fast");
    let quick = json!({"new_name": "quick"});
    assert_eq!(post("/fast/rename", &quick).await.ok()["name"], "quick");
    assert_eq!(both("").await["active_profile"], "quick");
    world.post(ADA, &format!("{own}/other"), &llm).await;
    assert_eq!(both("").await["profiles"].as_array().unwrap().len(), 2);
    assert_eq!(post("/other/rename", &quick).await.status, 409);
    let path = format!("{profiles}/quick");
    assert_eq!(world.delete(ADA, &path).await.status, 200);
    assert_eq!(both("").await["profiles"].as_array().unwrap().len(), 1);
    let gone = world.get(ADA, &path).await;
    gone.refuses(404, "Profile 'quick' not found");
    let wrong = post("/a%20b", &llm).await;
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    assert_eq!(wrong.json()["detail"][0]["loc"], json!(["path", "name"]));
}

#[actix_web::test]
async fn profiles_share_the_key_of_a_connection() {
    let world = World::working().await;
    let all = path("ada", "provider-connections");
    let new = json!({"display_name": "Team", "provider": "openai", "api_key": "t0p", "base_url": "https://llm.example/v1"});
    let added = world.post(ADA, &all, &new).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let connection = added.json();
    assert!(!added.text.contains("t0p"));
    assert!(connection["created_at"].is_i64(), "{connection}");
    let one = format!("{all}/{}", connection["id"].as_str().unwrap());
    let listed = world.get(ADA, &all).await.ok();
    assert_eq!(listed["connections"], json!([connection]));
    let llm = json!({"llm": {"model": "openai/fast", "provider_connection_id": connection["id"]}});
    let profile = path("ada", "profiles/fast");
    assert_eq!(world.post(ADA, &profile, &llm).await.status, 201);
    let shown = world.get(ADA, &path("ada", "profiles")).await.ok()["profiles"][0].take();
    assert_eq!(shown["provider_connection_id"], connection["id"]);
    assert_eq!(
        (&shown["api_key_set"], &shown["provider_connection_broken"]),
        (&json!(true), &json!(false))
    );
    let detail = world.get(ADA, &profile).await.ok();
    assert_eq!(detail["config"]["provider_connection_id"], connection["id"]);
    let answer = world.delete(ADA, &one).await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    let renamed = world
        .patch(ADA, &one, &json!({"display_name": "Everybody"}))
        .await
        .ok();
    assert_eq!(
        (&renamed["display_name"], &renamed["api_key_set"]),
        (&json!("Everybody"), &json!(true))
    );
    for wrong in [
        json!({}),
        json!({"display_name": "", "api_key": "k"}),
        json!({"display_name": "x".repeat(129), "api_key": "k"}),
        json!({"display_name": "x", "api_key": "k", "base_url": "x".repeat(2049)}),
    ] {
        let answer = world.post(ADA, &all, &wrong).await;
        assert_eq!(answer.status, 422, "{}", answer.text);
    }
    let none = format!("{all}/{}", "f".repeat(32));
    let gone = world.delete(ADA, &none).await;
    gone.refuses(404, "Provider connection not found");
    world.delete(ADA, &profile).await.ok();
    world.delete(ADA, &one).await.ok();
}

#[actix_web::test]
async fn agent_profiles_are_saved_renamed_and_activated() {
    let world = World::working().await;
    let all = "/api/agent-profiles";
    let values = json!({"agent_kind": "acp", "acp_server": "codex", "mcp_server_refs": []});
    for status in [201, 201] {
        let saved = world.post(ADA, "/api/agent-profiles/helper", &values).await;
        assert_eq!(saved.status, status, "{}", saved.text);
    }
    let listed = world.get(ADA, all).await.ok();
    let id = listed["profiles"][0]["id"].as_str().unwrap().to_owned();
    let one = json!({"id": id, "name": "helper", "agent_kind": "acp", "revision": 1, "llm_profile_ref": null, "mcp_server_refs": []});
    assert_eq!(
        listed,
        json!({"profiles": [one], "active_agent_profile_id": null})
    );
    let activate = format!("{all}/{id}/activate");
    let activated = world.post(ADA, &activate, &json!({})).await.ok();
    assert_eq!(
        (&activated["id"], &activated["agent_settings_applied"]),
        (&json!(id), &json!(false))
    );
    let rename = "/api/agent-profiles/helper/rename";
    world
        .post(ADA, rename, &json!({"new_name": "coder"}))
        .await
        .ok();
    let detail = world.get(ADA, "/api/agent-profiles/coder").await.ok();
    assert_eq!(detail["profile"]["acp_server"], "codex");
    assert_eq!(detail["profile"]["id"], json!(id));
    let settings = world.get(ADA, "/api/v1/settings").await.ok();
    assert_eq!(settings["active_agent_profile_id"], json!(id));

    world.post(ADA, "/api/agent-profiles/other", &values).await;
    let taken = world
        .post(
            ADA,
            "/api/agent-profiles/other/rename",
            &json!({"new_name": "coder"}),
        )
        .await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    let wrong = world
        .post(ADA, "/api/agent-profiles/x", &json!({"color": 1}))
        .await;
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    // Others have their own.
    let foreign = world.get(BOB, "/api/agent-profiles/coder").await;
    foreign.refuses(404, "Agent profile not found");
    let foreign = world.post(BOB, &activate, &json!({})).await;
    foreign.refuses(404, "Agent profile not found");
    world.delete(ADA, "/api/agent-profiles/coder").await.ok();
    assert_eq!(
        world.get(ADA, all).await.ok()["active_agent_profile_id"],
        json!(null)
    );
}

#[actix_web::test]
async fn other_users_are_not_members() {
    let world = World::working().await;
    let llm = json!({"llm": {"model": "openai/fast", "api_key": "sk-1"}});
    let profile = path("ada", "profiles/fast");
    assert_eq!(world.post(ADA, &profile, &llm).await.status, 201);
    for organization in [organization("ada").as_str(), "ada", "x", &"f".repeat(32)] {
        for rest in ["me", "provider-connections", "profiles", "profiles/fast"] {
            let path = format!("/api/organizations/{organization}/{rest}");
            let answer = world.get(BOB, &path).await;
            answer.refuses(404, "Organization not found");
        }
        let path = |rest: &str| format!("/api/organizations/{organization}/profiles/fast{rest}");
        // The rest of the request does not matter.
        for rest in ["", "/activate", "/rename"] {
            let answer = world.post(BOB, &path(rest), &json!([])).await;
            answer.refuses(404, "Organization not found");
        }
        let answer = world.delete(BOB, &path("")).await;
        answer.refuses(404, "Organization not found");
    }
    let still = world.get(ADA, &path("ada", "profiles")).await.ok();
    assert_eq!(still["profiles"][0]["name"], "fast");
    let bobs = world.get(BOB, "/api/v1/settings/profiles").await.ok();
    assert_eq!(bobs["profiles"], json!([]));
}
