//! Main processes that are monitored, and those that boot.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::process::Child;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::processes::pidfd::PidWatch;
use crate::processes::proc::ProcessKey;
use crate::processes::spawn::PortReservation;

/// A monitored main process.
#[derive(Debug)]
pub(crate) struct TrackedProcess {
    pub(super) key: ProcessKey,
    /// Set before the service stops the process: its exit is then not reported.
    pub(super) is_exit_requested: Arc<AtomicBool>,
    /// `true` when the process has exited and, if it is a child, is reaped.
    pub(super) ended: watch::Receiver<bool>,
}

/// How the exit of a main process is noticed.
pub(crate) enum MainProcess {
    /// A child of this process; waiting for it also reaps it.
    Child(Box<Child>),
    /// A child of an earlier service.
    Adopted(PidWatch),
}

/// Held by a start until the agent server answers.
pub(crate) struct BootInProgress {
    pub(crate) port: u16,
    pub(crate) permit: ProcessStartPermit,
    pub(crate) reservation: PortReservation,
}

/// A permit to start a process, which limits parallel starts; `None` if the sandbox runs already.
pub(crate) type ProcessStartPermit = Option<OwnedSemaphorePermit>;
