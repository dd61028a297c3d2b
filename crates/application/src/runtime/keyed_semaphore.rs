//! Turns: of the work that each of many may ask for, so much goes on at once, and so much waits.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of all who take any. One short lock is all that they share. Nothing is kept of those who neither have one nor wait.
pub struct KeyedSemaphore<K> {
    permits_per_key: usize,
    max_holders_per_key: usize,
    semaphores: Mutex<HashMap<K, Weak<Semaphore>>>,
}

/// One turn, until it is dropped.
pub type KeyedPermit = OwnedSemaphorePermit;

impl<K: Eq + Hash + Clone> KeyedSemaphore<K> {
    /// `permits_per_key` at a time for one of them; of one at most `max_holders_per_key` have a turn or wait.
    #[must_use]
    pub fn new(permits_per_key: usize, max_holders_per_key: usize) -> Self {
        Self {
            permits_per_key,
            max_holders_per_key,
            semaphores: Mutex::default(),
        }
    }

    /// Waits for a turn; whoever asks bounds how long. `None`: too many wait already.
    pub async fn acquire(&self, key: &K) -> Option<KeyedPermit> {
        let own = self.semaphore(key);
        // Whoever has a turn or waits for one holds the semaphore.
        if Arc::strong_count(&own) > self.max_holders_per_key {
            return None;
        }
        own.acquire_owned().await.ok()
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.semaphores.lock().expect("no panic").len()
    }

    fn semaphore(&self, key: &K) -> Arc<Semaphore> {
        let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = semaphores.get(key).and_then(Weak::upgrade) {
            return own;
        }
        semaphores.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.permits_per_key));
        semaphores.insert(key.clone(), Arc::downgrade(&own));
        own
    }
}
