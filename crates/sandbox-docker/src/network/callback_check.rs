//! Checks from inside a container whether its reports can reach the service.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use domain::error::chain;
use futures::{Stream, StreamExt};
use url::Url;

use crate::engine::Engine;
use crate::engine::errors::{EngineError, EngineErrorKind};

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for one program in seconds: passed to the program, so that it reports the cause.
const CONNECT_TIMEOUT_SECONDS: &str = "3";
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(3500);
const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// Fails with the cause unless an HTTP response arrives, with any status.
const PYTHON: &str = "\
import sys, urllib.error, urllib.request
try: urllib.request.urlopen(sys.argv[1], timeout=3)
except urllib.error.HTTPError: pass
except OSError as error: sys.exit(str(error))";

/// Callback URLs that were reached from a sandbox. All sandboxes share one network, so one success is enough.
#[derive(Debug, Default)]
pub(crate) struct ReachableUrls(Mutex<HashSet<Url>>);

/// What a request from inside a container shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProbeOutcome {
    Answered,
    /// With the program's own reason.
    Failed(String),
    /// The program is missing or cannot be executed.
    NoSuchProgram,
}

/// A warning for the owner of a sandbox about its reports. `None`: the reports arrive, or the check was impossible.
pub(crate) async fn callback(
    engine: &Engine,
    container: &str,
    webhook_url: &Url,
    reachable_urls: &ReachableUrls,
) -> Option<String> {
    let mut service = webhook_url.clone();
    service.set_path("/");
    service.set_query(None);
    service.set_fragment(None);
    // Remove credentials: the check needs none, and they are secret.
    let _ = (service.set_username(""), service.set_password(None));
    if reachable_urls.lock().contains(&service) {
        return None;
    }
    let alive = service.join("alive").ok()?;
    let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, attempt(engine, container, &alive));
    match attempt.await {
        Ok(Ok(ProbeOutcome::Answered)) => {
            reachable_urls.lock().insert(service);
            None
        }
        Ok(Ok(ProbeOutcome::Failed(reason))) => Some(unreachable(&service, &reason)),
        // Without a suitable program, or with a slow engine, the result is unknown.
        Ok(Ok(ProbeOutcome::NoSuchProgram)) | Err(_) => None,
        Ok(Err(error)) => {
            tracing::debug!(error = %chain(&error), container, "cannot check the callback URL from the sandbox");
            None
        }
    }
}

fn unreachable(service: &Url, reason: &str) -> String {
    let service = service.as_str().trim_end_matches('/');
    format!(
        "reports from the sandbox cannot reach the service at {service} ({reason}): events arrive with a delay of some \
         seconds; the operator has to set WORKSPACE_SANDBOX__CALLBACK_URL to an address that containers can reach"
    )
}

/// Requests a URL from inside a container. `None`: the result is unknown.
pub(crate) async fn probe(engine: &Engine, container: &str, url: &Url) -> Option<ProbeOutcome> {
    let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, attempt(engine, container, url));
    attempt.await.ok()?.ok()
}

/// Tries the first of these programs that the image contains.
async fn attempt(engine: &Engine, container: &str, url: &Url) -> Result<ProbeOutcome, EngineError> {
    let url = url.as_str();
    let (null, limit) = ("/dev/null", CONNECT_TIMEOUT_SECONDS);
    let programs: [&[&str]; 4] = [
        &["curl", "-sS", "-o", null, "-m", limit, url],
        &["wget", "-q", "-O", null, "-T", limit, "-t", "1", url],
        &["python3", "-c", PYTHON, url],
        // No time-out option: a statically linked program crashes on it.
        &["busybox", "wget", "-q", "-O", null, url],
    ];
    for program in programs {
        let attempt = run(engine, container, program).await?;
        if attempt != ProbeOutcome::NoSuchProgram {
            return Ok(attempt);
        }
    }
    Ok(ProbeOutcome::NoSuchProgram)
}

async fn run(
    engine: &Engine,
    container: &str,
    program: &[&str],
) -> Result<ProbeOutcome, EngineError> {
    let options = CreateExecOptions {
        cmd: Some(program.to_vec()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..CreateExecOptions::default()
    };
    let created = engine.call("preparing a program in the sandbox", |docker| {
        docker.create_exec(container, options)
    });
    let exec = created.await?.id;
    let started = engine.call("running a program in the sandbox", |docker| {
        docker.start_exec(&exec, None::<StartExecOptions>)
    });
    let output = match started.await {
        Ok(StartExecResults::Attached { output, .. }) => {
            match tokio::time::timeout(OUTPUT_TIMEOUT, read_exit_code(output)).await {
                Ok(output) => output,
                Err(_) => return Ok(ProbeOutcome::Failed("no response in time".to_owned())),
            }
        }
        Ok(StartExecResults::Detached) => String::new(),
        // Some engines answer like this when the program is missing.
        Err(error)
            if matches!(
                error.kind,
                EngineErrorKind::Other | EngineErrorKind::NotFound
            ) =>
        {
            return Ok(ProbeOutcome::NoSuchProgram);
        }
        Err(error) => return Err(error),
    };
    let ended = engine.call("inspecting a program in the sandbox", |docker| {
        docker.inspect_exec(&exec)
    });
    let code = ended.await?.exit_code;
    Ok(outcome_of(program[0], code, &output))
}

/// Reads the output until the program ends, and keeps its beginning.
async fn read_exit_code(
    mut chunks: impl Stream<Item = Result<LogOutput, bollard::errors::Error>> + Unpin,
) -> String {
    let mut output = Vec::new();
    while let Some(Ok(part)) = chunks.next().await {
        let available = MAX_OUTPUT_BYTES.saturating_sub(output.len());
        output.extend(part.into_bytes().iter().take(available));
    }
    String::from_utf8_lossy(&output).into_owned()
}

fn outcome_of(program: &str, code: Option<i64>, output: &str) -> ProbeOutcome {
    match code {
        // The shell's codes for "cannot execute" and "not found", which engines use too, and codes of signals (a
        // crash).
        Some(126..) | None => ProbeOutcome::NoSuchProgram,
        Some(0) => ProbeOutcome::Answered,
        // GNU wget: the server answered with an error. Busybox prints the same as text.
        Some(8) if program == "wget" => ProbeOutcome::Answered,
        Some(_) if output.contains("server returned error: HTTP/") => ProbeOutcome::Answered,
        Some(code) => ProbeOutcome::Failed(reason(program, code, output)),
    }
}

/// The last meaningful line, without terminal escape sequences.
fn reason(program: &str, code: i64, output: &str) -> String {
    let mut lines = output.lines().rev().map(str::trim);
    match lines.find(|line| !line.is_empty()) {
        Some(line) => {
            let visible = line.chars().filter(|c| !c.is_control());
            visible.take(200).collect()
        }
        None => format!("{program} ended with {code}"),
    }
}

impl ReachableUrls {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<Url>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_with_any_status_proves_reachability() {
        for (program, code, output) in [
            ("curl", 0, ""),
            ("wget", 8, ""),
            (
                "wget",
                1,
                "wget: server returned error: HTTP/1.1 404 Not Found",
            ),
            ("python3", 0, ""),
        ] {
            assert_eq!(
                outcome_of(program, Some(code), output),
                ProbeOutcome::Answered
            );
        }
    }

    #[test]
    fn a_failure_quotes_the_program() {
        let output = "\ncurl: (7) Failed to connect to x port 1\u{1b}[0m: Connection refused\n\n";
        let reason = "curl: (7) Failed to connect to x port 1[0m: Connection refused";
        assert_eq!(
            outcome_of("curl", Some(7), output),
            ProbeOutcome::Failed(reason.to_owned())
        );
        let silent = ProbeOutcome::Failed("wget ended with 4".to_owned());
        assert_eq!(outcome_of("wget", Some(4), ""), silent);
        assert_eq!(
            outcome_of("curl", Some(8), ""),
            ProbeOutcome::Failed("curl ended with 8".to_owned())
        );
    }

    #[test]
    fn a_missing_or_crashed_program_proves_nothing() {
        for code in [Some(126), Some(127), Some(139), None] {
            assert_eq!(
                outcome_of("curl", code, "not found"),
                ProbeOutcome::NoSuchProgram
            );
        }
    }
}
