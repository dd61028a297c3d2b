//! Whether the backend can be asked, and what rows say while it cannot.

use std::sync::{Mutex, PoisonError};

use domain::clock::Timestamp;
use domain::sandbox::Contact;

use super::Keeper;
use crate::AppError;

/// What is known about the backend, and whether the rows say it.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Debug, Default, Clone)]
struct State {
    /// Why it is out of reach.
    lost: Option<String>,
    /// When it last came back.
    made_at: Option<Timestamp>,
    /// The store could not be told.
    is_owed: bool,
}

impl Known {
    fn state(&self) -> State {
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

impl Keeper {
    /// The backend went out of reach, or came back: every row of this host says so. Their status stays the last known one.
    pub(crate) async fn note_contact(&self, contact: &Contact) -> Result<(), AppError> {
        let lost = match contact {
            Contact::Made => None,
            Contact::Lost { detail } => Some(detail.clone()),
        };
        self.0.contact.set(lost, self.0.ports.clock.now());
        self.tell_rows().await
    }

    /// Writes down what [`Keeper::note_contact`] could not. Cheap when nothing is owed.
    pub(crate) async fn tell_rows(&self) -> Result<(), AppError> {
        let state = self.0.contact.state();
        if !state.is_owed {
            return Ok(());
        }
        let detail = state
            .lost
            .as_ref()
            .map(|cause| format!("{cause}; what is shown is the last known state"));
        let (host, sandboxes) = (&self.0.policy.host, &self.0.ports.sandboxes);
        let told = sandboxes.annotate(host, detail.as_deref()).await?;
        tracing::debug!(sandboxes = told, ?detail, "sandboxes annotated");
        self.0.contact.settle(state.lost.as_ref());
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
