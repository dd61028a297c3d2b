use secrecy::ExposeSecret;
use serde_json::json;

use super::super::document;
use super::*;

/// Settings as they would be stored.
fn settings(document: &Value) -> Settings {
    document::decode(&SecretString::from(document.to_string())).unwrap()
}

fn llm(options: &Value, key: Option<&str>) -> Settings {
    let mut document = json!({"agent_settings": {"llm": options}});
    if let Some(key) = key {
        document["agent_secrets"] = json!({"/llm/api_key": key});
    }
    settings(&document)
}

#[test]
fn a_start_needs_a_model_and_its_key() {
    // Options, key, model of the request; what the refusal names, or none.
    for (options, key, wanted, named) in [
        (
            json!({}),
            None,
            None,
            Some(&["llm_model", "llm_api_key"][..]),
        ),
        (json!({}), Some("k"), None, None),
        (json!({"base_url": "http://l/v1"}), None, None, None),
        (
            json!({"model": "openai/gpt-5"}),
            None,
            None,
            Some(&["llm_api_key"][..]),
        ),
        (json!({"model": "openai/gpt-5"}), Some("k"), None, None),
        (
            json!({"model": "openai/x", "base_url": "http://l/v1"}),
            None,
            None,
            None,
        ),
        // The vendor's own endpoint is no endpoint of one's own.
        (
            json!({"model": "openai/x", "base_url": "https://api.openai.com"}),
            None,
            None,
            Some(&["llm_api_key"][..]),
        ),
        (json!({"model": "ollama/llama3"}), None, None, None),
        (json!({"model": "bedrock/x"}), None, None, None),
        (
            json!({"model": "openai/gpt-5", "auth_type": "subscription"}),
            None,
            None,
            None,
        ),
        (
            json!({}),
            None,
            Some("openai/gpt-5"),
            Some(&["llm_api_key"][..]),
        ),
        (json!({}), None, Some("ollama/llama3"), None),
        (json!({}), None, Some("  "), Some(&["llm_model"][..])),
    ] {
        let outcome = profile(&llm(&options, key), wanted);
        match (outcome, named) {
            (Ok(_), None) => {}
            (Err(MissingSettings(text)), Some(names)) => {
                assert!(names.iter().all(|n| text.contains(n)), "{options}: {text}");
            }
            (outcome, _) => panic!("{options}, {wanted:?}: {outcome:?}"),
        }
    }
}

#[test]
fn a_key_goes_to_no_other_vendor() {
    let mut s = llm(&json!({"model": "openai/gpt-5"}), Some("sk-1"));
    s.agent.key_vendor = Some("openai".into());
    assert!(profile(&s, Some("gpt-5.5")).is_ok());
    let refusal = profile(&s, Some("anthropic/claude")).unwrap_err();
    assert!(
        refusal.0.contains("llm_api_key") && !refusal.0.contains("sk-1"),
        "{refusal}"
    );
    // Through a proxy of the user's own, the key is the proxy's.
    let mut s = llm(
        &json!({"model": "openai/gpt-5", "base_url": "https://proxy.example"}),
        Some("sk-1"),
    );
    s.agent.key_vendor = Some("openai".into());
    let profile = profile(&s, Some("anthropic/claude")).unwrap();
    assert_eq!(profile.llm.model, "anthropic/claude");
    assert_eq!(
        profile.llm.base_url.as_deref(),
        Some("https://proxy.example")
    );
}

#[test]
fn everything_that_takes_effect_is_in_the_profile() {
    let s = settings(&json!({
        "agent_settings": {
            "llm": {"model": "openai/m", "base_url": "http://l/v1", "temperature": 0.5, "num_retries": 2,
                    "usage_id": "x", "top_p": "wrong"},
            "condenser": {"max_size": 40, "keep_first": 30},
            "agent_context": {"system_message_suffix": "Be brief.", "disabled_skills": ["b", "c"]},
            "tools": [{"name": "terminal", "params": {"a": 1}}, "glob", 5], "enable_sub_agents": true},
        "agent_secrets": {"/llm/api_key": "sk", "/llm/aws_secret_access_key": "aws",
                          "/verification/critic_api_key": "c"},
        "agent_mcp": "{\"a\": {\"url\": \"https://h\"}, \"b\": 5}",
        "conversation_settings": {"max_iterations": 42, "confirmation_mode": true, "security_analyzer": "none"},
        "mcp_config": {"stdio_servers": [{"name": "n", "command": "c"}]},
        "disabled_skills": ["a", "b"],
        "search_api_key": "tvly", "max_budget_per_task": 1.5, "git_user_name": "N", "git_user_email": " ",
        "provider_tokens": {"github": {"token": "gh", "host": null},
                            "azure_devops": {"token": "az", "host": "dev.azure.com/o"}},
    }));
    let p = profile(&s, None).unwrap();
    assert_eq!(p.llm.model, "openai/m");
    assert_eq!(p.llm.base_url.as_deref(), Some("http://l/v1"));
    assert_eq!(p.llm.api_key.as_ref().unwrap().expose_secret(), "sk");
    assert_eq!(
        Value::Object(p.llm.options),
        json!({"num_retries": 2, "temperature": 0.5})
    );
    assert_eq!(
        p.llm.secret_options.keys().collect::<Vec<_>>(),
        ["aws_secret_access_key"]
    );
    assert_eq!(
        p.condenser,
        Some(CondenserConfig {
            max_size: 40,
            keep_first: 19
        })
    );
    assert_eq!((p.max_iterations, p.confirmation_mode), (Some(42), true));
    assert_eq!(p.security_analyzer, None);
    assert_eq!(p.max_budget_per_task, Some(1.5));
    assert_eq!(p.mcp.len(), 2);
    assert_eq!(p.notes.len(), 1, "{:?}", p.notes);
    assert!(p.search_api_key.is_some());
    let names: Vec<&String> = p.secrets.keys().collect();
    assert_eq!(names, ["AZURE_DEVOPS_TOKEN", "GITHUB_TOKEN"]);
    assert_eq!(p.git_hosts.len(), 1);
    assert_eq!(
        (p.git_user_name.as_deref(), p.git_user_email),
        (Some("N"), None)
    );
    assert_eq!(p.system_message_suffix.as_deref(), Some("Be brief."));
    assert_eq!(p.disabled_skills, ["a", "b", "c"]);
    let names: Vec<String> = p.tools.unwrap().into_iter().map(|t| t.name).collect();
    assert_eq!(names, ["terminal", "glob"]);
    assert!(p.sub_agents && p.acp.is_none());
}

#[test]
fn a_program_that_is_the_agent_needs_no_model_and_gets_no_key() {
    let with = |acp: Value| {
        let mut agent = acp.as_object().unwrap().clone();
        agent.insert("agent_kind".into(), "acp".into());
        agent.insert(
            "llm".into(),
            json!({"model": "openai/m", "base_url": "http://l"}),
        );
        settings(&json!({"agent_settings": agent, "agent_secrets": {"/llm/api_key": "sk"}}))
    };
    let known = profile(&with(json!({})), None).unwrap();
    let agent = known.acp.unwrap();
    assert_eq!(agent.server, "claude-code");
    assert_eq!(
        (agent.command.len(), agent.prompt_timeout),
        (0, Some(1800.0))
    );
    assert!(agent.options.is_empty());
    assert!(known.llm.api_key.is_none() && known.llm.base_url.is_none());
    assert_eq!(known.notes.len(), 0, "{:?}", known.notes);

    let own = with(
        json!({"acp_server": "custom", "acp_command": ["my-agent"], "acp_args": ["-x"],
        "acp_model": "m1", "acp_session_mode": "plan", "acp_prompt_timeout": 5,
        "acp_file_secrets": [{"secret_name": "S"}]}),
    );
    let custom = profile(&own, Some("openai/other")).unwrap();
    let agent = custom.acp.unwrap();
    assert_eq!(
        (agent.command, agent.args),
        (vec!["my-agent".to_owned()], vec!["-x".to_owned()])
    );
    assert_eq!(agent.model.as_deref(), Some("m1"));
    assert_eq!(agent.session_mode.as_deref(), Some("plan"));
    assert_eq!(agent.prompt_timeout, Some(5.0));
    assert_eq!(
        agent.options["acp_file_secrets"],
        json!([{"secret_name": "S"}])
    );
    assert_eq!(
        custom.notes.len(),
        1,
        "the request's model is not passed over in silence"
    );
    assert!(profile(&own, Some("m1")).unwrap().notes.is_empty());

    let MissingSettings(text) = profile(&with(json!({"acp_server": "custom"})), None).unwrap_err();
    assert!(text.contains("acp_command"), "{text}");
}

#[test]
fn the_condenser_can_be_switched_off() {
    for off in [
        json!({"enabled": false}),
        json!({"condenser_kind": "no_op"}),
    ] {
        let s = settings(
            &json!({"agent_settings": {"condenser": off}, "agent_secrets": {"/llm/api_key": "k"}}),
        );
        assert_eq!(profile(&s, None).unwrap().condenser, None);
    }
}
