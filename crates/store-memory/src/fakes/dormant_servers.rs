//! Which of the fake agent servers are dormant: told by the backend that boots them, asked by the runtime.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use url::Url;

/// The addresses of dormant agent servers. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct DormantServers(Arc<Mutex<BTreeSet<Url>>>);

impl DormantServers {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Url>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the one at this address is dormant.
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

    /// Whether it was dormant.
    pub(crate) fn wake(&self, url: &Url) -> bool {
        self.lock().remove(url)
    }
}
