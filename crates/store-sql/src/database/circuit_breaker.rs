//! Detects that the database is unavailable, so that calls fail at once instead of timing out.
//!
//! A call that waits too long for a connection, or a failed connection attempt, starts probing: the circuit breaker
//! opens connections of its own until one succeeds. After a second without any response the database counts as
//! unavailable. Then calls that would have to wait for a connection fail at once; working connections stay in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::database::connection::{ConnectionManager, Target};
use crate::error::unavailable;

/// Time without a response after which the database counts as unavailable.
pub(crate) const OUTAGE_GRACE: Duration = Duration::from_secs(1);
/// Timeout of one probe. libpq itself gives up a connection attempt after 5 seconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of probes at the same time. A probe cannot be cancelled: each one that the database never answers
/// occupies a thread.
const MAX_CONCURRENT_PROBES: usize = 4;
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Shared by all pools of one database.
pub(crate) struct CircuitBreaker {
    /// `None` for `SQLite`: a file is always available.
    server: Option<Target>,
    runtime: Handle,
    created: Instant,
    /// Time of the last response, in milliseconds after `created`.
    last_response_ms: AtomicU64,
    is_probing: AtomicBool,
    probe_slots: Arc<Semaphore>,
    unavailable: watch::Sender<bool>,
}

impl CircuitBreaker {
    /// Creates a circuit breaker that assumes an available database.
    pub(crate) fn new(target: &Target, runtime: Handle) -> Arc<Self> {
        let server = match target {
            Target::Sqlite(_) => None,
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => Some(target.clone()),
        };
        Arc::new(Self {
            server,
            runtime,
            created: Instant::now(),
            last_response_ms: AtomicU64::new(0),
            is_probing: AtomicBool::new(false),
            probe_slots: Arc::new(Semaphore::new(MAX_CONCURRENT_PROBES)),
            unavailable: watch::Sender::new(false),
        })
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        *self.unavailable.borrow()
    }

    /// Returns once the database is known to be unavailable.
    pub(crate) async fn wait_until_unavailable(&self) {
        // `self` holds the sender, so the channel stays open.
        let _ = self
            .unavailable
            .subscribe()
            .wait_for(|is_unavailable| *is_unavailable)
            .await;
    }

    pub(crate) fn record_response(&self) {
        let now = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_response_ms.store(now, Ordering::Relaxed);
        if self.is_unavailable() && self.unavailable.send_replace(false) {
            tracing::info!("the database responds again");
        }
    }

    /// Time since the last response. It also grows while there are no requests.
    pub(crate) fn time_since_response(&self) -> Duration {
        let last = Duration::from_millis(self.last_response_ms.load(Ordering::Relaxed));
        self.created.elapsed().saturating_sub(last)
    }

    /// Starts probing the database, unless a probe runs already.
    pub(crate) fn start_probing(self: &Arc<Self>) {
        let Some(server) = &self.server else {
            return;
        };
        if self.is_probing.swap(true, Ordering::Relaxed) {
            return;
        }
        let (this, server) = (Arc::downgrade(self), server.clone());
        let since = Instant::now();
        self.runtime.spawn(async move {
            while let Some(this) = this.upgrade() {
                let is_done = this.probe(&server, since).await;
                if is_done {
                    this.is_probing.store(false, Ordering::Relaxed);
                    return;
                }
                drop(this);
                sleep(PROBE_INTERVAL).await;
            }
        });
    }

    /// Probes once. Returns whether probing can stop.
    async fn probe(&self, server: &Target, since: Instant) -> bool {
        let probed_at = Instant::now();
        let Ok(probe_slot) = Arc::clone(&self.probe_slots).try_acquire_owned() else {
            self.record_failure(since, &"no response to several connection attempts");
            return false;
        };
        let manager = ConnectionManager(server.clone());
        let mut connecting = self.runtime.spawn_blocking(move || {
            let _held_until_the_end = probe_slot;
            manager.establish().map(drop)
        });
        let grace = sleep_until((probed_at + OUTAGE_GRACE).into());
        // An attempt over a broken network neither succeeds nor fails for long, so the grace also ends the wait.
        let result = tokio::select! {
            result = &mut connecting => Some(result),
            () = grace => None,
        };
        let result = if let Some(result) = result {
            result
        } else {
            self.record_failure(since, &"no response to a connection attempt");
            let Ok(result) = timeout_at((probed_at + PROBE_TIMEOUT).into(), connecting).await
            else {
                return false;
            };
            result
        };
        match result {
            Ok(Ok(())) => {
                self.record_response();
                true
            }
            Ok(Err(error)) => {
                self.record_failure(since, &error);
                // Existing connections may work although the server accepts no new ones.
                self.time_since_response() < probed_at.elapsed()
            }
            // The runtime is shutting down.
            Err(_) => true,
        }
    }

    /// Marks the database as unavailable once the probes that began at `since` have failed for [`OUTAGE_GRACE`].
    fn record_failure(&self, since: Instant, cause: &(dyn std::fmt::Display + Sync)) {
        let silence = self.time_since_response().min(since.elapsed());
        if silence >= OUTAGE_GRACE && !self.unavailable.send_replace(true) {
            tracing::warn!(
                %cause,
                "the database does not respond; requests fail until it does. Check that it runs and that \
                 `storage.url` is right"
            );
        }
    }

    /// The error of a call that would have to wait for an unavailable database.
    pub(crate) fn unavailable_error() -> StoreError {
        unavailable("database", "no response for more than a second")
    }
}
