//! Gives a sandbox a session of its own before its program starts.
//!
//! A new session needs a call in the child between `fork` and `exec`, which in Rust is `unsafe`. So a tiny program makes
//! the call in its own, otherwise idle, process and then *becomes* the agent server by `exec`: same pid, same start time.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setrlimit, setsid, umask};

/// The argument with which the service's own binary acts as launcher.
pub const SUBCOMMAND: &str = "__launch";

/// How likely the kernel ends a sandbox when memory is short (-1000 to 1000): well before the service.
const OOM_SCORE: &str = "500";

/// The program that makes the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Launcher {
    /// The `setsid` program of util-linux (or busybox), found on the service's `PATH`. It only makes the session.
    #[default]
    Setsid,
    /// This binary again, called as `<binary> __launch <command…>`; its `main` must hand over to [`main`]. Found through
    /// `/proc/self/exe`, so that it works after the file was replaced by an upgrade.
    ThisBinary,
}

impl Launcher {
    /// What is put in front of the command.
    pub(crate) fn prefix(&self) -> Vec<OsString> {
        match self {
            Self::Setsid => vec!["setsid".into()],
            Self::ThisBinary => vec!["/proc/self/exe".into(), SUBCOMMAND.into()],
        }
    }
}

/// The launcher: makes a session, lets the kernel prefer this process when memory runs out, forbids core dumps (they hold
/// the keys of the environment), gives it the usual mask for new files, and becomes `command` (program and arguments). Returns only if that fails.
///
/// Call it from `main`, before any thread or runtime exists, with what follows [`SUBCOMMAND`].
pub fn main(command: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut command = command.into_iter();
    let Some(program) = command.next() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no command to launch");
    };
    if let Err(error) = setsid() {
        return error.into();
    }
    // The service makes files for itself alone. In a sandbox others may have to read them (an image that an agent builds), and
    // the directory around it is closed.
    umask(Mode::WGRP | Mode::WOTH);
    // Both are improvements only: a kernel that refuses them does not keep a sandbox from starting.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let _ = setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    );
    Command::new(program).args(command).exec()
}
