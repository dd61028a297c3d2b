//! Schemathesis: requests generated from the `OpenAPI` document, and responses checked against it.

use std::path::{Path, PathBuf};
use std::process::Command;

use acceptance::{Client, Service, Stub, print_line};
use serde_json::json;

const CHECKS: &str = "not_a_server_error,status_code_conformance,response_schema_conformance,\
                      content_type_conformance,response_headers_conformance,ignored_auth";

/// The `OpenAPI` document, a file in the service's directory.
const DOCUMENT: &str = "document.json";

/// Routes that need a session key.
const WEBHOOKS: &str = "^/api/v1/webhooks/";

/// Routes that revoke keys and delete users. They are called with a separate key, which may be revoked.
const ACCOUNTS: &str = "^/api/v1/keys|^/api/v1/admin/";

/// The webhooks, the accounts and endless streams: the tool waits for complete responses.
const EXCLUDED_FOR_USERS: &str =
    "^/api/v1/webhooks/|/events/stream$|/logs$|^/api/v1/keys|^/api/v1/admin/";

/// Written by `cargo xtask test`, which installs the tool.
fn tool() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = root
        .join("target")
        .join("acceptance")
        .join("schemathesis.command");
    std::fs::read_to_string(&file).map_or_else(
        |_| {
            panic!(
                "schemathesis is not installed: `cargo xtask test` installs it and writes {}",
                file.display()
            )
        },
        PathBuf::from,
    )
}

/// The number of requests.
#[derive(Debug, Clone, Copy)]
struct RequestExtent {
    phases: &'static str,
    /// Random requests of each operation.
    examples: usize,
}

async fn run(service: &Service, key: &str, operations: [&str; 2], extent: RequestExtent) {
    let document = service.root().join(DOCUMENT);
    let url = service.url();
    let header = format!("X-Session-API-Key: {key}");
    let mut command = Command::new(tool());
    command
        .arg("run")
        .arg(document)
        .args(["--url", &url, "--checks", CHECKS, "-H", &header])
        .args(operations)
        .args([
            "--phases",
            extent.phases,
            "--max-examples",
            &extent.examples.to_string(),
        ])
        .args([
            "--seed",
            "1",
            "--continue-on-failure",
            "--request-timeout",
            "30",
            "--no-shrink",
        ])
        // One worker: with two threads CPython 3.11's parser fails sometimes ("AST constructor recursion depth").
        .args(["--workers", "1", "--no-color", "--warnings", "off"])
        .envs(
            service
                .front_certificate_file()
                .map(|file| ("REQUESTS_CA_BUNDLE", file)),
        )
        // The tool writes files into its working directory.
        .current_dir(service.root());
    let run = tokio::task::spawn_blocking(move || command.output());
    let output = run
        .await
        .expect("the thread ends")
        .expect("schemathesis can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    let cases = text.lines().find(|line| line.contains(" generated"));
    print_line(&format!(
        "schemathesis {operations:?}:{}",
        cases.unwrap_or_default()
    ));
    assert!(
        cases.is_some(),
        "the tool generated no case:\n{text}\n{errors}"
    );
}

#[tokio::test]
async fn responses_match_the_document() {
    assert_responses_match(RequestExtent {
        phases: "examples,fuzzing",
        examples: 5,
    })
    .await;
}

/// Also every bound of every parameter, which takes more than ten minutes.
#[tokio::test]
#[ignore = "a part of `cargo xtask nightly`"]
async fn many_responses_match_the_document() {
    assert_responses_match(RequestExtent {
        phases: "examples,coverage,fuzzing",
        examples: 100,
    })
    .await;
}

async fn assert_responses_match(extent: RequestExtent) {
    let stub = Stub::new();
    let builder = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "2")
        .env("WORKSPACE_LOG__LEVEL", "warn");
    let service = builder.start().await;
    let user: Client = service.admin();
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-stub")
        .await;
    let conversation = user.converse("hello").await;
    // With a session key the tool would fetch the agent server's document.
    let document = user.get("/openapi.json").await.ok();
    std::fs::write(service.root().join(DOCUMENT), document.to_string())
        .expect("the directory is writable");
    let key = conversation
        .session_api_key
        .expect("a running sandbox has a key");
    let of_webhooks = ["--include-path-regex", WEBHOOKS];
    run(&service, &key, of_webhooks, extent).await;
    let of_users = ["--exclude-path-regex", EXCLUDED_FOR_USERS];
    run(&service, user.key(), of_users, extent).await;
    let revocable_key = user.post("/api/v1/keys", &json!({})).await.ok();
    let revocable_key = revocable_key["key"].as_str().expect("a key's text");
    let of_accounts = ["--include-path-regex", ACCOUNTS];
    run(&service, revocable_key, of_accounts, extent).await;
}
