//! Slots for booting agent servers: more boots than cores only slow all of them down. Boots for waiting starts come
//! before boots of warm sandboxes.

use tokio::sync::{Semaphore, SemaphorePermit, watch};

pub(crate) struct BootSlots {
    slots: Semaphore,
    /// Warm sandboxes may use all slots but one, so that one is free for a start, if there are several.
    spare: Semaphore,
    /// Number of starts that wait for a slot.
    waiting: watch::Sender<usize>,
}

pub(crate) struct SpareBootSlot<'a> {
    _slot: SemaphorePermit<'a>,
    _spare: SemaphorePermit<'a>,
    waiting: watch::Receiver<usize>,
}

impl SpareBootSlot<'_> {
    /// Completes when a start waits for a slot: then this boot must end and drop its slot.
    pub(crate) async fn wait_for_demand(&mut self) {
        // The sender outlives this borrow.
        let _ = self.waiting.wait_for(|waiting| *waiting > 0).await;
    }
}

/// A waiting start, counted until it is dropped.
struct BootWaiter<'a>(&'a watch::Sender<usize>);

impl<'a> BootWaiter<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for BootWaiter<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl BootSlots {
    /// `parallel` slots, at least one.
    pub(super) fn new(parallel: usize) -> Self {
        let parallel = parallel.max(1);
        Self {
            slots: Semaphore::new(parallel),
            spare: Semaphore::new((parallel - 1).max(1)),
            waiting: watch::Sender::new(0),
        }
    }

    /// Acquires a slot for a start. `None` never happens: the semaphore is never closed.
    pub(super) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(slot) = self.slots.try_acquire() {
            return Some(slot);
        }
        let _waits = BootWaiter::new(&self.waiting);
        self.slots.acquire().await.ok()
    }

    /// Acquires a slot for a warm sandbox, once no start wants it.
    pub(crate) async fn acquire_spare(&self) -> Option<SpareBootSlot<'_>> {
        let spare = self.spare.acquire().await.ok()?;
        let mut waiting = self.waiting.subscribe();
        loop {
            waiting.wait_for(|waiting| *waiting == 0).await.ok()?;
            let slot = tokio::select! {
                biased;
                _ = waiting.wait_for(|waiting| *waiting > 0) => continue,
                slot = self.slots.acquire() => slot.ok()?,
            };
            // A start may have begun to wait at the same moment.
            if *waiting.borrow() == 0 {
                return Some(SpareBootSlot {
                    _slot: slot,
                    _spare: spare,
                    waiting,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_spare_boot_leaves_a_slot_free_and_yields_to_waiting_starts() {
        let boots = BootSlots::new(2);
        let mut spare = boots.acquire_spare().await.expect("a slot");
        let first = boots.acquire().await.expect("the free one, at once");
        let mut waiter = pin!(boots.acquire());
        assert!(futures::poll!(&mut waiter).is_pending(), "no slot is free");
        spare.wait_for_demand().await;
        let late = tokio::time::timeout(Duration::from_secs(1), boots.acquire_spare()).await;
        assert!(late.is_err(), "a start waits");
        drop(spare);
        assert!(waiter.await.is_some(), "it got the slot");
        drop(first);
        assert!(boots.acquire_spare().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn spare_boots_may_use_the_only_slot() {
        let boots = BootSlots::new(1);
        let spare = boots.acquire_spare().await;
        assert!(spare.is_some());
    }
}
