use domain::agent::McpServer;
use secrecy::SecretString;
use serde_json::json;
use uuid::Uuid;

use super::super::document::decode;
use super::super::fields::AGENT;
use super::*;

const ID: &str = "00000000-0000-0000-0000-000000000007";

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}

/// Settings with two models, two MCP servers, and this profile.
fn settings(values: Value, active: bool) -> Settings {
    let values = checked(&map(values)).unwrap();
    let document = json!({
        "agent_settings": {"llm": {"model": "openai/own"}},
        "agent_secrets": {"/llm/api_key": "k1"},
        "llm_profiles": {"active": null, "list": [{
            "name": "fast", "llm": {"model": "openai/fast"}, "secrets": {"/llm/api_key": "k2"},
            "key_vendor": "openai",
        }]},
        "mcp_config": {"stdio_servers": [{"name": "one", "command": "c"}, {"name": "two", "command": "c"}]},
        "agent_profiles": {"active": active.then_some(ID), "list": [
            {"id": ID, "name": "reviewer", "revision": 3, "values": values},
        ]},
    });
    decode(&SecretString::from(document.to_string())).unwrap()
}

fn launch(settings: Settings, named: Option<&str>) -> (LaunchProfile, Vec<String>) {
    let (settings, chosen) = settings.apply_agent_profile(named).unwrap();
    let mut launch = settings.launch_profile(None).unwrap();
    if let Some(profile) = &chosen.profile {
        profile.restrict(&mut launch);
    }
    (launch, chosen.notes)
}

#[test]
fn every_field_of_the_agent_is_one_of_its_settings() {
    for key in AGENT_FIELDS {
        assert!(AGENT.field(key).is_some() || AGENT.is_section(key), "{key}");
    }
    for key in CONTEXT_FIELDS {
        let key = format!("agent_context.{key}");
        assert!(AGENT.field(&key).is_some(), "{key}");
    }
}

#[test]
fn a_start_uses_the_named_profile_or_the_active_one() {
    let values = json!({
        "llm_profile_ref": "fast", "mcp_server_refs": ["two"], "secret_refs": [],
        "tools": [{"name": "terminal"}], "system_message_suffix": "Be brief.",
        "disabled_skills": ["x"], "condenser": {"enabled": false}, "persona": "A pirate.",
    });
    for (active, named) in [(true, None), (false, Some(ID))] {
        let (launch, notes) = launch(settings(values.clone(), active), named);
        assert_eq!(notes, [""; 0]);
        assert_eq!(launch.llm.model, "openai/fast");
        let servers: Vec<_> = launch.mcp.iter().map(McpServer::name).collect();
        assert_eq!(servers, ["two"]);
        assert_eq!(launch.secret_names, Some(Vec::new()));
        assert_eq!(launch.tools.map(|tools| tools.len()), Some(1));
        assert_eq!(launch.system_message_suffix.as_deref(), Some("Be brief."));
        assert_eq!(launch.disabled_skills, ["x"]);
        assert!(launch.condenser.is_none());
        assert!(
            launch.notes[0].starts_with("persona "),
            "{:?}",
            launch.notes
        );
    }
    let (launch, _) = launch(settings(values, false), None);
    assert_eq!(
        (launch.llm.model.as_str(), launch.mcp.len()),
        ("openai/own", 2)
    );
    assert_eq!(launch.secret_names, None);
}

#[test]
fn an_unknown_profile_is_noted_and_an_unknown_model_refused() {
    let values = json!({"llm_profile_ref": "gone"});
    for unknown in ["x", "00000000-0000-0000-0000-000000000008"] {
        let (launch, notes) = launch(settings(values.clone(), false), Some(unknown));
        assert_eq!(launch.llm.model, "openai/own");
        assert_eq!(notes.len(), 1, "{notes:?}");
    }
    let refused = settings(values, true).apply_agent_profile(None).map(|_| ());
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("'reviewer'") && text.contains("'gone'"),
        "{text}"
    );
}

#[test]
fn wrong_profiles_are_refused_with_their_fields() {
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    for (values, at) in [
        (json!({}), MODEL_PROFILE),
        (json!({"llm_profile_ref": ""}), MODEL_PROFILE),
        (json!({"agent_kind": "robot"}), KIND),
        (json!({"agent_kind": 5}), KIND),
        (json!({"agent_kind": "acp", "color": "red"}), "color"),
        (json!({"agent_kind": "acp", "secret_refs": "all"}), SECRETS),
        (
            json!({"agent_kind": "acp", "mcp_server_refs": [1]}),
            MCP_SERVERS,
        ),
        (json!({"agent_kind": "acp", "tools": deep}), "tools"),
        (
            json!({"agent_kind": "acp", "acp_model": "\u{0}"}),
            "acp_model",
        ),
    ] {
        let issues = checked(&map(values.clone())).unwrap_err();
        assert_eq!(issues[0].at, [at], "{values}");
    }
    let own = json!({"agent_kind": "acp", "id": "x", "name": "y", "revision": 9});
    assert_eq!(
        checked(&map(own)).unwrap(),
        map(json!({"agent_kind": "acp"}))
    );
}

#[test]
fn stored_profiles_are_read_as_they_were() {
    let before = settings(json!({"agent_kind": "acp", "acp_server": "codex"}), true);
    let stored = before.agent_profiles.to_json();
    let after = AgentProfiles::read(&stored).unwrap();
    assert_eq!(after.to_json(), stored);
    let active = after.active().unwrap();
    assert_eq!(active.kind(), AgentKind::Acp);
    assert_eq!(active.view()["id"], ID);
    assert_eq!(active.id, AgentProfileId::new(Uuid::from_u128(7)));
}
