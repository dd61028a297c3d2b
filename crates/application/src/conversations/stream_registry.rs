//! The open event streams of this process: wakes them and limits their number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::error::ErrorClass;
use domain::id::{ConversationId, OwnerId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::AppError;
use crate::runtime::user_slots::{NoSlot, UserSlot, UserSlots};

const MAX_STREAMS_PER_USER: usize = 100;
/// Open streams of all users. Each may hold a part of a log in memory and queries the store now and then.
const MAX_STREAMS: usize = 1_000;

/// The slot of an open stream; dropping it frees the slot.
pub(crate) type StreamSlot = UserSlot<ConversationId>;

/// The open streams. A wake-up is a hint that there are new events; several wake-ups may merge into one.
#[derive(Debug, Clone)]
pub(crate) struct StreamRegistry {
    slots: UserSlots<ConversationId>,
    /// Senders without a receiver are removed when the next stream opens.
    wakers: Arc<Mutex<HashMap<ConversationId, watch::Sender<()>>>>,
    shutdown: CancellationToken,
}

impl Default for StreamRegistry {
    fn default() -> Self {
        Self {
            slots: UserSlots::new(MAX_STREAMS_PER_USER, MAX_STREAMS),
            wakers: Arc::default(),
            shutdown: CancellationToken::new(),
        }
    }
}

impl StreamRegistry {
    fn wakers(&self) -> MutexGuard<'_, HashMap<ConversationId, watch::Sender<()>>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a stream; returns its slot and its wake-ups. Refused above the limits.
    pub(crate) fn register(
        &self,
        user: &OwnerId,
        conversation: ConversationId,
    ) -> Result<(StreamSlot, watch::Receiver<()>), AppError> {
        let slot = self.slots.acquire(user, conversation);
        let slot = slot.map_err(|refusal| match refusal {
            NoSlot::Overall => AppError::refused(
                ErrorClass::Unavailable,
                "Too many event streams are open: try again later",
            ),
            NoSlot::PerUser | NoSlot::Held => AppError::refused(
                ErrorClass::RateLimited,
                format!("At most {MAX_STREAMS_PER_USER} event streams at a time: close one"),
            ),
        })?;
        let mut wakers = self.wakers();
        wakers.retain(|_, waker| waker.receiver_count() > 0);
        Ok((slot, wakers.entry(conversation).or_default().subscribe()))
    }

    /// The number of open streams.
    pub(crate) fn count(&self) -> usize {
        self.slots.count()
    }

    /// Wakes the streams of a conversation: it may have new events or be deleted.
    pub(crate) fn wake(&self, conversation: ConversationId) {
        if let Some(waker) = self.wakers().get(&conversation) {
            waker.send_replace(());
        }
    }

    /// Wakes all streams, after a gap in the change feed.
    pub(crate) fn wake_all(&self) {
        for waker in self.wakers().values() {
            waker.send_replace(());
        }
    }

    /// Cancelled when all streams must end.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }
}

#[cfg(test)]
mod tests {
    use domain::error::Classify;

    use super::*;

    fn user(name: &str) -> OwnerId {
        OwnerId::parse(name).unwrap()
    }

    fn conversation(n: u128) -> ConversationId {
        ConversationId::new(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn streams_are_limited_per_user_and_in_total() {
        let registry = StreamRegistry::default();
        let enter = |name: &str| registry.register(&user(name), conversation(1));
        let mut open: Vec<_> = (0..MAX_STREAMS_PER_USER)
            .map(|_| enter("ada").unwrap())
            .collect();
        let refused = enter("ada").unwrap_err();
        assert_eq!(refused.class(), ErrorClass::RateLimited);
        for n in 1..MAX_STREAMS / MAX_STREAMS_PER_USER {
            let name = format!("user{n}");
            open.extend((0..MAX_STREAMS_PER_USER).map(|_| enter(&name).unwrap()));
        }
        let refused = enter("bob").unwrap_err();
        assert_eq!(refused.class(), ErrorClass::Unavailable);
        assert!(refused.retry_after().is_some());
        drop(open);
        let _other = registry.register(&user("ada"), conversation(2)).unwrap();
        assert_eq!((registry.count(), registry.wakers().len()), (1, 1));
    }

    #[test]
    fn only_followers_of_the_conversation_are_woken() {
        let registry = StreamRegistry::default();
        let enter = |n| registry.register(&user("ada"), conversation(n)).unwrap();
        let ((_one, woken), (_two, other), (_three, same)) = (enter(1), enter(2), enter(1));
        registry.wake(conversation(1));
        registry.wake(conversation(3));
        let is_woken = |it: &watch::Receiver<()>| it.has_changed().unwrap();
        assert!(is_woken(&woken) && is_woken(&same) && !is_woken(&other));
        registry.wake_all();
        assert!(is_woken(&other));
    }
}
