use serde_json::json;

use super::*;

const SETTINGS: &str = "/api/settings";
const PROVIDERS: &str = "/api/add-git-providers";

/// The response without stored settings: the 28 documented fields (without `mcp_config`) and `v1_enabled`.
fn default_response() -> Value {
    json!({
        "language": null, "agent": null, "max_iterations": null, "security_analyzer": null,
        "confirmation_mode": null, "llm_model": null, "llm_api_key": null, "llm_base_url": null,
        "remote_runtime_resource_factor": null,
        "secrets_store": {"provider_tokens": {}, "custom_secrets": {}},
        "enable_default_condenser": true, "enable_sound_notifications": false,
        "enable_proactive_conversation_starters": true, "enable_solvability_analysis": true,
        "user_consents_to_analytics": null, "sandbox_base_container_image": null,
        "sandbox_runtime_container_image": null, "search_api_key": null, "sandbox_api_key": null,
        "max_budget_per_task": null, "email": null, "email_verified": null, "git_user_name": null,
        "git_user_email": null, "v1_enabled": true, "provider_tokens_set": {},
        "llm_api_key_set": false, "search_api_key_set": false,
    })
}

fn default_response_with(changes: Value) -> Value {
    let mut document = default_response();
    let (Value::Object(into), Value::Object(changes)) = (&mut document, changes) else {
        panic!()
    };
    into.extend(changes);
    document
}

#[actix_web::test]
async fn missing_keys_get_the_documented_error_before_the_body_is_read() {
    let world = SettingsFixture::new();
    let item = |kind: &str, msg: &str| json!({"detail": [{"loc": ["header", "X-Session-API-Key"], "msg": msg, "type": kind}]});
    for (method, path) in [
        (Method::GET, SETTINGS),
        (Method::POST, SETTINGS),
        (Method::POST, PROVIDERS),
        (Method::POST, "/api/unset-provider-tokens"),
        (Method::POST, "/api/reset-settings"),
    ] {
        let answer = world
            .send(request(method.clone(), path, "").set_payload("{\"provider"))
            .await;
        assert_eq!(
            (answer.status, answer.json()),
            (401, item("missing", "Field required")),
            "{path}"
        );
        let answer = world.send(request(method, path, "nope")).await;
        assert_eq!(
            (answer.status, answer.json()["detail"][0]["type"].clone()),
            (401, "invalid_api_key".into())
        );
    }
}

#[actix_web::test]
async fn the_response_has_exactly_the_documented_fields() {
    let world = SettingsFixture::new();
    let answer = world.get(SETTINGS).await;
    assert_eq!((answer.status, answer.json()), (200, default_response()));
    assert_eq!(world.stored().await, None, "reading stores nothing");
}

#[actix_web::test]
async fn stored_values_are_returned_without_secrets() {
    let world = SettingsFixture::new();
    let mcp = json!({
        "sse_servers": [{"url": "https://s/sse", "api_key": "mcp-a"}],
        "stdio_servers": [{"name": "n", "command": "npx", "args": ["-y", "x"], "env": {"K": "mcp-v"}}],
        "shttp_servers": [{"url": "https://h/mcp", "api_key": "mcp-b", "timeout": 30}],
    });
    let plain = json!({
        "language": "en", "agent": "CodeActAgent", "max_iterations": 100, "security_analyzer": "llm",
        "confirmation_mode": true, "llm_model": "anthropic/claude", "llm_base_url": "https://llm.example",
        "remote_runtime_resource_factor": 2, "enable_default_condenser": false,
        "enable_sound_notifications": true, "enable_proactive_conversation_starters": false,
        "enable_solvability_analysis": false, "user_consents_to_analytics": false,
        "sandbox_base_container_image": "img:base", "sandbox_runtime_container_image": "img:rt",
        "max_budget_per_task": 4.0, "email": "a@b.c", "email_verified": true, "git_user_name": "n",
        "git_user_email": "n@x",
    });
    let mut body = plain.clone();
    for (key, value) in [
        ("llm_api_key", json!("sk-llm-secret")),
        ("search_api_key", json!("tvly-secret")),
        ("sandbox_api_key", json!("sb-secret")),
        ("mcp_config", mcp.clone()),
        // Further members that a page sends back.
        (
            "secrets_store",
            json!({"provider_tokens": {}, "custom_secrets": {}}),
        ),
        ("v1_enabled", json!(false)),
        ("llm_api_key_set", json!(true)),
        ("provider_tokens_set", json!({})),
        ("condenser_max_size", json!(19)),
        ("is_new_user", json!(true)),
    ] {
        body[key] = value;
    }
    world.post_ok(SETTINGS, &body, "Settings stored").await;
    let answer = world.get(SETTINGS).await;
    let mut expected = default_response_with(plain);
    expected["llm_api_key_set"] = true.into();
    expected["search_api_key_set"] = true.into();
    expected["mcp_config"] = json!({
        "sse_servers": [{"url": "https://s/sse", "api_key": "**********"}],
        "stdio_servers": [{"name": "n", "command": "npx", "args": ["-y", "x"], "env": {"K": "**********"}}],
        "shttp_servers": [{"url": "https://h/mcp", "api_key": "**********", "timeout": 30}],
    });
    assert_eq!(answer.json(), expected);
    // Saving the loaded settings loses nothing.
    let mut echo = answer.json();
    echo["llm_api_key"] = "**********".into();
    world.post_ok(SETTINGS, &echo, "Settings stored").await;
    assert_eq!(world.get(SETTINGS).await.json(), expected);
    let stored = world.stored().await.unwrap();
    assert_eq!(stored["mcp_config"], mcp);
    assert_eq!(stored["sandbox_api_key"], "sb-secret");
    assert_eq!(stored["agent_secrets"]["/llm/api_key"], "sk-llm-secret");
}

#[actix_web::test]
async fn a_wrong_save_lists_all_that_is_wrong() {
    let world = SettingsFixture::new();
    let body = json!({"max_iterations": "ten", "confirmation_mode": "maybe", "max_budget_per_task": "lots",
        "llm_model": 5, "enable_default_condenser": null, "llm_api_key": 7, "secrets_store": "x", "language": "en"});
    let answer = world.post(SETTINGS, &body).await;
    assert_eq!(answer.status, 422);
    assert_eq!(world.stored().await, None, "nothing of it is stored");
    let item = |field: &str, msg: &str, kind: &str| json!({"loc": ["body", field], "msg": msg, "type": kind});
    assert_eq!(
        answer.json()["detail"],
        json!([
            item(
                "max_iterations",
                "Input should be a valid integer, unable to parse string as an integer",
                "int_parsing"
            ),
            item(
                "confirmation_mode",
                "Input should be a valid boolean, unable to interpret input",
                "bool_parsing"
            ),
            item("llm_model", "Input should be a valid string", "string_type"),
            item(
                "llm_api_key",
                "Input should be a valid string",
                "string_type"
            ),
            item(
                "secrets_store",
                "Value error, Secrets must be initialized with a dictionary",
                "value_error"
            ),
            item(
                "enable_default_condenser",
                "Input should be a valid boolean",
                "bool_type"
            ),
            item(
                "max_budget_per_task",
                "Input should be a valid number, unable to parse string as a number",
                "float_parsing"
            ),
        ])
    );
    let lax = json!({"max_iterations": "10", "confirmation_mode": "yes", "max_budget_per_task": "2.5",
        "remote_runtime_resource_factor": 2.0, "email_verified": 1, "enable_sound_notifications": "on"});
    world.post_ok(SETTINGS, &lax, "Settings stored").await;
    let expected = default_response_with(
        json!({"max_iterations": 10, "confirmation_mode": true, "max_budget_per_task": 2.5,
        "remote_runtime_resource_factor": 2, "email_verified": true, "enable_sound_notifications": true}),
    );
    assert_eq!(world.get(SETTINGS).await.json(), expected);
}

#[actix_web::test]
async fn a_save_changes_only_what_it_names() {
    let world = SettingsFixture::new();
    let all = json!({"language": "en", "agent": "A", "max_iterations": 7, "confirmation_mode": true, "llm_model": "m",
        "llm_base_url": "https://llm", "llm_api_key": "sk", "search_api_key": "tv", "sandbox_api_key": "sb",
        "enable_default_condenser": false, "enable_solvability_analysis": false, "max_budget_per_task": 2.0,
        "email": "e", "git_user_name": "n", "user_consents_to_analytics": true,
        "mcp_config": {"sse_servers": ["https://x/sse"]}});
    world.post_ok(SETTINGS, &all, "Settings stored").await;
    let before = world.stored().await;
    let shown = world.get(SETTINGS).await.json();
    for body in [
        json!({}),
        json!({"unknown": 1}),
        json!({"llm_model": null, "llm_api_key": null, "llm_base_url": null, "search_api_key": null,
            "sandbox_api_key": null, "mcp_config": null, "user_consents_to_analytics": null}),
        json!({"llm_api_key": "**********", "search_api_key": "**********", "sandbox_api_key": "**********"}),
        // The 1.3 settings page sends this for an unchanged key.
        json!({"search_api_key": "", "search_api_key_set": true}),
        shown.clone(),
    ] {
        world.post_ok(SETTINGS, &body, "Settings stored").await;
        assert_eq!(world.stored().await, before, "{body}");
    }
    let body = json!({"language": null, "max_iterations": null, "email": "f"});
    world.post_ok(SETTINGS, &body, "Settings stored").await;
    let mut expected = shown;
    for (key, value) in [
        ("language", Value::Null),
        ("max_iterations", Value::Null),
        ("email", "f".into()),
    ] {
        expected[key] = value;
    }
    assert_eq!(world.get(SETTINGS).await.json(), expected);
    let body = json!({"llm_api_key": "", "search_api_key": "", "sandbox_api_key": ""});
    world.post_ok(SETTINGS, &body, "Settings stored").await;
    let stored = world.stored().await.unwrap();
    assert_eq!(world.get(SETTINGS).await.json()["llm_api_key_set"], false);
    assert_eq!(
        world.get(SETTINGS).await.json()["search_api_key_set"],
        false
    );
    assert_eq!(
        (stored.get("search_api_key"), stored.get("sandbox_api_key")),
        (None, None)
    );
}

#[actix_web::test]
async fn git_providers_are_stored_one_by_one() {
    let world = SettingsFixture::new();
    let stored = "Git providers stored";
    world.post_ok(PROVIDERS, &json!({}), stored).await;
    assert_eq!(world.get(SETTINGS).await.json(), default_response());
    world
        .post_ok(
            PROVIDERS,
            &json!({"provider_tokens": {"github": {"token": "x"}}}),
            stored,
        )
        .await;
    world.post_ok(PROVIDERS, &json!({"provider_tokens": {"gitlab": {"token": "y", "host": "http://127.0.0.1:3290/", "user_id": "u"}}}), stored).await;
    // Blank, unknown and absent entries change nothing.
    for body in [
        json!({"provider_tokens": {}, "foo": 1}),
        json!({"provider_tokens": {"gitlab": {"token": ""}, "github": {"token": null, "host": "github.com"}}}),
        json!({"provider_tokens": {"forgejo": {}, "bitbucket": {"user_id": "42"}, "azure_devops": {"token": "", "foo": 1}}}),
        json!({"mcp_config": null}),
    ] {
        world.post_ok(PROVIDERS, &body, stored).await;
    }
    let set = json!({"github": "github.com", "gitlab": "http://127.0.0.1:3290"});
    assert_eq!(world.get(SETTINGS).await.json()["provider_tokens_set"], set);
    world
        .post_ok(
            PROVIDERS,
            &json!({"mcp_config": {"sse_servers": ["https://x/sse"]}}),
            stored,
        )
        .await;
    let now = world.get(SETTINGS).await.json();
    assert_eq!(now["provider_tokens_set"], set);
    assert_eq!(
        now["mcp_config"],
        json!({"sse_servers": [{"url": "https://x/sse"}], "stdio_servers": [], "shttp_servers": []})
    );
    let answer = world
        .post("/api/unset-provider-tokens", &json!({"x": 1}))
        .await;
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
async fn wrong_git_providers_are_refused_whole() {
    let world = SettingsFixture::new();
    let github = json!({"provider_tokens": {"github": {"token": "kept", "host": "ghe.example"}}});
    world
        .post_ok(PROVIDERS, &github, "Git providers stored")
        .await;
    let before = world.stored().await;
    let model = "model_attributes_type";
    for (body, loc, kind) in [
        (
            "{\"provider_tokens\": \"ghp_topsecret\"}",
            "provider_tokens",
            "dict_type",
        ),
        (
            "{\"provider_tokens\": null}",
            "provider_tokens",
            "dict_type",
        ),
        (
            "{\"provider_tokens\": [{\"github\": \"x\"}]}",
            "provider_tokens",
            "dict_type",
        ),
        (
            "{\"provider_tokens\": {\"sourcehut\": {\"token\": \"t\"}}}",
            "provider_tokens.sourcehut.[key]",
            "enum",
        ),
        (
            "{\"provider_tokens\": {\"GitHub\": {}}}",
            "provider_tokens.GitHub.[key]",
            "enum",
        ),
        (
            "{\"provider_tokens\": {\"bitbucket_data_center\": {}}}",
            "provider_tokens.bitbucket_data_center.[key]",
            "enum",
        ),
        (
            "{\"provider_tokens\": {\"github\": \"ghp_plain\"}}",
            "provider_tokens.github",
            model,
        ),
        (
            "{\"provider_tokens\": {\"github\": null}}",
            "provider_tokens.github",
            model,
        ),
        (
            "{\"provider_tokens\": {\"github\": {\"token\": {\"v\": 1}}}}",
            "provider_tokens.github.token",
            "string_type",
        ),
        (
            "{\"provider_tokens\": {\"github\": {\"host\": 5}}}",
            "provider_tokens.github.host",
            "string_type",
        ),
        (
            "{\"provider_tokens\": {\"github\": {\"host\": \"http://u:p@h\", \"token\": \"t\"}}}",
            "provider_tokens.github.host",
            "value_error",
        ),
        (
            "{\"provider_tokens\": {\"gitlab\": {\"token\": \"t\"}, \"github\": {\"token\": \"\", \"host\": \"evil.example\"}}}",
            "provider_tokens.github.token",
            "value_error",
        ),
        ("{\"mcp_config\": \"x\"}", "mcp_config", model),
        (
            "{\"mcp_config\": {\"sse_servers\": 5}}",
            "mcp_config.sse_servers",
            "list_type",
        ),
        (
            "{\"mcp_config\": {\"sse_servers\": [{}]}}",
            "mcp_config.sse_servers.0.url",
            "missing",
        ),
        (
            "{\"mcp_config\": {\"bogus\": 1}}",
            "mcp_config.bogus",
            "extra_forbidden",
        ),
        ("[]", "", model),
        ("\"hello\"", "", model),
        ("null", "", "missing"),
        ("", "", "missing"),
        (
            "{\"provider_tokens\": {\"github\": }}",
            "31",
            "json_invalid",
        ),
    ] {
        let answer = world.post_text(PROVIDERS, body).await;
        assert_eq!(answer.status, 422, "{body}: {}", answer.text);
        let detail = answer.json()["detail"].clone();
        assert_eq!(detail.as_array().unwrap().len(), 1, "{body}: {detail}");
        let item = detail[0].as_object().unwrap();
        let keys: Vec<&String> = item.keys().collect();
        assert_eq!(keys, ["loc", "msg", "type"], "{body}");
        let steps: Vec<&str> = item["loc"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s.as_str().unwrap())
            .collect();
        let expected: Vec<&str> = std::iter::once("body")
            .chain(loc.split('.').filter(|s| !s.is_empty()))
            .collect();
        assert_eq!(steps, expected, "{body}");
        assert_eq!(item["type"], kind, "{body}");
    }
    assert_eq!(world.stored().await, before);
    let many = json!({"provider_tokens": {"github": {"token": 1, "host": 2}, "nope": {"token": "a"}},
                      "mcp_config": {"sse_servers": ["x"], "bogus": 1}});
    let detail = world.post(PROVIDERS, &many).await.json()["detail"].clone();
    let kinds: Vec<&str> = detail
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "value_error",
            "extra_forbidden",
            "string_type",
            "string_type",
            "enum"
        ]
    );
    assert_eq!(
        detail[4]["msg"],
        "Input should be 'github', 'gitlab', 'bitbucket', 'forgejo', 'azure_devops' or 'enterprise_sso'"
    );
}

#[actix_web::test]
async fn content_types_are_those_of_json_or_none() {
    let world = SettingsFixture::new();
    for (content_type, status) in [
        (None, 200),
        (Some("application/json; charset=utf-8"), 200),
        (Some("application/vnd.api+json"), 200),
        (Some("application/x-www-form-urlencoded"), 422),
        (Some("text/plain"), 422),
    ] {
        let mut post =
            request(Method::POST, PROVIDERS, KEY).set_payload("{\"provider_tokens\": {}}");
        if let Some(content_type) = content_type {
            post = post.insert_header(("Content-Type", content_type));
        }
        let answer = world.send(post).await;
        assert_eq!(answer.status, status, "{content_type:?}: {}", answer.text);
    }
    let latin = request(Method::POST, PROVIDERS, KEY)
        .set_payload(&b"{\"provider_tokens\": {\"github\": {\"token\": \"\xff\"}}}"[..]);
    assert_eq!(world.send(latin).await.status, 422);
}

#[actix_web::test]
async fn resetting_is_gone() {
    let answer = SettingsFixture::new()
        .post("/api/reset-settings", &json!({}))
        .await;
    assert_eq!(answer.status, 410);
    assert_eq!(
        answer.json(),
        json!({"error": "Reset settings functionality has been removed."})
    );
}

#[actix_web::test]
async fn unsealing_failures_are_errors() {
    let world = SettingsFixture::new();
    world.damage("rubbish").await;
    for answer in [
        world.get(SETTINGS).await,
        world.post(PROVIDERS, &json!({})).await,
    ] {
        assert_eq!(
            (answer.status, answer.json()),
            (500, json!({"detail": "Internal Server Error"}))
        );
    }
    world.damage("user/ada/settings|{\"language\": 5, \"max_budget_per_task\": \"abc\", \"mcp_config\": [], \"agent_settings\": {\"llm\": {\"model\": 5}}}").await;
    assert_eq!(world.get(SETTINGS).await.json(), default_response());
    world
        .post_ok(SETTINGS, &json!({"language": "en"}), "Settings stored")
        .await;
    assert_eq!(world.get(SETTINGS).await.json()["language"], "en");
}
