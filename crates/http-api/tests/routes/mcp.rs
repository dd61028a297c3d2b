//! The MCP server.

use actix_web::test::TestRequest;
use domain::agent::McpServer;
use domain::git::{GitError, GitProvider};
use http_api::Listener;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use store_memory::FakeProvider;

use crate::fixture::{ADA, BOB, TestResponse, UNKNOWN, World};

const MCP: &str = "/mcp/mcp";

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn post(key: &str) -> TestRequest {
    let bearer = format!("Bearer {key}");
    let request = TestRequest::post().uri(MCP);
    if key.is_empty() {
        request
    } else {
        request.insert_header(("Authorization", bearer))
    }
}

async fn ask(world: &World, key: &str, body: &Value) -> TestResponse {
    world.send(post(key).set_json(body)).await
}

fn pull_request() -> Value {
    json!({"repo_name": "o/r", "source_branch": "fix", "target_branch": "main", "title": "Fix", "body": null})
}

async fn call(world: &World, key: &str, name: &str, arguments: &Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    let answer = ask(world, key, &request("tools/call", &params)).await.ok();
    answer["result"].clone()
}

fn result_text(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

/// Gives Ada tokens of all git providers.
async fn connect(world: &World) {
    let hosts = GitProvider::ALL.iter().map(|(_, provider)| *provider);
    let hosts = hosts.filter(|it| *it != GitProvider::EnterpriseSso);
    let mut tokens = serde_json::Map::new();
    for provider in hosts {
        world.git.set(provider, FakeProvider::default());
        let token = json!({"token": format!("{provider}-token"), "host": "git.example.com"});
        tokens.insert(provider.to_string(), token);
    }
    let body = json!({"provider_tokens": tokens});
    world
        .post(ADA, "/api/v1/secrets/git-providers", &body)
        .await
        .ok();
}

#[actix_web::test]
async fn a_client_introduces_itself_and_lists_the_tools() {
    let world = World::idle().await;
    for (asked, agreed) in [
        (json!("2024-11-05"), "2024-11-05"),
        (json!("2025-03-26"), "2025-03-26"),
        (json!("2025-06-18"), "2025-06-18"),
        (json!("2099-01-01"), "2025-06-18"),
        (json!(7), "2025-06-18"),
    ] {
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let answer = ask(&world, ADA, &request("initialize", &params)).await.ok();
        let result = &answer["result"];
        assert_eq!(result["protocolVersion"], agreed);
        assert_eq!(result["serverInfo"]["name"], "agent-workspace");
        assert!(result["capabilities"]["tools"].is_object(), "{result}");
    }
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = ask(&world, ADA, &initialized).await;
    assert_eq!((answer.status, answer.text.as_str()), (202, ""));
    ask(&world, ADA, &request("ping", &json!({})))
        .await
        .is(200, &json!({"jsonrpc": "2.0", "id": 1, "result": {}}));

    let answer = ask(&world, ADA, &request("tools/list", &json!({})))
        .await
        .ok();
    let tools = answer["result"]["tools"].as_array().unwrap();
    let arguments = |tool: &Value| -> (Vec<String>, Value) {
        let schema = &tool["inputSchema"];
        assert_eq!(schema["additionalProperties"], false, "{tool}");
        let members = schema["properties"].as_object().unwrap();
        (
            members.keys().cloned().collect(),
            schema["required"].clone(),
        )
    };
    let common = ["source_branch", "target_branch", "title"];
    for (tool, (name, repository, text, optional)) in tools.iter().zip([
        ("create_pr", "repo_name", "body", &["draft", "labels"][..]),
        ("create_mr", "id", "description", &["labels"]),
        ("create_bitbucket_pr", "repo_name", "description", &[]),
        (
            "create_bitbucket_data_center_pr",
            "repo_name",
            "description",
            &[],
        ),
        ("create_azure_devops_pr", "repo_name", "description", &[]),
        ("create_forgejo_pr", "repo_name", "description", &[]),
    ]) {
        let required = [&[repository], &common[..], &[text]].concat();
        let all = [&required[..], optional].concat();
        assert_eq!(tool["name"], name);
        let (members, needed) = arguments(tool);
        assert_eq!(
            (members, needed),
            (
                all.iter().map(ToString::to_string).collect(),
                json!(required)
            ),
            "{name}"
        );
    }
    assert_eq!(tools.len(), 6);
    let answer = ask(&world, ADA, &request("tools/list", &json!({"cursor": "x"}))).await;
    assert_eq!(answer.ok()["error"]["code"], -32602);
}

#[actix_web::test]
async fn a_pull_request_is_opened_with_the_users_token() {
    let world = World::idle().await;
    connect(&world).await;
    let result = call(&world, ADA, "create_pr", &pull_request()).await;
    let address = "https://github.example.com/o/r/pull/1";
    let content = json!([{"type": "text", "text": address}]);
    assert_eq!(
        result,
        json!({"content": content, "structuredContent": {"result": address}, "isError": false})
    );
    let merge_request = json!({"id": "g%2Fs%2Fr", "source_branch": "fix", "target_branch": "main", "title": "Fix",
        "description": "Text", "labels": ["a"]});
    call(&world, ADA, "create_mr", &merge_request).await;
    let mut by_number = merge_request.clone();
    by_number["id"] = json!(4711);
    call(&world, ADA, "create_mr", &by_number).await;
    let mut other = pull_request();
    other.as_object_mut().unwrap().remove("body");
    for name in [
        "create_bitbucket_pr",
        "create_bitbucket_data_center_pr",
        "create_azure_devops_pr",
        "create_forgejo_pr",
    ] {
        let result = call(&world, ADA, name, &other).await;
        assert_eq!(result["isError"], false, "{name}: {result}");
    }
    let opened = world.git.pull_requests();
    let seen: Vec<_> = opened
        .iter()
        .map(|(provider, it)| (*provider, it.repository.as_str(), it.draft, it.labels.len()))
        .collect();
    assert_eq!(
        seen,
        [
            (GitProvider::Github, "o/r", true, 0),
            (GitProvider::Gitlab, "g/s/r", false, 1),
            (GitProvider::Gitlab, "4711", false, 1),
            (GitProvider::Bitbucket, "o/r", false, 0),
            (GitProvider::BitbucketDataCenter, "o/r", false, 0),
            (GitProvider::AzureDevops, "o/r", false, 0),
            (GitProvider::Forgejo, "o/r", false, 0),
        ]
    );
    assert_eq!(
        world.git.calls()[0],
        (GitProvider::Github, "github-token".into())
    );
}

#[actix_web::test]
async fn tool_failures_are_results() {
    let world = World::idle().await;
    connect(&world).await;
    let wrong = json!({"repo_name": 7, "source_branch": "", "title": "T", "body": null, "draft": "maybe", "more": 1});
    let result = call(&world, ADA, "create_pr", &wrong).await;
    let text = result_text(&result);
    for place in [
        "repo_name: ",
        "source_branch: ",
        "target_branch: ",
        "draft: ",
        "more: ",
    ] {
        assert!(text.contains(place), "{place}: {text}");
    }
    let result = call(&world, ADA, "create_pr", &json!([])).await;
    assert!(
        result_text(&result).contains("Invalid arguments"),
        "{result}"
    );
    assert!(world.git.calls().is_empty());

    world.git.set(
        GitProvider::Github,
        FakeProvider {
            fault: Some(|provider| GitError::Refused {
                provider,
                reason: "it exists".into(),
            }),
            ..FakeProvider::default()
        },
    );
    let result = call(&world, ADA, "create_pr", &pull_request()).await;
    assert_eq!(result_text(&result), "github refuses: it exists.");
    let result = call(&world, BOB, "create_pr", &pull_request()).await;
    assert!(
        result_text(&result).contains("No token of github is stored"),
        "{result}"
    );
    let params = json!({"name": "drop_database", "arguments": {}});
    let answer = ask(&world, ADA, &request("tools/call", &params)).await.ok();
    assert_eq!(answer["error"]["code"], -32602);
}

#[actix_web::test]
async fn invalid_messages_are_json_rpc_errors() {
    let world = World::idle().await;
    let fails = |answer: TestResponse, status: u16, code: i32| {
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(
            answer.content_type.starts_with("application/json"),
            "{answer:?}"
        );
        assert_eq!(answer.json()["error"]["code"], code, "{}", answer.text);
        assert_eq!(answer.json()["jsonrpc"], "2.0");
    };
    for body in ["", "{", "[1,", "\u{1}"] {
        fails(world.send(post(ADA).set_payload(body)).await, 400, -32700);
    }
    fails(ask(&world, ADA, &json!([])).await, 400, -32600);
    fails(ask(&world, ADA, &json!({"id": 1})).await, 400, -32600);
    fails(
        ask(&world, ADA, &json!(vec![request("ping", &json!({})); 11])).await,
        400,
        -32600,
    );
    fails(
        ask(&world, ADA, &request("resources/list", &json!({}))).await,
        200,
        -32601,
    );
    let versioned =
        |version: &'static str| post(ADA).insert_header(("MCP-Protocol-Version", version));
    let ping = request("ping", &json!({}));
    fails(
        world.send(versioned("1999-01-01").set_json(&ping)).await,
        400,
        -32600,
    );
    fails(
        world
            .send(versioned("2025-06-18").set_json(json!([ping])))
            .await,
        400,
        -32600,
    );
    let html = post(ADA).insert_header(("Accept", "text/html"));
    fails(world.send(html.set_json(&ping)).await, 406, -32600);
    world
        .send(versioned("2025-06-18").set_json(&ping))
        .await
        .ok();
    let huge = format!("\"{}\"", "x".repeat(3 << 20));
    assert_eq!(world.send(post(ADA).set_payload(huge)).await.status, 413);
    let answer = world.get(ADA, MCP).await;
    answer.refuses(405, "Method Not Allowed");
    assert_eq!(world.delete(ADA, MCP).await.status, 405);
}

#[actix_web::test]
async fn batches_are_answered_where_the_version_supports_them() {
    let world = World::idle().await;
    let note =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let mut ping = request("ping", &json!({}));
    ping["id"] = json!("p");
    let batch = json!([ping, note, 7, request("initialize", &json!({}))]);
    let answers = ask(&world, ADA, &batch).await.ok();
    let seen: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["id"].clone(), it["error"]["code"].clone()))
        .collect();
    assert_eq!(
        seen,
        [
            (json!("p"), Value::Null),
            (Value::Null, json!(-32600)),
            (json!(1), json!(-32600)),
        ]
    );
    assert_eq!(ask(&world, ADA, &json!([note])).await.status, 202);
}

#[actix_web::test]
async fn clients_that_accept_a_stream_get_one_event() {
    let world = World::idle().await;
    let both = post(ADA).insert_header(("Accept", "application/json, text/event-stream"));
    let answer = world.send(both.set_json(request("ping", &json!({})))).await;
    assert_eq!(
        (answer.status, answer.content_type.as_str()),
        (200, "text/event-stream")
    );
    assert_eq!(
        answer.text,
        "event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n\r\n"
    );
}

#[actix_web::test]
async fn only_users_and_active_sandboxes_have_access() {
    let world = World::working().await;
    connect(&world).await;
    let list = request("tools/list", &json!({}));
    for key in ["", "aw_nobody"] {
        ask(&world, key, &list).await.refuses(401, "Unauthorized");
    }
    let id = world.conversation(ADA).await;
    let conversation = world.read(ADA, &id).await;
    let key = conversation["session_api_key"].as_str().unwrap().to_owned();
    for listener in [Listener::Public, Listener::Callback] {
        let tool = json!({"name": "create_pr", "arguments": pull_request()});
        let body = request("tools/call", &tool);
        let answer = world
            .send_to(listener, post(&key).set_json(&body))
            .await
            .ok();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    // The sandbox acts for its owner.
    assert_eq!(world.git.calls().last().unwrap().1, "github-token");
    let answer = world
        .send_to(Listener::Callback, post(ADA).set_json(&list))
        .await;
    answer.refuses(401, "Invalid session API key");
    let answer = world
        .send_to(Listener::Callback, post("").set_json(&list))
        .await;
    assert_eq!(answer.status, 401);

    let sandbox = conversation["sandbox_id"].as_str().unwrap();
    world
        .post(
            ADA,
            &format!("/api/v1/sandboxes/{sandbox}/pause"),
            &json!({}),
        )
        .await
        .ok();
    for listener in [Listener::Public, Listener::Callback] {
        let answer = world.send_to(listener, post(&key).set_json(&list)).await;
        assert_eq!(answer.status, 401, "{}", answer.text);
    }
}

#[actix_web::test]
async fn pull_request_numbers_are_added_to_the_conversation() {
    let world = World::working().await;
    connect(&world).await;
    let (id, other) = (world.conversation(ADA).await, world.conversation(ADA).await);
    let tool = json!({"name": "create_pr", "arguments": pull_request()});
    let body = request("tools/call", &tool);
    let open = async |listener: Listener, key: &str, conversation: &str| {
        let post = post(key).uri(&format!("{MCP}?conversation_id={conversation}"));
        let answer = world.send_to(listener, post.set_json(&body)).await.ok();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    };
    let numbers = async |id: &str| world.read(ADA, id).await["pr_number"].clone();
    let key = world.read(ADA, &id).await["session_api_key"].clone();
    let key = key.as_str().unwrap();
    open(Listener::Callback, key, &id).await;
    open(Listener::Public, key, &id).await;
    assert_eq!(numbers(&id).await, json!([1, 2]));
    open(Listener::Public, ADA, &other).await;
    assert_eq!(numbers(&other).await, json!([3]));
    let list = world
        .get(ADA, "/api/v1/app-conversations/search")
        .await
        .ok();
    assert_eq!(list["items"][0]["pr_number"], json!([3]));

    // A sandbox acts only for its own conversations, and foreign ones get no numbers.
    open(Listener::Callback, key, &other).await;
    let token = json!({"provider_tokens": {"github": {"token": "t", "host": "git.example.com"}}});
    world
        .post(BOB, "/api/v1/secrets/git-providers", &token)
        .await
        .ok();
    open(Listener::Public, BOB, &id).await;
    open(Listener::Public, ADA, UNKNOWN).await;
    assert_eq!(numbers(&id).await, json!([1, 2]));
    assert_eq!(numbers(&other).await, json!([3]));
    let wrong = post(ADA).uri(&format!("{MCP}?conversation_id=x"));
    let answer = world.send(wrong.set_json(&body)).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
}

#[actix_web::test]
async fn agents_get_the_mcp_server_if_the_user_has_a_token() {
    let world = World::working().await;
    world.conversation(BOB).await;
    assert!(world.agents.launches()[0].mcp.is_empty());
    connect(&world).await;
    let id = world.conversation(ADA).await;
    let launch = world.agents.launches().pop().unwrap();
    let [
        McpServer::Remote {
            name,
            url,
            api_key,
            sse,
            ..
        },
    ] = &launch.mcp[..]
    else {
        panic!("{:?}", launch.mcp);
    };
    assert_eq!((name.as_str(), *sse), ("default", false));
    assert_eq!(
        url,
        &format!("http://127.0.0.1:3000/mcp/mcp?conversation_id={id}")
    );
    let key = world.read(ADA, &id).await["session_api_key"].clone();
    let sent = api_key.as_ref().unwrap().expose_secret();
    assert_ne!(key, sent, "the agent gets the callback token");
    let answer = world.read(ADA, &id).await.to_string();
    assert!(
        !answer.contains(sent),
        "no answer contains the callback token"
    );
    let list = request("tools/list", &json!({}));
    for listener in [Listener::Public, Listener::Callback] {
        world
            .send_to(listener, post(sent).set_json(&list))
            .await
            .ok();
    }
    assert!(!format!("{launch:?}").contains(sent));

    // A planning agent opens no pull requests.
    world.start(ADA, &json!({"agent_type": "plan"})).await;
    assert!(world.agents.launches().pop().unwrap().mcp.is_empty());
    // A server with this name in the user's settings takes precedence.
    let own = json!({"agent_settings_diff": {"mcp_config": {"default": {"url": "https://mcp.example.com"}}}});
    world.post(ADA, "/api/v1/settings", &own).await.ok();
    world.conversation(ADA).await;
    let launch = world.agents.launches().pop().unwrap();
    assert!(
        matches!(&launch.mcp[..], [McpServer::Remote { url, .. }] if url.contains("mcp.example.com")),
        "{:?}",
        launch.mcp
    );
}
