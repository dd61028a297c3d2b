//! Bans, licenses and sources of dependencies (`deny.toml`), by `cargo-deny`, which is installed where it is missing.

use anyhow::Context as _;

use crate::run::{cargo, run, say};

/// A version that was seen to work, for Rust 1.88 or newer.
const VERSION: &str = "0.20.2";

/// Checks everything that needs no advisory database.
pub(crate) fn check() -> anyhow::Result<()> {
    install()?;
    let mut check = cargo();
    // Duplicates are warnings, with a page each.
    check.args(["deny", "--log-level", "error", "--locked", "check"]);
    run(check.args(["bans", "licenses", "sources"]))
}

/// Any version will do that is there. Without optimization: it is built in half the time, and runs for seconds.
fn install() -> anyhow::Result<()> {
    let version = cargo().args(["deny", "--version"]).output();
    if version.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    say("cargo-deny is missing: installing it takes about two minutes, once");
    let package = format!("cargo-deny@{VERSION}");
    run(cargo().args(["install", "--locked", "--debug", "--quiet", &package]))
        .context("cargo-deny could not be installed: it needs the crates registry")
}
