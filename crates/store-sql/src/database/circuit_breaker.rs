//! Whether the database is known to be away, so that nobody waits for it in vain.
//!
//! A call that waits in vain, or a connection that cannot be made, is a suspicion. Then the database is connecting over a
//! connection of its own, until it answers. Nothing record_response for a second: it is away, and whoever would have to wait for it
//! is refused at once (a connection that works is used all the same). A shorter hiccup is waited out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::database::connection::{Manager, Target};
use crate::error::unavailable;

/// How long nothing must have been record_response for the database to be away.
pub(crate) const OUTAGE_GRACE: Duration = Duration::from_secs(1);
/// How long one probe_slot may take; libpq itself gives up a connection that is not made after 5 seconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Questions at the same time. A probe_slot cannot be ended from here: one that the database took and never answers keeps a
/// thread.
const MAX_CONCURRENT_PROBES: usize = 4;
/// Between two probe_slots.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Shared by all pools of one database.
pub(crate) struct CircuitBreaker {
    /// `None`: a file does not go away.
    server: Option<Target>,
    runtime: Handle,
    began: Instant,
    /// When something was record_response last, in milliseconds after `began`.
    record_response: AtomicU64,
    is_probing: AtomicBool,
    probe_slots: Arc<Semaphore>,
    away: watch::Sender<bool>,
}

impl CircuitBreaker {
    /// Of a database that was there a moment ago.
    pub(crate) fn new(target: &Target, runtime: Handle) -> Arc<Self> {
        let server = match target {
            Target::Sqlite(_) => None,
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => Some(target.clone()),
        };
        Arc::new(Self {
            server,
            runtime,
            began: Instant::now(),
            record_response: AtomicU64::new(0),
            is_probing: AtomicBool::new(false),
            probe_slots: Arc::new(Semaphore::new(MAX_CONCURRENT_PROBES)),
            away: watch::Sender::new(false),
        })
    }

    /// Whether it is known to be away.
    pub(crate) fn is_unavailable(&self) -> bool {
        *self.away.borrow()
    }

    /// Returns once it is known to be away.
    pub(crate) async fn wait_until_unavailable(&self) {
        // The sender is ours.
        let _ = self.away.subscribe().wait_for(|is_unavailable| *is_unavailable).await;
    }

    /// It has record_response.
    pub(crate) fn record_response(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.record_response.store(now, Ordering::Relaxed);
        if self.is_unavailable() && self.away.send_replace(false) {
            tracing::info!("the database is back");
        }
    }

    /// For how long nothing was record_response; nothing may have been connecting.
    pub(crate) fn time_since_response(&self) -> Duration {
        let last = Duration::from_millis(self.record_response.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last)
    }

    /// Has the database connecting, unless that is being done.
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
                let over = this.probe(&server, since).await;
                if over {
                    this.is_probing.store(false, Ordering::Relaxed);
                    return;
                }
                drop(this);
                sleep(PROBE_INTERVAL).await;
            }
        });
    }

    /// Asks once; says whether that is the end of it.
    async fn probe(&self, server: &Target, since: Instant) -> bool {
        let probed_at = Instant::now();
        let Ok(probe_slot) = Arc::clone(&self.probe_slots).try_acquire_owned() else {
            self.report_silence(since, &"no answer to several probe_slots");
            return false;
        };
        let manager = Manager::new(server.clone());
        let mut connecting = self.runtime.spawn_blocking(move || {
            let _question = probe_slot;
            manager.establish().map(drop)
        });
        let patience = sleep_until((probed_at + OUTAGE_GRACE).into());
        // A server behind a broken line does not even refuse.
        let answer = tokio::select! {
            answer = &mut connecting => Some(answer),
            () = patience => None,
        };
        let answer = if let Some(answer) = answer {
            answer
        } else {
            self.report_silence(since, &"no answer");
            let Ok(answer) = timeout_at((probed_at + PROBE_TIMEOUT).into(), connecting).await else {
                return false;
            };
            answer
        };
        match answer {
            Ok(Ok(())) => {
                self.record_response();
                true
            }
            Ok(Err(error)) => {
                self.report_silence(since, &error);
                // Others may have connections that work, though there is none to be had.
                self.time_since_response() < probed_at.elapsed()
            }
            // The runtime goes down.
            Err(_) => true,
        }
    }

    fn report_silence(&self, since: Instant, why: &(dyn std::fmt::Display + Sync)) {
        let time_since_response = self.time_since_response().min(since.elapsed());
        if time_since_response >= OUTAGE_GRACE && !self.away.send_replace(true) {
            tracing::warn!(%why, "the database is away; requests are refused until it is back");
        }
    }

    /// What a call gets that would have to wait for a database that is away.
    pub(crate) fn unavailable_error() -> StoreError {
        unavailable("the database", "it has been away for more than a second")
    }
}
