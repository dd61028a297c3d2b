//! A bare boot of the agent server, with the environment of a sandbox: the lower bound of a cold start.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use acceptance::engine::{Engine, agent_server_image};
use acceptance::{Sandboxing, Version};
use anyhow::{Context as _, ensure};

/// Variables of every sandbox, so that the boot does the same work.
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
/// Variables of containers only: their template names a port for VS Code, which the agent server then searches for.
const CONTAINER_VARIABLES: [&str; 5] = [
    "OH_ENABLE_VSCODE=1",
    "OH_VSCODE_PORT=8001",
    "OH_ENABLE_VNC=0",
    "OH_WORKSPACE_PATH=/workspace/project",
    "OH_CONVERSATIONS_PATH=/workspace/conversations",
];
/// Options of a sandbox of the built-in template, as in `crates/sandbox-docker/src/container/mod.rs`: ports, a new volume,
/// limits, capabilities, a bounded log. The network is the default one.
const SANDBOX_OPTIONS: [&str; 34] = [
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
/// The image's Python (`crates/xtask/src/install/images/agent_server.rs`).
const PYTHON: &str = "/opt/agent-server/bin/python";
/// The same as for a start.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const START_TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) struct BareBoot;

impl BareBoot {
    /// Times a boot from the creation of the process or container to the first 200 of `/health`, then stops it.
    pub(crate) async fn boot(
        sandboxing: &Sandboxing,
        version: Version,
    ) -> anyhow::Result<Duration> {
        match sandboxing {
            Sandboxing::Process | Sandboxing::UnconfinedProcess => Self::process(version).await,
            Sandboxing::Docker(engine) => Self::container(engine, version).await,
        }
    }

    async fn process(version: Version) -> anyhow::Result<Duration> {
        let dir = tempfile::tempdir()?;
        let port = free_port()?;
        let command = version.command();
        let program = command.split_whitespace().next();
        let program = program.context("the command has no program")?;
        let program = program.trim_matches('\'');
        let folder = Path::new(program).parent().unwrap_or(Path::new("/"));
        let began = Instant::now();
        let child = Command::new(program)
            // Without the service's changes that make it boot faster.
            .args(["-m", "openhands.agent_server"])
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display()),
            )
            .env("HOME", dir.path())
            .env("TMPDIR", dir.path())
            .env("TMUX_TMPDIR", dir.path())
            .envs(VARIABLES)
            .env("OH_ENABLE_VSCODE", "0")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let _child = KilledProcess(child);
        wait_until_healthy(&format!("http://127.0.0.1:{port}"), began).await?;
        Ok(began.elapsed())
    }

    async fn container(engine: &Engine, version: Version) -> anyhow::Result<Duration> {
        let image = agent_server_image(version);
        let variables = VARIABLES.map(|(name, value)| format!("{name}={value}"));
        let mut arguments = vec!["run", "--detach", "--init"];
        arguments.extend(SANDBOX_OPTIONS);
        let variables = variables
            .iter()
            .map(String::as_str)
            .chain(CONTAINER_VARIABLES);
        arguments.extend(variables.flat_map(|it| ["--env", it]));
        // Also without those changes.
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
        let dir = engine.docker(&["port", container.id, "8000/tcp"]);
        let dir = dir.lines().next().context("no port is published")?;
        wait_until_healthy(&format!("http://{dir}"), began).await?;
        Ok(began.elapsed())
    }
}

/// Dropping it kills the process.
struct KilledProcess(Child);

impl Drop for KilledProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Dropping it removes the container.
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

async fn wait_until_healthy(url: &str, began: Instant) -> anyhow::Result<()> {
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
            "a bare agent server does not respond"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
