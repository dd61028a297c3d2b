//! Releases of the real agent server, installed programs, and the environment of the suites.

use std::fmt;
use std::path::{Path, PathBuf};

/// A release of the agent server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The release that deployed front ends use.
    V1_34_0,
    /// The newest tested release.
    V1_58_0,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_34_0 => "1.34.0",
            Self::V1_58_0 => "1.58.0",
        })
    }
}

impl Version {
    /// The command for `WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND`. Uses the Python that the variable
    /// `ACCEPTANCE_AGENT_SERVER_<version>` names, else the command that `cargo xtask prepare` wrote below the target directory.
    ///
    /// # Panics
    /// When neither exists: a suite that cannot run fails, it is never skipped.
    #[must_use]
    pub fn command(self) -> String {
        let variable = format!(
            "ACCEPTANCE_AGENT_SERVER_{}",
            self.to_string().replace('.', "_")
        );
        if let Some(python) = variable_of(&variable) {
            return format!("{python} -m openhands.agent_server");
        }
        let name = format!("agent-server-{self}.command");
        configured_command(&name).unwrap_or_else(|paths| {
            panic!(
                "agent server {self} is not installed: run `cargo xtask prepare`, which installs it, or set {variable} \
                 to the python of an environment that has openhands-agent-server {self} (looked for {paths:?})"
            )
        })
    }
}

/// The directory of the installations that `cargo xtask prepare` made.
///
/// # Panics
/// When it does not exist.
#[must_use]
pub(crate) fn installations() -> PathBuf {
    let paths = target_dirs().map(|target| target.join("acceptance/data/agent-server"));
    let paths: Vec<_> = paths.collect();
    let found = paths.iter().find(|path| path.is_dir()).cloned();
    found.unwrap_or_else(|| {
        panic!("agent servers are not installed: run `cargo xtask prepare` (looked for {paths:?})")
    })
}

/// The build of the web application that `cargo xtask prepare` installed.
///
/// # Panics
/// When it does not exist.
#[must_use]
pub fn web_application() -> String {
    configured_command("web-app.directory").unwrap_or_else(|paths| {
        panic!(
            "the web application is not installed: run `cargo xtask prepare` (looked for {paths:?})"
        )
    })
}

/// The content of a file that `cargo xtask prepare` wrote below the target directory; the searched paths if there is none.
pub(crate) fn configured_command(name: &str) -> Result<String, Vec<PathBuf>> {
    let paths = target_dirs().map(|target| target.join("acceptance").join(name));
    let paths: Vec<PathBuf> = paths.collect();
    let texts = paths
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok());
    let mut texts = texts.map(|text| text.trim().to_owned());
    texts.find(|text| !text.is_empty()).ok_or(paths.clone())
}

/// A non-empty variable of the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the suites read their environment"
)]
#[must_use]
pub fn variable_of(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .filter(|value| !value.trim().is_empty())
}

/// The target directory of this test, and the default one.
fn target_dirs() -> impl Iterator<Item = PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let default = here.parent().unwrap_or(here).join("target");
    // target/<profile>/deps/<test>
    let built = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.ancestors().nth(3).map(Path::to_owned));
    built.into_iter().chain([default])
}

/// A program that was built beside this test, in `target/<profile>`.
///
/// # Panics
/// When it does not exist.
#[must_use]
pub fn built_program(program: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("cannot find this test's program");
    let file = exe
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file());
    file.unwrap_or_else(|| {
        panic!(
            "{program} is not built beside {}: run `cargo build -p server -p acceptance --bins` first, as \
             `cargo xtask test` does",
            exe.display()
        )
    })
}
