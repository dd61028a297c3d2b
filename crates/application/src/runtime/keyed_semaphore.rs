//! A semaphore per key: limits the parallel and the waiting work of each key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Semaphores by key. They share one short lock. Keys without permits and waiters use no memory.
pub struct KeyedSemaphore<K> {
    permits_per_key: usize,
    max_tasks_per_key: usize,
    semaphores: Mutex<HashMap<K, Weak<Semaphore>>>,
}

pub type KeyedPermit = OwnedSemaphorePermit;

impl<K: Eq + Hash + Clone> KeyedSemaphore<K> {
    /// Each key has `permits_per_key` permits; at most `max_tasks_per_key` tasks hold or wait for one.
    #[must_use]
    pub fn new(permits_per_key: usize, max_tasks_per_key: usize) -> Self {
        Self {
            permits_per_key,
            max_tasks_per_key,
            semaphores: Mutex::default(),
        }
    }

    /// Waits for a permit; the caller sets a timeout. Returns `None` if too many tasks wait.
    pub async fn acquire(&self, key: &K) -> Option<KeyedPermit> {
        let semaphore = self.semaphore(key);
        // Each holder and each waiter owns a reference to the semaphore.
        if Arc::strong_count(&semaphore) > self.max_tasks_per_key {
            return None;
        }
        semaphore.acquire_owned().await.ok()
    }

    /// Number of keys in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.semaphores.lock().expect("no panic").len()
    }

    fn semaphore(&self, key: &K) -> Arc<Semaphore> {
        let mut semaphores = self
            .semaphores
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = semaphores.get(key).and_then(Weak::upgrade) {
            return semaphore;
        }
        semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(self.permits_per_key));
        semaphores.insert(key.clone(), Arc::downgrade(&semaphore));
        semaphore
    }
}
