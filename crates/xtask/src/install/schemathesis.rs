//! Installs the tool that tests the service against its own `OpenAPI` document, from the Python package index below
//! `target/acceptance`. `tests/tests/schemathesis.rs` runs it.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::run::{program, root, run};

/// A tested version: a newer one may report new findings for unchanged code.
const VERSION: &str = "4.32.5";
/// Newest first.
const PYTHONS: [&str; 6] = [
    "python3.14",
    "python3.13",
    "python3.12",
    "python3.11",
    "python3",
    "python",
];
const IS_USABLE: &str = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";

/// Installs the tool unless it exists, and writes its path to `schemathesis.command`.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let folder = root().join("target").join("acceptance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let environment = folder.join(format!("schemathesis-{VERSION}"));
    let tool = environment.join("bin").join("schemathesis");
    let command = folder.join("schemathesis.command");
    let is_there = fs::read_to_string(&command).is_ok_and(|known| Path::new(&known) == tool);
    if !(is_there && tool.is_file()) {
        install(&environment).with_context(|| {
            "schemathesis could not be installed. It needs Python 3.11 or newer and a package index; \
             `cargo xtask test --no-agent-servers` skips the suite that needs it"
        })?;
    }
    // Written last, so that an interrupted installation is repeated.
    fs::write(&command, tool.as_os_str().as_encoded_bytes())
        .with_context(|| format!("cannot write {}", command.display()))
}

fn install(environment: &Path) -> anyhow::Result<()> {
    let is_usable = |python: &str| {
        let output = program(python).args(["-c", IS_USABLE]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let python = PYTHONS.into_iter().find(|python| is_usable(python));
    let python = python.context("no Python 3.11 or newer with venv was found")?;
    run(program(python)
        .args(["-m", "venv", "--clear"])
        .arg(environment))?;
    let package = format!("schemathesis=={VERSION}");
    let pip = environment.join("bin").join("python");
    run(program(pip).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        &package,
    ]))
}
