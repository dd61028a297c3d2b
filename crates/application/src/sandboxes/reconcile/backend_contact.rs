//! Whether the backend can be asked, and what rows say while it cannot.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::clock::Timestamp;
use domain::id::SandboxId;
use domain::sandbox::{BackendReachability, Sandbox};

use super::SandboxReconciler;
use crate::AppError;

/// How the words of a row end whose state is the last known one.
const LAST_KNOWN: &str = "; what is shown is the last known state";

/// Whether the status of a row is more than the last known one.
pub(crate) fn is_known(row: &Sandbox) -> bool {
    let detail = row.status_detail.as_deref();
    !detail.is_some_and(|detail| detail.ends_with(LAST_KNOWN))
}

/// What is known about the backend, and whether the rows say it.
#[derive(Debug, Default)]
pub(super) struct ContactTracker(Mutex<ContactState>);

#[derive(Debug, Default, Clone)]
struct ContactState {
    /// Why it is out of reach.
    lost: Option<String>,
    /// When it last came back.
    made_at: Option<Timestamp>,
    /// The store could not be told.
    is_owed: bool,
}

impl ContactTracker {
    fn state(&self) -> ContactState {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, lost: Option<String>, now: Timestamp) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.is_none() && state.lost.is_some() {
            state.made_at = Some(now);
        }
        state.lost = lost;
        state.is_owed = true;
    }

    /// The rows say this now. What came meanwhile is still owed.
    fn settle(&self, lost: Option<&String>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_owed &= state.lost.as_ref() != lost;
    }
}

impl SandboxReconciler {
    /// The backend went out of reach, or came back: every row of this host says so. Their status stays the last known one.
    pub(crate) async fn note_contact(&self, contact: &BackendReachability) -> Result<(), AppError> {
        let lost = match contact {
            BackendReachability::Reachable => None,
            BackendReachability::Unreachable { detail } => Some(detail.clone()),
        };
        self.0.contact.set(lost, self.0.ports.clock.now());
        self.annotate_rows().await
    }

    /// Writes down what [`SandboxReconciler::note_contact`] could not. Cheap when nothing is owed.
    pub(crate) async fn annotate_rows(&self) -> Result<(), AppError> {
        let state = self.0.contact.state();
        if !state.is_owed {
            return Ok(());
        }
        let detail = state
            .lost
            .as_ref()
            .map(|cause| format!("{cause}{LAST_KNOWN}"));
        let (host, sandboxes) = (&self.0.policy.host, &self.0.ports.sandboxes);
        let told = sandboxes.annotate(host, detail.as_deref()).await?;
        tracing::debug!(sandboxes = told, ?detail, "sandboxes annotated");
        self.0.contact.settle(state.lost.as_ref());
        Ok(())
    }

    /// Takes away what another process, or an earlier life of this one, wrote while it was out of contact and could not
    /// take back. To be called when the backend has just answered.
    pub(super) async fn clear_stale_annotations(
        &self,
        rows: &HashMap<SandboxId, Sandbox>,
    ) -> Result<(), AppError> {
        let is_old = |row: &Sandbox| {
            let detail = row.status_detail.as_deref();
            detail.is_some_and(|detail| detail.ends_with(LAST_KNOWN))
        };
        if rows.values().any(is_old) && !self.is_out_of_contact() {
            let (host, sandboxes) = (&self.0.policy.host, &self.0.ports.sandboxes);
            sandboxes.annotate(host, None).await?;
        }
        Ok(())
    }

    /// Whether this moment was before contact was made again: what was begun then has failed.
    pub(super) fn was_out_of_contact(&self, at: Timestamp) -> bool {
        self.0.contact.state().made_at.is_some_and(|made| at < made)
    }

    /// Whether asking the backend makes no sense now.
    pub(crate) fn is_out_of_contact(&self) -> bool {
        self.0.contact.state().lost.is_some()
    }
}
