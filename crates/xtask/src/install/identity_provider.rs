//! Installs the identity provider of the suite `single_sign_on`, from npm below `target/acceptance`.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::debian;
use crate::run::{program, root, run};

/// A tested version. Newer major versions need a newer Node than stable distributions have.
const VERSION: &str = "8.8.1";

/// Installs it unless it exists, and writes the path of its main file to `oidc-provider.path`.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let folder = root().join("target").join("acceptance");
    let environment = folder.join(format!("oidc-provider-{VERSION}"));
    let library = environment
        .join("node_modules")
        .join("oidc-provider")
        .join("lib")
        .join("index.js");
    let file = folder.join("oidc-provider.path");
    let is_there = fs::read_to_string(&file).is_ok_and(|known| Path::new(&known) == library);
    if !(is_there && library.is_file()) {
        install(&environment).with_context(|| {
            "the identity provider could not be installed. It needs Node 18 or newer, npm and its registry; \
             `cargo xtask test --no-agent-servers` skips the suite that needs it"
        })?;
    }
    // Written last, so that an interrupted installation is repeated.
    fs::write(&file, library.as_os_str().as_encoded_bytes())
        .with_context(|| format!("cannot write {}", file.display()))
}

fn install(environment: &Path) -> anyhow::Result<()> {
    for name in ["node", "npm"] {
        if !debian::has_program(name) {
            debian::install("Node, for an identity provider", &["nodejs", "npm"])?;
        }
    }
    fs::create_dir_all(environment)
        .with_context(|| format!("cannot create {}", environment.display()))?;
    let package = format!("oidc-provider@{VERSION}");
    run(program("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund"])
        .args(["--ignore-scripts", "--prefix"])
        .arg(environment)
        .arg(package))
}
