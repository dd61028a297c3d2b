//! Installs the agent server on first use, into a virtual environment in the data directory. The automations service is installed
//! the same way.
//!
//! Knows: Python, `pip` and `uv`. Must never know: sandboxes.
//!
//! ```text
//! <data>/agent-server/
//!   lock                      held (flock) while something is installed, also by the running step itself
//!   1.58.0-<hash>/            built in place, because virtual environments cannot be moved
//!     .complete               written last and synced; a folder without it is removed and built again
//!     boot.py                 the start script; written whenever the installation is looked up
//!     fork-server.json        what a fork server of it has found out
//! ```
//!
//! The hash covers the exact requirements and the Python, so changing either creates a new installation beside the old one,
//! which running sandboxes may still use.

mod boot;
mod child;
mod config;
mod error;
mod install;
mod package;
mod python;
mod tested;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use domain::error::chain;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

pub use config::{Config, InstallEnvironment};
pub(crate) use error::ProvisionError;
pub use package::PythonProgram;

use python::PythonInterpreter;

/// An installed program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledProgram {
    program: PythonProgram,
    /// The virtual environment.
    pub root: PathBuf,
}

impl InstalledProgram {
    /// The Python of the virtual environment.
    pub fn python(&self) -> PathBuf {
        self.root.join("bin/python")
    }

    /// The command that starts it (without `--host` and `--port`).
    pub fn command(&self) -> Vec<OsString> {
        let mut words = vec![self.python().into_os_string()];
        words.extend(self.program.arguments(&self.root));
        words
    }
}

/// Installs a program, once per set of requirements.
#[derive(Clone)]
pub struct Provisioner {
    config: Arc<Config>,
    requirements: Arc<Vec<String>>,
    /// The real path of `<data>/agent-server`, which an operator may have linked to another disk. Confined sandboxes see an
    /// installation at this path.
    dir: PathBuf,
}

impl std::fmt::Debug for Provisioner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provisioner")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Content of `.complete`.
#[derive(Debug, Serialize, Deserialize)]
struct InstallationMarker {
    requirements: Vec<String>,
    python: PathBuf,
    python_version: String,
}

impl Provisioner {
    /// Checks the configuration without changing anything. Blocks.
    pub fn new(config: Config) -> Result<Self, ProvisionError> {
        let requirements = requirements(&config)?;
        if !config.data_dir.is_absolute() {
            return Err(ProvisionError::Configuration(
                "the data directory must be an absolute path (WORKSPACE_DATA_DIR)".into(),
            ));
        }
        let data_dir = fs::canonicalize(&config.data_dir).unwrap_or(config.data_dir.clone());
        let dir = data_dir.join(config.program.folder());
        Ok(Self {
            config: Arc::new(config),
            requirements: Arc::new(requirements),
            dir: fs::canonicalize(&dir).unwrap_or(dir),
        })
    }

    pub(crate) fn requirements(&self) -> &[String] {
        &self.requirements
    }

    /// The version to install.
    pub fn version(&self) -> &str {
        &self.config.version
    }

    /// The finished installation, if there is one and it still runs. Takes some milliseconds.
    pub async fn find(&self) -> Option<InstalledProgram> {
        let (dir, requirements) = (self.dir.clone(), Arc::clone(&self.requirements));
        let (version, python) = (self.config.version.clone(), self.config.python.clone());
        let roots = tokio::task::spawn_blocking(move || {
            complete_in(&dir, &version, &requirements, python.as_deref())
        });
        for root in roots.await.unwrap_or_default() {
            let server = InstalledProgram {
                program: self.config.program,
                root,
            };
            // The Python that the virtual environment is based on may have been removed since.
            let mut command = self.command(server.python());
            command.args(["-I", "-c", "pass"]);
            let limit = self.config.deadlines.probe;
            let cause = match child::run(command, Stdio::null(), limit, |_| {}).await {
                Ok(finished) if finished.status.success() => {
                    write_boot_script(&server).await;
                    return Some(server);
                }
                Ok(finished) => finished.status.to_string(),
                Err(child::RunError::Io(error)) => chain(&error),
                Err(child::RunError::TooLong(_)) => "does not end in time".to_owned(),
            };
            tracing::warn!(
                root = %server.root.display(),
                cause,
                "{} is installed and cannot run; installing it again",
                self.config.program.name()
            );
        }
        None
    }

    /// Installs the program if needed. Dropping the future stops the installation; the next call restarts it.
    /// Concurrent tasks and processes may call this: one installs, the others wait.
    pub async fn ensure(&self) -> Result<InstalledProgram, ProvisionError> {
        if let Some(server) = self.find().await {
            return Ok(server);
        }
        let lock = self.lock().await?;
        if let Some(server) = self.find().await {
            return Ok(server);
        }
        let server = self.install(&lock).await?;
        write_boot_script(&server).await;
        Ok(server)
    }

    /// Waits for the installation lock. The returned file *and* every step with it as standard input hold the lock.
    async fn lock(&self) -> Result<File, ProvisionError> {
        const STEP: &str = "waiting for another installation";
        let dir = self.dir.clone();
        let file = blocking("opening the lock", move || {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)?;
            File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(dir.join("lock"))
        })
        .await?;
        let started = Instant::now();
        let mut backoff = Duration::from_millis(5);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(source)) => {
                    return Err(ProvisionError::io(STEP)(source));
                }
            }
            if backoff >= Duration::from_millis(500) && backoff < Duration::from_secs(1) {
                tracing::info!(
                    "another process installs {}; waiting for it",
                    self.config.program.name()
                );
            }
            let limit = self.config.deadlines.lock;
            if started.elapsed() > limit {
                return Err(ProvisionError::TooLong {
                    step: STEP,
                    limit,
                    tail: Vec::new(),
                });
            }
            // The kernel has no event for a released lock, except by blocking a thread.
            sleep(backoff).await;
            backoff = (backoff * 2).min(Duration::from_secs(1));
        }
    }

    /// A command with only the permitted environment. `uv` has certificates of its own otherwise, and does not trust those that
    /// the machine's operator has added.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("UV_SYSTEM_CERTS", "1");
        command.envs(self.config.environment.iter());
        command
    }

    /// `<version>-<hash of requirements and Python>`.
    fn root(&self, python: &PythonInterpreter) -> PathBuf {
        let requirements = self.requirements.iter().map(String::as_bytes);
        let python = [
            python.program.as_os_str().as_encoded_bytes(),
            python.version.as_bytes(),
        ];
        let short = sandbox_provider::short_digest(&requirements.chain(python).collect::<Vec<_>>());
        self.dir.join(format!("{}-{short}", self.config.version))
    }
}

/// The exact requirements, validated: they become part of a file name and a requirements file.
fn requirements(config: &Config) -> Result<Vec<String>, ProvisionError> {
    let (program, version) = (config.program, &config.version);
    let is_plain = version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+!".contains(&b))
        && !version.contains("..");
    if !is_plain || version.len() > 40 {
        let problem = format!(
            "invalid version {version:?} of {} ({})",
            program.name(),
            program.version_setting()
        );
        return Err(ProvisionError::Configuration(problem));
    }
    Ok(program.requirements(version))
}

/// The finished installations of exactly these requirements. Blocks.
fn complete_in(
    dir: &Path,
    version: &str,
    requirements: &[String],
    python: Option<&Path>,
) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let prefix = format!("{version}-");
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(&prefix))
        })
        .filter(|path| {
            let text = fs::read(path.join(install::MARKER)).unwrap_or_default();
            serde_json::from_slice::<InstallationMarker>(&text).is_ok_and(|marker| {
                marker.requirements == requirements
                    && python.is_none_or(|python| {
                        fs::canonicalize(python).is_ok_and(|python| python == marker.python)
                    })
            })
        })
        .collect();
    found.sort();
    found
}

/// Without the script the program starts too.
async fn write_boot_script(server: &InstalledProgram) {
    let (root, script) = (server.root.clone(), server.program.boot_script());
    let written = blocking("writing boot.py", move || boot::write_script(&root, script));
    if let Err(error) = written.await {
        tracing::debug!(error = %chain(&error), root = %server.root.display(), "cannot write boot.py: {} starts without it", server.program.name());
    }
}

/// Runs file-system work off the async workers.
async fn blocking<T: Send + 'static>(
    step: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ProvisionError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(ProvisionError::io(step))
}
