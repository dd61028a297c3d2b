//! Gives a sandbox its own session before its program starts.
//!
//! A new session needs a call in the child between `fork` and `exec`, which is `unsafe` in Rust. A tiny program therefore
//! makes the call in its own process and then becomes the agent server by `exec`, with the same pid and start time.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setrlimit, setsid, umask};

/// The argument that makes the service's binary act as launcher.
pub const SUBCOMMAND: &str = "__launch";

/// The kernel's OOM score adjustment for sandboxes (-1000 to 1000): they are killed well before the service.
const OOM_SCORE: &str = "500";

/// The program that creates the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Launcher {
    /// `setsid` of util-linux or busybox, on the service's `PATH`. It only creates the session.
    #[default]
    Setsid,
    /// This binary, called as `<binary> __launch <command…>`; its `main` must call [`main`]. Found through
    /// `/proc/self/exe`, so that it works after an upgrade has replaced the file.
    ThisBinary,
    /// Another binary with such a `main`.
    Binary(PathBuf),
}

impl Launcher {
    /// The program and arguments before the command.
    pub(crate) fn prefix(&self) -> Vec<OsString> {
        match self {
            Self::Setsid => vec!["setsid".into()],
            Self::ThisBinary | Self::Binary(_) => vec![self.binary().into(), SUBCOMMAND.into()],
        }
    }

    /// The binary that acts as the processes of a confined sandbox.
    pub(crate) fn binary(&self) -> PathBuf {
        match self {
            Self::Setsid | Self::ThisBinary => "/proc/self/exe".into(),
            Self::Binary(path) => path.clone(),
        }
    }
}

/// The launcher: creates a session, raises the OOM score, forbids core dumps (they contain the keys of the environment),
/// sets the usual umask, and executes `command` (program and arguments). Returns only on failure.
///
/// Call it from `main`, before any thread or runtime exists, with the arguments behind [`SUBCOMMAND`].
pub fn main(command: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut command = command.into_iter();
    let Some(program) = command.next() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "the launcher got no command");
    };
    if let Err(error) = enter_session() {
        return error;
    }
    Command::new(program).args(command).exec()
}

/// Gives this process a session, and what every sandbox has.
pub(crate) fn enter_session() -> io::Result<()> {
    setsid()?;
    // The service's umask makes files private. In a sandbox others may have to read files (e.g. an image that an agent
    // builds), and its parent directory is private anyway.
    umask(Mode::WGRP | Mode::WOTH);
    // Both are optional: a kernel that refuses them does not prevent the start.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let _ = setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    );
    Ok(())
}
