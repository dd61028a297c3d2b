//! The steps of an installation, in order.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use domain::error::chain;
use secrecy::ExposeSecret;
use tokio::process::Command;
use tokio::time::Instant;

use super::child::{self, RunError};
use super::python::{self, Needs, PythonInterpreter};
use super::tested;
use super::{InstallationMarker, InstalledProgram, ProvisionError, Provisioner, blocking};
use crate::files::if_exists;

/// Exists only in a finished installation.
pub(super) const MARKER: &str = ".complete";

/// Has a `uv` while an installation is under way: in its folder, and beside it while a Python is downloaded.
const UV_FOLDER: &str = "uv";

/// The Python that `uv` downloads where none is suitable.
const PYTHON_FOR_UV: &str = "3.12";

/// Installs the packages where the machine has no `uv`.
const UV: &str = "uv==0.13.9";

/// Settings of `pip` that `uv` does not read.
const SETTINGS_OF_PIP_ONLY: [&str; 6] = [
    "index-url",
    "extra-index-url",
    "no-index",
    "proxy",
    "trusted-host",
    "client-cert",
];

/// Interval of log lines about a long step.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl Provisioner {
    pub(super) async fn install(&self, lock: &File) -> Result<InstalledProgram, ProvisionError> {
        let uv = self.uv().await;
        let run = InstallRun {
            provisioner: self,
            uv: uv.as_deref(),
            lock,
        };
        // Of an installation that was interrupted.
        run.clear(&self.dir.join(UV_FOLDER)).await?;
        let python = run.python().await?;
        let root = self.root(&python);
        tracing::info!(
            version = %self.config.version,
            python = %python.program.display(),
            root = %root.display(),
            "{} is not installed yet; installing it",
            self.config.program.name()
        );
        run.clear(&root).await?;
        run.create_environment(&python, &root).await?;
        let server = InstalledProgram {
            program: self.config.program,
            root,
        };
        run.install_packages_quickly(&server).await?;
        run.compile(&server).await?;
        run.verify(&server).await?;
        run.complete(&server, &python).await?;
        let name = self.config.program.name();
        tracing::info!(version = %self.config.version, "{name} is installed");
        Ok(server)
    }

    /// Describes the Python and the installer that an installation would use. Changes nothing.
    pub async fn describe_python(&self) -> Result<String, ProvisionError> {
        let uv = self.uv().await;
        let needs = Needs::of_agent_server(uv.is_some());
        match python::search(&self.config, needs).await {
            Ok(python) => Ok(format!(
                "Python {} at {}, with {}",
                python.version,
                python.program.display(),
                if uv.is_some() { "uv" } else { "pip" }
            )),
            Err(rejected) if !self.config.may_download_python() => {
                Err(ProvisionError::NoPython { rejected })
            }
            Err(_) if uv.is_some() => Ok("a Python that uv downloads".to_owned()),
            Err(rejected) => match python::search(&self.config, Needs::OF_UV).await {
                Ok(python) => Ok(format!(
                    "a Python that uv downloads; Python {} installs uv",
                    python.version
                )),
                Err(_) => Err(ProvisionError::NoPython { rejected }),
            },
        }
    }

    async fn uv(&self) -> Option<PathBuf> {
        let environment = self.config.environment.clone();
        let search = move || python::on_path(&environment, "uv").into_iter().next();
        tokio::task::spawn_blocking(search).await.ok().flatten()
    }
}

#[derive(Clone, Copy)]
struct InstallRun<'a> {
    provisioner: &'a Provisioner,
    uv: Option<&'a Path>,
    /// Every step and all file-system work hold it, because they may outlive the future.
    lock: &'a File,
}

impl InstallRun<'_> {
    /// An installed Python, or one that `uv` downloads.
    async fn python(&self) -> Result<PythonInterpreter, ProvisionError> {
        let config = &self.provisioner.config;
        let needs = Needs::of_agent_server(self.uv.is_some());
        let mut found = python::search(config, needs).await;
        if let (Err(rejected), true) = (&mut found, config.may_download_python()) {
            match self.download_python().await {
                Ok(()) => found = python::search(config, needs).await,
                Err(ProvisionError::NoPython { rejected: older }) => rejected.extend(older),
                Err(error) => rejected.push(format!("a download with uv: {}", chain(&error))),
            }
        }
        found.map_err(|rejected| ProvisionError::NoPython { rejected })
    }

    /// Downloads a Python with `uv`, which an older Python installs where the machine has none.
    async fn download_python(&self) -> Result<(), ProvisionError> {
        if let Some(uv) = self.uv {
            return self.download_python_with(uv).await;
        }
        let config = &self.provisioner.config;
        let older = python::search(config, Needs::OF_UV).await;
        let older = older.map_err(|rejected| ProvisionError::NoPython { rejected })?;
        let server = InstalledProgram {
            program: config.program,
            root: self.provisioner.dir.join(UV_FOLDER),
        };
        self.create_environment(&older, &server.root).await?;
        let uv = self.install_uv(&server).await?;
        self.download_python_with(&uv).await?;
        self.clear(&server.root).await
    }

    async fn download_python_with(&self, uv: &Path) -> Result<(), ProvisionError> {
        let mut command = self.provisioner.command(uv);
        command.args(["python", "install", PYTHON_FOR_UV]);
        self.credentials(&mut command);
        let limit = self.provisioner.config.deadlines.environment;
        self.step("downloading a Python with uv", command, limit)
            .await
    }

    /// Removes the rest of an interrupted installation.
    async fn clear(&self, root: &Path) -> Result<(), ProvisionError> {
        let root = root.to_owned();
        self.blocking("removing an unfinished installation", move || {
            if_exists(fs::remove_dir_all(&root)).map(drop)
        })
        .await
    }

    async fn create_environment(
        &self,
        python: &PythonInterpreter,
        root: &Path,
    ) -> Result<(), ProvisionError> {
        let mut command;
        if let Some(uv) = self.uv {
            command = self.provisioner.command(uv);
            command.args(["venv", "--python"]).arg(&python.program);
        } else {
            command = self.provisioner.command(&python.program);
            command.args(["-I", "-m", "venv"]);
        }
        command.arg(root);
        let limit = self.provisioner.config.deadlines.environment;
        self.step("creating the virtual environment", command, limit)
            .await
    }

    /// Installs the packages with `uv`, which takes a quarter of the time of `pip`, or with `pip` where that fails.
    async fn install_packages_quickly(
        &self,
        server: &InstalledProgram,
    ) -> Result<(), ProvisionError> {
        if self.uv.is_none()
            && let Some(uv) = self.download_uv(server).await
        {
            let with_uv = InstallRun {
                uv: Some(&uv),
                ..*self
            };
            match with_uv.install_packages(server).await {
                Err(error @ ProvisionError::Step { .. }) => tracing::warn!(
                    error = %chain(&error),
                    "uv cannot install the packages; trying pip"
                ),
                result => return result,
            }
        }
        self.install_packages(server).await
    }

    /// `uv` for the packages of this installation. `None` if it cannot be installed, or would use another index than `pip`.
    async fn download_uv(&self, server: &InstalledProgram) -> Option<PathBuf> {
        let config = &self.provisioner.config;
        if config.wheels.is_some() || self.has_settings_of_pip(server).await {
            return None;
        }
        match self.install_uv(server).await {
            Ok(uv) => Some(uv),
            Err(error) => {
                tracing::info!(error = %chain(&error), "uv cannot be installed; using pip");
                None
            }
        }
    }

    /// Puts `uv` into a folder of the installation, until that is complete.
    async fn install_uv(&self, server: &InstalledProgram) -> Result<PathBuf, ProvisionError> {
        let folder = server.root.join(UV_FOLDER);
        let mut command = self.pip_install(server);
        command.args(["--no-deps", "--target"]).arg(&folder).arg(UV);
        self.credentials(&mut command);
        let limit = self.provisioner.config.deadlines.environment;
        self.step("installing uv", command, limit).await?;
        Ok(folder.join("bin/uv"))
    }

    /// Whether a file or a variable has settings for `pip` that `uv` ignores, as far as `pip` says.
    async fn has_settings_of_pip(&self, server: &InstalledProgram) -> bool {
        let mut command = self.provisioner.command(server.python());
        command.args(["-I", "-m", "pip", "config", "list"]);
        let limit = self.provisioner.config.deadlines.probe;
        let listed = child::run(command, Stdio::null(), limit, |_| {}).await;
        listed.map_or(true, |output| {
            output.tail.iter().any(|line| {
                let name = line.split_once('=').map_or("", |(name, _)| name);
                let name = name.rsplit_once('.').map_or(name, |(_, name)| name);
                SETTINGS_OF_PIP_ONLY.contains(&name)
            })
        })
    }

    /// Installs the tested libraries of this version if they are known and available, otherwise libraries that satisfy the
    /// requirements.
    async fn install_packages(&self, server: &InstalledProgram) -> Result<(), ProvisionError> {
        let file = server.root.join("requirements.txt");
        let text = self.provisioner.requirements.join("\n") + "\n";
        self.write("writing the requirements", &file, text).await?;
        if let Some(text) = self.tested() {
            let constraints = server.root.join("constraints.txt");
            self.write("writing the constraints", &constraints, text)
                .await?;
            let mut command = self.packages(server, &file);
            command.arg("-c").arg(constraints);
            match self.install_step(command).await {
                Err(error @ ProvisionError::Step { .. }) => tracing::warn!(
                    error = %chain(&error),
                    "the tested libraries are unavailable; trying others that satisfy the \
                         requirements"
                ),
                result => return result,
            }
        }
        self.install_step(self.packages(server, &file)).await
    }

    async fn install_step(&self, command: Command) -> Result<(), ProvisionError> {
        let limit = self.provisioner.config.deadlines.install;
        self.step("installing packages", command, limit).await
    }

    /// The tested libraries. `None` with a folder of wheels, because that determines the versions.
    fn tested(&self) -> Option<String> {
        let (config, requirements) = (&self.provisioner.config, &self.provisioner.requirements);
        match config.wheels {
            None => tested::libraries(config.program.tested(), &config.version, requirements),
            Some(_) => None,
        }
    }

    fn packages(&self, server: &InstalledProgram, requirements: &Path) -> Command {
        let mut command;
        if let Some(uv) = self.uv {
            command = self.provisioner.command(uv);
            command
                .args(["pip", "install", "--python"])
                .arg(server.python());
        } else {
            command = self.pip_install(server);
            // All processors compile afterwards.
            command.arg("--no-compile");
        }
        if let Some(wheels) = &self.provisioner.config.wheels {
            command.arg("--no-index").arg("--find-links").arg(wheels);
        }
        command.arg("-r").arg(requirements);
        self.credentials(&mut command);
        command
    }

    fn pip_install(&self, server: &InstalledProgram) -> Command {
        let mut command = self.provisioner.command(server.python());
        command
            .args(["-I", "-m", "pip", "install"])
            .args(["--no-input", "--progress-bar", "off"])
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command
    }

    /// Without byte code every start of a sandbox takes some seconds longer. Packages may contain files that do not
    /// compile, which makes the compiler's exit code 1: that is not an error.
    async fn compile(&self, server: &InstalledProgram) -> Result<(), ProvisionError> {
        let mut command = self.provisioner.command(server.python());
        command
            .args(["-I", "-m", "compileall", "-q", "-j", "0"])
            .arg(server.root.join("lib"));
        let limit = self.provisioner.config.deadlines.compile;
        match self.step("compiling byte code", command, limit).await {
            Err(ProvisionError::Step { status, tail, .. }) if status.contains("exit status: 1") => {
                let last = tail.last().map(String::as_str).unwrap_or_default();
                tracing::warn!(
                    last,
                    "some files of the packages do not compile; they load more slowly"
                );
                Ok(())
            }
            other => other,
        }
    }

    /// Detects an unusable installation now rather than in the first sandbox.
    async fn verify(&self, server: &InstalledProgram) -> Result<(), ProvisionError> {
        let mut command = self.provisioner.command(server.python());
        command
            .args(server.program.check())
            .current_dir(&server.root)
            // Without this, importing litellm requests a price list from the network.
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        let limit = self.provisioner.config.deadlines.environment;
        self.step("running its --help", command, limit).await
    }

    /// Syncs everything to the disk before it writes the marker.
    async fn complete(
        &self,
        server: &InstalledProgram,
        python: &PythonInterpreter,
    ) -> Result<(), ProvisionError> {
        let marker = InstallationMarker {
            requirements: self.provisioner.requirements.to_vec(),
            python: python.program.clone(),
            python_version: python.version.clone(),
        };
        let root = server.root.clone();
        self.blocking("finishing the installation", move || {
            if_exists(fs::remove_dir_all(root.join(UV_FOLDER)))?;
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
        let config = &self.provisioner.config;
        if let Some(index) = &config.index_url {
            for name in ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"] {
                command.env(name, index.expose_secret());
            }
        }
        if let Some(proxy) = &config.proxy {
            for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
                command.env(name, proxy.expose_secret());
                command.env(name.to_ascii_lowercase(), proxy.expose_secret());
            }
        }
    }

    async fn write(
        &self,
        step: &'static str,
        path: &Path,
        text: String,
    ) -> Result<(), ProvisionError> {
        let path = path.to_owned();
        self.blocking(step, move || fs::write(path, text)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        step: &'static str,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, ProvisionError> {
        let lock = self.lock.try_clone().map_err(ProvisionError::io(step))?;
        blocking(step, move || {
            let _lock = lock;
            work()
        })
        .await
    }

    async fn step(
        &self,
        step: &'static str,
        command: Command,
        limit: Duration,
    ) -> Result<(), ProvisionError> {
        let input = child::input(self.lock).map_err(ProvisionError::io(step))?;
        let started = Instant::now();
        let name = self.provisioner.config.program.name();
        tracing::info!(step, "installing {name}");
        let mut last_log = started;
        let finished = child::run(command, input, limit, |line| {
            if last_log.elapsed() >= LOG_INTERVAL {
                last_log = Instant::now();
                let seconds = started.elapsed().as_secs();
                tracing::info!(step, seconds, line, "still installing {name}");
            }
        })
        .await;
        match finished {
            Ok(finished) if finished.status.success() => {
                let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::info!(step, elapsed_ms, "completed a step of the installation");
                Ok(())
            }
            Ok(finished) => Err(ProvisionError::Step {
                step,
                status: finished.status.to_string(),
                tail: finished.tail,
            }),
            Err(RunError::TooLong(tail)) => Err(ProvisionError::TooLong { step, limit, tail }),
            Err(RunError::Io(source)) => Err(ProvisionError::Io { step, source }),
        }
    }
}
