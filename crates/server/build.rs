//! Links the release build with packed relocations.
//!
//! The loader reads every page of the relocation table. Packing shrinks it from 2.3 MB to 0.1 MB
//! (`bench/results/program.md`). Packed relocations need glibc 2.36 or newer where the program runs, so they are used only
//! when the build machine has it.

use std::env;
use std::io::Write as _;
use std::process::Command;

/// The first release of glibc that reads packed relocations.
const MIN_GLIBC: (u32, u32) = (2, 36);

#[expect(
    clippy::disallowed_methods,
    reason = "cargo passes the build's parameters in the environment"
)]
fn has_value(name: &str, value: &str) -> bool {
    env::var(name).is_ok_and(|actual| actual == value)
}

/// The version of glibc on this machine; `getconf` prints e.g. `glibc 2.36`.
fn glibc_version() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let output = String::from_utf8(output.ok()?.stdout).ok()?;
    let (major, minor) = output.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo passes the build's parameters in the environment"
)]
fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "cargo::rerun-if-changed=build.rs")?;
    let is_for_this_machine = env::var_os("TARGET") == env::var_os("HOST");
    let is_release = has_value("PROFILE", "release") && has_value("CARGO_CFG_TARGET_ENV", "gnu");
    if is_release && is_for_this_machine && glibc_version() >= Some(MIN_GLIBC) {
        writeln!(
            out,
            "cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs"
        )?;
    }
    Ok(())
}
