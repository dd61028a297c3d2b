use serde_json::json;

use super::*;

const SETTINGS: &str = "/api/v1/settings";
const ME: &str = "/api/v1/users/me";
const PROVIDERS: &str = "/api/v1/secrets/git-providers";

#[actix_web::test]
async fn strangers_are_refused_first() {
    let world = SettingsFixture::new();
    for (method, path) in [
        (Method::GET, SETTINGS),
        (Method::POST, SETTINGS),
        (Method::GET, "/api/v1/settings/agent-schema"),
        (Method::GET, "/api/v1/settings/conversation-schema"),
        (Method::GET, ME),
        (Method::POST, PROVIDERS),
        (Method::DELETE, PROVIDERS),
    ] {
        for key in ["", "nope", SANDBOX_KEY] {
            let answer = world
                .send(request(method.clone(), path, key).set_payload("{"))
                .await;
            assert_eq!(
                (answer.status, answer.json()),
                (401, json!({"detail": "Unauthorized"})),
                "{path}"
            );
        }
    }
}

#[actix_web::test]
async fn front_ends_get_defaults_and_change_single_mcp_servers() {
    let world = SettingsFixture::new();
    let of_front_end = |request: TestRequest| {
        request.insert_header(("X-Org-Id", "04179aa83e558621ab952ccad77564b3"))
    };
    let load = async || {
        let request = of_front_end(request(Method::GET, SETTINGS, KEY));
        let answer = world.send(request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    };
    let fresh = load().await;
    assert_eq!(fresh["llm_api_key_set"], false);
    assert_eq!(world.get(SETTINGS).await.status, 404, "nothing is stored");
    let save = async |body: Value| {
        let answer = world
            .send(of_front_end(posting(SETTINGS, &body.to_string())))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    let servers = |servers: Value| json!({"agent_settings_diff": {"mcp_config": servers}});
    save(servers(json!({"a": {"url": "https://a"}}))).await;
    save(servers(json!({"b": {"url": "https://b"}}))).await;
    save(servers(json!({"a": null}))).await;
    let shown = load().await;
    assert_eq!(
        shown["agent_settings"]["mcp_config"],
        json!({"b": {"url": "https://b"}})
    );
    let replaced = servers(json!({"c": {"url": "https://c"}}));
    world.post_ok(SETTINGS, &replaced, "Settings stored").await;
    let shown = world.get(SETTINGS).await.json();
    assert_eq!(
        shown["agent_settings"]["mcp_config"],
        json!({"c": {"url": "https://c"}})
    );
    // A model that works without a key lets front ends start conversations.
    let local = json!({"agent_settings_diff": {"llm": {"model": "openai/m", "base_url": "http://llm.example/v1"}},
        "title_llm_profile": "fast", "enabled_skills": ["a"]});
    save(local).await;
    let (front_end, other) = (load().await, world.get(SETTINGS).await.json());
    assert_eq!(
        (&front_end["llm_api_key_set"], &other["llm_api_key_set"]),
        (&json!(true), &json!(false))
    );
    for shown in [front_end, other] {
        assert_eq!(shown["title_llm_profile"], "fast");
        assert_eq!(shown["enabled_skills"], json!(["a"]));
    }
}

#[actix_web::test]
async fn there_is_nothing_before_the_first_save() {
    let world = SettingsFixture::new();
    let answer = world.get(SETTINGS).await;
    assert_eq!(
        (answer.status, answer.json()),
        (404, json!({"error": "Settings not found"}))
    );
    world.post_ok(SETTINGS, &json!({}), "Settings stored").await;
    let document = world.get(SETTINGS).await.json();
    let keys: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "language",
            "user_version",
            "remote_runtime_resource_factor",
            "secrets_store",
            "enable_sound_notifications",
            "enable_proactive_conversation_starters",
            "user_consents_to_analytics",
            "sandbox_base_container_image",
            "sandbox_runtime_container_image",
            "disabled_skills",
            "enabled_skills",
            "title_llm_profile",
            "search_api_key",
            "sandbox_api_key",
            "max_budget_per_task",
            "max_budget_per_month",
            "email",
            "email_verified",
            "git_user_name",
            "git_user_email",
            "git_full_clone",
            "v1_enabled",
            "agent_settings",
            "conversation_settings",
            "sandbox_grouping_strategy",
            "default_sandbox_spec_id",
            "egress_allow",
            "llm_profiles",
            "active_agent_profile_id",
            "active_agent_profile_revision",
            "registered_marketplaces",
            "inherited_marketplaces",
            "provider_tokens_set",
            "llm_api_key_set",
            "search_api_key_set",
        ]
    );
    assert_eq!(document["secrets_store"], json!({"provider_tokens": {}}));
    assert_eq!(
        document["llm_profiles"],
        json!({"profiles": {}, "active": null})
    );
    assert_eq!(document["sandbox_grouping_strategy"], "NO_GROUPING");
    let conversation = json!({"schema_version": 1, "max_iterations": 500, "confirmation_mode": false, "security_analyzer": "llm"});
    assert_eq!(document["conversation_settings"], conversation);
    let agent = &document["agent_settings"];
    assert_eq!(agent["llm"].as_object().unwrap().len(), 53);
    assert_eq!(agent["llm"]["model"], "gpt-5.5");
    assert_eq!(agent["condenser"]["max_size"], 240);
    assert_eq!(
        agent["agent_context"]["current_datetime"],
        "2026-01-01T00:00:00.000000Z"
    );
}

#[actix_web::test]
async fn a_save_changes_only_named_fields_and_returns_no_secret() {
    let world = SettingsFixture::new();
    let body = json!({
        "language": "en", "unknown_field": 1, "search_api_key": "tvly-xyz", "sandbox_api_key": "sbx-abc",
        "agent_settings_diff": {"llm": {"model": "anthropic/claude-sonnet-4-5", "api_key": "sk-test-123"}},
        "conversation_settings_diff": {"max_iterations": 42},
    });
    world.post_ok(SETTINGS, &body, "Settings stored").await;
    let answer = world.get(SETTINGS).await;
    let document = answer.json();
    assert_eq!(document["language"], "en");
    assert_eq!(
        document["agent_settings"]["llm"]["model"],
        "anthropic/claude-sonnet-4-5"
    );
    assert_eq!(document["agent_settings"]["llm"]["api_key"], Value::Null);
    assert_eq!(document["agent_settings"]["llm"]["base_url"], Value::Null);
    assert_eq!(document["conversation_settings"]["max_iterations"], 42);
    assert_eq!(
        (
            &document["llm_api_key_set"],
            &document["search_api_key_set"]
        ),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        (&document["search_api_key"], &document["sandbox_api_key"]),
        (&Value::Null, &Value::Null)
    );
    // The legacy API shows the same settings.
    let legacy = world.get("/api/settings").await.json();
    assert_eq!(legacy["llm_model"], "anthropic/claude-sonnet-4-5");
    assert_eq!(legacy["max_iterations"], 42);
    assert_eq!(legacy["llm_api_key_set"], true);
}

#[actix_web::test]
async fn refusals_are_those_of_the_contract() {
    let world = SettingsFixture::new();
    let legacy = json!({"error": "Use *_diff nested settings payloads instead of legacy keys",
                        "keys": ["agent_settings", "conversation_settings"]});
    let answer = world
        .post(
            SETTINGS,
            &json!({"agent_settings": {}, "conversation_settings": {}}),
        )
        .await;
    assert_eq!((answer.status, answer.json()), (422, legacy));
    for (body, error) in [
        (
            json!({"registered_marketplaces": [{"name": "1bad", "source": "x"}]}),
            "Invalid marketplace at index 0: Value error, name must start with a letter and contain only letters, numbers, hyphens, and underscores",
        ),
        (
            json!({"registered_marketplaces": [{"name": "a", "source": "github:a/b"}, {"name": "a", "source": "github:a/c"}]}),
            "Marketplace name(s) already in use or duplicated: a",
        ),
        (
            json!({"conversation_settings_diff": {"max_iterations": "many"}}),
            "1 validation error for ConversationSettings\nmax_iterations\n  Input should be a valid integer, unable to parse string as an integer [type=int_parsing]",
        ),
        (
            json!({"agent_settings_diff": {"llm": {"model": 5}}}),
            "1 validation error for OpenHandsAgentSettings\nllm.model\n  Input should be a valid string [type=string_type]",
        ),
        (
            json!({"language": 5}),
            "1 validation error for Settings\nlanguage\n  Input should be a valid string [type=string_type]",
        ),
    ] {
        let answer = world.post(SETTINGS, &body).await;
        assert_eq!(
            (answer.status, answer.json()),
            (400, json!({"error": error})),
            "{body}"
        );
    }
    assert_eq!(world.stored().await, None);
    let answer = world.post(SETTINGS, &json!([1])).await;
    let detail = json!({"detail": [{"type": "dict_type", "loc": ["body"], "msg": "Input should be a valid dictionary"}]});
    assert_eq!((answer.status, answer.json()), (422, detail));
    let answer = world.post_text(SETTINGS, "{").await;
    assert_eq!(
        (answer.status, answer.json()),
        (
            422,
            json!({"detail": [{"type": "json_invalid", "loc": ["body", 1], "msg": "JSON decode error",
            "input": {}, "ctx": {"error": "Expecting property name enclosed in double quotes"}}]})
        )
    );
}

#[actix_web::test]
async fn marketplaces_are_normalized() {
    let world = SettingsFixture::new();
    let body = json!({"registered_marketplaces": [{"name": "team", "source": "github:acme/x"}]});
    world.post_ok(SETTINGS, &body, "Settings stored").await;
    assert_eq!(
        world.get(SETTINGS).await.json()["registered_marketplaces"],
        json!([{"name": "team", "source": "github:acme/x", "ref": null, "repo_path": null, "auto_load": false, "scope": "personal"}])
    );
}

#[actix_web::test]
async fn secrets_are_masked_for_users_and_clear_for_sandboxes() {
    let world = SettingsFixture::new();
    let fresh = world.get(ME).await;
    assert_eq!(fresh.status, 200);
    assert_eq!(fresh.json()["id"], "ada");
    assert_eq!(fresh.json().get("llm_api_key_set"), None);
    assert_eq!(
        fresh.json()["agent_settings"]["llm"]["api_key"],
        Value::Null
    );
    let body = json!({"search_api_key": "tvly-xyz", "agent_settings_diff": {"llm": {"model": "m/x", "api_key": "sk-test-123"},
        "mcp_config": {"a": {"url": "https://h", "headers": {"Authorization": "Bearer mcp-s"}}}}});
    world.post_ok(SETTINGS, &body, "Settings stored").await;
    let masked = world.get(ME).await.json();
    assert_eq!(masked["search_api_key"], "**********");
    assert_eq!(masked["agent_settings"]["llm"]["api_key"], "**********");
    assert_eq!(
        masked["agent_settings"]["mcp_config"]["a"]["headers"]["Authorization"],
        "**********"
    );
    let exposed = |key| request(Method::GET, "/api/v1/users/me?expose_secrets=true", key);
    let clear = world.send(exposed(SANDBOX_KEY)).await.json();
    assert_eq!(clear["id"], "ada");
    assert_eq!(clear["search_api_key"], "tvly-xyz");
    assert_eq!(clear["agent_settings"]["llm"]["api_key"], "sk-test-123");
    // The SDK's cloud workspace reads the model here.
    assert_eq!(clear["llm_api_key"], "sk-test-123");
    assert_eq!(clear["llm_model"], clear["agent_settings"]["llm"]["model"]);
    assert!(masked.get("llm_api_key").is_none() && masked.get("llm_model").is_none());
    assert_eq!(
        clear["agent_settings"]["mcp_config"]["a"]["headers"]["Authorization"],
        "Bearer mcp-s"
    );
    for (key, text) in [
        ("", "X-Session-API-Key header is required"),
        (KEY, "Invalid session API key"),
    ] {
        let answer = world.send(exposed(key)).await;
        assert_eq!(
            (answer.status, answer.json()),
            (401, json!({"detail": text}))
        );
    }
    assert_eq!(
        world
            .send(request(Method::GET, ME, SANDBOX_KEY))
            .await
            .status,
        401
    );
    let odd = world.get("/api/v1/users/me?expose_secrets=perhaps").await;
    assert_eq!(
        (odd.status, odd.json()["detail"][0]["loc"].clone()),
        (422, json!(["query", "expose_secrets"]))
    );
}

#[actix_web::test]
async fn a_stopped_sandbox_reads_no_secret() {
    use DesiredState::{Deleted, Paused, Running};
    for (desired, status, expected) in [
        (Running, SandboxStatus::Starting, 200),
        (Running, SandboxStatus::Running, 200),
        (Running, SandboxStatus::Error, 401),
        (Running, SandboxStatus::Missing, 401),
        (Running, SandboxStatus::Paused, 401),
        (Paused, SandboxStatus::Running, 401),
        (Paused, SandboxStatus::Paused, 401),
        (Deleted, SandboxStatus::Running, 401),
    ] {
        let world = SettingsFixture::with_sandbox(Sandbox {
            desired,
            status,
            ..sandbox()
        });
        let path = "/api/v1/users/me?expose_secrets=true";
        let answer = world.send(request(Method::GET, path, SANDBOX_KEY)).await;
        assert_eq!(answer.status, expected, "{desired:?} {status:?}");
        if expected == 401 {
            assert_eq!(answer.json(), json!({"detail": "Sandbox is not running"}));
        }
    }
}

#[actix_web::test]
async fn git_providers_have_their_v1_operation() {
    let world = SettingsFixture::new();
    let stored = "Git providers stored";
    world
        .post_ok(
            PROVIDERS,
            &json!({"provider_tokens": {"github": {"token": "", "host": "github.com"}}}),
            stored,
        )
        .await;
    world
        .post_ok(
            PROVIDERS,
            &json!({"provider_tokens": {}, "mcp_config": null, "x": 1}),
            stored,
        )
        .await;
    world.post_ok(PROVIDERS, &json!({"provider_tokens": {"bitbucket_data_center": {"token": "t", "host": "b.example"}}}), stored).await;
    assert_eq!(
        world.get(SETTINGS).await.json()["provider_tokens_set"],
        json!({"bitbucket_data_center": "b.example"})
    );
    let names = "'github', 'gitlab', 'bitbucket', 'bitbucket_data_center', 'forgejo', 'azure_devops' or 'enterprise_sso'";
    let answer = world
        .post(
            PROVIDERS,
            &json!({"provider_tokens": {"svn": {"token": "x"}}}),
        )
        .await;
    let item = answer.json()["detail"][0].clone();
    assert_eq!(
        item["loc"],
        json!(["body", "provider_tokens", "svn", "[key]"])
    );
    assert_eq!(
        (item["type"].clone(), item["msg"].clone()),
        ("enum".into(), format!("Input should be {names}").into())
    );
    assert_eq!(item["ctx"], json!({"expected": names}));
    let answer = world
        .post(PROVIDERS, &json!({"provider_tokens": null}))
        .await;
    assert_eq!(
        (answer.status, answer.json()["detail"][0]["type"].clone()),
        (422, "dict_type".into())
    );
    let moved = json!({"provider_tokens": {"bitbucket_data_center": {"token": "", "host": "evil.example"}}});
    let answer = world.post(PROVIDERS, &moved).await;
    assert_eq!(
        answer.json()["detail"][0]["loc"],
        json!(["body", "provider_tokens", "bitbucket_data_center", "token"])
    );
    let answer = world.send(request(Method::DELETE, PROVIDERS, KEY)).await;
    assert_eq!(
        (answer.status, answer.json()),
        (200, json!({"message": "Unset Git provider tokens"}))
    );
    assert_eq!(
        world.get(SETTINGS).await.json()["provider_tokens_set"],
        json!({})
    );
}

#[actix_web::test]
async fn schemas_are_there() {
    let world = SettingsFixture::new();
    for (path, model, sections) in [
        ("agent-schema", "AgentSettings", 6),
        ("conversation-schema", "ConversationSettings", 2),
    ] {
        let document = world.get(&format!("{SETTINGS}/{path}")).await.json();
        assert_eq!(document["model_name"], model);
        assert_eq!(document["sections"].as_array().unwrap().len(), sections);
    }
}
