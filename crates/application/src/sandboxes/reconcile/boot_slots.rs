//! Turns to boot an agent server: more boots than cores only make all of them late. Whoever waits for a sandbox comes before
//! what is booted in advance.

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// All slots of this process.
pub(crate) struct BootSlots {
    slots: Semaphore,
    /// All but one are for boots in advance too: where there are several, one is free for whoever comes.
    ahead: Semaphore,
    /// How many wait for a turn because somebody waits for them.
    waiting: watch::Sender<usize>,
}

/// A turn of a boot in advance.
pub(crate) struct SpareBootSlot<'a> {
    _turn: SemaphorePermit<'a>,
    _spare: SemaphorePermit<'a>,
    waiting: watch::Receiver<usize>,
}

impl SpareBootSlot<'_> {
    /// Completes when somebody waits for a turn: this boot is to end, and its turn to be dropped.
    pub(crate) async fn wait_for_demand(&mut self) {
        // The sender lives as long as what this borrows from.
        let _ = self.waiting.wait_for(|waiting| *waiting > 0).await;
    }
}

/// One that waits, counted until it is dropped.
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
    /// So many at once, at least one.
    pub(super) fn new(parallel: usize) -> Self {
        let parallel = parallel.max(1);
        Self {
            slots: Semaphore::new(parallel),
            ahead: Semaphore::new((parallel - 1).max(1)),
            waiting: watch::Sender::new(0),
        }
    }

    /// A turn for a sandbox that somebody waits for. The semaphore is never closed.
    pub(super) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(turn) = self.slots.try_acquire() {
            return Some(turn);
        }
        let _waits = BootWaiter::new(&self.waiting);
        self.slots.acquire().await.ok()
    }

    /// A turn for one that nobody waits for, once there is one that nobody else wants.
    pub(crate) async fn acquire_spare(&self) -> Option<SpareBootSlot<'_>> {
        let ahead = self.ahead.acquire().await.ok()?;
        let mut waiting = self.waiting.subscribe();
        loop {
            waiting.wait_for(|waiting| *waiting == 0).await.ok()?;
            let slot = tokio::select! {
                biased;
                _ = waiting.wait_for(|waiting| *waiting > 0) => continue,
                slot = self.slots.acquire() => slot.ok()?,
            };
            // It may have been given at the moment at which somebody began to wait.
            if *waiting.borrow() == 0 {
                return Some(SpareBootSlot {
                    _turn: slot,
                    _spare: ahead,
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
    async fn a_boot_in_advance_leaves_a_turn_free_and_gives_way_to_whoever_waits() {
        let boots = BootSlots::new(2);
        let mut ahead = boots.acquire_spare().await.expect("a turn");
        let first = boots.acquire().await.expect("the free one, at once");
        let mut waits = pin!(boots.acquire());
        assert!(futures::poll!(&mut waits).is_pending(), "no turn is free");
        ahead.wait_for_demand().await;
        let late = tokio::time::timeout(Duration::from_secs(1), boots.acquire_spare()).await;
        assert!(late.is_err(), "somebody waits");
        drop(ahead);
        assert!(waits.await.is_some(), "it got the turn");
        drop(first);
        assert!(boots.acquire_spare().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_is_one_turn_boots_in_advance_have_it_too() {
        let boots = BootSlots::new(1);
        let ahead = boots.acquire_spare().await;
        assert!(ahead.is_some());
    }
}
