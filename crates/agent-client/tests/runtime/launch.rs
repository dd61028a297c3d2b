//! Starting: the body, the dialects, and a start that is repeated.

use std::collections::BTreeMap;

use domain::agent::{
    AcpAgent, AgentRuntime, AgentTool, CondenserConfig, LaunchRequest, LaunchSecret, LlmConfig,
    McpServer, Plugin,
};
use domain::conversation::ExecutionStatus;
use domain::error::Classify;
use domain::start_task::AgentType;
use serde_json::{Map, Value, json};

use crate::stub::{Act, Seen, Stub, Trial};
use crate::support::{ID, OTHER, at, hello, id, runtime, secret, server};

fn request() -> LaunchRequest {
    let options = json!({"temperature": 0.5, "model": "not this one"});
    LaunchRequest {
        conversation_id: id(ID),
        working_dir: "/w/project".to_owned(),
        llm: LlmConfig {
            model: "openai/m".to_owned(),
            base_url: Some("http://llm/v1".to_owned()),
            api_key: Some(secret("llm-key")),
            options: options.as_object().unwrap().clone(),
            secret_options: BTreeMap::from([(
                "aws_secret_access_key".to_owned(),
                secret("aws-key"),
            )]),
        },
        condenser: Some(CondenserConfig {
            max_size: 240,
            keep_first: 2,
        }),
        max_iterations: Some(50),
        confirmation_mode: true,
        security_analyzer: Some("llm".to_owned()),
        mcp: vec![
            McpServer::Remote {
                name: "docs".to_owned(),
                url: "https://mcp.example/x".to_owned(),
                api_key: Some(secret("mcp-key")),
                sse: true,
                timeout: Some(30),
            },
            McpServer::Stdio {
                name: "fetch".to_owned(),
                command: "uvx".to_owned(),
                args: vec!["mcp-server-fetch".to_owned()],
                env: BTreeMap::from([("A".to_owned(), secret("env-value"))]),
            },
        ],
        search_api_key: Some(secret("tvly-key")),
        system_message_suffix: Some("Be kind.".to_owned()),
        initial_message: Some(hello()),
        secrets: BTreeMap::from([(
            "TOKEN".to_owned(),
            LaunchSecret::Value(secret("token-value")),
        )]),
        auto_title: true,
        agent_type: AgentType::Default,
        tools: None,
        sub_agents: false,
        plan_path: None,
        acp: None,
        plugins: Vec::new(),
        hooks: None,
        disabled_skills: Vec::new(),
        tags: BTreeMap::from([
            ("origin".to_owned(), "test".to_owned()),
            ("Not Allowed".to_owned(), "x".to_owned()),
        ]),
        max_budget: Some(1.0),
    }
}

fn info(status: u16, last_user_message: &Value) -> Act {
    Act::Json(
        status,
        json!({"id": ID, "execution_status": "idle", "title": null,
        "agent": {"kind": "Agent", "llm": {"model": "openai/m"}}, "last_user_message_id": last_user_message}),
    )
}

async fn sent_body(version: &str, request: &LaunchRequest) -> Value {
    launched(version, request, |_| Act::Json(200, json!({"ok": true})))
        .await
        .0
}

/// The body that was sent, and the notes.
async fn launched(version: &str, request: &LaunchRequest, trial: Trial) -> (Value, Vec<String>) {
    let acts = [server(version), info(201, &Value::Null)];
    let stub = Stub::with_trials(acts, trial).await;
    let started = runtime().start(&at(&stub), request).await.unwrap();
    assert_eq!(
        (started.id, started.execution_status),
        (id(ID), Some(ExecutionStatus::Idle))
    );
    let last = stub.seen().pop().unwrap();
    assert_eq!(
        (last.line.as_str(), last.key.as_deref()),
        ("POST /api/conversations", Some("session-key-1"))
    );
    (last.body, started.notes)
}

#[tokio::test]
async fn the_launch_body_carries_every_setting() {
    let body = sent_body("1.58.0", &request()).await;
    let llm = |usage: &str, stream: bool| {
        json!({"temperature": 0.5, "model": "openai/m", "stream": stream, "aws_secret_access_key": "aws-key",
               "usage_id": usage, "base_url": "http://llm/v1", "api_key": "llm-key"})
    };
    let expected = json!({
        "conversation_id": ID,
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/w/project"},
        "confirmation_policy": {"kind": "ConfirmRisky"},
        "security_analyzer": {"kind": "LLMSecurityAnalyzer"},
        "autotitle": true,
        "tags": {"origin": "test"},
        "secrets": {"TOKEN": {"kind": "StaticSecret", "value": "token-value"}},
        "max_iterations": 50,
        "initial_message": {"role": "user", "content": [{"type": "text", "text": "hi"}], "run": true},
        "agent": {
            "kind": "Agent",
            "llm": llm("agent", true),
            "tools": [{"name": "terminal"}, {"name": "file_editor"}, {"name": "task_tracker"}, {"name": "browser_tool_set"}],
            "mcp_config": {
                "docs": {"url": "https://mcp.example/x", "transport": "sse", "timeout": 30,
                         "auth": {"strategy": "bearer", "value": "mcp-key"}},
                "fetch": {"transport": "stdio", "command": "uvx", "args": ["mcp-server-fetch"], "env": {"A": "env-value"}},
                "tavily": {"url": "https://mcp.tavily.com/mcp/", "transport": "http",
                           "auth": {"strategy": "bearer", "value": "tvly-key"}},
            },
            "agent_context": {"system_message_suffix": "Be kind.", "load_user_skills": false,
                              "load_public_skills": false, "load_project_skills": true},
            "condenser": {"kind": "LLMSummarizingCondenser", "llm": llm("condenser", false),
                          "max_size": 240, "keep_first": 2},
            "system_prompt_kwargs": {"cli_mode": false},
        },
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn what_is_not_set_is_left_to_the_agent_server_and_refusable_values_are_mended() {
    let mut bare = request();
    bare.confirmation_mode = false;
    bare.security_analyzer = Some("invariant".to_owned());
    bare.max_iterations = None;
    bare.initial_message = None;
    bare.mcp = vec![];
    bare.search_api_key = None;
    bare.llm.base_url = None;
    bare.llm.api_key = None;
    bare.agent_type = AgentType::Plan;
    bare.plan_path = Some("/w/project/.agents_tmp/PLAN.md".to_owned());
    bare.condenser = Some(CondenserConfig {
        max_size: 20,
        keep_first: 19,
    });
    let body = sent_body("1.58.0", &bare).await;
    assert_eq!(body["confirmation_policy"]["kind"], "NeverConfirm");
    assert_eq!(body["security_analyzer"], Value::Null);
    assert_eq!(body["agent"]["mcp_config"], json!({}));
    assert_eq!(body["agent"]["condenser"]["keep_first"], 8);
    let editor = json!({"name": "planning_file_editor",
        "params": {"plan_path": "/w/project/.agents_tmp/PLAN.md"}});
    assert_eq!(
        body["agent"]["tools"],
        json!([{"name": "glob"}, {"name": "grep"}, editor])
    );
    assert_eq!(
        body["agent"]["system_prompt_filename"],
        "system_prompt_planning.j2"
    );
    for absent in ["max_iterations", "initial_message"] {
        assert!(body.get(absent).is_none(), "{absent}");
    }
    for absent in ["base_url", "api_key"] {
        assert!(body["agent"]["llm"].get(absent).is_none(), "{absent}");
    }
}

/// Only `docs` answers; `fetch` says that it cannot, the search service breaks the trial.
fn only_docs(seen: &Seen) -> Act {
    match seen.body["server"]["url"].as_str() {
        Some("https://mcp.example/x") => Act::Json(200, json!({"ok": true})),
        None => Act::Json(200, json!({"ok": false, "error": "refused"})),
        Some(_) => Act::Json(500, json!({"detail": "x"})),
    }
}

#[tokio::test]
async fn a_silent_mcp_server_is_left_out_and_noted() {
    for version in ["1.34.0", "1.58.0"] {
        let (body, notes) = launched(version, &request(), only_docs).await;
        let servers = body["agent"]["mcp_config"].as_object().unwrap();
        assert_eq!(servers.keys().collect::<Vec<_>>(), ["docs"], "{version}");
        assert_eq!(notes.len(), 2, "{version}: {notes:?}");
        assert!(notes[0].starts_with("MCP server fetch does not answer"));
        assert!(notes[1].starts_with("MCP server tavily does not answer"));
    }
}

/// A start waits for all hung ones as long as for one of them.
#[tokio::test]
async fn however_many_mcp_servers_hang_a_start_waits_once() {
    let mut many = request();
    many.mcp = (0..50)
        .map(|n| McpServer::Stdio {
            name: format!("s{n}"),
            command: "c".to_owned(),
            args: vec![],
            env: BTreeMap::new(),
        })
        .collect();
    for version in ["1.34.0", "1.58.0"] {
        let (_, notes) = launched(version, &many, |_| Act::Hang).await;
        assert_eq!(notes.len(), 51, "{version}");
    }
}

#[tokio::test]
async fn a_plugin_that_does_not_load_is_left_out_and_the_rest_is_passed_on() {
    let plugin = |source: &str| Plugin {
        source: source.to_owned(),
        reference: Some("v1".to_owned()),
        repo_path: Some("plugins/one".to_owned()),
        parameters: json!({"a": 1}).as_object().cloned(),
    };
    let mut with = request();
    with.mcp = vec![];
    with.search_api_key = None;
    with.plugins = vec![plugin("github:o/good"), plugin("https://u:secret@h/bad")];
    let trial: Trial = |seen| match seen.body["source"].as_str() {
        Some("https://u:secret@h/bad") => Act::Json(400, json!({"detail": "fetch"})),
        _ => Act::Json(200, json!({"name": "good"})),
    };
    for version in ["1.34.0", "1.58.0"] {
        let (body, notes) = launched(version, &with, trial).await;
        let expected =
            json!([{"source": "github:o/good", "ref": "v1", "repo_path": "plugins/one"}]);
        assert_eq!(body["plugins"], expected);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("Plugin one could not be fetched"));
        assert!(!notes[0].contains("secret"));
    }

    let acts = [server("1.58.0"), info(201, &Value::Null)];
    let stub = Stub::with_trials(acts, trial).await;
    runtime().start(&at(&stub), &with).await.unwrap();
    let lines: Vec<String> = stub.tried().into_iter().map(|seen| seen.line).collect();
    let gone = "DELETE /api/plugins/installed/good".to_owned();
    assert!(
        lines.contains(&gone),
        "what was tried is taken away again: {lines:?}"
    );
}

#[tokio::test]
async fn a_few_plugins_are_tried_at_a_time() {
    let mut with = request();
    with.mcp = vec![];
    with.search_api_key = None;
    with.plugins = (0..20)
        .map(|n| Plugin {
            source: format!("github:o/p{n}"),
            reference: None,
            repo_path: None,
            parameters: None,
        })
        .collect();
    let acts = [server("1.58.0"), info(201, &Value::Null)];
    let stub = Stub::with_trials(acts, |_| Act::Hang).await;
    let (runtime, at) = (runtime(), at(&stub));
    let tried = async {
        while stub.tried().len() < 4 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        stub.tried().len()
    };
    tokio::select! {
        started = runtime.start(&at, &with) => panic!("nothing was tried: {started:?}"),
        tried = tried => assert_eq!(tried, 4),
    }
}

#[tokio::test]
async fn what_the_project_and_the_settings_say_is_passed_on() {
    let mut with = request();
    let hooks = json!({"stop": [{"matcher": "*", "hooks": [{"command": "true"}]}]});
    with.hooks = Some(hooks.clone());
    with.disabled_skills = vec!["noisy".to_owned()];
    with.sub_agents = true;
    let tool = |name: &str| AgentTool {
        name: name.to_owned(),
        params: json!({"a": 1}).as_object().cloned().unwrap(),
    };
    with.tools = Some(vec![tool("terminal"), tool("teleport")]);
    let works: Trial = |_| Act::Json(200, json!({"ok": true}));
    let (body, notes) = launched("1.34.0", &with, works).await;
    assert_eq!(body["hook_config"], hooks);
    assert_eq!(
        body["agent"]["agent_context"]["disabled_skills"],
        json!(["noisy"])
    );
    assert_eq!(
        body["agent"]["tools"],
        json!([{"name": "terminal", "params": {"a": 1}}])
    );
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("teleport"));
}

/// Names of models are the gateway's business: none is changed on its way.
#[tokio::test]
async fn every_style_of_model_name_passes_through() {
    for model in [
        "gpt-5.5",
        "openai/gpt-5.5",
        "anthropic/claude-sonnet-4-5-20250929",
        "claude-opus-4",
        "gemini/gemini-3-pro",
        "bedrock/anthropic.claude-3-5-sonnet-20241022-v2:0",
        "azure/my deployment",
        "litellm_proxy/openai/gpt-5.5",
        "openrouter/anthropic/claude-3.7-sonnet:thinking",
        "huggingface/meta-llama/Llama-3.3-70B-Instruct",
        "ollama/llama3.2:1b",
        "openhands/claude-sonnet-4-5",
        "Größe/ü",
    ] {
        let mut with = request();
        with.mcp = vec![];
        with.llm.model = model.to_owned();
        let body = sent_body("1.58.0", &with).await;
        assert_eq!(body["agent"]["llm"]["model"], model);
        assert_eq!(body["agent"]["condenser"]["llm"]["model"], model);
    }
}

/// A program that is the agent gets no key of the model and no search service, and keeps its data with the conversation.
#[tokio::test]
async fn an_acp_agent_is_described_by_its_settings() {
    let mut with = request();
    with.acp = Some(AcpAgent {
        server: "custom".to_owned(),
        command: vec!["my-agent".to_owned()],
        args: vec!["--acp".to_owned()],
        model: Some("sonnet".to_owned()),
        session_mode: None,
        prompt_timeout: Some(60.0),
        options: Map::new(),
    });
    let body = sent_body("1.34.0", &with).await;
    let shown = body.to_string();
    assert!(
        !shown.contains("llm-key") && !shown.contains("aws-key") && !shown.contains("tvly-key")
    );
    assert!(body.get("agent").is_none());
    let settings = &body["agent_settings"];
    for (name, expected) in [
        ("agent_kind", json!("acp")),
        ("acp_server", json!("custom")),
        ("acp_command", json!(["my-agent"])),
        ("acp_args", json!(["--acp"])),
        ("acp_model", json!("sonnet")),
        ("acp_session_mode", Value::Null),
        ("acp_prompt_timeout", json!(60.0)),
        ("acp_isolate_data_dir", json!(true)),
    ] {
        assert_eq!(settings[name], expected, "{name}");
    }
    assert_eq!(settings["mcp_config"].as_object().unwrap().len(), 2);
    assert_eq!(
        settings["agent_context"]["system_message_suffix"],
        "Be kind."
    );
    assert_eq!(body["secrets"]["TOKEN"]["value"], "token-value");
}

#[tokio::test]
async fn an_old_server_streams_only_if_told_to() {
    let mut plain = request();
    plain.mcp = vec![];
    let body = sent_body("1.34.0", &plain).await;
    assert_eq!(body["agent"]["llm"]["stream"], false);

    let mut streaming = request();
    streaming.mcp = vec![];
    streaming.search_api_key = None;
    streaming
        .llm
        .options
        .insert("stream".to_owned(), json!(true));
    let body = sent_body("1.34.0", &streaming).await;
    assert_eq!(body["agent"]["llm"]["stream"], true);
}

#[tokio::test]
async fn a_start_that_died_half_way_is_completed_and_nothing_is_said_twice() {
    let said = json!({"success": true});
    let silent = [
        server("1.58.0"),
        info(200, &Value::Null),
        Act::Json(200, said),
    ];
    let stub = Stub::start(silent).await;
    runtime().start(&at(&stub), &request()).await.unwrap();
    let last = stub.seen().pop().unwrap();
    assert_eq!(last.line, format!("POST /api/conversations/{ID}/events"));
    assert_eq!(last.body["content"][0]["text"], "hi");

    let unknown = Act::Json(200, json!({"id": ID}));
    for there in [info(200, &json!(OTHER)), info(201, &Value::Null), unknown] {
        let stub = Stub::start([server("1.58.0"), there]).await;
        runtime().start(&at(&stub), &request()).await.unwrap();
        assert_eq!(
            stub.lines(),
            ["GET /server_info", "POST /api/conversations"]
        );
    }
}

#[tokio::test]
async fn a_refused_start_tells_why_without_any_secret() {
    let secrets = "session-key-1 llm-key aws-key mcp-key env-value tvly-key token-value";
    let detail = json!({"detail": [{"loc": ["body", "agent"], "msg": format!("no {secrets}"), "input": "echo"}]});
    let stub = Stub::start([server("1.58.0"), Act::Json(422, detail)]).await;
    let error = runtime().start(&at(&stub), &request()).await.unwrap_err();
    let shown = format!("{error} {error:?} {}", error.public());
    assert!(shown.contains("body.agent: no **********"), "{shown}");
    for word in secrets.split(' ').chain(["echo", "127.0.0.1"]) {
        assert!(!shown.contains(word), "{word} in {shown}");
    }
    assert_eq!(error.public(), "Agent server error: 422");
}
