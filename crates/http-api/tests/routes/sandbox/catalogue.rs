//! The configuration of front ends, and the names of models and providers.

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use crate::fixture::{ADA, NOW, World};

#[actix_web::test]
async fn the_web_client_configuration_needs_no_key() {
    let world = World::idle().await;
    let request = TestRequest::get().uri("/api/v1/web-client/config");
    let config = world.send(request).await.ok();
    assert_eq!(config["app_mode"], "oss");
    assert_eq!(config["posthog_client_key"], Value::Null);
    assert_eq!(config["updated_at"], NOW);
    assert_eq!(config["provider_default_hosts"]["forgejo"], "codeberg.org");
    assert_eq!(config["acp_providers"][0]["key"], "claude-code");
    assert_eq!(config["feature_flags"]["enable_automations"], false);
    assert_eq!(config["feature_flags"].as_object().unwrap().len(), 14);
    assert_eq!(config["kind"], "WebClientConfig");
}

#[actix_web::test]
async fn models_are_searched_in_pages() {
    let world = World::idle().await;
    let search = "/api/v1/config/models/search";
    let first = world.get(ADA, &format!("{search}?limit=2")).await.ok();
    assert_eq!(
        first["items"][0],
        json!({
            "provider": "1024-x-1024", "name": "50-steps/bedrock/amazon.nova-canvas-v1:0",
            "verified": false, "hidden": false, "canonical": null
        })
    );
    let token = first["next_page_id"].as_str().unwrap();
    let after = world
        .get(ADA, &format!("{search}?limit=1&page_id={token}"))
        .await
        .ok();
    assert_ne!(after["items"][0], first["items"][1]);
    let usual = world.get(ADA, search).await.ok();
    assert_eq!(usual["items"].as_array().unwrap().len(), 50);
    assert_eq!(usual["items"][2], after["items"][0]);
    let verified = format!("{search}?provider__eq=anthropic&verified__eq=true&query=CLAUDE");
    let verified = world.get(ADA, &verified).await.ok();
    let items = verified["items"].as_array().unwrap();
    assert!(!items.is_empty());
    assert!(
        items
            .iter()
            .all(|item| item["verified"] == true && item["provider"] == "anthropic")
    );
}

#[actix_web::test]
async fn providers_begin_with_the_verified_ones() {
    let world = World::idle().await;
    let search = "/api/v1/config/providers/search";
    let first = world.get(ADA, &format!("{search}?limit=2")).await.ok();
    assert_eq!(
        first["items"],
        json!([{"name": "openhands", "verified": true}, {"name": "anthropic", "verified": true}])
    );
    assert_eq!(first["next_page_id"], "anthropic");
    for path in [
        format!("{search}?page_id=Mg"),
        format!("{search}?limit=101"),
        "/api/v1/config/models/search?page_id=!!!".to_owned(),
        "/api/v1/config/models/search?verified__eq=perhaps".to_owned(),
    ] {
        let refused = world.get(ADA, &path).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.text);
    }
}

#[actix_web::test]
async fn legacy_options_require_a_key() {
    let world = World::idle().await;
    let models = world.get(ADA, "/api/options/models").await.ok();
    assert!(models.as_array().unwrap().len() > 1000);
    assert_eq!(
        models[0],
        "1024-x-1024/50-steps/bedrock/amazon.nova-canvas-v1:0"
    );
    let base = "/api/options";
    world
        .get(ADA, &format!("{base}/agents"))
        .await
        .is(200, &json!(["CodeActAgent"]));
    world
        .get(ADA, &format!("{base}/security-analyzers"))
        .await
        .is(200, &json!(["llm"]));
    world.get(ADA, &format!("{base}/config")).await.is(
        200,
        &json!({
            "APP_MODE": "oss", "GITHUB_CLIENT_ID": "", "POSTHOG_CLIENT_KEY": "",
            "FEATURE_FLAGS": {"ENABLE_BILLING": false, "HIDE_LLM_SETTINGS": false}
        }),
    );
    for path in ["models", "agents", "security-analyzers", "config"] {
        let stranger = TestRequest::get().uri(&format!("{base}/{path}"));
        assert_eq!(world.send(stranger).await.status, 401, "{path}");
    }
}
