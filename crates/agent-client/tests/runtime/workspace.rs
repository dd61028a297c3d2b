//! Commands and files: requests to the agent server, and results of its responses.

use std::time::Duration;

use domain::agent::AgentError;
use domain::agent::workspace::{SandboxWorkspace, ShellCommand};
use serde_json::{Value, json};

use crate::stub::{Stub, StubAction};
use crate::support::{endpoint_of, runtime, secret};

fn command(script: &str) -> ShellCommand {
    ShellCommand {
        script: script.to_owned(),
        directory: None,
        timeout: Duration::from_millis(2_500),
    }
}

fn bash_output(exit_code: &Value, stdout: &str, stderr: &str) -> StubAction {
    let answer = json!({
        "id": "1", "command_id": "2", "order": 0, "kind": "BashOutput",
        "exit_code": exit_code, "stdout": stdout, "stderr": stderr,
    });
    StubAction::Json(200, answer)
}

#[tokio::test]
async fn a_command_is_quoted_for_bash_and_has_a_deadline_in_whole_seconds() {
    let stub = Stub::start([bash_output(&json!(3), "out\n", "err\n")]).await;
    let mut command = command("echo 'it''s' \"$HOME\"");
    command.directory = Some("/workspace".to_owned());
    let outcome = runtime().run(&endpoint_of(&stub), &command).await.unwrap();
    assert_eq!(outcome.exit_code, Some(3));
    assert_eq!(outcome.output, "out\nerr\n");
    assert!(!outcome.is_success());
    let seen = &stub.requests()[0];
    assert_eq!(seen.line, "POST /api/bash/execute_bash_command");
    assert_eq!(
        seen.body,
        json!({
            "command": r#"exec bash -c 'echo '\''it'\'''\''s'\'' "$HOME"'"#,
            "timeout": 3,
            "cwd": "/workspace",
        })
    );
}

#[tokio::test]
async fn a_terminated_command_has_no_exit_code() {
    let stub = Stub::start([bash_output(&json!(-1), "half", "")]).await;
    let outcome = runtime()
        .run(&endpoint_of(&stub), &command("sleep 9"))
        .await
        .unwrap();
    assert_eq!((outcome.exit_code, outcome.output.as_str()), (None, "half"));
}

#[tokio::test]
async fn one_command_lists_files_or_fails_at_its_deadline() {
    let stub = Stub::start([
        bash_output(&json!(0), "./b\n./a/c d\n", ""),
        bash_output(&json!(-1), "./half\n", ""),
    ])
    .await;
    let listed = runtime().list(&endpoint_of(&stub), "/w", 10).await.unwrap();
    assert_eq!(listed, ["a/c d", "b"]);
    let failed = runtime().list(&endpoint_of(&stub), "/w", 10).await;
    assert!(
        matches!(failed, Err(AgentError::Malformed(_))),
        "{failed:?}"
    );
    let seen = &stub.requests()[0];
    assert_eq!(seen.line, "POST /api/bash/execute_bash_command");
}

#[tokio::test]
async fn a_command_that_fails_to_start_is_an_error_and_is_not_repeated() {
    let stub = Stub::start([
        bash_output(&json!(-1), "", "Error executing command: no such directory"),
        bash_output(&Value::Null, "still running", ""),
        StubAction::Json(503, json!({"detail": "Agent server is not initialised"})),
        StubAction::Json(404, json!({"detail": "Not Found"})),
        StubAction::Drop,
        bash_output(&json!(0), "", ""),
    ])
    .await;
    let (runtime, at, command) = (runtime(), endpoint_of(&stub), command("true"));
    for _ in 0..2 {
        let failed = runtime.run(&at, &command).await;
        assert!(
            matches!(failed, Err(AgentError::Malformed(_))),
            "{failed:?}"
        );
    }
    let failed = runtime.run(&at, &command).await;
    assert!(
        matches!(failed, Err(AgentError::Rejected { status: 503, .. })),
        "{failed:?}"
    );
    let failed = runtime.run(&at, &command).await.unwrap_err();
    assert!(failed.to_string().contains("no routes for commands"));
    // The command may have run, so the request is not repeated.
    let failed = runtime.run(&at, &command).await;
    assert!(
        matches!(failed, Err(AgentError::Unreachable(_))),
        "{failed:?}"
    );
    assert_eq!(stub.request_lines().len(), 5);
}

#[tokio::test]
async fn a_long_output_is_truncated_to_its_end() {
    // More than `max_body_bytes` of the suite.
    let stub = Stub::start([bash_output(&json!(0), &"x".repeat(100_000), "the end")]).await;
    let outcome = runtime()
        .run(&endpoint_of(&stub), &command("yes"))
        .await
        .unwrap();
    assert_eq!(outcome.output.len(), 4096);
    assert!(outcome.output.ends_with("xthe end"));
}

#[tokio::test]
async fn an_uploaded_file_is_a_form_and_its_content_is_not_in_errors() {
    let stub = Stub::start([
        StubAction::Json(200, json!({"success": true})),
        StubAction::Json(500, json!({"detail": "Failed to upload file: hush-hush"})),
    ])
    .await;
    let (runtime, at, content) = (runtime(), endpoint_of(&stub), secret("hush-hush"));
    let path = "/home/a b/x&y";
    runtime.write(&at, path, &content).await.unwrap();
    let seen = &stub.requests()[0];
    assert_eq!(
        seen.line,
        "POST /api/file/upload?path=%2Fhome%2Fa+b%2Fx%26y"
    );
    assert!(
        seen.text.contains("name=\"file\"") && seen.text.contains("\r\n\r\nhush-hush\r\n--"),
        "{}",
        seen.text
    );
    let error = runtime.write(&at, path, &content).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
}

#[tokio::test]
async fn only_small_text_files_are_read() {
    let raw = |bytes: &[u8]| {
        let head = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n", bytes.len());
        StubAction::Raw([head.as_bytes(), bytes].concat())
    };
    let stub = Stub::start([
        raw(b"hello"),
        raw(b"123456789"),
        raw(&vec![b'x'; 10_000]),
        raw(b"\xff\xfe"),
        StubAction::Json(404, json!({"detail": "File not found"})),
        StubAction::Json(400, json!({"detail": "Path is not a file"})),
        StubAction::Json(401, json!({"detail": "Unauthorized"})),
    ])
    .await;
    let (runtime, at) = (runtime(), endpoint_of(&stub));
    let content = runtime.read(&at, "/a", 8).await.unwrap();
    assert_eq!(content.as_deref(), Some("hello"));
    for case in [
        "too long",
        "much too long",
        "no text",
        "missing",
        "a directory",
    ] {
        assert_eq!(runtime.read(&at, "/a", 8).await.unwrap(), None, "{case}");
    }
    runtime.read(&at, "/a", 8).await.unwrap_err();
    assert_eq!(stub.request_lines()[0], "GET /api/file/download?path=%2Fa");
}

#[tokio::test]
async fn skills_and_hooks_of_a_project_are_read() {
    let skills = json!({"skills": [
        {"name": "style", "type": "repo", "content": "Be brief.", "triggers": [], "source": "x"},
        {"name": "deploy", "type": "knowledge", "content": "c", "triggers": ["ship", "deploy"]},
        {"type": "repo", "content": "without a name"},
    ], "sources": {}});
    let config = json!({"pre_tool_use": [{"matcher": "*", "hooks": []}]});
    let stub = Stub::start([
        StubAction::Json(200, skills),
        StubAction::Json(200, json!({"hook_config": config})),
        StubAction::Json(200, json!({"hook_config": null})),
        StubAction::Json(200, json!({"skills": 5})),
    ])
    .await;
    let (runtime, at) = (runtime(), endpoint_of(&stub));
    let skills = runtime.skills(&at, "/p").await.unwrap();
    let names: Vec<_> = skills.iter().map(|skill| skill.name.as_str()).collect();
    assert_eq!(names, ["style", "deploy"]);
    assert_eq!(skills[1].triggers, ["ship", "deploy"]);
    assert_eq!(skills[1].kind, "knowledge");
    assert_eq!(runtime.hooks(&at, "/p").await.unwrap(), Some(config));
    assert_eq!(runtime.hooks(&at, "/p").await.unwrap(), None);
    assert!(runtime.skills(&at, "/p").await.is_err());
    let bodies: Vec<_> = stub.requests().into_iter().map(|seen| seen.body).collect();
    assert_eq!(
        bodies[0],
        json!({"load_public": false, "load_user": false, "load_org": false, "load_project": true, "project_dir": "/p"})
    );
    assert_eq!(bodies[1], json!({"project_dir": "/p"}));
    assert_eq!(stub.request_lines()[1], "POST /api/hooks");
}

#[tokio::test]
async fn git_requests_have_the_path_in_the_query() {
    let changes = json!([{"status": "UPDATED", "path": "a b.txt"}]);
    let diff = json!({"modified": "new", "original": "old"});
    let stub = Stub::start([
        StubAction::Json(200, changes.clone()),
        StubAction::Json(200, diff.clone()),
        StubAction::Json(200, json!({"modified": 1})),
        StubAction::Json(200, json!([7])),
        StubAction::Json(200, json!("text")),
        StubAction::Json(400, json!({"detail": "bad ref"})),
        StubAction::Json(404, json!({"detail": "Not Found"})),
    ])
    .await;
    let (runtime, at) = (runtime(), endpoint_of(&stub));
    assert_eq!(runtime.changes(&at, "/w/a b", None).await.unwrap(), changes);
    let file = "/w/a b/x.txt";
    assert_eq!(runtime.diff(&at, file, Some("HEAD~1")).await.unwrap(), diff);
    assert_eq!(
        stub.request_lines(),
        [
            "GET /api/git/changes?path=%2Fw%2Fa+b",
            "GET /api/git/diff?path=%2Fw%2Fa+b%2Fx.txt&ref=HEAD%7E1",
        ]
    );
    for case in ["an object", "no objects"] {
        let failed = runtime.changes(&at, "/w", None).await;
        assert!(matches!(failed, Err(AgentError::Malformed(_))), "{case}");
    }
    let failed = runtime.diff(&at, "/w", None).await;
    assert!(matches!(failed, Err(AgentError::Malformed(_))));
    for status in [400, 404] {
        let failed = runtime.changes(&at, "/w", Some("x")).await;
        assert!(
            matches!(failed, Err(AgentError::Rejected { status: s, .. }) if s == status),
            "{failed:?}"
        );
    }
}

#[tokio::test]
async fn a_response_that_needs_much_memory_is_not_parsed() {
    let bomb = || {
        let body = format!(r#"{{"skills":[{}0]}}"#, "[0],".repeat(200_000));
        let head = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n", body.len());
        StubAction::Raw([head.as_bytes(), body.as_bytes()].concat())
    };
    let stub = Stub::start([bomb(), bomb(), bomb()]).await;
    let (runtime, at) = (runtime(), endpoint_of(&stub));
    for failed in [
        runtime.skills(&at, "/p").await.map(|_| ()),
        runtime.hooks(&at, "/p").await.map(|_| ()),
        runtime.run(&at, &command("true")).await.map(|_| ()),
    ] {
        let failed = format!("{failed:?}");
        assert!(failed.contains("the response has more than"), "{failed}");
    }
}
