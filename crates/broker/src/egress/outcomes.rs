//! What became of requests and tunnels: counts, and a log that an agent cannot fill.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use domain::id::SandboxId;

/// Different refusals that the log names: an agent must not fill it.
const MAX_LOGGED_REFUSALS: usize = 1_000;

/// Requests and tunnels since the start of the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EgressCounts {
    /// Those that reached their host.
    pub allowed: u64,
    /// Those that the policy refused.
    pub refused: u64,
    /// Those that were allowed, and failed.
    pub failed: u64,
}

/// Counts requests and tunnels, and logs refusals.
#[derive(Debug, Default)]
pub(super) struct EgressOutcomes {
    allowed: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    logged: Mutex<HashSet<(SandboxId, String)>>,
}

impl EgressOutcomes {
    pub(super) fn counts(&self) -> EgressCounts {
        EgressCounts {
            allowed: self.allowed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    pub(super) fn allowed(&self) {
        self.allowed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self, sandbox: &SandboxId, reason: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.log(sandbox, reason);
    }

    /// Names a refusal once.
    pub(super) fn log(&self, sandbox: &SandboxId, reason: &str) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() < MAX_LOGGED_REFUSALS && logged.insert((sandbox.clone(), reason.to_owned()))
        {
            tracing::info!(
                sandbox.id = %sandbox,
                "refused a connection of sandbox {sandbox}: {reason}"
            );
        }
    }
}
