//! A handle of one process that cannot become stale.
//!
//! Knows: pidfds. A pidfd names the process itself, so neither waiting nor signalling can hit a successor with the same
//! pid. It works for processes that are not children, such as adopted agent servers.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::processes::proc::{self, ProcessKey};

/// An open pidfd that is not registered with a runtime: enough to signal.
#[derive(Debug)]
pub(crate) struct PidHandle {
    fd: OwnedFd,
}

impl PidHandle {
    /// Opens the process `key`; `None` when it has ended, or when another process has its pid.
    pub(crate) fn open(key: ProcessKey) -> io::Result<Option<Self>> {
        let Some(pid) = Pid::from_raw(key.pid) else {
            return Ok(None);
        };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The pid may have been reused before this open; afterwards it cannot.
        Ok(proc::stat(key.pid)
            .filter(|stat| stat.key == key)
            .map(|_| Self { fd }))
    }

    /// Sends a signal; `false` when the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Registers with the current runtime, to wait for the exit.
    #[expect(
        deprecated,
        reason = "the successor is `unsafe` for types that lie about their descriptor; an `OwnedFd` cannot"
    )]
    pub(crate) fn watch(self) -> io::Result<PidWatch> {
        Ok(PidWatch {
            fd: AsyncFd::with_interest(self.fd, Interest::READABLE)?,
        })
    }
}

/// A pidfd in the runtime's poller.
#[derive(Debug)]
pub(crate) struct PidWatch {
    fd: AsyncFd<OwnedFd>,
}

impl PidWatch {
    /// Completes when the process has exited (a child is then a zombie that keeps its pid).
    pub(crate) async fn exited(&self) -> io::Result<()> {
        // A pidfd stays readable once the process has ended, so readiness is never cleared.
        self.fd.readable().await.map(|_| ())
    }
}
