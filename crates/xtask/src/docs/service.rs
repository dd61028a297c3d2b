//! Programs that the documentation's checks start: a service with the stub agent server, and others that it needs.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::run::{Programs, program, root};

/// Time for a program to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A directory below `target`, which is removed with this value.
#[derive(Debug)]
pub(crate) struct DocsHome(PathBuf);

impl DocsHome {
    pub(crate) fn new(purpose: &str) -> anyhow::Result<Self> {
        let name = format!("target/tmp/docs-{purpose}-{}", std::process::id());
        let path = root().join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.file(name);
        let folder = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// A program with this directory as home and working directory, `programs` first on its path, and no other
    /// variables.
    pub(crate) fn command(&self, name: &Path, programs: &Programs) -> Command {
        let folder = programs.service.parent().unwrap_or(Path::new("."));
        let path = format!(
            "{}:{}:/usr/local/bin:/usr/bin:/bin",
            self.file("bin").display(),
            folder.display()
        );
        let mut command = program(name);
        command
            .env_clear()
            .current_dir(&self.0)
            .env("PATH", path)
            .env("HOME", &self.0)
            // Nothing is downloaded at a start.
            .env("WORKSPACE_WEB__ENABLED", "off")
            .stdin(Stdio::null());
        command
    }

    /// Variables of a service whose sandboxes are processes with the stub agent server.
    pub(crate) fn stub_sandboxes(
        &self,
        programs: &Programs,
    ) -> anyhow::Result<[(&'static str, String); 3]> {
        let folder = self.file("stub");
        fs::create_dir_all(&folder)?;
        let stub = programs.stub.display();
        let command = format!("'{stub}' --dir '{}'", folder.display());
        Ok([
            ("WORKSPACE_SANDBOX__BACKEND", "process".to_owned()),
            ("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", command),
            (
                "WORKSPACE_PROCESS__WRITABLE_PATHS",
                folder.display().to_string(),
            ),
        ])
    }
}

impl Drop for DocsHome {
    fn drop(&mut self) {
        // A program that is about to end may still write into it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that ends with this value.
#[derive(Debug)]
pub(crate) struct RunningProgram {
    child: Child,
    log: PathBuf,
}

impl RunningProgram {
    /// Starts a program and waits until `is_ready`. Its output goes to `log`, which the error shows.
    pub(crate) fn start(
        mut command: Command,
        log: PathBuf,
        is_ready: impl Fn() -> bool,
    ) -> anyhow::Result<Self> {
        let file = fs::File::create(&log)?;
        let child = command
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let mut running = Self { child, log };
        let begun = Instant::now();
        while !is_ready() {
            if begun.elapsed() > START_TIMEOUT || running.child.try_wait()?.is_some() {
                let log = fs::read_to_string(&running.log).unwrap_or_default();
                bail!("{command:?} did not start:\n{log}");
            }
            pause();
        }
        Ok(running)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service with `SQLite` and the stub agent server, at an address of its own.
pub(crate) struct DocsService {
    pub(crate) home: DocsHome,
    pub(crate) address: String,
    _running: RunningProgram,
}

impl DocsService {
    pub(crate) fn start(programs: &Programs, purpose: &str) -> anyhow::Result<Self> {
        let home = DocsHome::new(purpose)?;
        let address = free_address()?;
        let serve = |word| {
            let mut command = Self::command_in(&home, &address, programs, &programs.service)?;
            command.arg(word);
            anyhow::Ok(command)
        };
        let running = RunningProgram::start(serve("serve")?, home.file("service.log"), || {
            serve("healthcheck").is_ok_and(succeeds)
        })?;
        Ok(Self {
            home,
            address,
            _running: running,
        })
    }

    /// A program with the service's configuration.
    pub(crate) fn command(&self, name: &Path, programs: &Programs) -> anyhow::Result<Command> {
        Self::command_in(&self.home, &self.address, programs, name)
    }

    fn command_in(
        home: &DocsHome,
        address: &str,
        programs: &Programs,
        name: &Path,
    ) -> anyhow::Result<Command> {
        let mut command = home.command(name, programs);
        command
            .env("WORKSPACE_HTTP__BIND", address)
            .envs(home.stub_sandboxes(programs)?);
        Ok(command)
    }
}

/// Whether a program succeeds. Its output is dropped.
pub(crate) fn succeeds(mut command: Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// An address of this machine with a port that is free now.
pub(crate) fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

#[expect(clippy::disallowed_methods, reason = "xtask has one thread")]
fn pause() {
    std::thread::sleep(POLL_INTERVAL);
}
