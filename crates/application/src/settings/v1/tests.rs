use proptest::prelude::*;
use serde_json::json;

use domain::clock::Timestamp;

use super::super::secret::{MASK, SecretVisibility};
use super::*;

fn save(settings: Settings, body: &Value) -> Result<Settings, V1Refusal> {
    merge(
        settings,
        body.as_object().unwrap(),
        McpConfigUpdate::Replace,
    )
}

fn saved(settings: Settings, body: &Value) -> Settings {
    save(settings, body).unwrap_or_else(|why| panic!("{body}: {why:?}"))
}

fn refused(body: &Value) -> String {
    match save(Settings::default(), body) {
        Err(V1Refusal::Invalid(text)) => text,
        other => panic!("{body}: {other:?}"),
    }
}

fn view(settings: &Settings, reveal: SecretVisibility) -> Value {
    settings.agent_view(reveal, Timestamp::from_micros(0))
}

const NOW: &str = "1970-01-01T00:00:00.000000Z";

#[test]
fn fresh_documents_are_the_defaults() {
    let fresh = view(&Settings::default(), SecretVisibility::Hidden);
    let mut expected: Value =
        serde_json::from_str(include_str!("../fields/agent-defaults.json")).unwrap();
    expected["agent_context"]["current_datetime"] = NOW.into();
    assert_eq!(fresh, expected);
    let conversation: Value =
        serde_json::from_str(include_str!("../fields/conversation-defaults.json")).unwrap();
    assert_eq!(Settings::default().conversation_view(), conversation);
}

#[test]
fn a_partial_save_changes_what_it_names() {
    let s = saved(
        Settings::default(),
        &json!({
            "language": "en",
            "agent_settings_diff": {"llm": {"model": "anthropic/claude-sonnet-4-5", "api_key": "sk-test-123"}},
            "conversation_settings_diff": {"max_iterations": 42},
            "search_api_key": "tvly-xyz", "sandbox_api_key": "sbx-abc", "unknown_field": 1,
            "secrets_store": 5, "llm_profiles": 5, "active_agent_profile_id": 5,
        }),
    );
    let s = saved(
        s,
        &json!({"agent_settings_diff": {"llm": {"temperature": 0.5, "unknown": {"x": 1}}}}),
    );
    let document = view(&s, SecretVisibility::Masked);
    assert_eq!(document["llm"]["model"], "anthropic/claude-sonnet-4-5");
    assert_eq!(document["llm"]["api_key"], MASK);
    assert_eq!(document["llm"]["temperature"], 0.5);
    assert_eq!(document["llm"].get("unknown"), None);
    assert_eq!(
        view(&s, SecretVisibility::Hidden)["llm"]["api_key"],
        Value::Null
    );
    assert_eq!(
        view(&s, SecretVisibility::Clear)["llm"]["api_key"],
        "sk-test-123"
    );
    assert_eq!(s.conversation_view()["max_iterations"], 42);
    assert_eq!(s.language.as_deref(), Some("en"));
    assert!(s.search_api_key.is_some() && s.sandbox_api_key.is_some());
    // The legacy view is the same truth.
    assert_eq!(s.agent.llm_model(), Some("anthropic/claude-sonnet-4-5"));
    assert_eq!(s.legacy_max_iterations(), Some(42));
}

#[test]
fn secrets_are_cleared_by_blank_and_null_and_kept_by_the_mask() {
    for (sent, kept) in [
        (json!(MASK), true),
        (json!(""), false),
        (json!(null), false),
        (json!("  "), false),
    ] {
        let s = saved(
            Settings::default(),
            &json!({"agent_settings_diff": {"llm": {"api_key": "k", "aws_secret_access_key": "k"}},
                    "search_api_key": "k"}),
        );
        let s = saved(
            s,
            &json!({"agent_settings_diff": {"llm": {"api_key": sent, "aws_secret_access_key": sent}},
                    "search_api_key": sent}),
        );
        assert_eq!(s.agent.secrets.len(), if kept { 2 } else { 0 }, "{sent}");
        assert_eq!(s.search_api_key.is_some(), kept, "{sent}");
    }
}

#[test]
fn wrong_values_are_refused_and_never_stored() {
    for (body, needle) in [
        (
            json!({"language": 5}),
            "1 validation error for Settings\nlanguage\n  Input should be a valid string",
        ),
        (json!({"max_budget_per_task": "abc"}), "float_parsing"),
        (
            json!({"sandbox_grouping_strategy": "BOGUS"}),
            "Input should be 'NO_GROUPING', 'GROUP_BY_NEWEST', 'LEAST_RECENTLY_USED', 'FEWEST_CONVERSATIONS' or 'ADD_TO_ANY'",
        ),
        (json!({"git_full_clone": null}), "bool_type"),
        (json!({"disabled_skills": [1]}), "disabled_skills"),
        (json!({"search_api_key": 7}), "search_api_key"),
        (
            json!({"agent_settings_diff": {"llm": {"model": 5}}}),
            "1 validation error for OpenHandsAgentSettings\nllm.model\n  Input should be a valid string",
        ),
        (
            json!({"agent_settings_diff": {"llm": 5}}),
            "llm\n  Input should be a valid dictionary",
        ),
        (json!({"agent_settings_diff": []}), "agent_settings_diff"),
        (
            json!({"agent_settings_diff": {"agent_kind": "bogus"}}),
            "agent_kind",
        ),
        (
            json!({"agent_settings_diff": {"mcp_config": []}}),
            "mcp_config",
        ),
        (
            json!({"conversation_settings_diff": {"max_iterations": "many"}}),
            "1 validation error for ConversationSettings\nmax_iterations\n  Input should be a valid integer, unable to parse string as an integer",
        ),
        (
            json!({"language": 5, "email": 6}),
            "2 validation errors for Settings",
        ),
        (
            json!({"registered_marketplaces": [{"name": "1bad", "source": "x"}]}),
            "Invalid marketplace at index 0",
        ),
    ] {
        let text = refused(&body);
        assert!(text.contains(needle), "{body}: {text}");
    }
    let both = save(
        Settings::default(),
        &json!({"agent_settings": {}, "conversation_settings": {}}),
    );
    assert_eq!(
        both.unwrap_err(),
        V1Refusal::LegacyKeys(vec!["agent_settings", "conversation_settings"])
    );
}

#[test]
fn nesting_is_bounded() {
    let mut deep = json!("x");
    for _ in 0..60 {
        deep = json!({ "a": deep });
    }
    assert!(refused(&json!({"agent_settings_diff": {"mcp_config": deep}})).contains("deep"));
}

#[test]
fn an_endpoint_does_not_follow_to_another_vendor() {
    let s = saved(
        Settings::default(),
        &json!({"agent_settings_diff": {"llm": {"model": "gpt-5.5", "api_key": "sk", "base_url": "https://api.openai.com/v1"}}}),
    );
    assert_eq!(
        view(&s, SecretVisibility::Hidden)["llm"]["base_url"],
        Value::Null
    );
    let s = saved(
        s,
        &json!({"agent_settings_diff": {"llm": {"model": "anthropic/claude"}}}),
    );
    assert_eq!(
        view(&s, SecretVisibility::Hidden)["llm"]["base_url"],
        Value::Null
    );
    // A model whose vendor we did not know when the endpoint came in.
    let s = saved(
        s,
        &json!({"agent_settings_diff": {"llm": {"model": "own/x", "base_url": "https://api.openai.com"}}}),
    );
    assert_eq!(
        view(&s, SecretVisibility::Hidden)["llm"]["base_url"],
        "https://api.openai.com"
    );
    let s = saved(
        s,
        &json!({"agent_settings_diff": {"llm": {"model": "openai/gpt-5"}}}),
    );
    assert_eq!(
        view(&s, SecretVisibility::Hidden)["llm"]["base_url"],
        Value::Null
    );
}

#[test]
fn the_variants_keep_each_other() {
    let s = saved(
        Settings::default(),
        &json!({"agent_settings_diff": {"llm": {"model": "m/x", "api_key": "sk"}, "condenser": {"max_size": 80}}}),
    );
    let s = saved(
        s,
        &json!({"agent_settings_diff": {"agent_kind": "acp", "acp_server": "codex"}}),
    );
    let document = view(&s, SecretVisibility::Masked);
    let keys: Vec<&String> = document.as_object().unwrap().keys().collect();
    for key in [
        "acp_server",
        "acp_command",
        "acp_args",
        "acp_model",
        "acp_session_mode",
        "acp_prompt_timeout",
        "mcp_config",
        "acp_isolate_data_dir",
        "acp_file_secrets",
        "agent_context",
        "llm",
    ] {
        assert!(keys.iter().any(|k| *k == key), "{key}");
    }
    assert!(document.get("condenser").is_none() && document.get("agent").is_none());
    assert_eq!(document["acp_server"], "codex");
    let s = saved(s, &json!({"agent_settings_diff": {"agent_kind": "llm"}}));
    let document = view(&s, SecretVisibility::Masked);
    assert_eq!(document["agent_kind"], "openhands");
    assert_eq!(document["condenser"]["max_size"], 80);
    assert_eq!(document["llm"]["api_key"], MASK);
    assert!(document.get("acp_server").is_none());
}

#[test]
fn servers_and_headers_are_masked_and_survive_an_echo() {
    let s = saved(
        Settings::default(),
        &json!({"agent_settings_diff": {
            "mcp_config": {"a": {"url": "https://h", "headers": {"Authorization": "Bearer s1"}}},
            "llm": {"extra_headers": {"X-Team": "s2"}, "litellm_extra_body": {"n": 1, "api_key": "s3"}}}}),
    );
    let shown = view(&s, SecretVisibility::Masked);
    assert_eq!(shown, view(&s, SecretVisibility::Hidden));
    assert!(
        !["s1", "s2", "s3"]
            .iter()
            .any(|x| shown.to_string().contains(&format!("{x}\"")))
    );
    let echoed = saved(
        s.clone(),
        &json!({"agent_settings_diff": {"mcp_config": shown["mcp_config"], "llm": {
            "extra_headers": shown["llm"]["extra_headers"],
            "litellm_extra_body": shown["llm"]["litellm_extra_body"]}}}),
    );
    assert_eq!(
        view(&echoed, SecretVisibility::Clear),
        view(&s, SecretVisibility::Clear)
    );
    let cleared = saved(echoed, &json!({"agent_settings_diff": {"mcp_config": {}}}));
    assert_eq!(
        view(&cleared, SecretVisibility::Clear)["mcp_config"],
        json!({})
    );
}

#[test]
fn a_front_end_changes_single_servers() {
    let change = |settings: Settings, servers: Value| {
        let body = json!({"agent_settings_diff": {"mcp_config": servers}});
        merge(settings, body.as_object().unwrap(), McpConfigUpdate::Merge).unwrap()
    };
    let servers =
        |settings: &Settings| view(settings, SecretVisibility::Clear)["mcp_config"].take();
    let a = json!({"url": "https://a", "headers": {"Authorization": "Bearer s1"}});
    let b = json!({"command": "b", "env": {"KEY": "s2"}});
    let s = change(Settings::default(), json!({"a": a}));
    let s = change(s, json!({"b": b}));
    assert_eq!(servers(&s), json!({"a": a, "b": b}));
    // A mask keeps the secret of its own server, and a server is replaced as a whole.
    let masked = json!({"url": "https://a", "headers": {"Authorization": MASK}, "timeout": 5});
    let s = change(s, json!({"a": masked}));
    let kept = json!({"url": "https://a", "headers": {"Authorization": "Bearer s1"}, "timeout": 5});
    assert_eq!(servers(&s), json!({"a": kept, "b": b}));
    let s = change(s, json!({"a": null, "unknown": null}));
    assert_eq!(servers(&s), json!({"b": b}));
    assert_eq!(servers(&change(s.clone(), json!({}))), json!({"b": b}));
    let s = change(s, json!({"b": null}));
    assert_eq!(servers(&s), json!({}));
    // The older envelope stays one.
    let enveloped = json!({"agent_settings_diff": {"mcp_config": {"mcpServers": {"a": a}}}});
    let s = change(saved(Settings::default(), &enveloped), json!({"b": b}));
    assert_eq!(servers(&s), json!({"mcpServers": {"a": a, "b": b}}));
    let s = change(s, json!({"mcpServers": {"a": null}}));
    assert_eq!(servers(&s), json!({"mcpServers": {"b": b}}));
}

#[test]
fn schemas_name_every_secret_and_every_section() {
    let schema = agent_schema();
    let sections = schema["sections"].as_array().unwrap();
    let keys: Vec<&str> = sections
        .iter()
        .map(|s| s["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        keys,
        ["general", "llm", "condenser", "verification", "acp", "llm"]
    );
    let secrets: Vec<&str> = sections
        .iter()
        .flat_map(|s| s["fields"].as_array().unwrap())
        .filter(|f| f["secret"] == true && f["variant"] == "openhands")
        .map(|f| f["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        secrets,
        [
            "llm.api_key",
            "llm.aws_access_key_id",
            "llm.aws_secret_access_key",
            "llm.aws_session_token",
            "verification.critic_api_key"
        ]
    );
    let conversation = conversation_schema();
    assert_eq!(conversation["model_name"], "ConversationSettings");
    assert_eq!(
        conversation["sections"][1]["fields"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn texts_with_nul_are_refused_wherever_they_stand() {
    for (body, place) in [
        (json!({"language": "a\0"}), "\nlanguage\n"),
        (
            json!({"agent_settings_diff": {"llm": {"model": "m\0"}}}),
            "\nagent_settings_diff.llm.model\n",
        ),
        (
            json!({"agent_settings_diff": {"mcp_config": {"a": {"command": "c", "args": ["\0"]}}}}),
            "\nagent_settings_diff.mcp_config.a.args.0\n",
        ),
        (
            json!({"agent_settings_diff": {"mcp_config": {"a\0b": {}}}}),
            "\nagent_settings_diff.mcp_config.ab\n",
        ),
        (json!({"search_api_key": "k\0"}), "\nsearch_api_key\n"),
        (json!({"disabled_skills": ["\0"]}), "\ndisabled_skills.0\n"),
    ] {
        let text = refused(&body);
        assert!(text.contains(place) && text.contains("NUL"), "{text:?}");
    }
}

#[test]
fn urls_of_mcp_servers_hold_no_credentials() {
    for servers in [
        json!({"a": {"url": "https://u:pl4nted@h/mcp"}}),
        json!({"mcpServers": {"a": {"url": "https://pl4nted@h/mcp"}}}),
    ] {
        let text = refused(&json!({"agent_settings_diff": {"mcp_config": servers}}));
        assert!(text.contains("mcp_config.a.url"), "{text}");
        assert!(!text.contains("pl4nted"), "{text}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    const PLANTED: &str = "pl4nted-secret";
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!(PLANTED)),
        Just(json!(5)),
        Just(json!(1.5)),
        Just(json!(true)),
        Just(json!(MASK)),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let keys = prop::sample::select(&[
            "llm",
            "model",
            "api_key",
            "base_url",
            "mcp_config",
            "env",
            "url",
            "condenser",
            "enabled",
            "extra_headers",
            "agent_kind",
            "max_iterations",
            "name",
            "source",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4).prop_map(|m| Value::Object(
                m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_refusal_quotes_a_value_and_no_save_bricks_the_account(
        fields in prop::collection::vec(
            (prop::sample::select(&["agent_settings_diff", "conversation_settings_diff", "language", "search_api_key",
                "max_budget_per_task", "disabled_skills", "registered_marketplaces", "git_full_clone"]), any_value()),
            0..4)
    ) {
        let body: Map<String, Value> = fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        match merge(Settings::default(), &body, McpConfigUpdate::Replace) {
            Err(V1Refusal::Invalid(text)) => prop_assert!(!text.contains("pl4nted"), "{}", text),
            Err(V1Refusal::LegacyKeys(_)) => {}
            Ok(settings) => {
                let text = crate::settings::document::encode(&settings);
                let again = crate::settings::document::decode(&text).unwrap();
                prop_assert_eq!(view(&again, SecretVisibility::Clear), view(&settings, SecretVisibility::Clear));
            }
        }
    }
}
