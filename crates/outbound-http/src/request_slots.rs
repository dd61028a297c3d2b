//! Limits concurrent requests in total and per caller, so that one hung host does not block all callers.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of waiting requests of a caller, for each slot of that caller.
const MAX_WAITING_PER_SLOT: usize = 8;

/// A caller is any hashable value: a token with its host, or a host name.
#[derive(Debug, Clone)]
pub struct RequestSlots {
    all: Arc<Semaphore>,
    slots_per_caller: usize,
    hasher: RandomState,
    /// Slots by the hash of the caller. Callers with equal hashes share slots.
    callers: Arc<Mutex<HashMap<u64, Weak<Semaphore>>>>,
}

/// The right to send a request. Dropping it frees the slot.
#[derive(Debug)]
pub struct RequestSlot {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// Too many requests of this caller already wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests of this token or to this host are waiting; repeat the request later")]
pub struct SlotsExhausted;

impl RequestSlots {
    /// `slots` in total, `slots_per_caller` for each caller.
    pub fn new(slots: usize, slots_per_caller: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(slots)),
            slots_per_caller,
            hasher: RandomState::new(),
            callers: Arc::default(),
        }
    }

    /// Waits for a slot; the caller sets the timeout. Takes the caller's own slot first, so that a busy caller does not
    /// block others.
    ///
    /// # Errors
    /// Too many requests of this caller already wait.
    pub async fn take(&self, caller: impl Hash) -> Result<RequestSlot, SlotsExhausted> {
        let own = self.caller_semaphore(self.hasher.hash_one(caller));
        // Every slot and every waiting request holds a reference to the semaphore.
        let max_references = self
            .slots_per_caller
            .saturating_mul(MAX_WAITING_PER_SLOT + 1);
        if Arc::strong_count(&own) > max_references {
            return Err(SlotsExhausted);
        }
        let own = own.acquire_owned().await.map_err(|_| SlotsExhausted)?;
        let all = Arc::clone(&self.all).acquire_owned().await;
        Ok(RequestSlot {
            _own: own,
            _all: all.map_err(|_| SlotsExhausted)?,
        })
    }

    fn caller_semaphore(&self, key: u64) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = callers.get(&key).and_then(Weak::upgrade) {
            return own;
        }
        callers.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.slots_per_caller));
        callers.insert(key, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use futures::{pin_mut, poll};

    use super::*;

    #[tokio::test]
    async fn slots_are_limited_per_caller_and_in_total() {
        let slots = RequestSlots::new(3, 2);
        let first = slots.take("a").await.unwrap();
        let _second = slots.take("a").await.unwrap();
        let third = slots.take("a");
        pin_mut!(third);
        assert!(poll!(&mut third).is_pending());
        let _other = slots.take("b").await.unwrap();
        let fourth = slots.take("c");
        pin_mut!(fourth);
        assert!(poll!(&mut fourth).is_pending());
        drop(first);
        // Caller `c` already waits for a slot of the total, the third request of `a` only for one of its own.
        assert!(poll!(&mut fourth).is_ready());
    }

    #[tokio::test]
    async fn the_queue_of_a_caller_is_bounded_and_removed_when_empty() {
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
        for caller in 0..100 {
            drop(slots.take(caller).await);
        }
        assert!(slots.callers.lock().unwrap().len() <= 1);
    }
}
