//! Streams of a conversation's events as they arrive.
//!
//! The store is the source of truth. A stream asks it for the events after the last number that it has sent. Wake-ups
//! are only hints: from commits of this process (`stream_registry.rs`), from other processes through the change feed,
//! and from a timer, because hints may be lost. So a stream neither loses nor repeats an event, and a client that
//! reconnects with its last number continues there, here or at another replica.

use std::sync::Arc;
use std::time::Duration;

use domain::error::{Classify, ErrorClass, chain};
use domain::event::{EventStore, SequencedEvent};
use domain::id::{ConversationId, OwnerId};
use domain::user::scope::Scope;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::AppError;
use crate::conversations::stream_registry::{StreamRegistry, StreamSlot};

const MAX_READ_EVENTS: usize = 200;
/// Interval of reads without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest time between two reads. Events that arrive in between are read together.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(20);
/// After this time without an event the stream sends [`StreamItem::Idle`].
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct EventStreams {
    pub(crate) events: Arc<dyn EventStore>,
    pub(crate) streams: StreamRegistry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPosition {
    First,
    /// After the event that is the last one now.
    Now,
    /// After the event with this number (0: at the first event).
    After(u64),
}

#[derive(Debug)]
pub enum StreamItem {
    /// New events in their order; at least one.
    Events(Vec<SequencedEvent>),
    /// No event for [`KEEP_ALIVE_INTERVAL`].
    Idle,
    End(StreamEndReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEndReason {
    Deleted,
    /// This process stops. The client may reconnect to it or to another replica.
    Shutdown,
    /// The events cannot be read. The log has the reason.
    Failed,
}

/// One stream. While it waits it holds only its slot, and no connection of the pool while its client is slow.
pub struct EventStream {
    last_sequence: u64,
    kind: Option<String>,
    conversation: ConversationId,
    scope: Scope,
    woken: watch::Receiver<()>,
    last_sent: Instant,
    last_read: Option<Instant>,
    _slot: StreamSlot,
    events: Arc<dyn EventStore>,
    shutdown: CancellationToken,
}

impl EventStreams {
    /// Opens a stream, with events of `kind` only if one is given. A conversation of another user is not found; a
    /// number beyond the last event is [`ErrorClass::Unprocessable`]; too many streams are
    /// [`ErrorClass::RateLimited`].
    pub async fn open(
        &self,
        user: &OwnerId,
        conversation: ConversationId,
        begin: StreamPosition,
        kind: Option<String>,
    ) -> Result<EventStream, AppError> {
        let (slot, woken) = self.streams.register(user, conversation)?;
        let scope = Scope::Owner(user.clone());
        let last = self.events.last_sequence(&scope, conversation).await?;
        let last = last.ok_or_else(|| AppError::not_found("Conversation not found"))?;
        let last_sequence = match begin {
            StreamPosition::First => 0,
            StreamPosition::Now => last,
            StreamPosition::After(seq) if seq <= last => seq,
            StreamPosition::After(_) => {
                let detail = "no event of this conversation has this number";
                return Err(AppError::refused(ErrorClass::Unprocessable, detail));
            }
        };
        Ok(EventStream {
            last_sequence,
            kind,
            conversation,
            scope,
            woken,
            last_sent: Instant::now(),
            last_read: None,
            _slot: slot,
            events: Arc::clone(&self.events),
            shutdown: self.streams.shutdown().clone(),
        })
    }

    /// Ends all streams, and those that open later: open streams would delay a shutdown.
    pub fn end_all(&self) {
        self.streams.shutdown().cancel();
    }
}

impl EventStream {
    /// The number of the last event that the stream has read, whatever its kind.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Waits for the next item. Cancel-safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> StreamItem {
        let ending = self.shutdown.clone();
        tokio::select! {
            biased;
            () = ending.cancelled() => StreamItem::End(StreamEndReason::Shutdown),
            news = self.read() => news,
        }
    }

    async fn read(&mut self) -> StreamItem {
        loop {
            if self.last_sent.elapsed() >= KEEP_ALIVE_INTERVAL {
                self.last_sent = Instant::now();
                return StreamItem::Idle;
            }
            if let Some(last_read) = self.last_read
                && !self.wait_until_due(last_read).await
            {
                continue;
            }
            // A wake-up from here on may be about events that this read does not see.
            self.woken.mark_unchanged();
            let arrived = self.events.list_after(
                &self.scope,
                self.conversation,
                self.last_sequence,
                MAX_READ_EVENTS,
            );
            self.last_read = match arrived.await {
                Ok(None) => return StreamItem::End(StreamEndReason::Deleted),
                Ok(Some(events)) => match events.last().map(|last| last.seq) {
                    Some(last) => {
                        self.last_sequence = last;
                        // There may be more events already.
                        self.last_read = None;
                        let events = self.of_kind(events);
                        if !events.is_empty() {
                            self.last_sent = Instant::now();
                            return StreamItem::Events(events);
                        }
                        None
                    }
                    None => Some(Instant::now()),
                },
                Err(error) if error.class() == ErrorClass::Unavailable => {
                    tracing::debug!(conversation.id = %self.conversation, error = %chain(&error), "cannot read new events; trying again");
                    Some(Instant::now())
                }
                Err(error) => {
                    tracing::error!(conversation.id = %self.conversation, error = %chain(&error), "cannot read the events of a stream; the stream ends");
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

    /// Waits until the next read (`true`) or until the stream has been idle for long enough (`false`).
    async fn wait_until_due(&mut self, last_read: Instant) -> bool {
        let woken = async {
            // In this order, so that a dropped wait does not consume a wake-up.
            sleep_until(last_read + MIN_READ_INTERVAL).await;
            self.woken.changed().await
        };
        tokio::select! {
            _ = woken => true,
            () = sleep_until(last_read + POLL_INTERVAL) => true,
            () = sleep_until(self.last_sent + KEEP_ALIVE_INTERVAL) => false,
        }
    }
}
