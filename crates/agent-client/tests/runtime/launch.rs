//! Starting: the body, the dialects, and a start that is repeated.

use std::collections::BTreeMap;

use domain::agent::{
    AgentRuntime, CondenserConfig, LaunchRequest, LaunchSecret, LlmConfig, McpServer,
};
use domain::conversation::ExecutionStatus;
use domain::error::Classify;
use domain::start_task::AgentType;
use serde_json::{Value, json};

use crate::stub::{Act, Stub};
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

async fn sent_body(version: &str, acts: Vec<Act>, request: &LaunchRequest) -> Value {
    let mut all = vec![server(version)];
    all.extend(acts);
    all.push(info(201, &Value::Null));
    let stub = Stub::start(all).await;
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
    last.body
}

#[tokio::test]
async fn the_launch_body_carries_every_setting() {
    let body = sent_body("1.58.0", vec![], &request()).await;
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
    bare.condenser = Some(CondenserConfig {
        max_size: 20,
        keep_first: 19,
    });
    let body = sent_body("1.58.0", vec![], &bare).await;
    assert_eq!(body["confirmation_policy"]["kind"], "NeverConfirm");
    assert_eq!(body["security_analyzer"], Value::Null);
    assert_eq!(body["agent"]["mcp_config"], json!({}));
    assert_eq!(body["agent"]["condenser"]["keep_first"], 8);
    assert_eq!(body["agent"]["tools"][2]["name"], "planning_file_editor");
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

#[tokio::test]
async fn an_old_server_is_asked_which_mcp_servers_answer_and_streams_only_if_told_to() {
    let probes = vec![
        Act::Json(200, json!({"ok": true})),
        Act::Json(200, json!({"ok": false, "error": "refused"})),
        Act::Json(500, json!({"detail": "x"})),
    ];
    let body = sent_body("1.34.0", probes, &request()).await;
    let kept = body["agent"]["mcp_config"].as_object().unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(body["agent"]["llm"]["stream"], false);

    let mut streaming = request();
    streaming.mcp = vec![];
    streaming.search_api_key = None;
    streaming
        .llm
        .options
        .insert("stream".to_owned(), json!(true));
    let body = sent_body("1.34.0", vec![], &streaming).await;
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
