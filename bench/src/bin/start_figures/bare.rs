//! The agent server alone, with the environment that it would have in a sandbox: what a cold start cannot be faster than.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use acceptance::engine::{Engine, agent_server_image};
use acceptance::{Sandboxing, Version};
use anyhow::{Context as _, ensure};

/// What sandboxes have, so that it does the same work.
const VARIABLES: [(&str, &str); 8] = [
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("OH_PRELOAD_TOOLS", "0"),
    ("OH_SESSION_API_KEYS_0", "bare"),
    ("OH_SECRET_KEY", "bare"),
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ("LOG_JSON", "true"),
    ("PYTHONUNBUFFERED", "1"),
];
/// What only containers have: their template names a port for VS Code, which the agent server then looks for.
const IN_CONTAINERS: [&str; 5] = [
    "OH_ENABLE_VSCODE=1",
    "OH_VSCODE_PORT=8001",
    "OH_ENABLE_VNC=0",
    "OH_WORKSPACE_PATH=/workspace/project",
    "OH_CONVERSATIONS_PATH=/workspace/conversations",
];
/// What the engine does for a sandbox of the built-in template, but for its network, which all share: ports, a fresh volume, limits,
/// rights, a log with an end (`crates/sandbox-docker/src/container.rs`).
const AS_A_SANDBOX: [&str; 34] = [
    "--publish",
    "127.0.0.1::8000",
    "--publish",
    "127.0.0.1::8001",
    "--publish",
    "127.0.0.1::8011",
    "--publish",
    "127.0.0.1::8012",
    "--mount",
    "type=volume,target=/workspace",
    "--workdir",
    "/workspace/project",
    "--memory",
    "4g",
    "--memory-swap",
    "4g",
    "--cpus",
    "2",
    "--pids-limit",
    "1024",
    "--cap-drop",
    "ALL",
    "--cap-add",
    "CHOWN",
    "--cap-add",
    "DAC_OVERRIDE",
    "--cap-add",
    "SETUID",
    "--security-opt",
    "no-new-privileges",
    "--add-host",
    "host.docker.internal:host-gateway",
    "--log-opt",
    "max-size=10m",
];
/// Where the image has its Python (`crates/xtask/src/images/agent_server.rs`).
const PYTHON: &str = "/opt/agent-server/bin/python";
/// As often as a start is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// A bare boot.
pub(crate) struct BareBoot;

impl BareBoot {
    /// From the creation of the process (the `docker run` of the container) to the first 200 of `/health`. It is ended
    /// afterwards.
    pub(crate) async fn boot(
        sandboxing: &Sandboxing,
        version: Version,
    ) -> anyhow::Result<Duration> {
        match sandboxing {
            Sandboxing::Process => Self::process(version).await,
            Sandboxing::Docker(engine) => Self::container(engine, version).await,
        }
    }

    async fn process(version: Version) -> anyhow::Result<Duration> {
        let place = tempfile::tempdir()?;
        let port = free_port()?;
        let command = version.command();
        let program = command.split_whitespace().next();
        let program = program.context("a command has a program")?;
        let program = program.trim_matches('\'');
        let folder = Path::new(program).parent().unwrap_or(Path::new("/"));
        let began = Instant::now();
        let child = Command::new(program)
            // As its maker starts it, without what the service does for the boot.
            .args(["-m", "openhands.agent_server"])
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display()),
            )
            .env("HOME", place.path())
            .env("TMPDIR", place.path())
            .env("TMUX_TMPDIR", place.path())
            .envs(VARIABLES)
            .env("OH_ENABLE_VSCODE", "0")
            .current_dir(place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let _child = ProcessEnd(child);
        answers(&format!("http://127.0.0.1:{port}"), began).await?;
        Ok(began.elapsed())
    }

    async fn container(engine: &Engine, version: Version) -> anyhow::Result<Duration> {
        let image = agent_server_image(version);
        let variables = VARIABLES.map(|(name, value)| format!("{name}={value}"));
        let mut arguments = vec!["run", "--detach", "--init"];
        arguments.extend(AS_A_SANDBOX);
        let variables = variables.iter().map(String::as_str).chain(IN_CONTAINERS);
        arguments.extend(variables.flat_map(|it| ["--env", it]));
        // As its maker starts it, too.
        arguments.extend([
            "--entrypoint",
            PYTHON,
            &image,
            "-m",
            "openhands.agent_server",
        ]);
        arguments.extend(["--host", "0.0.0.0", "--port", "8000"]);
        let began = Instant::now();
        let id = engine.docker(&arguments);
        let container = BareContainer { engine, id: &id };
        let place = engine.docker(&["port", container.id, "8000/tcp"]);
        let place = place.lines().next().context("no port is published")?;
        answers(&format!("http://{place}"), began).await?;
        Ok(began.elapsed())
    }
}

/// Killed and waited for when it is dropped.
struct ProcessEnd(Child);

impl Drop for ProcessEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Removed when it is dropped.
struct BareContainer<'a> {
    engine: &'a Engine,
    id: &'a str,
}

impl Drop for BareContainer<'_> {
    fn drop(&mut self) {
        let _ = self
            .engine
            .try_docker(&["rm", "--force", "--volumes", self.id]);
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn answers(url: &str, began: Instant) -> anyhow::Result<()> {
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(START_TIMEOUT)
        .build()?;
    let health = format!("{url}/health");
    loop {
        if let Ok(answer) = http.get(&health).send().await
            && answer.status().is_success()
        {
            return Ok(());
        }
        ensure!(
            began.elapsed() < START_TIMEOUT,
            "a bare agent server does not answer"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
