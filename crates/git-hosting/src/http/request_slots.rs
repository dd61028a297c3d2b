//! Limits concurrent requests in total and per caller, so that one hung host does not block all callers.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Waiting requests of one caller per slot of that caller.
const MAX_WAITING_PER_SLOT: usize = 8;

/// Limits of concurrent requests.
#[derive(Debug, Clone)]
pub(crate) struct RequestSlots {
    all: Arc<Semaphore>,
    each: usize,
    hasher: RandomState,
    /// Slots by the hash of the caller. Callers with equal hashes share slots.
    askers: Arc<Mutex<HashMap<u64, Weak<Semaphore>>>>,
}

/// The right to send a request. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct RequestSlot {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// Too many requests of this caller already wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotsExhausted;

impl fmt::Display for SlotsExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many requests to it are under way; ask again in a moment")
    }
}

impl std::error::Error for SlotsExhausted {}

impl RequestSlots {
    /// `all` slots in total, `each` of them for one caller.
    pub(crate) fn new(all: usize, each: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            each,
            hasher: RandomState::new(),
            askers: Arc::default(),
        }
    }

    /// Waits for a slot; the caller sets the timeout. Takes the caller's own slot first, so that a busy caller does not block
    /// others.
    pub(crate) async fn take(&self, asker: impl Hash) -> Result<RequestSlot, SlotsExhausted> {
        let own = self.asker(self.hasher.hash_one(asker));
        // Every slot and every waiting request holds the semaphore.
        if Arc::strong_count(&own) > self.each.saturating_mul(MAX_WAITING_PER_SLOT + 1) {
            return Err(SlotsExhausted);
        }
        let own = own.acquire_owned().await.map_err(|_| SlotsExhausted)?;
        let all = Arc::clone(&self.all).acquire_owned().await;
        Ok(RequestSlot {
            _own: own,
            _all: all.map_err(|_| SlotsExhausted)?,
        })
    }

    fn asker(&self, key: u64) -> Arc<Semaphore> {
        let mut askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = askers.get(&key).and_then(Weak::upgrade) {
            return own;
        }
        askers.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.each));
        askers.insert(key, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use futures::{pin_mut, poll};

    use super::*;

    #[tokio::test]
    async fn nobody_has_more_than_their_share_and_all_together_no_more_than_there_is() {
        let slots = RequestSlots::new(3, 2);
        let first = slots.take("a").await.unwrap();
        let _second = slots.take("a").await.unwrap();
        let third = slots.take("a");
        pin_mut!(third);
        assert!(poll!(&mut third).is_pending());
        let _other = slots.take("b").await.unwrap();
        let one_too_many = slots.take("c");
        pin_mut!(one_too_many);
        assert!(poll!(&mut one_too_many).is_pending());
        drop(first);
        // The waiter for the last slot has waited longer.
        assert!(poll!(&mut one_too_many).is_ready());
    }

    #[tokio::test]
    async fn the_queue_of_one_is_bounded_and_forgotten_when_it_is_empty() {
        let slots = RequestSlots::new(10, 1);
        let taken = slots.take("a").await.unwrap();
        let mut waiting: Vec<_> = (0..MAX_WAITING_PER_SLOT)
            .map(|_| Box::pin(slots.take("a")))
            .collect();
        for one in &mut waiting {
            assert!(poll!(one).is_pending());
        }
        assert_eq!(slots.take("a").await.unwrap_err(), SlotsExhausted);
        drop((taken, waiting));
        assert!(slots.take("a").await.is_ok());
        for asker in 0..100 {
            drop(slots.take(asker).await);
        }
        assert!(slots.askers.lock().unwrap().len() <= 1);
    }
}
