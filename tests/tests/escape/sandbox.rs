//! A sandbox of the suite, and commands in it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use acceptance::processes::Process;
use acceptance::{Client, Service};
use serde_json::{Value, json};

use crate::attempts::{AttemptResult, SCRIPTS};

/// Until a sandbox runs.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Seconds of one command: all attempts together.
const COMMAND_TIMEOUT_SECONDS: u64 = 100;

/// A running sandbox.
pub(crate) struct EscapeSandbox {
    pub(crate) id: String,
    /// Its first key.
    pub(crate) key: String,
    /// Its directory, which has the same path inside and outside.
    pub(crate) root: PathBuf,
    /// The service with the sandbox's present key, which leads to its agent server.
    client: Mutex<Client>,
}

impl EscapeSandbox {
    pub(crate) async fn start(service: &Service, user: &Client) -> Self {
        let id = user.start_sandbox().await.id;
        let running = user.wait_for_sandbox_status(&id, "RUNNING", START_TIMEOUT);
        let key = running.await.session_api_key.expect("it has a key");
        let sandbox = Self {
            root: service.sandbox_dir(&id),
            client: Mutex::new(user.with_long_timeout().with_key(&key)),
            id,
            key,
        };
        let scripts = sandbox.workspace().join("escape");
        std::fs::create_dir(&scripts).expect("cannot write to the workspace");
        // A confined sandbox has a user of its own.
        let everybody = Permissions::from_mode(0o777);
        std::fs::set_permissions(&scripts, everybody).expect("cannot change the workspace");
        for (name, text) in SCRIPTS {
            std::fs::write(scripts.join(name), text).expect("cannot write to the workspace");
        }
        sandbox
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// The agent server, as the host sees it.
    pub(crate) fn agent_server(&self, service: &Service) -> Process {
        let all = service.processes().into_iter();
        let mut servers = all.filter(|it| it.sandbox == self.id && is_agent_server(&it.arguments));
        servers.next().expect("the agent server does not run")
    }

    /// A variable that the service gave the sandbox. A forked agent server shows none, but init does.
    pub(crate) fn variable(&self, service: &Service, name: &str) -> Option<String> {
        let all = service.processes().into_iter();
        let own = all.filter(|it| it.sandbox == self.id);
        let mut values = own.filter_map(|it| it.variable(name).map(str::to_owned));
        values.next()
    }

    /// Starts it again, with a new key.
    pub(crate) async fn resume(&self, user: &Client) {
        let key = user.resume(&self.id).await.session_api_key;
        let client = user
            .with_long_timeout()
            .with_key(&key.expect("it has a key"));
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Runs a command and returns the exit code and the output.
    pub(crate) async fn try_run(&self, command: &str) -> Result<(i64, String), String> {
        let body = json!({
            "command": command,
            "cwd": self.workspace(),
            "timeout": COMMAND_TIMEOUT_SECONDS,
        });
        let path = "/api/bash/execute_bash_command";
        let client = self
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let reply = client.try_call(reqwest::Method::POST, path, Some(&body));
        let reply = reply.await.map_err(|error| error.to_string())?;
        if reply.status != 200 {
            return Err(format!("{}: {}", reply.status, reply.text));
        }
        let text = |name: &str| reply.body[name].as_str().unwrap_or_default().to_owned();
        let code = reply.body["exit_code"].as_i64().unwrap_or(-1);
        Ok((code, text("stdout") + &text("stderr")))
    }

    /// Runs a command that must succeed.
    pub(crate) async fn run(&self, command: &str) -> String {
        let (code, output) = self
            .try_run(command)
            .await
            .expect("the command was not run");
        assert_eq!(code, 0, "{command}: {output}");
        output
    }

    /// Writes what the attempts must know.
    pub(crate) fn write_aims(&self, aims: &Value) {
        let file = self.workspace().join("escape/aims.json");
        std::fs::write(file, aims.to_string()).expect("cannot write to the workspace");
    }

    /// Makes attempts, whose results come in a file: a command's output may be truncated.
    pub(crate) async fn make_attempts(&self, names: &[String]) -> Vec<AttemptResult> {
        let command = format!(
            "{} escape/runner.py escape/aims.json {} > escape/results 2> escape/errors",
            python().command,
            names.join(" ")
        );
        let ended = self.try_run(&command).await;
        let read = |name: &str| read_lossy(&self.workspace().join("escape").join(name));
        let results: Vec<AttemptResult> = read("results")
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if results.len() < names.len() {
            acceptance::print_line(&format!("{ended:?} {}", read("errors")));
        }
        results
    }
}

/// The interpreter of the scripts.
pub(crate) struct Python {
    /// The program with its options.
    pub(crate) command: String,
    /// The directory of its installation, which may be one that sandboxes do not see by themselves.
    pub(crate) prefix: String,
}

pub(crate) fn python() -> &'static Python {
    static FOUND: OnceLock<Python> = OnceLock::new();
    FOUND.get_or_init(|| {
        let print =
            "import os, sys; print(os.path.realpath(sys.executable)); print(sys.base_prefix)";
        let output = Command::new("python3").args(["-c", print]).output();
        let output = output.expect("cannot run python3");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (program, prefix) = text.trim().split_once('\n').expect("python3 works");
        Python {
            // Without files of byte code.
            command: format!("{program} -B"),
            prefix: prefix.to_owned(),
        }
    })
}

fn is_agent_server(arguments: &[String]) -> bool {
    let program = arguments.first().map(String::as_str).unwrap_or_default();
    !program.ends_with("bwrap") && arguments.iter().any(|argument| argument == "--port")
}

/// A file as text; empty if there is none.
pub(crate) fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
