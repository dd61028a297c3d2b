//! How the release build is linked: its relocations are packed.
//!
//! A table of 2.3 MB, of which the loader reads every page, becomes one of 0.1 MB (`bench/results/program.md`). glibc reads
//! the packed form since 2.36, so the program is linked so where that is what it is built with; it then needs it where it runs.

use std::env;
use std::io::Write as _;
use std::process::Command;

/// The first release of glibc that reads packed relocations.
const SINCE: (u32, u32) = (2, 36);

#[expect(
    clippy::disallowed_methods,
    reason = "how cargo tells a build script what is built"
)]
fn is(name: &str, value: &str) -> bool {
    env::var(name).is_ok_and(|it| it == value)
}

/// Of this machine, e.g. `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let said = String::from_utf8(said.ok()?.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[expect(
    clippy::disallowed_methods,
    reason = "how cargo tells a build script what is built"
)]
fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "cargo::rerun-if-changed=build.rs")?;
    let is_for_this_machine = env::var_os("TARGET") == env::var_os("HOST");
    let is_release = is("PROFILE", "release") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is_release && is_for_this_machine && glibc() >= Some(SINCE) {
        writeln!(
            out,
            "cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs"
        )?;
    }
    Ok(())
}
