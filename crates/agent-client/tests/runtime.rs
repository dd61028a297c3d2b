//! The adapter against a stub of the agent server: what it sends, and what it makes of every kind of answer.

#![expect(
    clippy::unwrap_used,
    reason = "test code: a panic is the failure report"
)]

mod stub;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_client::{Config, HttpAgentRuntime};
use domain::agent::{
    AgentEndpoint, AgentError, AgentRuntime, CondenserConfig, LaunchRequest, LlmConfig, McpServer,
    Sent,
};
use domain::clock::{Clock, Timestamp};
use domain::conversation::{ExecutionStatus, MessageInput};
use domain::error::Classify;
use domain::id::ConversationId;
use domain::start_task::AgentType;
use secrecy::SecretString;
use serde_json::{Value, json};
use stub::{Act, Stub};

const ID: &str = "0b66db04-ec2c-4851-ab07-d9afb41e22ab";
const OTHER: &str = "e8221385-1890-43f9-927e-661137d675ce";

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(12)
    }
}

fn runtime() -> HttpAgentRuntime {
    let config = Config {
        alive: Duration::from_millis(100),
        read: Duration::from_secs(5),
        max_body: 1000,
        ..Config::default()
    };
    HttpAgentRuntime::new(config, Arc::new(Noon)).unwrap()
}

fn at(stub: &Stub) -> AgentEndpoint {
    AgentEndpoint {
        url: stub.url.clone(),
        key: SecretString::from("session-key-1"),
    }
}

fn id(text: &str) -> ConversationId {
    text.parse().unwrap()
}

fn hello() -> MessageInput {
    let content = vec![json!({"type": "text", "text": "hi"})];
    MessageInput {
        role: "user".to_owned(),
        content,
        run: true,
    }
}

fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

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
        secrets: BTreeMap::from([("TOKEN".to_owned(), secret("token-value"))]),
        auto_title: true,
        agent_type: AgentType::Default,
        tags: BTreeMap::from([
            ("origin".to_owned(), "test".to_owned()),
            ("Not Allowed".to_owned(), "x".to_owned()),
        ]),
        max_budget: Some(1.0),
    }
}

fn server(version: &str) -> Act {
    Act::Json(
        200,
        json!({"version": version, "usable_tools": ["terminal", "browser_tool_set"]}),
    )
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

#[tokio::test]
async fn refusals_mean_what_the_port_says() {
    let wrong = json!({"detail": "Bad Request"});
    let stub = Stub::start([
        Act::Json(200, json!({"success": true})),
        Act::Json(429, wrong.clone()),
        Act::Json(404, wrong.clone()),
        Act::Json(401, wrong.clone()),
        Act::Json(400, wrong.clone()),
        Act::Json(404, wrong.clone()),
        Act::Json(409, wrong.clone()),
        Act::Json(400, wrong.clone()),
        Act::Json(404, wrong.clone()),
        Act::Json(500, wrong),
    ])
    .await;
    let (runtime, at, id) = (runtime(), at(&stub), id(ID));
    assert_eq!(
        runtime.send(&at, id, &hello()).await.unwrap(),
        Sent::Delivered
    );
    assert_eq!(
        runtime.send(&at, id, &hello()).await.unwrap(),
        Sent::RunRefused
    );
    assert!(matches!(
        runtime.send(&at, id, &hello()).await,
        Err(AgentError::NotFound)
    ));
    let stranger = runtime.send(&at, id, &hello()).await;
    assert!(matches!(
        stranger,
        Err(AgentError::Rejected { status: 401, .. })
    ));
    assert!(matches!(
        runtime.interrupt(&at, id).await,
        Err(AgentError::NotFound)
    ));
    assert!(matches!(
        runtime.interrupt(&at, id).await,
        Err(AgentError::NotFound)
    ));
    let busy = runtime.interrupt(&at, id).await;
    assert!(matches!(
        busy,
        Err(AgentError::Rejected { status: 409, .. })
    ));
    runtime.forget(&at, id).await.unwrap();
    runtime.forget(&at, id).await.unwrap();
    let failed = runtime.forget(&at, id).await;
    assert!(matches!(
        failed,
        Err(AgentError::Rejected { status: 500, .. })
    ));
}

#[tokio::test]
async fn conversations_come_in_the_order_asked_for() {
    let one = json!({"id": OTHER, "execution_status": "hibernating", "title": "T"});
    let stub = Stub::start([Act::Json(200, json!([one, null, {"id": "?"}]))]).await;
    let asked = [id(ID), id(OTHER)];
    let seen = runtime().snapshot_many(&at(&stub), &asked).await.unwrap();
    assert!(seen[0].is_none());
    let known = seen[1].as_ref().unwrap();
    assert_eq!(
        (known.execution_status, known.title.as_deref()),
        (None, Some("T"))
    );
    assert_eq!(
        stub.lines(),
        [format!("GET /api/conversations?ids={ID}&ids={OTHER}")]
    );
    assert!(
        runtime()
            .snapshot_many(&at(&stub), &[])
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn many_conversations_are_asked_for_in_several_calls() {
    let stub = Stub::start([Act::Json(200, json!([])), Act::Json(200, json!([]))]).await;
    let asked = vec![id(ID); 21];
    assert_eq!(
        runtime().snapshot_many(&at(&stub), &asked).await.unwrap(),
        vec![None; 21]
    );
    assert_eq!(stub.lines().len(), 2);
}

#[tokio::test]
async fn events_are_read_from_a_time_or_a_cursor() {
    let event =
        json!({"id": "e1", "kind": "New", "timestamp": "2026-11-21T08:59:14.384696", "x": 1});
    let page = json!({"items": [event, {"kind": "no id"}, {"id": "e2"}], "next_page_id": "e3"});
    let last = json!({"items": [], "next_page_id": null});
    let stub = Stub::start([
        Act::Json(200, page),
        Act::Json(200, last),
        Act::Json(200, json!(7)),
    ])
    .await;
    let (runtime, at) = (runtime(), at(&stub));
    let from = Timestamp::from_micros(1_000_000);
    let first = runtime.events(&at, id(ID), Some(from), None).await.unwrap();
    assert_eq!(first.next.as_deref(), Some("e3"));
    assert_eq!(
        first
            .items
            .iter()
            .map(|e| e.id.as_str())
            .collect::<Vec<_>>(),
        ["e1", "e2"]
    );
    assert_eq!(first.items[0].body["x"], 1);
    assert_eq!(first.items[1].timestamp, Noon.now());
    let rest = runtime
        .events(&at, id(ID), Some(from), Some("e3 &x=/"))
        .await
        .unwrap();
    assert!(rest.items.is_empty() && rest.next.is_none());
    assert_eq!(runtime.count_events(&at, id(ID)).await.unwrap(), 7);
    let search =
        format!("GET /api/conversations/{ID}/events/search?limit=100&sort_order=TIMESTAMP");
    assert_eq!(
        stub.lines(),
        [
            format!("{search}&timestamp__gte=1970-01-01T00%3A00%3A01.000000Z"),
            format!("{search}&page_id=e3+%26x%3D%2F"),
            format!("GET /api/conversations/{ID}/events/count"),
        ]
    );
}

#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
    let announced = Act::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 5000\r\n\r\n".to_vec());
    let mut bytes = b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n".to_vec();
    bytes.extend([b' '; 1001]);
    let good = Act::Json(200, json!({"items": [], "next_page_id": null}));
    let stub = Stub::start([announced, Act::Raw(bytes), good]).await;
    runtime()
        .events(&at(&stub), id(ID), None, None)
        .await
        .unwrap();
    let limits: Vec<_> = stub
        .lines()
        .iter()
        .map(|line| line.contains("limit=1&"))
        .collect();
    assert_eq!(limits, [false, false, true]);
}

#[tokio::test]
async fn an_answer_that_is_too_large_or_senseless_is_malformed() {
    let endless = || Act::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 99999999999\r\n\r\n".to_vec());
    let stub = Stub::start([
        endless(),
        Act::Json(200, json!({"version": 5})),
        Act::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 4\r\n\r\nnope".to_vec()),
        Act::Json(200, json!({"items": 5})),
        Act::Json(200, json!({})),
        Act::Json(200, json!(-1)),
    ])
    .await;
    let (runtime, at, id) = (runtime(), at(&stub), id(ID));
    for _ in 0..3 {
        assert!(matches!(
            runtime.version(&at).await,
            Err(AgentError::Malformed(_))
        ));
    }
    assert!(matches!(
        runtime.events(&at, id, None, None).await,
        Err(AgentError::Malformed(_))
    ));
    assert!(matches!(
        runtime.snapshot_many(&at, &[id]).await,
        Err(AgentError::Malformed(_))
    ));
    assert!(matches!(
        runtime.count_events(&at, id).await,
        Err(AgentError::Malformed(_))
    ));
}

#[tokio::test]
async fn a_server_that_never_answers_meets_the_deadline() {
    let stub = Stub::start([Act::Hang, Act::Hang]).await;
    let config = Config {
        read: Duration::from_millis(100),
        alive: Duration::from_millis(100),
        ..Config::default()
    };
    let runtime = HttpAgentRuntime::new(config, Arc::new(Noon)).unwrap();
    assert!(!runtime.alive(&stub.url).await);
    let error = runtime.version(&at(&stub)).await.unwrap_err();
    assert!(matches!(error, AgentError::TimedOut(_)), "{error:?}");
    assert_eq!(stub.lines().len(), 2);
}

#[tokio::test]
async fn a_broken_connection_is_tried_once_more_but_never_for_a_message() {
    let stub = Stub::start([Act::Drop, server("1.58.0"), Act::Drop, Act::Drop, Act::Drop]).await;
    let (runtime, at) = (runtime(), at(&stub));
    assert_eq!(runtime.version(&at).await.unwrap(), "1.58.0");
    assert_eq!(stub.lines().len(), 2);
    let error = runtime.interrupt(&at, id(ID)).await.unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
    assert_eq!(stub.lines().len(), 4);
    let error = runtime.send(&at, id(ID), &hello()).await.unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
    assert_eq!(stub.lines().len(), 5);
    assert!(
        !format!("{error} {error:?} {}", error.public()).contains("127.0.0.1"),
        "{error:?}"
    );
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    // Bound and not listening: the port stays ours and refuses.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap())
        .parse()
        .unwrap();
    let gone = AgentEndpoint {
        url,
        key: secret("k"),
    };
    assert!(!runtime().alive(&gone.url).await);
    let error = runtime().version(&gone).await.unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
    assert_eq!(error.public(), "Failed to reach agent server.");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_alive_needs_no_key() {
    let away = b"HTTP/1.1 302 X\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_vec();
    let stub = Stub::start([Act::Raw(away), Act::Json(200, json!({"status": "ok"}))]).await;
    let error = runtime().version(&at(&stub)).await.unwrap_err();
    assert!(
        matches!(error, AgentError::Rejected { status: 302, .. }),
        "{error:?}"
    );
    assert!(runtime().alive(&stub.url).await);
    assert_eq!(stub.lines(), ["GET /server_info", "GET /alive"]);
    assert!(stub.seen()[1].key.is_none());
}

#[tokio::test]
async fn an_address_or_key_that_http_cannot_carry_is_an_error() {
    let mailbox = AgentEndpoint {
        url: "mailto:a@b".parse().unwrap(),
        key: secret("k"),
    };
    assert!(!runtime().alive(&mailbox.url).await);
    assert!(matches!(
        runtime().version(&mailbox).await,
        Err(AgentError::Malformed(_))
    ));
    let stub = Stub::start([]).await;
    let broken = AgentEndpoint {
        url: stub.url.clone(),
        key: secret("a\nb"),
    };
    assert!(matches!(
        runtime().version(&broken).await,
        Err(AgentError::Malformed(_))
    ));
    assert!(stub.seen().is_empty());
}
