//! The steps of an installation, in order.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use domain::error::chain;
use secrecy::ExposeSecret;
use tokio::process::Command;

use super::python::{self, PythonInterpreter};
use super::tested;
use super::{InstallationMarker, InstalledAgentServer, ProvisionError, Provisioner, blocking};

/// Exists only in a finished installation.
pub(super) const MARKER: &str = ".complete";

/// The lower bound for `uv` if it has to download a Python.
const PYTHON_FOR_UV: &str = "3.12";

impl Provisioner {
    /// Installs under the lock.
    pub(super) async fn install(
        &self,
        lock: &File,
    ) -> Result<InstalledAgentServer, ProvisionError> {
        let uv = self.uv().await;
        let python = self.python(uv.as_deref(), lock).await?;
        let root = self.root(&python);
        tracing::info!(
            version = %self.config.version,
            python = %python.program.display(),
            with = if uv.is_some() { "uv" } else { "pip" },
            root = %root.display(),
            "the agent server is not installed yet; installing it"
        );
        self.clear(&root, lock).await?;
        self.create_environment(uv.as_deref(), &python, &root, lock)
            .await?;
        let server = InstalledAgentServer { root };
        self.install_packages(uv.as_deref(), &server, lock).await?;
        self.compile(&server, lock).await?;
        self.verify(&server, lock).await?;
        self.complete(&server, &python, lock).await?;
        tracing::info!(version = %self.config.version, "the agent server is installed");
        Ok(server)
    }

    /// Describes the Python and the installer that an installation would use. Changes nothing.
    pub async fn describe_python(&self) -> Result<String, ProvisionError> {
        let uv = self.uv().await;
        let search = python::search(&self.config, uv.is_some()).await;
        let may_download = self.config.python.is_none() && self.config.wheels.is_none();
        match (search.found, uv) {
            (Some(python), uv) => {
                let installer = if uv.is_some() { "uv" } else { "pip" };
                Ok(format!(
                    "Python {} at {}, with {installer}",
                    python.version,
                    python.program.display()
                ))
            }
            (None, Some(_)) if may_download => Ok("a Python that uv downloads".to_owned()),
            (None, _) => Err(ProvisionError::NoPython {
                rejected: search.rejected,
            }),
        }
    }

    async fn uv(&self) -> Option<PathBuf> {
        let environment = self.config.environment.clone();
        let search = move || python::on_path(&environment, "uv").into_iter().next();
        tokio::task::spawn_blocking(search).await.ok().flatten()
    }

    /// An installed Python, or one that `uv` downloads.
    async fn python(
        &self,
        uv: Option<&Path>,
        lock: &File,
    ) -> Result<PythonInterpreter, ProvisionError> {
        let mut search = python::search(&self.config, uv.is_some()).await;
        let may_download = self.config.python.is_none() && self.config.wheels.is_none();
        if let (None, Some(uv), true) = (&search.found, uv, may_download) {
            let mut command = self.command(uv);
            command.args(["python", "install", PYTHON_FOR_UV]);
            self.credentials(&mut command);
            let limit = self.config.deadlines.environment;
            match self
                .step("downloading a Python with uv", command, limit, lock)
                .await
            {
                Ok(()) => search = python::search(&self.config, true).await,
                Err(error) => search.rejected.push(format!("uv: {error}")),
            }
        }
        search.found.ok_or(ProvisionError::NoPython {
            rejected: search.rejected,
        })
    }

    /// Removes the rest of an interrupted installation.
    async fn clear(&self, root: &Path, lock: &File) -> Result<(), ProvisionError> {
        const STEP: &str = "removing an unfinished installation";
        let root = root.to_owned();
        // The work continues when this future is dropped, so it holds the lock as well.
        let lock = lock
            .try_clone()
            .map_err(|source| ProvisionError::Io { step: STEP, source })?;
        blocking(STEP, move || {
            let _lock = lock;
            match fs::remove_dir_all(&root) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
        .await
    }

    async fn create_environment(
        &self,
        uv: Option<&Path>,
        python: &PythonInterpreter,
        root: &Path,
        lock: &File,
    ) -> Result<(), ProvisionError> {
        let mut command;
        if let Some(uv) = uv {
            command = self.command(uv);
            command
                .args(["venv", "--python"])
                .arg(&python.program)
                .arg(root);
        } else {
            command = self.command(&python.program);
            command.args(["-I", "-m", "venv"]).arg(root);
        }
        let limit = self.config.deadlines.environment;
        self.step("creating the virtual environment", command, limit, lock)
            .await
    }

    /// Installs the tested libraries of this version if they are known and available, otherwise libraries that satisfy the
    /// requirements.
    async fn install_packages(
        &self,
        uv: Option<&Path>,
        server: &InstalledAgentServer,
        lock: &File,
    ) -> Result<(), ProvisionError> {
        let file = server.root.join("requirements.txt");
        let (path, text) = (file.clone(), self.requirements.join("\n") + "\n");
        blocking("writing the requirements", move || fs::write(path, text)).await?;
        if let Some(text) = self.tested() {
            let constraints = server.root.join("constraints.txt");
            let path = constraints.clone();
            blocking("writing the constraints", move || fs::write(path, text)).await?;
            let mut command = self.packages(uv, server, &file);
            command.arg("-c").arg(constraints);
            match self.install_step(command, lock).await {
                Err(error @ ProvisionError::Step { .. }) => tracing::warn!(
                    error = %chain(&error),
                    "the tested libraries of the agent server are unavailable; trying others that satisfy its \
                         requirements"
                ),
                result => return result,
            }
        }
        let command = self.packages(uv, server, &file);
        self.install_step(command, lock).await
    }

    async fn install_step(&self, command: Command, lock: &File) -> Result<(), ProvisionError> {
        let limit = self.config.deadlines.install;
        self.step("installing packages", command, limit, lock).await
    }

    /// The tested libraries. `None` with a folder of wheels, because that determines the versions.
    fn tested(&self) -> Option<String> {
        match self.config.wheels {
            None => tested::libraries(&self.config.version, &self.requirements),
            Some(_) => None,
        }
    }

    fn packages(
        &self,
        uv: Option<&Path>,
        server: &InstalledAgentServer,
        requirements: &Path,
    ) -> Command {
        let mut command;
        if let Some(uv) = uv {
            command = self.command(uv);
            command
                .args(["pip", "install", "--python"])
                .arg(server.python());
        } else {
            command = self.command(server.python());
            command.args([
                "-I",
                "-m",
                "pip",
                "install",
                "--no-input",
                "--progress-bar",
                "off",
            ]);
            command.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        }
        if let Some(wheels) = &self.config.wheels {
            command.arg("--no-index").arg("--find-links").arg(wheels);
        }
        command.arg("-r").arg(requirements);
        self.credentials(&mut command);
        command
    }

    /// Without byte code every start of a sandbox takes some seconds longer. Packages may contain files that do not
    /// compile, which makes the compiler's exit code 1: that is not an error.
    async fn compile(
        &self,
        server: &InstalledAgentServer,
        lock: &File,
    ) -> Result<(), ProvisionError> {
        let mut command = self.command(server.python());
        command
            .args(["-I", "-m", "compileall", "-q", "-j", "0"])
            .arg(server.root.join("lib"));
        let limit = self.config.deadlines.compile;
        match self.step("compiling byte code", command, limit, lock).await {
            Err(ProvisionError::Step { status, tail, .. }) if status.contains("exit status: 1") => {
                let last = tail.last().map(String::as_str).unwrap_or_default();
                tracing::warn!(
                    last,
                    "some files of the agent server's packages do not compile; the agent server loads them more slowly"
                );
                Ok(())
            }
            other => other,
        }
    }

    /// Detects an unusable installation now rather than in the first sandbox.
    async fn verify(
        &self,
        server: &InstalledAgentServer,
        lock: &File,
    ) -> Result<(), ProvisionError> {
        let mut command = self.command(server.python());
        command
            .args(["-m", "openhands.agent_server", "--help"])
            .current_dir(&server.root);
        // Without this, importing litellm requests a price list from the network.
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        let limit = self.config.deadlines.environment;
        self.step("running the agent server's --help", command, limit, lock)
            .await
    }

    /// Syncs everything to the disk before it writes the marker.
    async fn complete(
        &self,
        server: &InstalledAgentServer,
        python: &PythonInterpreter,
        lock: &File,
    ) -> Result<(), ProvisionError> {
        const STEP: &str = "finishing the installation";
        let lock = lock
            .try_clone()
            .map_err(|source| ProvisionError::Io { step: STEP, source })?;
        let marker = InstallationMarker {
            requirements: self.requirements.to_vec(),
            python: python.program.clone(),
            python_version: python.version.clone(),
        };
        let root = server.root.clone();
        blocking(STEP, move || {
            let _lock = lock;
            let dir = File::open(&root)?;
            rustix::fs::syncfs(&dir)?;
            let unfinished = root.join(".complete.tmp");
            let mut file = File::create(&unfinished)?;
            file.write_all(&serde_json::to_vec_pretty(&marker)?)?;
            file.sync_all()?;
            fs::rename(&unfinished, root.join(MARKER))?;
            dir.sync_all()
        })
        .await
    }

    /// Passes index and proxy by environment: every user can read the arguments of a process.
    fn credentials(&self, command: &mut Command) {
        if let Some(index) = &self.config.index_url {
            for name in ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"] {
                command.env(name, index.expose_secret());
            }
        }
        if let Some(proxy) = &self.config.proxy {
            for name in [
                "HTTP_PROXY",
                "HTTPS_PROXY",
                "ALL_PROXY",
                "http_proxy",
                "https_proxy",
                "all_proxy",
            ] {
                command.env(name, proxy.expose_secret());
            }
        }
    }
}
