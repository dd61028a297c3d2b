//! A data directory, scripts as agent servers, and helpers that read `/proc` without the code under test.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::id::{HostId, SandboxId};
use domain::sandbox::{
    BackendFact, BackendState, PrepareProgress, SandboxLaunch, SandboxLifecycle,
};
use endpoint_guard::EndpointGuard;
use futures::stream::BoxStream;
use futures::{StreamExt, future::ready};
use sandbox_process::launcher::Launcher;
use sandbox_process::{
    AgentServerSource, Confinement, NetworkPolicy, ProcessConfig, ProcessLimits, ProcessSandboxes,
};
use secrecy::SecretString;
use tempfile::TempDir;
use url::Url;

/// Deadline of everything that a test waits for: far longer than a busy machine needs.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// Whether this test program confines its sandboxes; another one has the same tests without.
pub(crate) const IS_CONFINED: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"confined");

/// Waits for a signal.
pub(crate) const IDLE: &str = "sleep 600 & echo ready > workspace/ready; wait";

/// The directories and processes of a test, removed at its end.
pub(crate) struct ProcessFixture {
    pub(crate) dir: TempDir,
    pub(crate) instance: HostId,
}

impl ProcessFixture {
    pub(crate) fn new() -> Self {
        // In `/tmp`, so that the runtime directory in it is short enough.
        let dir = tempfile::Builder::new()
            .prefix("aw")
            .tempdir_in("/tmp")
            .unwrap();
        let name = dir
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace('.', "_");
        let fixture = Self {
            dir,
            instance: HostId::parse(name).unwrap(),
        };
        fixture.set_agent_script(IDLE);
        fixture
    }

    /// Replaces the agent server by this script. `$4` is the port; it runs in the sandbox's directory.
    pub(crate) fn set_agent_script(&self, body: &str) {
        let path = self.agent();
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(unfinished, path).unwrap();
    }

    /// Replaces the agent server by one that listens: this test binary, as [`fake_agent_server`].
    pub(crate) fn listening_script(&self) {
        let exe = std::env::current_exe().unwrap();
        self.set_agent_script(&format!(
            "FAKE_AGENT_SERVER=$4 exec {} --exact support::fake_agent_server --nocapture $4",
            exe.display()
        ));
    }

    pub(crate) fn agent(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    pub(crate) fn config(&self) -> ProcessConfig {
        let command = vec![self.agent().into_os_string()];
        let source = AgentServerSource::Command(command);
        let mut config = ProcessConfig::new(self.dir.path(), self.instance.clone(), source);
        // Scripts do not listen, so a start would hold its permit until the boot time-out.
        config.parallel_starts = 100;
        if IS_CONFINED {
            let tests = std::env::current_exe().unwrap();
            config.launcher = Launcher::Binary(env!("CARGO_BIN_EXE_sandbox-helper").into());
            config.confinement = Some(Confinement {
                search_path: "/usr/sbin:/usr/bin:/sbin:/bin".into(),
                readable_paths: vec![tests.parent().unwrap().into()],
                writable_paths: Vec::new(),
                limits: ProcessLimits::default(),
                network: NetworkPolicy::Open,
                egress: None,
                reachable_networks: Vec::new(),
                callbacks: Arc::default(),
            });
        }
        config
    }

    pub(crate) async fn backend(&self) -> ProcessSandboxes {
        ProcessSandboxes::new(self.config()).await.unwrap()
    }

    /// The directory of a sandbox.
    pub(crate) fn root(&self, id: &SandboxId) -> PathBuf {
        self.dir.path().join("sandboxes").join(id.as_str())
    }

    /// Waits until the script has written the file `ready`, and removes it.
    pub(crate) async fn ready(&self, id: &SandboxId) {
        let file = self.root(id).join("workspace/ready");
        wait_until("the script is ready", || file.exists()).await;
        fs::remove_file(file).unwrap();
    }

    /// Pids of the live processes with the sandbox's marker.
    pub(crate) fn marked_pids(&self, id: &SandboxId) -> Vec<i32> {
        pids_with_variable(&format!("AGENT_WORKSPACE_SANDBOX={}/{id}", self.instance))
    }

    /// Fails if a live process has the sandbox's marker.
    pub(crate) fn assert_none_left(&self, id: &SandboxId) {
        let pids = self.marked_pids(id);
        assert!(pids.is_empty(), "processes still run: {pids:?}");
    }

    /// The main process, as the state file has it.
    pub(crate) fn main_pid(&self, id: &SandboxId) -> i32 {
        let state = fs::read(self.root(id).join("process.json")).unwrap();
        let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
        i32::try_from(state["process"]["pid"].as_i64().unwrap()).unwrap()
    }
}

/// Kills all processes, also when a test fails.
impl Drop for ProcessFixture {
    fn drop(&mut self) {
        let prefix = format!("AGENT_WORKSPACE_SANDBOX={}/", self.instance);
        for pid in pids_with_variable(&prefix) {
            signal("KILL", pid);
        }
    }
}

/// Live processes with this variable, or with one that starts with this prefix if it ends with `/`.
pub(crate) fn pids_with_variable(start: &str) -> Vec<i32> {
    let has_variable = |pid: i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let is_prefix = start.ends_with('/');
        environ.split(|byte| *byte == 0).any(|pair| {
            if is_prefix {
                pair.starts_with(start.as_bytes())
            } else {
                pair == start.as_bytes()
            }
        })
    };
    let names = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .filter(|pid| has_variable(*pid))
        .collect()
}

/// `R`, `S`, `Z`, …; `None` when there is no such process.
pub(crate) fn process_state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// Process group and session.
pub(crate) fn group_and_session(pid: i32) -> (i32, i32) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let mut fields = stat[stat.rfind(')').unwrap() + 2..].split(' ').skip(2);
    let mut next = || fields.next().unwrap().parse().unwrap();
    (next(), next())
}

pub(crate) fn signal(name: &str, pid: i32) {
    let status = std::process::Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status();
    status.unwrap();
}

/// Polls a condition that has no event. Panics with its description after [`WAIT_TIMEOUT`].
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + WAIT_TIMEOUT;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "never true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the agent server of a sandbox accepts connections of the service.
pub(crate) async fn wait_for_listener(
    backend: &ProcessSandboxes,
    id: &SandboxId,
    address: SocketAddr,
) {
    let connected = async {
        loop {
            match backend.connect(id.as_str(), address).await {
                Ok(Some(_)) => return,
                Ok(None) if backend.prove(id.as_str(), address).await.is_ok() => return,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, connected)
        .await
        .expect("the agent server listens");
}

pub(crate) fn launch(id: &str) -> SandboxLaunch {
    SandboxLaunch {
        id: SandboxId::parse(id).unwrap(),
        owner: domain::id::OwnerId::parse("alice").unwrap(),
        spec: domain::id::SpecId::parse("process").unwrap(),
        session_key: SecretString::from("canary-session-key"),
        secret_key: SecretString::from("canary-secret-key"),
        webhook_url: Url::parse("http://127.0.0.1:1/api/v1/webhooks").unwrap(),
        cors_origins: vec!["https://app.test".into()],
        dormant: false,
        progress: PrepareProgress::silent(),
    }
}

pub(crate) async fn state(backend: &ProcessSandboxes, id: &SandboxId) -> Option<BackendState> {
    backend.inspect(id).await.unwrap()
}

/// The next reported state of a sandbox.
pub(crate) async fn next_state(
    facts: &mut BoxStream<'static, BackendFact>,
    id: &SandboxId,
) -> BackendState {
    let mut of_sandbox = facts.filter(|fact| ready(fact.id == *id));
    let fact = tokio::time::timeout(WAIT_TIMEOUT, of_sandbox.next()).await;
    fact.expect("a reported state")
        .expect("the stream of facts does not end")
        .state
}

/// The detail of the next reported exit.
pub(crate) async fn exit_reported(
    facts: &mut BoxStream<'static, BackendFact>,
    id: &SandboxId,
) -> String {
    loop {
        if let BackendState::Exited { detail } = next_state(facts, id).await {
            return detail;
        }
    }
}

/// Not a test: the listening agent server, if the environment makes this binary one.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a variable makes the test binary a server"
)]
fn fake_agent_server() {
    let Ok(port) = std::env::var("FAKE_AGENT_SERVER") else {
        return;
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse().unwrap())).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
}
