//! Following the events of a conversation as they arrive.
//!
//! The store is the truth: a follower asks it for what came after the last number it has seen, and what wakes it is only a
//! hint. In this process that is the commit itself (`followers.rs`), from other processes the change feed, and in any
//! case the time: hints may be lost. So no event is lost or said twice, whoever stored it, and a follower that comes back
//! with its last number, here or at another replica, goes on where it was.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use domain::error::{Classify, ErrorClass, chain};
use domain::event::SequencedEvent;
use domain::id::{ConversationId, UserId};
use domain::scope::Scope;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::conversations::stream_registry::StreamSlot;
use crate::{AppError, Inner};

/// Events that are read at once.
const MAX_READ_EVENTS: usize = 200;
/// How often the store is asked when nothing wakes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Between two looks, however often a follower is woken: what is reported in between is read together.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(20);
/// After this long without anything to say, that is said.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Follows conversations.
#[derive(Clone)]
pub struct EventStreams(Arc<Inner>);

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPosition {
    /// With the first event.
    First,
    /// After what is there now.
    Now,
    /// After the event with this number (0: with the first).
    After(u64),
}

/// What a follower is told.
#[derive(Debug)]
pub enum StreamItem {
    /// These events arrived, in this order; at least one.
    Events(Vec<SequencedEvent>),
    /// Nothing, for [`KEEP_ALIVE_INTERVAL`].
    Idle,
    /// Nothing more will come.
    End(StreamEndReason),
}

/// Why nothing more will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEndReason {
    /// The conversation is gone.
    Deleted,
    /// This process stops; there may be others, and it may come back.
    Shutdown,
    /// The events cannot be read. The reason is in the log.
    Failed,
}

/// One follower. It holds nothing but its place while it waits, and no connection while its reader is slow.
pub struct EventStream {
    at: u64,
    kind: Option<String>,
    conversation: ConversationId,
    scope: Scope,
    woken: watch::Receiver<()>,
    said: Instant,
    looked: Option<Instant>,
    _place: StreamSlot,
    inner: Arc<Inner>,
}

impl EventStreams {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// Begins to follow, events of this kind only if one is named. A conversation that is not this user's is not found; a
    /// number beyond the last one is [`ErrorClass::Unprocessable`]; too many streams are [`ErrorClass::RateLimited`].
    pub async fn open(
        &self,
        user: &UserId,
        conversation: ConversationId,
        begin: StreamPosition,
        kind: Option<String>,
    ) -> Result<EventStream, AppError> {
        let (place, woken) = self.0.followers.enter(user, conversation)?;
        let scope = Scope::User(user.clone());
        let last = self.0.ports.events.last_sequence(&scope, conversation);
        let last = last.await?;
        let last = last.ok_or_else(|| AppError::not_found("Conversation not found"))?;
        let at = match begin {
            StreamPosition::First => 0,
            StreamPosition::Now => last,
            StreamPosition::After(seq) if seq <= last => seq,
            StreamPosition::After(_) => {
                let detail = "no event of this conversation has this number";
                return Err(AppError::refused(ErrorClass::Unprocessable, detail));
            }
        };
        Ok(EventStream {
            at,
            kind,
            conversation,
            scope,
            woken,
            said: Instant::now(),
            looked: None,
            _place: place,
            inner: Arc::clone(&self.0),
        })
    }

    /// Ends all followers, also those to come. They would keep a service that stops from stopping.
    pub fn end_all(&self) {
        self.0.followers.ending().cancel();
    }

    /// Runs what hands out news, beside requests: until it ends, or the service stops.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(work);
    }
}

impl EventStream {
    /// The number after which it goes on: that of the last event it has read, whether or not it was of the kind.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Waits for what is new. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> StreamItem {
        let ending = self.inner.followers.ending().clone();
        tokio::select! {
            biased;
            () = ending.cancelled() => StreamItem::End(StreamEndReason::Shutdown),
            news = self.read() => news,
        }
    }

    async fn read(&mut self) -> StreamItem {
        loop {
            if self.said.elapsed() >= KEEP_ALIVE_INTERVAL {
                self.said = Instant::now();
                return StreamItem::Idle;
            }
            if let Some(looked) = self.looked
                && !self.is_due(looked).await
            {
                continue;
            }
            // What wakes from here on is about what this look may not see.
            self.woken.mark_unchanged();
            let events = &self.inner.ports.events;
            let arrived = events.list_after(&self.scope, self.conversation, self.at, MAX_READ_EVENTS);
            self.looked = match arrived.await {
                Ok(None) => return StreamItem::End(StreamEndReason::Deleted),
                Ok(Some(events)) => match events.last().map(|last| last.seq) {
                    Some(last) => {
                        self.at = last;
                        // There may be more at once.
                        self.looked = None;
                        let events = self.of_kind(events);
                        if !events.is_empty() {
                            self.said = Instant::now();
                            return StreamItem::Events(events);
                        }
                        None
                    }
                    None => Some(Instant::now()),
                },
                Err(error) if error.class() == ErrorClass::Unavailable => {
                    tracing::debug!(conversation.id = %self.conversation, error = %chain(&error), "cannot look for events; trying again");
                    Some(Instant::now())
                }
                Err(error) => {
                    tracing::error!(conversation.id = %self.conversation, error = %chain(&error), "events cannot be followed");
                    return StreamItem::End(StreamEndReason::Failed);
                }
            };
        }
    }

    fn of_kind(&self, mut events: Vec<SequencedEvent>) -> Vec<SequencedEvent> {
        if let Some(kind) = &self.kind {
            events.retain(|arrived| arrived.event.kind == *kind);
        }
        events
    }

    /// Waits until it is time to look again (true), or to say that there is nothing (false).
    async fn is_due(&mut self, looked: Instant) -> bool {
        let woken = async {
            // In this order, so that a wake-up is not taken by a wait that is dropped.
            sleep_until(looked + MIN_READ_INTERVAL).await;
            self.woken.changed().await
        };
        tokio::select! {
            _ = woken => true,
            () = sleep_until(looked + POLL_INTERVAL) => true,
            () = sleep_until(self.said + KEEP_ALIVE_INTERVAL) => false,
        }
    }
}
