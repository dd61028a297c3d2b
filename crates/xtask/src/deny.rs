//! Checks bans, licenses and sources of dependencies (`deny.toml`) with `cargo-deny`, and installs it if needed.

use anyhow::Context as _;

use crate::run::{cargo, run, say};

/// A tested version, for Rust 1.88 or newer.
const VERSION: &str = "0.20.2";

/// Runs all checks that need no advisory database.
pub(crate) fn check() -> anyhow::Result<()> {
    install()?;
    let mut check = cargo();
    // Duplicates are warnings of a page each.
    check.args(["deny", "--log-level", "error", "--locked", "check"]);
    run(check.args(["bans", "licenses", "sources"]))
}

/// Any installed version is accepted. The build without optimization takes half the time, and a run takes seconds.
pub(crate) fn install() -> anyhow::Result<()> {
    let version = cargo().args(["deny", "--version"]).output();
    if version.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    say("cargo-deny is missing: installing it takes about two minutes, once");
    let package = format!("cargo-deny@{VERSION}");
    run(cargo().args(["install", "--locked", "--debug", "--quiet", &package]))
        .context("cargo-deny could not be installed: it needs the crates registry")
}
