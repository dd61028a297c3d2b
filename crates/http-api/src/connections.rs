//! Bounds the number of client connections, and chooses the ones to close when there are too many.
//!
//! Closing a connection without a request in flight harms no client, so the longest idle ones are closed first. When all are
//! busy, essential requests are still served (health, metrics, webhook reports), and the rest get 503.
//!
//! Knows addresses and requests, not sockets: the listener passes a callback that closes the connection.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::network::Network;

use crate::rate::client_network;

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

/// Serves every request.
const ACCEPTED: u64 = 0;
/// Over the limit: serves only essential requests.
const SURPLUS: u64 = 1;
/// Closed; its task has not noticed yet.
const CLOSED: u64 = 2;

/// The state of a connection in one number, so that none is closed while a request starts: one of the three states above,
/// the requests in flight, and the requests ever started (which may wrap around).
const STATE_MASK: u64 = 0b11;
const IN_FLIGHT_MASK: u64 = 0xff_ffff << 2;
const ONE_IN_FLIGHT: u64 = 1 << 2;
const ONE_STARTED: u64 = 1 << 26;

struct ConnectionEntry {
    what: AtomicU64,
    /// Milliseconds after `ConnectionTable::started_at`: when it was opened, or when its last response ended.
    since: AtomicU64,
    is_answered: AtomicBool,
    end: Box<dyn Fn() + Send + Sync>,
}

impl ConnectionEntry {
    fn state(&self) -> u64 {
        self.what.load(Ordering::Acquire) & STATE_MASK
    }

    /// The idle time of the connection, and the state it was seen in.
    fn idle(&self, now: Duration) -> Option<(Duration, u64)> {
        let what = self.what.load(Ordering::Acquire);
        let is_idle = what & IN_FLIGHT_MASK == 0 && what & STATE_MASK != CLOSED;
        let since = Duration::from_millis(self.since.load(Ordering::Acquire));
        is_idle.then(|| (now.saturating_sub(since), what))
    }

    /// Whether the connection is idle and, as far as the service can see, no request is on its way.
    fn is_evictable(&self, idle: Duration) -> bool {
        let is_answered = self.is_answered.load(Ordering::Acquire);
        idle >= if is_answered {
            RESPONSE_GRACE
        } else {
            NEW_CONNECTION_GRACE
        }
    }

    /// Closes the connection unless a request started since it was `seen`. Returns whether it was closed.
    fn close(&self, seen: u64) -> bool {
        let ended = (seen & !STATE_MASK) | CLOSED;
        let (then, else_) = (Ordering::AcqRel, Ordering::Relaxed);
        let changed = self.what.compare_exchange(seen, ended, then, else_);
        if changed.is_ok() {
            (self.end)();
        }
        changed.is_ok()
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
        let (state, why) = open.admit(now, &inner.limits, address);
        let entry = Arc::new(ConnectionEntry {
            what: AtomicU64::new(state),
            since: AtomicU64::new(millis(now)),
            is_answered: AtomicBool::new(false),
            end,
        });
        let id = open.next;
        open.next += 1;
        open.all.insert(id, Arc::clone(&entry));
        open.live += usize::from(state != CLOSED);
        if let Some(address) = address {
            *open.per_address.entry(address).or_default() += 1;
        }
        let (live, warns) = (open.live, why.is_some() && open.should_warn(now));
        drop(open);
        if state == CLOSED {
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
    ) -> (u64, Option<&'static str>) {
        let per_address = address.and_then(|address| self.per_address.get(&address));
        if per_address.is_some_and(|count| *count >= limits.max_per_address) {
            let why = "connections are refused: one address has as many as http.max_connections_per_address allows";
            return (CLOSED, Some(why));
        }
        if self.live < limits.max_connections {
            return (ACCEPTED, None);
        }
        let some = (limits.max_connections / 64).max(1);
        if is_rescan_due(self.no_evictable_at, now) {
            if self.close_longest_idle(now, some, ConnectionEntry::is_evictable) > 0 {
                let why =
                    "idle connections are closed: there are as many as http.max_connections allows";
                return (ACCEPTED, Some(why));
            }
            self.no_evictable_at = Some(now);
        }
        let why =
            "requests are refused: as many connections as http.max_connections allows are busy";
        // Headroom for essential requests.
        let mut is_room = self.live < limits.max_connections + limits.max_connections / 4 + 16;
        if !is_room && is_rescan_due(self.no_idle_at, now) {
            is_room = self.close_longest_idle(now, some, |_, _| true) > 0;
            self.no_idle_at = (!is_room).then_some(now);
        }
        (if is_room { SURPLUS } else { CLOSED }, Some(why))
    }

    /// Closes at most `most` connections, the longest idle ones first. Returns how many were closed.
    fn close_longest_idle(
        &mut self,
        now: Duration,
        most: usize,
        may: impl Fn(&ConnectionEntry, Duration) -> bool,
    ) -> usize {
        let idle = self.all.values().filter_map(|entry| {
            let (idle, seen) = entry.idle(now).filter(|(idle, _)| may(entry, *idle))?;
            Some((idle, seen, entry))
        });
        let mut idle: Vec<(Duration, u64, &Arc<ConnectionEntry>)> = idle.collect();
        if idle.len() > most {
            idle.select_nth_unstable_by_key(most, |(idle, ..)| std::cmp::Reverse(*idle));
            idle.truncate(most);
        }
        let ended = idle.iter().filter(|(_, seen, entry)| entry.close(*seen));
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
        self.close_longest_idle(now, usize::MAX, |_, it| it >= idle);
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
        // Count before reading the state: a concurrent scan then sees this connection as busy.
        let begun = ONE_IN_FLIGHT + ONE_STARTED;
        let before = self.entry.what.fetch_add(begun, Ordering::AcqRel);
        let in_flight = InFlightRequest {
            inner: Arc::clone(&self.inner),
            entry: Arc::clone(&self.entry),
        };
        match before & STATE_MASK {
            ACCEPTED => Some(in_flight),
            SURPLUS => is_essential.then_some(in_flight),
            _ => None,
        }
    }

    /// Whether the connection should be closed after its current response.
    pub(crate) fn is_surplus(&self) -> bool {
        self.entry.state() != ACCEPTED
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let mut open = self.inner.open();
        open.all.remove(&self.id);
        if self.entry.state() != CLOSED {
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
        let now = millis(self.inner.started_at.elapsed());
        self.entry.since.store(now, Ordering::Release);
        self.entry.is_answered.store(true, Ordering::Release);
        self.entry.what.fetch_sub(ONE_IN_FLIGHT, Ordering::AcqRel);
    }
}

/// Whether to scan all connections again after a scan in vain. Busy connections stay busy for a while, and a scan for each
/// new connection takes long when there are many.
fn is_rescan_due(vain: Option<Duration>, now: Duration) -> bool {
    vain.is_none_or(|vain| now >= vain + RESPONSE_GRACE)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
