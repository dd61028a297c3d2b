//! Whether the backend is reachable, and how rows show that it is not.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::clock::Timestamp;
use domain::id::SandboxId;
use domain::sandbox::{BackendReachability, Sandbox};

use super::SandboxReconciler;
use crate::AppError;

/// Suffix of a row's detail while its state is the last known one.
const LAST_KNOWN: &str = "; what is shown is the last known state";

/// Whether the status of a row is current, not the last known one. The row has no field for it, only the detail.
pub(crate) fn is_state_current(row: &Sandbox) -> bool {
    let detail = row.status_detail.as_deref();
    !detail.is_some_and(|detail| detail.ends_with(LAST_KNOWN))
}

/// The contact with the backend, and whether the rows show it.
#[derive(Debug, Default)]
pub(super) struct ContactTracker(Mutex<ContactState>);

#[derive(Debug, Default, Clone)]
struct ContactState {
    lost: Option<String>,
    reconnected_at: Option<Timestamp>,
    needs_annotation: bool,
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
            state.reconnected_at = Some(now);
        }
        state.lost = lost;
        state.needs_annotation = true;
    }

    /// The rows show this state now. A change in between is still to be written.
    fn mark_annotated(&self, lost: Option<&String>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.needs_annotation &= state.lost.as_ref() != lost;
    }
}

impl SandboxReconciler {
    /// Annotates every row of this host when the backend becomes unreachable or reachable. The status stays the last
    /// known one.
    pub(super) async fn note_contact(&self, contact: &BackendReachability) -> Result<(), AppError> {
        let lost = match contact {
            BackendReachability::Reachable => None,
            BackendReachability::Unreachable { detail } => Some(detail.clone()),
        };
        self.0.contact.set(lost, self.0.clock.now());
        self.annotate_rows().await
    }

    /// Retries the annotation of [`SandboxReconciler::note_contact`]. Cheap when there is nothing to write.
    pub(super) async fn annotate_rows(&self) -> Result<(), AppError> {
        let state = self.0.contact.state();
        if !state.needs_annotation {
            return Ok(());
        }
        let lost = state.lost.as_ref();
        let detail = lost.map(|cause| format!("{cause}{LAST_KNOWN}"));
        let (host, sandboxes) = (&self.0.policy.host, &self.0.host_sandboxes);
        let annotated = sandboxes.annotate(host, detail.as_deref()).await?;
        tracing::debug!(
            sandboxes = annotated,
            ?detail,
            "stored the reachability of the backend"
        );
        self.0.contact.mark_annotated(state.lost.as_ref());
        Ok(())
    }

    /// Removes annotations that another process or an earlier one left. Called when the backend has just answered.
    pub(super) async fn clear_stale_annotations(
        &self,
        rows: &HashMap<SandboxId, Sandbox>,
    ) -> Result<(), AppError> {
        if !rows.values().all(is_state_current) && !self.is_out_of_contact() {
            let (host, sandboxes) = (&self.0.policy.host, &self.0.host_sandboxes);
            sandboxes.annotate(host, None).await?;
        }
        Ok(())
    }

    /// Whether this moment was before the last reconnect: a start that began then has failed.
    pub(super) fn was_out_of_contact(&self, at: Timestamp) -> bool {
        let reconnected_at = self.0.contact.state().reconnected_at;
        reconnected_at.is_some_and(|made| at < made)
    }

    pub(crate) fn is_out_of_contact(&self) -> bool {
        self.0.contact.state().lost.is_some()
    }
}
