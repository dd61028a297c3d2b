//! The open event streams of this process: wakes them and limits their number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::error::ErrorClass;
use domain::id::{ConversationId, UserId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::AppError;

pub(crate) const MAX_STREAMS_PER_USER: usize = 100;
/// Open streams of all users. Each may hold a part of a log in memory and queries the store now and then.
const MAX_STREAMS: usize = 1_000;

/// The open streams. A wake-up is a hint that there are new events; several wake-ups may merge into one.
#[derive(Debug, Default, Clone)]
pub(crate) struct StreamRegistry {
    open: Arc<Mutex<OpenStreams>>,
    shutdown: CancellationToken,
}

#[derive(Debug, Default)]
struct OpenStreams {
    conversations: HashMap<ConversationId, (watch::Sender<()>, usize)>,
    users: HashMap<UserId, usize>,
    all: usize,
}

/// The slot of an open stream; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    registry: StreamRegistry,
    user: UserId,
    conversation: ConversationId,
}

impl StreamRegistry {
    fn lock(&self) -> MutexGuard<'_, OpenStreams> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a stream; returns its slot and its wake-ups. Refused above the limits.
    pub(crate) fn register(
        &self,
        user: &UserId,
        conversation: ConversationId,
    ) -> Result<(StreamSlot, watch::Receiver<()>), AppError> {
        let mut open = self.lock();
        if open
            .users
            .get(user)
            .is_some_and(|count| *count >= MAX_STREAMS_PER_USER)
        {
            let detail =
                format!("At most {MAX_STREAMS_PER_USER} event streams at a time: close one");
            return Err(AppError::refused(ErrorClass::RateLimited, detail));
        }
        if open.all >= MAX_STREAMS {
            let detail = "Too many event streams are open: try again later";
            return Err(AppError::refused(ErrorClass::Unavailable, detail));
        }
        open.all += 1;
        *open.users.entry(user.clone()).or_default() += 1;
        let entry = open.conversations.entry(conversation);
        let (wake, count) = entry.or_insert_with(|| (watch::channel(()).0, 0));
        *count += 1;
        let woken = wake.subscribe();
        drop(open);
        let slot = StreamSlot {
            registry: self.clone(),
            user: user.clone(),
            conversation,
        };
        Ok((slot, woken))
    }

    /// The number of open streams.
    pub(crate) fn count(&self) -> usize {
        self.lock().all
    }

    /// Wakes the streams of a conversation: it may have new events or be deleted.
    pub(crate) fn wake(&self, conversation: ConversationId) {
        if let Some((wake, _)) = self.lock().conversations.get(&conversation) {
            wake.send_replace(());
        }
    }

    /// Wakes all streams, after a gap in the change feed.
    pub(crate) fn wake_all(&self) {
        for (wake, _) in self.lock().conversations.values() {
            wake.send_replace(());
        }
    }

    /// Cancelled when all streams must end.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.registry.lock();
        open.all = open.all.saturating_sub(1);
        if let Some(count) = open.users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.users.remove(&self.user);
            }
        }
        if let Some((_, count)) = open.conversations.get_mut(&self.conversation) {
            *count -= 1;
            if *count == 0 {
                open.conversations.remove(&self.conversation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::error::Classify;

    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
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
        open.pop();
        open.push(enter("ada").unwrap());
        for n in 1..MAX_STREAMS / MAX_STREAMS_PER_USER {
            let name = format!("user{n}");
            open.extend((0..MAX_STREAMS_PER_USER).map(|_| enter(&name).unwrap()));
        }
        let refused = enter("bob").unwrap_err();
        assert_eq!(refused.class(), ErrorClass::Unavailable);
        assert!(refused.retry_after().is_some());
        drop(open);
        let left = registry.lock();
        assert!(left.conversations.is_empty() && left.users.is_empty() && left.all == 0);
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
