//! Finds a Python that can run the agent server, or one that can install `uv`, which downloads such a Python.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::child::{self, RunError};
use super::config::{Config, InstallEnvironment};
use crate::files::is_executable;

/// What a Python must be able to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// The lowest version.
    version: (u32, u32),
    /// Whether it must create environments itself, with `pip` in them.
    venv: bool,
}

impl Needs {
    /// What the agent server's `Requires-Python` says. `uv` creates environments without the `venv` module, `pip` does not.
    pub(super) fn of_agent_server(with_uv: bool) -> Self {
        Self {
            version: (3, 12),
            venv: !with_uv,
        }
    }

    /// What the package `uv` needs.
    pub(super) const OF_UV: Self = Self {
        version: (3, 8),
        venv: true,
    };
}

/// Names to look up on `PATH`. 3.12 is first: the pinned releases were tested with it, and all wheels exist for it.
const NAMES: [&str; 5] = [
    "python3.12",
    "python3.13",
    "python3.14",
    "python3",
    "python",
];

/// Prints one line that cannot be mistaken for a warning of a shim or of Python itself.
const PROBE: &str = "import sys, os, importlib.util as u; print('AGENT-WORKSPACE', \
    sys.implementation.name, '%d.%d.%d' % sys.version_info[:3], \
    int(bool(u.find_spec('venv') and u.find_spec('ensurepip'))), os.path.realpath(sys.executable))";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PythonInterpreter {
    /// The program, symbolic links and shims resolved.
    pub(super) program: PathBuf,
    /// For instance `3.12.1`.
    pub(super) version: String,
}

/// Tries the candidates in order until one is suitable. The error has the reasons of all rejections.
pub(super) async fn search(
    config: &Config,
    needs: Needs,
) -> Result<PythonInterpreter, Vec<String>> {
    let candidates = if let Some(program) = &config.python {
        vec![program.clone()]
    } else {
        let environment = config.environment.clone();
        tokio::task::spawn_blocking(move || candidates(&environment))
            .await
            .unwrap_or_default()
    };
    let mut rejected = Vec::new();
    for program in candidates {
        match probe(config, &program, needs).await {
            Ok(python) => return Ok(python),
            Err(reason) => rejected.push(format!("{}: {reason}", program.display())),
        }
    }
    Err(rejected)
}

async fn probe(config: &Config, program: &Path, needs: Needs) -> Result<PythonInterpreter, String> {
    let mut command = Command::new(program);
    command
        .args(["-I", "-c", PROBE])
        .env_clear()
        .envs(config.environment.iter());
    let limit = config.deadlines.probe;
    let finished = match child::run(command, Stdio::null(), limit, |_| {}).await {
        Ok(finished) => finished,
        Err(RunError::Io(error)) => return Err(error.to_string()),
        Err(RunError::TooLong(_)) => return Err("does not end in time".to_owned()),
    };
    let line = finished
        .tail
        .iter()
        .find_map(|line| line.strip_prefix("AGENT-WORKSPACE "));
    let Some((name, version, has_venv, path)) = line.and_then(parse_probe) else {
        return Err(format!("cannot run ({})", finished.status));
    };
    if name != "cpython" {
        return Err(format!("is {name}, not CPython"));
    }
    let (major, minor) = needs.version;
    if !is_new_enough(version, needs.version) {
        return Err(format!("is {version}, older than {major}.{minor}"));
    }
    if needs.venv && !has_venv {
        return Err(
            "lacks the venv and ensurepip modules (on Debian: package python3-venv)".into(),
        );
    }
    Ok(PythonInterpreter {
        program: PathBuf::from(path),
        version: version.to_owned(),
    })
}

fn parse_probe(line: &str) -> Option<(&str, &str, bool, &str)> {
    let mut fields = line.splitn(4, ' ');
    Some((
        fields.next()?,
        fields.next()?,
        fields.next()? == "1",
        fields.next()?,
    ))
}

fn is_new_enough(version: &str, least: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map_while(|part| part.parse().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return false;
    };
    (major, minor) >= least
}

/// All paths that may be a suitable Python, the best first. Blocks.
fn candidates(environment: &InstallEnvironment) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = NAMES
        .iter()
        .flat_map(|name| on_path(environment, name))
        .collect();
    let home = environment.get("HOME").map(PathBuf::from);
    let pyenv = environment.get("PYENV_ROOT").map(PathBuf::from);
    if let Some(root) = pyenv.or_else(|| home.as_ref().map(|home| home.join(".pyenv"))) {
        found.extend(versions_in(&root.join("versions")));
    }
    let data = environment.get("XDG_DATA_HOME").map(PathBuf::from);
    if let Some(data) = data.or_else(|| home.map(|home| home.join(".local/share"))) {
        found.extend(versions_in(&data.join("uv/python")));
    }
    let mut seen = std::collections::BTreeSet::new();
    // A shim resolves to the same program for every name, so paths are compared as they are.
    found.retain(|path| seen.insert(path.clone()));
    found
}

/// `<dir>/*/bin/python3`, the newest name first.
fn versions_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/python3")))
        .filter(|path| is_executable(path))
        .collect();
    found.sort();
    found.reverse();
    found
}

/// Every program of this name on `PATH`, in its order. Blocks (briefly).
pub(super) fn on_path(environment: &InstallEnvironment, name: &str) -> Vec<PathBuf> {
    let path = environment
        .get("PATH")
        .unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .filter(|path| is_executable(path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, expected) in [
            ("3.12.0", true),
            ("3.9.18", false),
            ("3.100.1", true),
            ("4.0.0", true),
            ("2.7.18", false),
            ("x", false),
        ] {
            assert_eq!(is_new_enough(version, (3, 12)), expected, "{version}");
        }
    }
}
