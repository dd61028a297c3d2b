//! The state of the web application, which the installation changes and requests read.

use std::sync::{Arc, PoisonError, RwLock};

use crate::files::WebApp;

/// Whether there is a web application to serve.
#[derive(Debug, Clone)]
pub enum WebAppStatus {
    /// It is being installed.
    Installing {
        /// What happens now, for a person.
        step: String,
    },
    /// It cannot be installed now; the service tries again.
    Failed,
    /// It is served.
    Ready(Arc<WebApp>),
}

/// The present status; clones share it.
#[derive(Debug, Clone)]
pub struct WebAppSlot(Arc<RwLock<WebAppStatus>>);

impl Default for WebAppSlot {
    fn default() -> Self {
        let step = "The service starts.".to_owned();
        Self(Arc::new(RwLock::new(WebAppStatus::Installing { step })))
    }
}

impl WebAppSlot {
    /// The status now.
    #[must_use]
    pub fn status(&self) -> WebAppStatus {
        let status = self.0.read().unwrap_or_else(PoisonError::into_inner);
        status.clone()
    }

    /// Changes the status.
    pub fn set(&self, status: WebAppStatus) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = status;
    }
}
