//! The reference implementation, as a process.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use reqwest::Method;

use acceptance::Client;
use acceptance::agent_server::variable_of;

const START_TIMEOUT: Duration = Duration::from_secs(600);

/// The Python with `openhands-ai` that `BENCH_REFERENCE_PYTHON` names.
#[must_use]
pub fn python() -> Option<String> {
    variable_of("BENCH_REFERENCE_PYTHON")
}

/// The API key of another server to compare with. Not an argument, because other users could read it.
#[must_use]
pub fn key() -> Option<String> {
    variable_of("BENCH_KEY")
}

/// A running reference. Dropping it kills it.
#[derive(Debug)]
pub struct ReferenceProcess {
    child: Child,
    url: String,
}

impl Drop for ReferenceProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ReferenceProcess {
    /// Starts it on a free port, and does not wait until it responds.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn start(python: &str, data: &Path, variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port().to_string();
        drop(listener);
        let child = Command::new(python)
            .args(["-m", "uvicorn", "openhands.app_server.app:app"])
            .args(["--host", "127.0.0.1", "--port", &port])
            .env("OH_PERSISTENCE_DIR", data)
            .env("SERVE_FRONTEND", "false")
            .env("OH_SANDBOX_HOST_PORT", &port)
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .envs(variables.iter().copied())
            // Python keeps its byte code, as for a user.
            .env_remove("PYTHONDONTWRITEBYTECODE")
            .current_dir(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {python}"))?;
        let url = format!("http://127.0.0.1:{port}");
        Ok(Self { child, url })
    }

    /// Waits until it responds, polling at this interval.
    ///
    /// # Errors
    /// When it does not respond in time.
    pub async fn wait_until_ready(&self, interval: Duration) -> anyhow::Result<()> {
        let client = self.client();
        let alive = async || client.try_call(Method::GET, "/alive", None).await.is_ok();
        let polled = async {
            while !alive().await {
                tokio::time::sleep(interval).await;
            }
        };
        let ready = tokio::time::timeout(START_TIMEOUT, polled).await;
        ready.context("the reference does not start")
    }

    /// A client with its own connection.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.url.clone(), "")
    }

    /// Its base URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}
