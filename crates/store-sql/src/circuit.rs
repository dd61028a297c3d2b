//! Whether the database is known to be away, so that nobody waits for it in vain.
//!
//! A call that waits in vain, or a connection that cannot be made, is a suspicion. Then the database is asked over a
//! connection of its own, until it answers. Nothing answered for a second: it is away, and whoever would have to wait for it
//! is refused at once (a connection that works is used all the same). A shorter hiccup is waited out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::connection::{Manager, Target};
use crate::error::unavailable;

/// How long nothing must have been answered for the database to be away.
pub(crate) const OUTAGE_GRACE: Duration = Duration::from_secs(1);
/// How long one question may take; libpq itself gives up a connection that is not made after 5 seconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Questions at the same time. A question cannot be ended from here: one that the database took and never answers keeps a
/// thread.
const MAX_CONCURRENT_PROBES: usize = 4;
/// Between two questions.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Shared by all pools of one database.
pub(crate) struct CircuitBreaker {
    /// `None`: a file does not go away.
    server: Option<Target>,
    runtime: Handle,
    began: Instant,
    /// When something was answered last, in milliseconds after `began`.
    answered: AtomicU64,
    asking: AtomicBool,
    questions: Arc<Semaphore>,
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
            answered: AtomicU64::new(0),
            asking: AtomicBool::new(false),
            questions: Arc::new(Semaphore::new(MAX_CONCURRENT_PROBES)),
            away: watch::Sender::new(false),
        })
    }

    /// Whether it is known to be away.
    pub(crate) fn is_away(&self) -> bool {
        *self.away.borrow()
    }

    /// Returns once it is known to be away.
    pub(crate) async fn until_away(&self) {
        // The sender is ours.
        let _ = self.away.subscribe().wait_for(|is_away| *is_away).await;
    }

    /// It has answered.
    pub(crate) fn answered(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.answered.store(now, Ordering::Relaxed);
        if self.is_away() && self.away.send_replace(false) {
            tracing::info!("the database is back");
        }
    }

    /// For how long nothing was answered; nothing may have been asked.
    pub(crate) fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.answered.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last)
    }

    /// Has the database asked, unless that is being done.
    pub(crate) fn suspect(self: &Arc<Self>) {
        let Some(server) = &self.server else {
            return;
        };
        if self.asking.swap(true, Ordering::Relaxed) {
            return;
        }
        let (this, server) = (Arc::downgrade(self), server.clone());
        let since = Instant::now();
        self.runtime.spawn(async move {
            while let Some(this) = this.upgrade() {
                let over = this.ask(&server, since).await;
                if over {
                    this.asking.store(false, Ordering::Relaxed);
                    return;
                }
                drop(this);
                sleep(PROBE_INTERVAL).await;
            }
        });
    }

    /// Asks once; says whether that is the end of it.
    async fn ask(&self, server: &Target, since: Instant) -> bool {
        let asked_at = Instant::now();
        let Ok(question) = Arc::clone(&self.questions).try_acquire_owned() else {
            self.give_up(since, &"no answer to several questions");
            return false;
        };
        let manager = Manager::new(server.clone());
        let mut asked = self.runtime.spawn_blocking(move || {
            let _question = question;
            manager.establish().map(drop)
        });
        let patience = sleep_until((asked_at + OUTAGE_GRACE).into());
        // A server behind a broken line does not even refuse.
        let answer = tokio::select! {
            answer = &mut asked => Some(answer),
            () = patience => None,
        };
        let answer = if let Some(answer) = answer {
            answer
        } else {
            self.give_up(since, &"no answer");
            let Ok(answer) = timeout_at((asked_at + PROBE_TIMEOUT).into(), asked).await else {
                return false;
            };
            answer
        };
        match answer {
            Ok(Ok(())) => {
                self.answered();
                true
            }
            Ok(Err(error)) => {
                self.give_up(since, &error);
                // Others may have connections that work, though there is none to be had.
                self.silence() < asked_at.elapsed()
            }
            // The runtime goes down.
            Err(_) => true,
        }
    }

    fn give_up(&self, since: Instant, why: &(dyn std::fmt::Display + Sync)) {
        let silence = self.silence().min(since.elapsed());
        if silence >= OUTAGE_GRACE && !self.away.send_replace(true) {
            tracing::warn!(%why, "the database is away; requests are refused until it is back");
        }
    }

    /// What a call gets that would have to wait for a database that is away.
    pub(crate) fn refusal() -> StoreError {
        unavailable("the database", "it has been away for more than a second")
    }
}
