//! Bounds the number of client connections, and chooses the ones to close when there are too many.
//!
//! Closing a connection without a request in flight harms no client, so the longest idle ones are closed first. When all are
//! busy, essential requests are still served (health, metrics, webhook reports), and the rest get 503.
//!
//! Knows addresses and requests, not sockets: the listener passes a callback that closes the connection.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::network::Network;

use crate::rate_limit::client_network;

/// A new connection does not count as idle for this long, because its first request usually follows at once. The longest
/// idle ones are closed first, so this matters only when thousands of connections arrive in a second.
const NEW_CONNECTION_GRACE: Duration = Duration::from_millis(200);
/// Nor does a connection after its last response, some of which may still have to be sent.
const RESPONSE_GRACE: Duration = Duration::from_millis(50);
/// Time between two scans for idle connections while new ones arrive.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two warnings about too many connections.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Bounds on the number and the idle time of connections.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Connections in total.
    pub max_connections: usize,
    /// Connections from one address (IPv6: one /64 network) that is neither this machine's nor a trusted proxy's; 0 means no
    /// limit.
    pub max_per_address: usize,
    /// Longest time without a request. The server has its own timeouts, but a client that sends single bytes of a request head
    /// evades them on all but the first request.
    pub idle_timeout: Duration,
    /// Trusted proxies; all their clients share one address.
    pub trusted_proxies: Vec<Network>,
}

/// The connections of one listener.
#[derive(Clone)]
pub struct Connections(Arc<ConnectionTable>);

struct ConnectionTable {
    limits: ConnectionLimits,
    started_at: Instant,
    open: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    all: HashMap<u64, Arc<ConnectionEntry>>,
    per_address: HashMap<IpAddr, usize>,
    /// Those of `all` that were not closed.
    live: usize,
    swept_at: Duration,
    warned_at: Option<Duration>,
    /// When a scan found no connection to close, and when it found no idle one; the next scan waits for a while.
    no_evictable_at: Option<Duration>,
    no_idle_at: Option<Duration>,
}

/// What a connection serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Every request.
    Accepted,
    /// Over the limit: only essential requests.
    Surplus,
    /// Nothing; its task has not noticed yet.
    Closed,
}

struct ConnectionEntry {
    state: Mutex<ConnectionState>,
    end: Box<dyn Fn() + Send + Sync>,
}

struct ConnectionState {
    phase: ConnectionPhase,
    in_flight: usize,
    started: u64,
    /// When it was opened, or when its last response ended; after `ConnectionTable::started_at`.
    idle_since: Duration,
}

/// An idle connection, as a scan found it.
struct IdleClient {
    idle: Duration,
    started: u64,
}

impl IdleClient {
    /// Whether, as far as the service can see, no request is on its way.
    fn is_evictable(&self) -> bool {
        let is_new = self.started == 0;
        self.idle
            >= if is_new {
                NEW_CONNECTION_GRACE
            } else {
                RESPONSE_GRACE
            }
    }
}

impl ConnectionEntry {
    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self, now: Duration) -> Option<IdleClient> {
        let state = self.lock();
        let is_idle = state.in_flight == 0 && state.phase != ConnectionPhase::Closed;
        is_idle.then(|| IdleClient {
            idle: now.saturating_sub(state.idle_since),
            started: state.started,
        })
    }

    /// Closes the connection unless a request started since a scan found it. Returns whether it was closed.
    fn close(&self, found: &IdleClient) -> bool {
        let mut state = self.lock();
        let may = state.phase != ConnectionPhase::Closed && state.started == found.started;
        if may {
            state.phase = ConnectionPhase::Closed;
            drop(state);
            (self.end)();
        }
        may
    }
}

/// One connection; held as long as it is open.
pub struct ClientConnection {
    inner: Arc<ConnectionTable>,
    id: u64,
    address: Option<IpAddr>,
    entry: Arc<ConnectionEntry>,
}

/// A request on a connection, until its response is written.
pub(crate) struct InFlightRequest {
    inner: Arc<ConnectionTable>,
    entry: Arc<ConnectionEntry>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = self.0.open().live;
        f.debug_struct("Connections")
            .field("living", &live)
            .finish_non_exhaustive()
    }
}

impl Connections {
    /// An empty table.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(ConnectionTable {
            limits,
            started_at: Instant::now(),
            open: Mutex::default(),
        }))
    }

    /// Counts a new connection from this address. `end` closes the connection immediately and from any thread. It may be called
    /// before this method returns.
    pub fn accept(
        &self,
        address: IpAddr,
        end: impl Fn() + Send + Sync + 'static,
    ) -> ClientConnection {
        self.accept_at(self.0.started_at.elapsed(), address, Box::new(end))
    }

    fn accept_at(
        &self,
        now: Duration,
        address: IpAddr,
        end: Box<dyn Fn() + Send + Sync>,
    ) -> ClientConnection {
        let inner = &self.0;
        let address = inner.counted(address);
        let mut open = inner.open();
        open.sweep(now, inner.limits.idle_timeout);
        let (phase, why) = open.admit(now, &inner.limits, address);
        let state = ConnectionState {
            phase,
            in_flight: 0,
            started: 0,
            idle_since: now,
        };
        let entry = Arc::new(ConnectionEntry {
            state: Mutex::new(state),
            end,
        });
        let id = open.next;
        open.next += 1;
        open.all.insert(id, Arc::clone(&entry));
        open.live += usize::from(phase != ConnectionPhase::Closed);
        if let Some(address) = address {
            *open.per_address.entry(address).or_default() += 1;
        }
        let (live, warns) = (open.live, why.is_some() && open.should_warn(now));
        drop(open);
        if phase == ConnectionPhase::Closed {
            (entry.end)();
        }
        if let Some(why) = why.filter(|_| warns) {
            tracing::warn!(connections = live, "{why} (logged at most once a minute)");
        }
        ClientConnection {
            inner: Arc::clone(inner),
            id,
            address,
            entry,
        }
    }
}

impl ConnectionTable {
    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address, if connections from it are counted. The clients of a proxy share its address, which is not counted.
    fn counted(&self, address: IpAddr) -> Option<IpAddr> {
        let address = address.to_canonical();
        let is_shared = address.is_loopback()
            || self
                .limits
                .trusted_proxies
                .iter()
                .any(|network| network.contains(address));
        (self.limits.max_per_address > 0 && !is_shared).then(|| client_network(address))
    }
}

impl OpenConnections {
    /// Decides the state of a new connection, and the warning to log.
    fn admit(
        &mut self,
        now: Duration,
        limits: &ConnectionLimits,
        address: Option<IpAddr>,
    ) -> (ConnectionPhase, Option<&'static str>) {
        let per_address = address.and_then(|address| self.per_address.get(&address));
        if per_address.is_some_and(|count| *count >= limits.max_per_address) {
            let why = "refusing connections from one address: limit http.max_connections_per_address reached";
            return (ConnectionPhase::Closed, Some(why));
        }
        if self.live < limits.max_connections {
            return (ConnectionPhase::Accepted, None);
        }
        let some = (limits.max_connections / 64).max(1);
        if is_rescan_due(self.no_evictable_at, now) {
            if self.close_longest_idle(now, some, IdleClient::is_evictable) > 0 {
                let why =
                    "idle connections are closed: there are as many as http.max_connections allows";
                return (ConnectionPhase::Accepted, Some(why));
            }
            self.no_evictable_at = Some(now);
        }
        let why =
            "requests are refused: as many connections as http.max_connections allows are busy";
        // Headroom for essential requests.
        let mut is_room = self.live < limits.max_connections + limits.max_connections / 4 + 16;
        if !is_room && is_rescan_due(self.no_idle_at, now) {
            is_room = self.close_longest_idle(now, some, |_| true) > 0;
            self.no_idle_at = (!is_room).then_some(now);
        }
        let phase = if is_room {
            ConnectionPhase::Surplus
        } else {
            ConnectionPhase::Closed
        };
        (phase, Some(why))
    }

    /// Closes at most `most` connections, the longest idle ones first. Returns how many were closed.
    fn close_longest_idle(
        &mut self,
        now: Duration,
        most: usize,
        may: impl Fn(&IdleClient) -> bool,
    ) -> usize {
        let idle = self.all.values();
        let idle = idle.filter_map(|entry| Some((entry.idle(now).filter(&may)?, entry)));
        let mut idle: Vec<(IdleClient, &Arc<ConnectionEntry>)> = idle.collect();
        if idle.len() > most {
            idle.select_nth_unstable_by_key(most, |(found, _)| std::cmp::Reverse(found.idle));
            idle.truncate(most);
        }
        let ended = idle.iter().filter(|(found, entry)| entry.close(found));
        let ended = ended.count();
        self.live -= ended;
        ended
    }

    /// Closes connections that have been idle for too long.
    fn sweep(&mut self, now: Duration, idle: Duration) {
        if now < self.swept_at + SWEEP_INTERVAL {
            return;
        }
        self.swept_at = now;
        self.close_longest_idle(now, usize::MAX, |found| found.idle >= idle);
    }

    fn should_warn(&mut self, now: Duration) -> bool {
        let may = self
            .warned_at
            .is_none_or(|warned_at| now >= warned_at + WARNING_INTERVAL);
        if may {
            self.warned_at = Some(now);
        }
        may
    }
}

impl ClientConnection {
    /// Starts a request. `None` if it must not be served: the connection was just closed, or it is over the limit and the
    /// request is not essential.
    pub(crate) fn begin_request(&self, is_essential: bool) -> Option<InFlightRequest> {
        let mut state = self.entry.lock();
        let is_served = match state.phase {
            ConnectionPhase::Accepted => true,
            ConnectionPhase::Surplus => is_essential,
            ConnectionPhase::Closed => false,
        };
        state.started += 1;
        state.in_flight += 1;
        drop(state);
        let in_flight = InFlightRequest {
            inner: Arc::clone(&self.inner),
            entry: Arc::clone(&self.entry),
        };
        is_served.then_some(in_flight)
    }

    /// Whether the connection should be closed after its current response.
    pub(crate) fn is_surplus(&self) -> bool {
        self.entry.lock().phase != ConnectionPhase::Accepted
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let mut open = self.inner.open();
        open.all.remove(&self.id);
        if self.entry.lock().phase != ConnectionPhase::Closed {
            open.live -= 1;
        }
        if let Some(address) = self.address
            && let Some(count) = open.per_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                open.per_address.remove(&address);
            }
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut state = self.entry.lock();
        state.idle_since = self.inner.started_at.elapsed();
        state.in_flight -= 1;
    }
}

/// Whether to scan all connections again after a scan in vain. Busy connections stay busy for a while, and a scan for each
/// new connection takes long when there are many.
fn is_rescan_due(vain: Option<Duration>, now: Duration) -> bool {
    vain.is_none_or(|vain| now >= vain + RESPONSE_GRACE)
}

#[cfg(test)]
mod tests;
