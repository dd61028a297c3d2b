//! Commands in the sandbox, as the real agent server runs them.

use std::process::Stdio;
use std::time::Duration;

use actix_web::HttpResponse;
use serde_json::{Value, json};
use tokio::process::Command;

/// The real agent server's own default.
const DEFAULT_TIMEOUT_SECONDS: u64 = 300;

/// Runs the command of a request, and responds when it has ended.
pub(super) async fn run(body: &Value) -> HttpResponse {
    let mut command = Command::new("bash");
    command
        .args(["-c", body["command"].as_str().unwrap_or_default()])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some(dir) = body["cwd"].as_str() {
        command.current_dir(dir);
    }
    let seconds = body["timeout"].as_u64().unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    let ended = tokio::time::timeout(Duration::from_secs(seconds), command.output()).await;
    let (exit_code, stdout, stderr) = match ended {
        Ok(Ok(output)) => (output.status.code(), output.stdout, output.stderr),
        Ok(Err(error)) => (None, Vec::new(), error.to_string().into_bytes()),
        Err(_) => (Some(-1), Vec::new(), Vec::new()),
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    HttpResponse::Ok().json(json!({
        "kind": "BashOutput",
        "order": 0,
        "exit_code": exit_code,
        "stdout": text(stdout),
        "stderr": text(stderr),
    }))
}
