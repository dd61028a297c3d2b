//! What the newest web front end and those of older lines ask of an agent server, through the service's own port.

use acceptance::client::Client;
use serde_json::{Value, json};

use crate::support::{Setup, World};

/// Sends a request inside a request, with the key of a sandbox in its headers.
async fn proxied(user: &Client, host: &str, key: &str, call: Value) -> Value {
    let mut envelope = json!({
        "host": host,
        "headers": {"X-Session-API-Key": key},
        "timeout_seconds": 30,
    });
    if let (Value::Object(all), Value::Object(call)) = (&mut envelope, call) {
        all.extend(call);
    }
    user.post("/api/cloud-proxy", &envelope).await.ok()
}

/// Files lie where `workspace.working_dir` says, whatever way they are asked for.
pub(crate) async fn a_front_end_reads_and_writes_where_the_agent_works(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    let conversation = user
        .converse("RUN: git init -q . && echo one > first.txt")
        .await;
    let id = &conversation.id;
    let conversation = user.wait_for_execution_status(id, "finished").await;
    let path = format!("/api/v1/app-conversations?ids={id}");
    let shown = user.get(&path).await.ok();
    let text = |member: &Value| member.as_str().expect("a text").to_owned();
    let directory = text(&shown[0]["workspace"]["working_dir"]);
    let url = text(&shown[0]["conversation_url"]);
    let (host, _) = url.split_once("/api/conversations").expect("its path");
    let key = conversation.session_api_key.clone().expect("it runs");

    let count = json!({"method": "GET", "path": format!("/api/conversations/{id}/events/count")});
    let count = proxied(user, host, &key, count).await;
    assert!(count.as_u64().is_some_and(|count| count > 0), "{count}");
    let command = json!({"command": "cat first.txt; echo two > second.txt", "cwd": directory});
    let command =
        json!({"method": "POST", "path": "/api/bash/execute_bash_command", "body": command});
    let ran = proxied(user, host, &key, command).await;
    assert_eq!(ran["stdout"], "one\n", "{ran}");
    let written = world.file(&conversation, "second.txt");
    assert_eq!(written.as_deref(), Some("two"));

    // A front end of the 1.3 line names the workspace of the reference's containers, in the path.
    let of_sandbox = user.with_key(&key);
    let changes = of_sandbox
        .get("/api/git/changes/%2Fworkspace%2Fproject")
        .await;
    let changes = changes.ok();
    let is_listed = |name: &str| {
        let mut all = changes.as_array().into_iter().flatten();
        all.any(|change| change["path"] == name)
    };
    assert!(
        is_listed("first.txt") && is_listed("second.txt"),
        "{changes}"
    );
}
