//! Starting a conversation: the body, both supported releases, and a repeated start.

use std::collections::BTreeMap;

use domain::agent::{
    AcpAgent, AgentRuntime, AgentTool, CondenserConfig, LaunchRequest, LaunchSecret, LlmConfig,
    McpServer, Plugin,
};
use domain::conversation::ExecutionStatus;
use domain::error::Classify;
use domain::start_task::AgentType;
use serde_json::{Map, Value, json};

use crate::stub::{SeenRequest, Stub, StubAction, TestHandler};
use crate::support::{
    ID, OTHER_ID, conversation_id, endpoint_of, hello_message, runtime, secret,
    server_info_response,
};

fn request() -> LaunchRequest {
    let options = json!({"temperature": 0.5, "model": "not this one"});
    LaunchRequest {
        conversation_id: conversation_id(ID),
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
        initial_message: Some(hello_message()),
        secrets: BTreeMap::from([(
            "TOKEN".to_owned(),
            LaunchSecret::Value(secret("token-value")),
        )]),
        auto_title: true,
        title_profile: Some("fast".to_owned()),
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

fn info(status: u16, last_user_message: &Value) -> StubAction {
    StubAction::Json(
        status,
        json!({"id": ID, "execution_status": "idle", "title": null,
        "agent": {"kind": "Agent", "llm": {"model": "openai/m"}}, "last_user_message_id": last_user_message}),
    )
}

async fn sent_body(version: &str, request: &LaunchRequest) -> Value {
    launch_body_and_notes(version, request, |_| {
        StubAction::Json(200, json!({"ok": true}))
    })
    .await
    .0
}

/// The body that was sent, and the notes.
async fn launch_body_and_notes(
    version: &str,
    request: &LaunchRequest,
    test_handler: TestHandler,
) -> (Value, Vec<String>) {
    let actions = [server_info_response(version), info(201, &Value::Null)];
    let stub = Stub::with_test_handler(actions, test_handler).await;
    let started = runtime().start(&endpoint_of(&stub), request).await.unwrap();
    assert_eq!(
        (started.id, started.execution_status),
        (conversation_id(ID), Some(ExecutionStatus::Idle))
    );
    let last = stub.requests().pop().unwrap();
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
        "title_llm_profile": "fast",
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
async fn absent_settings_are_omitted_and_invalid_ones_corrected() {
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

/// Only `docs` passes its test. The test of `fetch` fails, and that of the search service is an error.
fn only_docs(seen: &SeenRequest) -> StubAction {
    match seen.body["server"]["url"].as_str() {
        Some("https://mcp.example/x") => StubAction::Json(200, json!({"ok": true})),
        None => StubAction::Json(200, json!({"ok": false, "error": "refused"})),
        Some(_) => StubAction::Json(500, json!({"detail": "x"})),
    }
}

#[tokio::test]
async fn an_unreachable_mcp_server_is_omitted_with_a_note() {
    for version in ["1.34.0", "1.58.0"] {
        let (body, notes) = launch_body_and_notes(version, &request(), only_docs).await;
        let servers = body["agent"]["mcp_config"].as_object().unwrap();
        assert_eq!(servers.keys().collect::<Vec<_>>(), ["docs"], "{version}");
        assert_eq!(notes.len(), 2, "{version}: {notes:?}");
        assert!(notes[0].starts_with("MCP server fetch does not answer"));
        assert!(notes[1].starts_with("MCP server tavily does not answer"));
    }
}

#[tokio::test]
async fn hanging_mcp_servers_are_tested_concurrently() {
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
        let (_, notes) = launch_body_and_notes(version, &many, |_| StubAction::Hang).await;
        assert_eq!(notes.len(), 51, "{version}");
    }
}

#[tokio::test]
async fn a_plugin_that_does_not_load_is_omitted_with_a_note() {
    let plugin = |source: &str| Plugin {
        source: source.to_owned(),
        reference: Some("v1".to_owned()),
        repo_path: Some("plugins/one".to_owned()),
        parameters: json!({"a": 1}).as_object().cloned(),
    };
    let mut request = request();
    request.mcp = vec![];
    request.search_api_key = None;
    request.plugins = vec![plugin("github:o/good"), plugin("https://u:secret@h/bad")];
    let test_handler: TestHandler = |seen| match seen.body["source"].as_str() {
        Some("https://u:secret@h/bad") => StubAction::Json(400, json!({"detail": "fetch"})),
        _ => StubAction::Json(200, json!({"name": "good"})),
    };
    for version in ["1.34.0", "1.58.0"] {
        let (body, notes) = launch_body_and_notes(version, &request, test_handler).await;
        let expected =
            json!([{"source": "github:o/good", "ref": "v1", "repo_path": "plugins/one"}]);
        assert_eq!(body["plugins"], expected);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("Plugin one could not be fetched"));
        assert!(!notes[0].contains("secret"));
    }

    let actions = [server_info_response("1.58.0"), info(201, &Value::Null)];
    let stub = Stub::with_test_handler(actions, test_handler).await;
    runtime()
        .start(&endpoint_of(&stub), &request)
        .await
        .unwrap();
    let lines: Vec<String> = stub
        .test_requests()
        .into_iter()
        .map(|seen| seen.line)
        .collect();
    let gone = "DELETE /api/plugins/installed/good".to_owned();
    assert!(
        lines.contains(&gone),
        "the test removes the plugin: {lines:?}"
    );
}

#[tokio::test]
async fn concurrent_tests_of_plugins_are_limited() {
    let mut request = request();
    request.mcp = vec![];
    request.search_api_key = None;
    request.plugins = (0..20)
        .map(|n| Plugin {
            source: format!("github:o/p{n}"),
            reference: None,
            repo_path: None,
            parameters: None,
        })
        .collect();
    let actions = [server_info_response("1.58.0"), info(201, &Value::Null)];
    let stub = Stub::with_test_handler(actions, |_| StubAction::Hang).await;
    let (runtime, at) = (runtime(), endpoint_of(&stub));
    let count_of_tests = async {
        while stub.test_requests().len() < 4 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        stub.test_requests().len()
    };
    tokio::select! {
        started = runtime.start(&at, &request) => panic!("no plugin was tested: {started:?}"),
        count = count_of_tests => assert_eq!(count, 4),
    }
}

#[tokio::test]
async fn hooks_tools_and_disabled_skills_are_part_of_the_body() {
    let mut request = request();
    let hooks = json!({"stop": [{"matcher": "*", "hooks": [{"command": "true"}]}]});
    request.hooks = Some(hooks.clone());
    request.disabled_skills = vec!["noisy".to_owned()];
    request.sub_agents = true;
    let tool = |name: &str| AgentTool {
        name: name.to_owned(),
        params: json!({"a": 1}).as_object().cloned().unwrap(),
    };
    request.tools = Some(vec![tool("terminal"), tool("teleport")]);
    let works: TestHandler = |_| StubAction::Json(200, json!({"ok": true}));
    let (body, notes) = launch_body_and_notes("1.34.0", &request, works).await;
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

#[tokio::test]
async fn model_names_are_not_changed() {
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
        let mut request = request();
        request.mcp = vec![];
        request.llm.model = model.to_owned();
        let body = sent_body("1.58.0", &request).await;
        assert_eq!(body["agent"]["llm"]["model"], model);
        assert_eq!(body["agent"]["condenser"]["llm"]["model"], model);
    }
}

/// It also gets no search service, and keeps its data with the conversation.
#[tokio::test]
async fn an_acp_agent_gets_settings_without_model_keys() {
    let mut request = request();
    request.acp = Some(AcpAgent {
        server: "custom".to_owned(),
        command: vec!["my-agent".to_owned()],
        args: vec!["--acp".to_owned()],
        model: Some("sonnet".to_owned()),
        session_mode: None,
        prompt_timeout: Some(60.0),
        options: Map::new(),
    });
    let body = sent_body("1.34.0", &request).await;
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
async fn an_old_agent_server_streams_only_if_the_user_sets_it() {
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
async fn an_interrupted_start_sends_its_first_message_once() {
    let without_message = [
        server_info_response("1.58.0"),
        info(200, &Value::Null),
        StubAction::Json(200, json!({"success": true})),
    ];
    let stub = Stub::start(without_message).await;
    runtime()
        .start(&endpoint_of(&stub), &request())
        .await
        .unwrap();
    let last = stub.requests().pop().unwrap();
    assert_eq!(last.line, format!("POST /api/conversations/{ID}/events"));
    assert_eq!(last.body["content"][0]["text"], "hi");

    let unknown = StubAction::Json(200, json!({"id": ID}));
    for created in [
        info(200, &json!(OTHER_ID)),
        info(201, &Value::Null),
        unknown,
    ] {
        let stub = Stub::start([server_info_response("1.58.0"), created]).await;
        runtime()
            .start(&endpoint_of(&stub), &request())
            .await
            .unwrap();
        assert_eq!(
            stub.request_lines(),
            ["GET /server_info", "POST /api/conversations"]
        );
    }
}

#[tokio::test]
async fn a_refused_start_has_a_reason_without_secrets() {
    let secrets = "session-key-1 llm-key aws-key mcp-key env-value tvly-key token-value";
    let detail = json!({"detail": [{"loc": ["body", "agent"], "msg": format!("no {secrets}"), "input": "echo"}]});
    let stub = Stub::start([
        server_info_response("1.58.0"),
        StubAction::Json(422, detail),
    ])
    .await;
    let error = runtime()
        .start(&endpoint_of(&stub), &request())
        .await
        .unwrap_err();
    let shown = format!("{error} {error:?} {}", error.public());
    assert!(shown.contains("body.agent: no **********"), "{shown}");
    for word in secrets.split(' ').chain(["echo", "127.0.0.1"]) {
        assert!(!shown.contains(word), "{word} in {shown}");
    }
    assert_eq!(error.public(), "Agent server error: 422");
}
