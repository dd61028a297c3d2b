//! The dormant fake agent servers, shared by the backend that boots them and the agent runtime.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use url::Url;

/// The addresses of dormant agent servers. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct DormantServers(Arc<Mutex<BTreeSet<Url>>>);

impl DormantServers {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Url>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server at this address is dormant.
    pub fn has(&self, url: &Url) -> bool {
        self.lock().contains(url)
    }

    pub(crate) fn boot(&self, url: &Url, dormant: bool) {
        if dormant {
            self.lock().insert(url.clone());
        } else {
            self.lock().remove(url);
        }
    }

    /// Wakes a server; returns whether it was dormant.
    pub(crate) fn wake(&self, url: &Url) -> bool {
        self.lock().remove(url)
    }
}
