//! The audit log: what has been done is written down beside the requests, in batches.
//!
//! ```text
//!   request ──note──► queue (bounded) ──batch, background──► store        changes, one line each
//!              └────► window (bounded) ──once a minute──► queue           refusals and failures: the first one at once,
//!                                                                          the same again as one line with a count
//! ```
//!
//! No request waits for it. What is in the queue is lost with the process (`kill -9`): a fraction of a second's worth while
//! the store answers. Changes of users and keys are not left to it, see [`crate::administration`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::audit::{AuditActor, AuditEntry, AuditFilter, AuditOutcome};
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::page::{Page, PageRequest};
use uuid::Uuid;

use crate::administration::Origin;
use crate::{AppError, Inner};

/// Lines that wait for the store. Beyond them a line goes to the service's log instead.
const MOST_WAITING: usize = 10_000;
/// Lines of one transaction.
const BATCH: usize = 500;
/// How long lines gather before they are written together.
const GATHER: Duration = Duration::from_millis(100);
/// How long the same refusal again is only counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Different refusals of one window; what goes beyond is counted as one.
const MOST_REFUSALS: usize = 128;
/// Before the next attempt, when the store refuses.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The action of the line that counts what different refusals there was no room for.
pub const MORE_REFUSALS: &str = "audit more-refusals";
/// The action of the line that counts lines that went to the service's log instead.
pub const LOST: &str = "audit lost";

/// Writes and reads the audit log.
#[derive(Clone)]
pub struct Audit(Arc<Inner>);

/// What is not stored yet.
#[derive(Default)]
pub(crate) struct Trail {
    waiting: Mutex<Waiting>,
    wake: tokio::sync::Notify,
    /// Whoever writes.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<AuditEntry>,
    /// Lines that there was no room for.
    lost: u32,
    refusals: HashMap<Refusal, Again>,
    more_refusals: u32,
}

/// What makes two refusals the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Refusal {
    actor: AuditActor,
    action: String,
    source: Option<String>,
    status: Option<u16>,
}

/// The same refusal again, since it was written down.
struct Again {
    last: AuditEntry,
    count: u32,
}

impl Trail {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn push(&mut self, entry: AuditEntry) {
        if self.queue.len() < MOST_WAITING {
            return self.queue.push_back(entry);
        }
        self.lost = self.lost.saturating_add(1);
        tracing::warn!(
            actor = %entry.actor,
            action = entry.action,
            object = entry.object,
            source = entry.source,
            status = entry.status,
            request.id = entry.request_id,
            "the audit log cannot be written; what has happened stands only here"
        );
    }

    /// Writes the first of its kind down, and counts the others.
    fn refuse(&mut self, entry: AuditEntry) {
        let refusal = Refusal {
            actor: entry.actor.clone(),
            action: entry.action.clone(),
            source: entry.source.clone(),
            status: entry.status,
        };
        if let Some(again) = self.refusals.get_mut(&refusal) {
            again.count = again.count.saturating_add(1);
            again.last = entry;
        } else if self.refusals.len() < MOST_REFUSALS {
            let last = entry.clone();
            self.refusals.insert(refusal, Again { last, count: 0 });
            self.push(entry);
        } else {
            self.more_refusals = self.more_refusals.saturating_add(1);
        }
    }

    /// What was only counted becomes lines.
    fn close_window(&mut self, now: Timestamp, mut id: impl FnMut() -> Uuid) {
        let again = std::mem::take(&mut self.refusals).into_values();
        for Again { last, count } in again.filter(|it| it.count > 0) {
            self.push(AuditEntry { count, ..last });
        }
        let more = std::mem::take(&mut self.more_refusals);
        if more > 0 {
            let outcome = AuditOutcome::Refused;
            self.push(count_of(MORE_REFUSALS, outcome, more, id(), now));
        }
    }
}

/// A line of our own that counts.
fn count_of(
    action: &str,
    outcome: AuditOutcome,
    count: u32,
    id: Uuid,
    at: Timestamp,
) -> AuditEntry {
    AuditEntry {
        id,
        at,
        actor: AuditActor::Service,
        key: None,
        action: action.to_owned(),
        object: None,
        detail: None,
        source: None,
        outcome,
        status: None,
        request_id: None,
        count,
    }
}

impl Audit {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// Takes a line in about what has just ended with the status that `origin` has, to be written soon. Waits for nothing.
    /// The texts must be [`domain::audit::clipped`].
    pub fn note(&self, origin: Origin, object: Option<String>, detail: Option<String>) {
        let (trail, ports) = (&self.0.trail, &self.0.ports);
        let status = origin.status.map(AuditOutcome::of_status);
        let entry = AuditEntry {
            id: ports.ids.uuid(),
            at: ports.clock.now(),
            actor: origin.actor,
            key: origin.key,
            action: origin.action,
            object,
            detail,
            source: origin.source,
            outcome: status.unwrap_or(AuditOutcome::Ok),
            status: origin.status,
            request_id: origin.request_id,
            count: 1,
        };
        let mut waiting = trail.lock();
        if entry.outcome == AuditOutcome::Ok {
            waiting.push(entry);
        } else {
            waiting.refuse(entry);
        }
        drop(waiting);
        trail.wake.notify_one();
    }

    /// Newest first.
    pub async fn search(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, AppError> {
        Ok(self.0.ports.audit.search(filter, page).await?)
    }

    /// Writes all there is, counts included, within `deadline`: for a service that ends. Whether it did.
    pub async fn finish(&self, deadline: Duration) -> bool {
        self.close_window();
        let done = tokio::time::timeout(deadline, self.write()).await;
        matches!(done, Ok(Ok(())))
    }

    /// Until the service stops.
    pub(crate) async fn run(self) {
        let mut window = tokio::time::interval(WINDOW);
        window.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.0.trail.wake.notified() => tokio::time::sleep(GATHER).await,
                _ = window.tick() => self.close_window(),
            }
            let mut pause = FIRST_PAUSE;
            while let Err(error) = self.write().await {
                tracing::warn!(%error, "the audit log cannot be written; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    fn close_window(&self) {
        let ports = &self.0.ports;
        let mut waiting = self.0.trail.lock();
        waiting.close_window(ports.clock.now(), || ports.ids.uuid());
    }

    /// Writes what waits. A batch stays in the queue until it is stored; stored twice, it is there once.
    async fn write(&self) -> Result<(), StoreError> {
        let (trail, ports) = (&self.0.trail, &self.0.ports);
        let _turn = trail.turn.lock().await;
        loop {
            let batch: Vec<_> = trail.lock().queue.iter().take(BATCH).cloned().collect();
            if batch.is_empty() {
                return Ok(());
            }
            ports.audit.append(&batch).await?;
            let mut waiting = trail.lock();
            waiting.queue.drain(..batch.len());
            let lost = std::mem::take(&mut waiting.lost);
            if lost > 0 {
                let (id, now) = (ports.ids.uuid(), ports.clock.now());
                waiting.push(count_of(LOST, AuditOutcome::Failed, lost, id, now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u128, source: &str, outcome: AuditOutcome) -> AuditEntry {
        let at = Timestamp::from_micros(i64::try_from(n).unwrap());
        AuditEntry {
            source: Some(source.to_owned()),
            ..count_of("GET /x", outcome, 1, Uuid::from_u128(n), at)
        }
    }

    fn counts(waiting: &Waiting) -> Vec<(u128, u32)> {
        let queue = waiting.queue.iter();
        queue.map(|it| (it.id.as_u128(), it.count)).collect()
    }

    #[test]
    fn the_same_refusal_again_is_counted() {
        let mut waiting = Waiting::default();
        for n in 1..=4 {
            waiting.refuse(entry(n, "one", AuditOutcome::Refused));
        }
        waiting.refuse(entry(5, "two", AuditOutcome::Refused));
        assert_eq!(counts(&waiting), [(1, 1), (5, 1)]);
        waiting.close_window(Timestamp::from_micros(9), Uuid::nil);
        assert_eq!(counts(&waiting), [(1, 1), (5, 1), (4, 3)]);
        waiting.refuse(entry(6, "one", AuditOutcome::Refused));
        assert_eq!(counts(&waiting).last(), Some(&(6, 1)), "another window");
    }

    #[test]
    fn different_refusals_are_bounded() {
        let mut waiting = Waiting::default();
        for n in 0..MOST_REFUSALS as u128 + 7 {
            waiting.refuse(entry(n + 1, &n.to_string(), AuditOutcome::Refused));
        }
        assert_eq!(waiting.queue.len(), MOST_REFUSALS);
        waiting.close_window(Timestamp::from_micros(9), || Uuid::from_u128(999));
        assert_eq!(waiting.queue.len(), MOST_REFUSALS + 1);
        assert_eq!(counts(&waiting).last(), Some(&(999, 7)));
        assert_eq!(waiting.queue.back().unwrap().action, MORE_REFUSALS);
    }

    #[test]
    fn the_queue_is_bounded_and_says_what_it_lost() {
        let mut waiting = Waiting::default();
        for n in 0..MOST_WAITING as u128 + 3 {
            waiting.push(entry(n + 1, "one", AuditOutcome::Ok));
        }
        assert_eq!((waiting.queue.len(), waiting.lost), (MOST_WAITING, 3));
        assert_eq!(counts(&waiting)[0], (1, 1), "what was there first stays");
    }
}
