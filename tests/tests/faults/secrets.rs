//! Secrets are planted everywhere, and looked for everywhere else.

use std::path::Path;

use acceptance::Client;
use acceptance::processes::command_lines;
use serde_json::json;

use crate::support::World;

const LLM_KEY: &str = "sk-canary-llm-5e1f0c9a";
const SEARCH_KEY: &str = "tvly-canary-search-77b2";
const GIT_TOKEN: &str = "ghp_canary_git_token_19d4";
const CUSTOM: &str = "canary-custom-secret-a83e";
const MCP_KEY: &str = "canary-mcp-key-4c60";
const KEPT: &str = "canary-kept-secret-e07b";
/// What is sent to the agent server with a conversation.
const LAUNCHED: [&str; 4] = [LLM_KEY, SEARCH_KEY, CUSTOM, MCP_KEY];
/// What it has to ask for when a command wants it, and by which name.
const LOOKED_UP: [(&str, &str); 2] = [("GITHUB_TOKEN", GIT_TOKEN), ("KEPT", KEPT)];

#[tokio::test]
async fn no_secret_is_in_a_log_a_file_an_answer_or_a_command_line() {
    let mut world =
        World::configured("", |builder| builder.env("WORKSPACE_LOG__LEVEL", "trace")).await;
    let user = world.user.clone();
    store(&user).await;
    let message = json!({"content": [{"type": "text", "text": "hello"}], "run": true});
    let request = json!({"initial_message": message, "secrets": {"MY_SECRET": CUSTOM}});
    let task = user.start(&request).await;
    let conversation = user.ready(&task).await;
    user.executed(&conversation.id, "finished").await;
    let created = world.stub.creates().join("\n");
    for canary in LAUNCHED {
        assert!(
            created.contains(canary),
            "{canary} did not reach the agent server, so nothing is proved"
        );
    }
    let session_key = conversation.session_api_key.expect("it is RUNNING");
    look_up(&user, &conversation.sandbox_id, &session_key, &created).await;
    let canaries = || LAUNCHED.into_iter().chain([GIT_TOKEN, KEPT]);

    let mut answers = refusals(&user).await;
    answers.extend(reads(&user, &task.id, &conversation.id).await);
    for (path, text) in &answers {
        for canary in canaries().chain([user.key()]) {
            assert!(
                !text.contains(canary),
                "{canary} is in the answer of {path}"
            );
        }
    }

    // Its owner may see the sandbox's key; nobody else, and nothing at rest.
    let secrets: Vec<&str> = canaries()
        .chain([session_key.as_str(), user.key()])
        .collect();
    for line in command_lines() {
        for secret in &secrets {
            assert!(!line.contains(secret), "{secret} is an argument: {line}");
        }
    }
    world.service.kill9();
    let log = world.service.log();
    for secret in &secrets {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    let searched = search(&world.service.data(), &secrets, &["bootstrap.key"]);
    assert!(searched > 3, "only {searched} files were searched");
    assert!(world.service.data().join("agent-workspace.db").exists());
    world.service.restart().await;
    user.say(&conversation.id, "The keys still open.").await;
    user.executed(&conversation.id, "finished").await;
}

/// Plants what is kept in settings.
async fn store(user: &Client) {
    let settings = json!({
        "agent_settings_diff": {"llm": {"model": "openai/m", "base_url": "http://127.0.0.1:9/v1", "api_key": LLM_KEY}},
        "search_api_key": SEARCH_KEY,
    });
    let _ = user.post("/api/v1/settings", &settings).await.ok();
    let providers = json!({
        "provider_tokens": {"github": {"token": GIT_TOKEN}},
        "mcp_config": {"sse_servers": [{"url": "http://127.0.0.1:9/sse", "api_key": MCP_KEY}]},
    });
    let _ = user.post("/api/add-git-providers", &providers).await.ok();
    let kept = json!({"name": "KEPT", "value": KEPT, "description": "kept"});
    let _ = user.post("/api/v1/secrets", &kept).await.ok();
}

/// The sandbox gets these values when it asks, and the agent server was told where; but not the values.
async fn look_up(user: &Client, sandbox: &str, key: &str, created: &str) {
    let inside = user.with_key(key);
    for (name, value) in LOOKED_UP {
        let path = format!("/api/v1/sandboxes/{sandbox}/settings/secrets/{name}");
        assert!(created.contains(&path), "{name} is not to be looked up");
        assert!(!created.contains(value), "{value} was sent");
        let reply = inside.get(&path).await;
        assert_eq!((reply.status, reply.text.as_str()), (200, value));
    }
}

/// Refusals quote what they refuse.
async fn refusals(user: &Client) -> Vec<(String, String)> {
    let mut answers = Vec::new();
    for (path, body) in [
        (
            "/api/v1/settings",
            json!({"agent_settings_diff": {"llm": {"api_key": {"a": LLM_KEY}}}, "search_api_key": [SEARCH_KEY]}),
        ),
        (
            "/api/settings",
            json!({"llm_api_key": [LLM_KEY], "search_api_key": {"a": SEARCH_KEY}}),
        ),
        (
            "/api/add-git-providers",
            json!({"provider_tokens": {"github": GIT_TOKEN, "gitlab": {"token": [GIT_TOKEN]}}}),
        ),
        (
            "/api/add-git-providers",
            json!({"mcp_config": {"sse_servers": [{"api_key": MCP_KEY}]}}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": {"LLM_X": CUSTOM}}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": {"X": [CUSTOM]}}),
        ),
        ("/api/v1/app-conversations", json!({"secrets": [CUSTOM]})),
        ("/api/v1/secrets", json!({"name": KEPT, "value": KEPT})),
        ("/api/v1/secrets", json!({"name": "A", "value": [KEPT]})),
        (
            "/api/secrets",
            json!({"name": "KEPT", "value": KEPT, "description": 5}),
        ),
        ("/api/secrets", json!({"name": "KEPT", "value": KEPT})),
    ] {
        let reply = user.post(path, &body).await;
        assert!((400..500).contains(&reply.status), "{path}: {reply:?}");
        answers.push((path.to_owned(), reply.text));
    }
    answers
}

async fn reads(user: &Client, task: &str, id: &str) -> Vec<(String, String)> {
    let mut answers = Vec::new();
    for path in [
        "/api/v1/settings".to_owned(),
        "/api/settings".to_owned(),
        "/api/v1/secrets/search".to_owned(),
        "/api/secrets".to_owned(),
        "/api/v1/users/me".to_owned(),
        "/api/v1/app-conversations?limit=10".to_owned(),
        format!("/api/v1/app-conversations?ids={id}"),
        "/api/v1/app-conversations/start-tasks/search".to_owned(),
        format!("/api/v1/app-conversations/start-tasks?ids={task}"),
        "/api/v1/sandboxes/search".to_owned(),
        "/api/v1/sandbox-specs/search".to_owned(),
        format!("/api/v1/conversation/{id}/events/search"),
        "/server_info".to_owned(),
        "/ready".to_owned(),
        "/openapi.json".to_owned(),
    ] {
        let reply = user.get(&path).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        answers.push((path, reply.text));
    }
    answers
}

/// Fails if a file below `dir` holds a secret; returns how many files there were.
fn search(dir: &Path, secrets: &[&str], allowed: &[&str]) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(dir)
        .expect("the directory is there")
        .flatten()
    {
        let path = entry.path();
        if allowed.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if path.is_dir() {
            files += search(&path, secrets, allowed);
        } else if let Ok(bytes) = std::fs::read(&path) {
            files += 1;
            for secret in secrets {
                let found = bytes
                    .windows(secret.len())
                    .any(|part| part == secret.as_bytes());
                assert!(!found, "{secret} is in {}", path.display());
            }
        }
    }
    files
}
