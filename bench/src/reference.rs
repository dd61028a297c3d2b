//! The reference implementation as a program, beside ours.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use acceptance::Client;
use acceptance::agent_server::variable_of;

/// A Python that has `openhands-ai`, if the person who runs this names one.
#[must_use]
pub fn python() -> Option<String> {
    variable_of("BENCH_REFERENCE_PYTHON")
}

/// The key of another server that is compared with. No argument: others could read it.
#[must_use]
pub fn key() -> Option<String> {
    variable_of("BENCH_KEY")
}

/// Its process; ended with the value.
#[derive(Debug)]
pub struct Running {
    child: Child,
    url: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts it on a free port; it does not answer at once.
    ///
    /// # Errors
    /// When there is no such program.
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
            // Byte code is kept, as for a user.
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

    /// A client with a connection of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.url.clone(), "")
    }

    /// Where it listens.
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
