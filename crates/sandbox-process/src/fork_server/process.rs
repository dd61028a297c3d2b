//! Runs a fork server: start, self-test, end, restart.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use domain::error::chain;
use sandbox_provider::SandboxVariables;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::fork_server::ForkServerTemplate;
use crate::fork_server::record::RecordKey;

/// The imports and the rehearsal take 10 s of processor time, on a busy machine some times as long.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(300);
const SELF_TEST_TIMEOUT: Duration = Duration::from_secs(180);
const MIN_RESTART_BACKOFF: Duration = Duration::from_secs(1);
const MAX_RESTART_BACKOFF: Duration = Duration::from_secs(60 * 60);
/// A server that lived this long is restarted at once.
const STABLE_LIFE: Duration = Duration::from_secs(60);
/// The end of what a self-test writes.
const MAX_FAILURE_BYTES: usize = 4096;

/// Keeps a server running until the task is dropped, which kills the server but no child of it. `socket` has its socket
/// while it may be used.
pub(super) async fn supervise(
    template: ForkServerTemplate,
    socket: watch::Sender<Option<PathBuf>>,
) {
    let mut backoff = MIN_RESTART_BACKOFF;
    loop {
        let started = Instant::now();
        let ended = run(&template, &socket).await;
        socket.send_replace(None);
        if started.elapsed() > STABLE_LIFE && ended.is_ok() {
            backoff = MIN_RESTART_BACKOFF;
        }
        let cause = match ended {
            Ok(status) => format!("it ended ({status})"),
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            cause,
            log_file = %template.log_file().display(),
            retry_s = backoff.as_secs(),
            "the fork server does not run: agent servers boot more slowly"
        );
        sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_RESTART_BACKOFF);
    }
}

/// Runs one server until it ends. An error: it did not start, or failed its self-test.
async fn run(
    template: &ForkServerTemplate,
    socket: &watch::Sender<Option<PathBuf>>,
) -> io::Result<ExitStatus> {
    let started = Instant::now();
    let (mut server, record, has_record) = spawn(template.clone()).await?;
    // The server ends when this closes.
    let _stdin = server.stdin.take();
    let modules = await_imports(&mut server).await?;
    let imports_ms = started.elapsed().as_millis();
    if !has_record {
        test(template).await?;
        store(record, modules).await;
    }
    let elapsed_ms = started.elapsed().as_millis();
    let pid = server.id();
    tracing::info!(
        pid,
        imports_ms,
        elapsed_ms,
        has_record,
        "the fork server is ready"
    );
    socket.send_replace(Some(template.socket()));
    server.wait().await
}

/// Starts the server. Also returns where its record belongs, and whether an earlier one holds.
async fn spawn(template: ForkServerTemplate) -> io::Result<(Child, RecordKey, bool)> {
    let runtime = tokio::runtime::Handle::current();
    let spawned = tokio::task::spawn_blocking(move || {
        let _runtime = runtime.enter();
        let (record, has_record) = template.prepare()?;
        let log_file = File::create(template.log_file())?;
        let mut command = command(&template.command(), &template.environment())?;
        let server = command
            .current_dir(template.working_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .spawn()?;
        Ok((server, record, has_record))
    });
    spawned.await.map_err(io::Error::other)?
}

fn command(words: &[OsString], variables: &SandboxVariables) -> io::Result<Command> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().kill_on_drop(true);
    for (name, value) in variables {
        command.env(name, value.expose_secret());
    }
    Ok(command)
}

/// Stores the results for the next server. Without them it takes longer to start.
async fn store(record: RecordKey, modules: Vec<String>) {
    let stored = tokio::task::spawn_blocking(move || record.store(modules)).await;
    if let Err(error) = stored.map_err(io::Error::other).flatten() {
        tracing::debug!(error = %chain(&error), "cannot store what the fork server has found out");
    }
}

/// What the server prints once it listens.
#[derive(Deserialize)]
struct ReadyLine {
    /// The modules that its rehearsal, or an earlier one, loaded.
    modules: Vec<String>,
}

/// Waits until the server listens. Libraries may print other lines.
async fn await_imports(server: &mut Child) -> io::Result<Vec<String>> {
    let stdout = server.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut lines = BufReader::new(stdout).lines();
    let ready = async {
        while let Some(line) = lines.next_line().await? {
            if let Ok(ready) = serde_json::from_str::<ReadyLine>(&line) {
                return Ok(ready.modules);
            }
        }
        Err(io::Error::other("it ended while it imported its libraries"))
    };
    timeout(IMPORT_TIMEOUT, ready).await?
}

/// Fails if two agent servers of this fork server do not behave like booted ones.
async fn test(template: &ForkServerTemplate) -> io::Result<()> {
    let mut command = command(&template.self_test_command()?, &SandboxVariables::new())?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let document = serde_json::to_vec(&template.self_test_document())?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let exchange = async move {
        let mut stdin = stdin.ok_or(io::ErrorKind::BrokenPipe)?;
        // It may end before it has read all; its exit says more.
        let _ = stdin.write_all(&document).await;
        drop(stdin);
        let mut output = Vec::new();
        stderr
            .ok_or(io::ErrorKind::BrokenPipe)?
            .read_to_end(&mut output)
            .await?;
        Ok::<_, io::Error>((child.wait().await?, output))
    };
    let (status, output) = timeout(SELF_TEST_TIMEOUT, exchange).await??;
    if status.success() {
        return Ok(());
    }
    let start = output.len().saturating_sub(MAX_FAILURE_BYTES);
    let output = String::from_utf8_lossy(output.get(start..).unwrap_or_default());
    Err(io::Error::other(format!(
        "its self-test failed ({status}): {output}"
    )))
}
