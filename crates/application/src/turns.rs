//! Turns: of the work that each of many may ask for, so much goes on at once, and so much waits.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of all who take any. One short lock is all that they share. Nothing is kept of those who neither have one nor wait.
pub struct Turns<K> {
    each: usize,
    most: usize,
    known: Mutex<HashMap<K, Weak<Semaphore>>>,
}

/// One turn, until it is dropped.
pub type Turn = OwnedSemaphorePermit;

impl<K: Eq + Hash + Clone> Turns<K> {
    /// `each` at a time for one of them; of one at most `most` have a turn or wait.
    #[must_use]
    pub fn new(each: usize, most: usize) -> Self {
        Self {
            each,
            most,
            known: Mutex::default(),
        }
    }

    /// Waits for a turn; whoever asks bounds how long. `None`: too many wait already.
    pub async fn take(&self, whose: &K) -> Option<Turn> {
        let own = self.of(whose);
        // Whoever has a turn or waits for one holds the semaphore.
        if Arc::strong_count(&own) > self.most {
            return None;
        }
        own.acquire_owned().await.ok()
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.known.lock().expect("no panic").len()
    }

    fn of(&self, whose: &K) -> Arc<Semaphore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = known.get(whose).and_then(Weak::upgrade) {
            return own;
        }
        known.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.each));
        known.insert(whose.clone(), Arc::downgrade(&own));
        own
    }
}
