//! Follows the events of a conversation across reconnections.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures::Stream;
use futures::stream::try_unfold;
use hyper::body::Incoming;
use serde::Deserialize;

use crate::call::Call;
use crate::client::{Client, read, unreadable};
use crate::error::Error;
use crate::model::Event;
use crate::operations;
use crate::sse::{SseMessage, SseParser};

/// Longest event, in bytes.
const MAX_EVENT_BYTES: usize = 64 << 20;
/// Backoff before the first reconnection, unless the service requests another.
const MIN_RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// Longest backoff.
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(30);
/// Consecutive short connections without an event after which following fails.
const MAX_ATTEMPTS: u32 = 10;

/// Reasons after which a reconnection would be refused. After others (`shutdown`, `failed`) the stream continues elsewhere
/// or later.
const FINAL_ERROR_CODES: [&str; 2] = ["deleted", "unauthorized"];

/// The position to start at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowFrom {
    /// The first event.
    Start,
    /// The event after this sequence number.
    After(u64),
    /// The next new event.
    Now,
}

/// An item of the stream.
#[derive(Debug, Clone)]
pub enum FollowItem {
    /// An event.
    Event {
        /// Its sequence number; [`FollowFrom::After`] continues behind it.
        seq: u64,
        /// The event.
        event: Event,
    },
    /// No further events follow. The stream ends.
    Ended {
        /// `deleted`, or `unauthorized` if the key is no longer valid.
        reason: String,
    },
}

#[derive(Deserialize)]
struct StreamEnd {
    reason: String,
}

struct EventFollower {
    client: Client,
    call: Call,
    connection: Option<(Incoming, SseParser)>,
    /// The time of the connection.
    since: Instant,
    arrived: VecDeque<FollowItem>,
    last: Option<u64>,
    from_now: bool,
    pause: Duration,
    failures: u32,
    was_connected: bool,
    is_over: bool,
}

/// Yields each event once, in order. A connection that ends, or stays silent for longer than
/// [`ClientTimeouts::idle`](crate::ClientTimeouts), is replaced by one that continues behind the last event. An error ends
/// the stream.
pub(crate) fn follow(
    client: Client,
    conversation: &str,
    begin: FollowFrom,
    kind: Option<&str>,
) -> impl Stream<Item = Result<FollowItem, Error>> + use<> {
    let call = Call::to(&operations::FOLLOW_EVENTS).at(conversation);
    let following = EventFollower {
        call: call.maybe("kind__eq", kind),
        client,
        connection: None,
        since: Instant::now(),
        arrived: VecDeque::new(),
        last: match begin {
            FollowFrom::After(seq) => Some(seq),
            FollowFrom::Start | FollowFrom::Now => None,
        },
        from_now: begin == FollowFrom::Now,
        pause: MIN_RETRY_BACKOFF,
        failures: 0,
        was_connected: false,
        is_over: false,
    };
    try_unfold(following, |mut it| async move {
        let next = it.next().await?;
        Ok(next.map(|next| (next, it)))
    })
}

impl EventFollower {
    async fn next(&mut self) -> Result<Option<FollowItem>, Error> {
        loop {
            if let Some(next) = self.arrived.pop_front() {
                return Ok(Some(next));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.read().await {
                Ok(()) => {}
                Err(error) if self.may_go_on(&error) => {
                    self.connection = None;
                    self.failures += 1;
                    let requested = error.refusal().and_then(|refusal| refusal.retry_after);
                    let pause = self.pause * 2u32.pow(self.failures.min(6) - 1);
                    let pause = requested.unwrap_or(pause);
                    tokio::time::sleep(pause.min(MAX_RETRY_BACKOFF)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Continues after the end of a connection, unless none was ever established.
    fn may_go_on(&self, error: &Error) -> bool {
        self.was_connected && error.is_temporary() && self.failures < MAX_ATTEMPTS
    }

    async fn read(&mut self) -> Result<(), Error> {
        let Some((body, parser)) = &mut self.connection else {
            return self.connect().await;
        };
        let piece = self.client.http.piece(body, self.client.timeouts.idle);
        let Some(piece) = piece.await? else {
            return Err(self.client.http.interrupted("the service ended the stream"));
        };
        let messages = parser.push(&piece);
        let messages = messages.map_err(|error| unreadable(&self.call, error))?;
        self.pause = parser.retry().unwrap_or(self.pause);
        let last_id = parser.last_id().and_then(|id| id.parse().ok());
        // Also without events: keep-alives kept the connection open.
        if self.since.elapsed() > self.client.timeouts.idle {
            self.failures = 0;
        }
        for message in messages {
            self.take(&message)?;
        }
        // Following from now starts at the current position.
        self.last = self.last.max(last_id);
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let mut call = self.call.clone();
        call.last_event = self.last.map(|seq| seq.to_string());
        // A known position takes precedence.
        if self.from_now && self.last.is_none() {
            call = call.query("from", "now");
        }
        let body = self.client.open(&call, "text/event-stream").await?;
        self.connection = Some((body, SseParser::new(MAX_EVENT_BYTES)));
        self.since = Instant::now();
        self.was_connected = true;
        Ok(())
    }

    fn take(&mut self, message: &SseMessage) -> Result<(), Error> {
        let data = message.data.as_bytes();
        match message.event.as_str() {
            "message" => {}
            "end" => {
                let StreamEnd { reason } = read(&self.call, data)?;
                if !FINAL_ERROR_CODES.contains(&reason.as_str()) {
                    return Err(self
                        .client
                        .http
                        .interrupted(format!("the service reports: {reason}")));
                }
                self.arrived.push_back(FollowItem::Ended { reason });
                self.is_over = true;
                return Ok(());
            }
            // An item of a newer service.
            _ => return Ok(()),
        }
        self.failures = 0;
        let seq = message.id.as_deref().and_then(|id| id.parse().ok());
        let seq: u64 =
            seq.ok_or_else(|| unreadable(&self.call, "an event has no sequence number"))?;
        if self.last.is_some_and(|last| seq <= last) {
            return Ok(());
        }
        self.last = Some(seq);
        let event = read(&self.call, data)?;
        self.arrived.push_back(FollowItem::Event { seq, event });
        Ok(())
    }
}
