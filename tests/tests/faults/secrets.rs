//! Plants secrets in every place for them, and searches all other places.

use std::path::Path;

use acceptance::Client;
use acceptance::processes::{PLACEHOLDER_PREFIX, command_lines};
use serde_json::json;

use crate::support::World;

const LLM_KEY: &str = "sk-canary-llm-5e1f0c9a";
const SEARCH_KEY: &str = "tvly-canary-search-77b2";
const GIT_TOKEN: &str = "ghp_canary_git_token_19d4";
const CUSTOM_SECRET: &str = "canary-custom-secret-a83e";
const MCP_KEY: &str = "canary-mcp-key-4c60";
const STORED_SECRET: &str = "canary-kept-secret-e07b";
/// Sent to the agent server with a conversation.
const SENT_SECRETS: [&str; 4] = [LLM_KEY, SEARCH_KEY, CUSTOM_SECRET, MCP_KEY];
/// Looked up by the agent server when a command needs it: name and value.
const LOOKED_UP_SECRETS: [(&str, &str); 2] = [("GITHUB_TOKEN", GIT_TOKEN), ("KEPT", STORED_SECRET)];

#[tokio::test]
async fn secrets_are_absent_from_logs_files_responses_and_command_lines() {
    let mut world =
        World::configured("", |builder| builder.env("WORKSPACE_LOG__LEVEL", "trace")).await;
    let user = world.user.clone();
    store_secrets(&user).await;
    let message = json!({"content": [{"type": "text", "text": "hello"}], "run": true});
    let request = json!({"initial_message": message, "secrets": {"MY_SECRET": CUSTOM_SECRET}});
    let task = user.start(&request).await;
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let created = world.stub.creates().join("\n");
    for canary in SENT_SECRETS {
        assert!(
            created.contains(canary),
            "{canary} did not reach the agent server, so the test proves nothing"
        );
    }
    let session_key = conversation
        .session_api_key
        .expect("the conversation has no session key");
    assert_lookups(&user, &conversation.sandbox_id, &session_key, &created).await;
    let canaries = || SENT_SECRETS.into_iter().chain([GIT_TOKEN, STORED_SECRET]);

    let mut answers = refused_requests(&user).await;
    answers.extend(read_documents(&user, &task.id, &conversation.id).await);
    for (path, text) in &answers {
        for canary in canaries().chain([user.key()]) {
            assert!(
                !text.contains(canary),
                "{canary} is in the response of {path}"
            );
        }
    }

    // Responses may show the sandbox's key to its owner. No other place may.
    let secrets: Vec<&str> = canaries()
        .chain([session_key.as_str(), user.key()])
        .collect();
    for line in command_lines() {
        for secret in &secrets {
            assert!(
                !line.contains(secret),
                "{secret} is in a command line: {line}"
            );
        }
    }
    world.service.kill9();
    let log = world.service.log();
    for secret in &secrets {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    let searched =
        assert_no_secret_in_files(&world.service.data_dir(), &secrets, &["bootstrap.key"]);
    assert!(searched > 3, "only {searched} files were searched");
    assert!(world.service.data_dir().join("agent-workspace.db").exists());
    world.service.restart().await;
    user.send_message(&conversation.id, "The keys still open.")
        .await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
}

/// Plants the secrets of settings.
async fn store_secrets(user: &Client) {
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
    let kept = json!({"name": "KEPT", "value": STORED_SECRET, "description": "kept"});
    let _ = user.post("/api/v1/secrets", &kept).await.ok();
}

/// The agent server received the look-up URLs of these secrets, not their values. The look-ups return the values.
async fn assert_lookups(user: &Client, sandbox: &str, key: &str, created: &str) {
    let inside = user.with_key(key);
    for (name, value) in LOOKED_UP_SECRETS {
        let path = format!("/api/v1/sandboxes/{sandbox}/settings/secrets/{name}");
        assert!(
            created.contains(&path),
            "the agent server has no look-up URL for {name}"
        );
        assert!(
            !created.contains(value),
            "the agent server received {value}"
        );
        let reply = inside.get(&path).await;
        assert_eq!(reply.status, 200);
        // A confined process has placeholders of git tokens.
        let is_placeholder = reply.text.starts_with(PLACEHOLDER_PREFIX);
        assert_eq!(is_placeholder, name == "GITHUB_TOKEN");
        assert!(is_placeholder || reply.text == value, "{name}");
    }
}

/// Responses to invalid requests that contain secrets.
async fn refused_requests(user: &Client) -> Vec<(String, String)> {
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
            json!({"secrets": {"LLM_X": CUSTOM_SECRET}}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": {"X": [CUSTOM_SECRET]}}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": [CUSTOM_SECRET]}),
        ),
        (
            "/api/v1/secrets",
            json!({"name": STORED_SECRET, "value": STORED_SECRET}),
        ),
        (
            "/api/v1/secrets",
            json!({"name": "A", "value": [STORED_SECRET]}),
        ),
        (
            "/api/secrets",
            json!({"name": "KEPT", "value": STORED_SECRET, "description": 5}),
        ),
        (
            "/api/secrets",
            json!({"name": "KEPT", "value": STORED_SECRET}),
        ),
    ] {
        let reply = user.post(path, &body).await;
        assert!((400..500).contains(&reply.status), "{path}: {reply:?}");
        answers.push((path.to_owned(), reply.text));
    }
    answers
}

async fn read_documents(user: &Client, task: &str, id: &str) -> Vec<(String, String)> {
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

/// Asserts that no file below `dir` contains a secret; returns the number of files.
fn assert_no_secret_in_files(dir: &Path, secrets: &[&str], allowed: &[&str]) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(dir)
        .expect("cannot read the directory")
        .flatten()
    {
        let path = entry.path();
        if allowed.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if path.is_dir() {
            files += assert_no_secret_in_files(&path, secrets, allowed);
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
