//! The audit log. A background task writes entries in batches, beside the requests.
//!
//! ```text
//!   request ──note──► queue (bounded) ──batch, background──► store        changes, one line each
//!              └────► window (bounded) ──once a minute──► queue           refusals, failures, and what sandboxes do: the first
//!                                                                          one at once, the same again as one line with a count
//! ```
//!
//! No request waits for the audit log. Entries in the queue are lost when the process is killed: those of
//! the last fraction of a second, or more while the store fails. Changes of users and keys do not use this queue, see
//! [`crate::administration`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::audit::{AuditActor, AuditEntry, AuditFilter, AuditLog, AuditOutcome};
use domain::clock::{Clock, Timestamp};
use domain::error::{StoreError, chain};
use domain::id::IdGenerator;
use domain::page::{Page, PageRequest};
use uuid::Uuid;

use super::changes::Origin;
use crate::AppError;

/// Maximum number of entries that wait for the store. Further entries go to the service's log instead.
const MAX_QUEUED_ENTRIES: usize = 10_000;
/// Maximum number of entries of one transaction.
const MAX_BATCH_ENTRIES: usize = 500;
/// Time in which entries are collected for a batch.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Time in which equal entries are only counted.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Distinct repeatable entries of one actor in one interval. Further ones are counted together, so one actor cannot
/// use up the space of others. All callers without a key are one actor.
const MAX_REPEAT_KEYS_PER_ACTOR: usize = 128;
/// Distinct repeatable entries of all actors in one interval.
const MAX_REPEAT_KEYS: usize = 10_000;
/// Pause before the next attempt when the store fails.
const MIN_RETRY_BACKOFF: Duration = Duration::from_secs(1);
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(30);

/// Action of the entry that counts entries beyond the limits.
pub const UNTRACKED_ENTRIES_ACTION: &str = "audit more-refusals";
/// Action of the entry that counts entries which went to the service's log.
pub const LOST_ENTRIES_ACTION: &str = "audit lost";

#[derive(Clone)]
pub struct AuditService {
    log: Arc<dyn AuditLog>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    /// Entries that are not stored yet.
    buffer: Arc<AuditBuffer>,
}

#[derive(Default)]
struct AuditBuffer {
    waiting: Mutex<AuditQueue>,
    wake: tokio::sync::Notify,
    /// Held by the task that writes.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct AuditQueue {
    queue: VecDeque<AuditEntry>,
    /// Entries that did not fit into the queue.
    lost: u32,
    repeats: HashMap<RepeatKey, RepeatCount>,
    keys_per_actor: HashMap<AuditActor, usize>,
    untracked: u32,
}

/// Entries with the same key are written once and then counted.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RepeatKey {
    actor: AuditActor,
    action: String,
    source: Option<String>,
    status: Option<u16>,
    /// Object and detail. `None` for refusals, because a caller could try any number of objects.
    target: Option<[Option<String>; 2]>,
}

impl RepeatKey {
    fn of(entry: &AuditEntry) -> Self {
        let is_refused = entry.outcome == AuditOutcome::Refused;
        let target = || [entry.object.clone(), entry.detail.clone()];
        Self {
            actor: entry.actor.clone(),
            action: entry.action.clone(),
            source: entry.source.clone(),
            status: entry.status,
            target: (!is_refused).then(target),
        }
    }
}

/// Equal entries since the first one was written.
struct RepeatCount {
    last: AuditEntry,
    count: u32,
}

impl AuditBuffer {
    fn lock(&self) -> MutexGuard<'_, AuditQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditQueue {
    fn push(&mut self, entry: AuditEntry) {
        if self.queue.len() < MAX_QUEUED_ENTRIES {
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
            "the queue of audit entries is full because the store does not accept them; this line is the only record of the entry"
        );
    }

    /// Queues successful actions of users one by one. Refusals, failures and actions of sandboxes are counted, because
    /// a caller can repeat them at no cost.
    fn record(&mut self, entry: AuditEntry) {
        let is_of_sandbox = matches!(entry.actor, AuditActor::Sandbox(_));
        if entry.outcome == AuditOutcome::Ok && !is_of_sandbox {
            self.push(entry);
        } else {
            self.count_repeat(entry);
        }
    }

    /// Queues the first entry of a key and counts the others.
    fn count_repeat(&mut self, entry: AuditEntry) {
        let key = RepeatKey::of(&entry);
        if let Some(repeat) = self.repeats.get_mut(&key) {
            repeat.count = repeat.count.saturating_add(1);
            repeat.last = entry;
            return;
        }
        let taken = self
            .keys_per_actor
            .get(&entry.actor)
            .copied()
            .unwrap_or_default();
        if taken >= MAX_REPEAT_KEYS_PER_ACTOR || self.repeats.len() >= MAX_REPEAT_KEYS {
            self.untracked = self.untracked.saturating_add(1);
            return;
        }
        self.keys_per_actor.insert(entry.actor.clone(), taken + 1);
        let last = entry.clone();
        self.repeats.insert(key, RepeatCount { last, count: 0 });
        self.push(entry);
    }

    /// Turns the counts of the interval into entries.
    fn close_window(&mut self, now: Timestamp, mut id: impl FnMut() -> Uuid) {
        self.keys_per_actor.clear();
        let repeats = std::mem::take(&mut self.repeats).into_values();
        for RepeatCount { last, count } in repeats.filter(|repeat| repeat.count > 0) {
            self.push(AuditEntry { count, ..last });
        }
        let untracked = std::mem::take(&mut self.untracked);
        if untracked > 0 {
            let outcome = AuditOutcome::Refused;
            self.push(summary_entry(
                UNTRACKED_ENTRIES_ACTION,
                outcome,
                untracked,
                id(),
                now,
            ));
        }
    }
}

/// An entry of the service itself that reports a count.
fn summary_entry(
    action: &str,
    outcome: AuditOutcome,
    count: u32,
    id: Uuid,
    at: Timestamp,
) -> AuditEntry {
    let entry = Origin::service(action).into_entry(id, at, outcome);
    AuditEntry { count, ..entry }
}

impl AuditService {
    pub(crate) fn new(
        log: Arc<dyn AuditLog>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdGenerator>,
    ) -> Self {
        Self {
            log,
            clock,
            ids,
            buffer: Arc::default(),
        }
    }

    /// Records an action that ended with the status in `origin`, without waiting for the store. Without a status the
    /// action failed: the client disconnected or the handler failed, and the action may have taken effect. The texts
    /// must come from [`domain::audit::sanitize_text`].
    pub fn record(&self, origin: Origin, object: Option<String>, detail: Option<String>) {
        let outcome = origin.status.map(AuditOutcome::of_status);
        let outcome = outcome.unwrap_or(AuditOutcome::Failed);
        let entry = AuditEntry {
            object,
            detail,
            ..origin.into_entry(self.ids.uuid(), self.clock.now(), outcome)
        };
        self.buffer.lock().record(entry);
        self.buffer.wake.notify_one();
    }

    /// Newest first.
    pub async fn search(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, AppError> {
        Ok(self.log.search(filter, page).await?)
    }

    /// Writes all entries, counts included, within `deadline`: for a service that stops. Returns whether all were
    /// written.
    pub async fn finish(&self, deadline: Duration) -> bool {
        self.close_window();
        let result = tokio::time::timeout(deadline, self.write()).await;
        matches!(result, Ok(Ok(())))
    }

    /// Runs until the service stops.
    pub(crate) async fn run(self) {
        let mut window = tokio::time::interval(REPEAT_INTERVAL);
        window.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.buffer.wake.notified() => tokio::time::sleep(BATCH_INTERVAL).await,
                _ = window.tick() => self.close_window(),
            }
            let mut pause = MIN_RETRY_BACKOFF;
            while let Err(error) = self.write().await {
                tracing::warn!(error = %chain(&error), "cannot write the audit log; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_RETRY_BACKOFF);
            }
        }
    }

    fn close_window(&self) {
        let mut waiting = self.buffer.lock();
        waiting.close_window(self.clock.now(), || self.ids.uuid());
    }

    /// Writes the queue. A batch stays in the queue until it is stored; the store ignores an entry that it already
    /// has.
    async fn write(&self) -> Result<(), StoreError> {
        let _writing = self.buffer.writing.lock().await;
        loop {
            let batch: Vec<_> = self
                .buffer
                .lock()
                .queue
                .iter()
                .take(MAX_BATCH_ENTRIES)
                .cloned()
                .collect();
            if batch.is_empty() {
                return Ok(());
            }
            self.log.append(&batch).await?;
            let mut waiting = self.buffer.lock();
            waiting.queue.drain(..batch.len());
            let lost = std::mem::take(&mut waiting.lost);
            if lost > 0 {
                let (id, now) = (self.ids.uuid(), self.clock.now());
                waiting.push(summary_entry(
                    LOST_ENTRIES_ACTION,
                    AuditOutcome::Failed,
                    lost,
                    id,
                    now,
                ));
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
            ..summary_entry("GET /x", outcome, 1, Uuid::from_u128(n), at)
        }
    }

    fn counts(waiting: &AuditQueue) -> Vec<(u128, u32)> {
        let queue = waiting.queue.iter();
        queue.map(|it| (it.id.as_u128(), it.count)).collect()
    }

    #[test]
    fn repeated_refusals_are_counted() {
        let mut waiting = AuditQueue::default();
        for n in 1..=4 {
            waiting.record(entry(n, "one", AuditOutcome::Refused));
        }
        waiting.record(entry(5, "two", AuditOutcome::Refused));
        assert_eq!(counts(&waiting), [(1, 1), (5, 1)]);
        waiting.close_window(Timestamp::from_micros(9), Uuid::nil);
        assert_eq!(counts(&waiting), [(1, 1), (5, 1), (4, 3)]);
        waiting.record(entry(6, "one", AuditOutcome::Refused));
        assert_eq!(counts(&waiting).last(), Some(&(6, 1)), "another window");
    }

    #[test]
    fn different_refusals_are_bounded() {
        let mut waiting = AuditQueue::default();
        for n in 0..MAX_REPEAT_KEYS_PER_ACTOR as u128 + 7 {
            waiting.record(entry(n + 1, &n.to_string(), AuditOutcome::Refused));
        }
        assert_eq!(waiting.queue.len(), MAX_REPEAT_KEYS_PER_ACTOR);
        waiting.close_window(Timestamp::from_micros(9), || Uuid::from_u128(999));
        assert_eq!(waiting.queue.len(), MAX_REPEAT_KEYS_PER_ACTOR + 1);
        assert_eq!(counts(&waiting).last(), Some(&(999, 7)));
        assert_eq!(
            waiting.queue.back().unwrap().action,
            UNTRACKED_ENTRIES_ACTION
        );
        waiting.record(entry(6, "one", AuditOutcome::Refused));
        assert_eq!(counts(&waiting).last(), Some(&(6, 1)), "another window");
    }

    #[test]
    fn limits_apply_per_actor() {
        let mut waiting = AuditQueue::default();
        for n in 0..2 * MAX_REPEAT_KEYS_PER_ACTOR as u128 {
            let refusal = entry(n + 1, &n.to_string(), AuditOutcome::Refused);
            waiting.record(AuditEntry {
                actor: AuditActor::Unknown,
                ..refusal
            });
        }
        let known = domain::id::UserId::parse("ada").unwrap();
        waiting.record(AuditEntry {
            actor: AuditActor::User(known),
            ..entry(999, "one", AuditOutcome::Refused)
        });
        assert_eq!(counts(&waiting).last(), Some(&(999, 1)));
    }

    #[test]
    fn all_actors_together_are_bounded() {
        let mut waiting = AuditQueue::default();
        for n in 0..MAX_REPEAT_KEYS as u128 + 3 {
            let id = domain::id::SandboxId::parse(format!("s-{n}")).unwrap();
            waiting.record(AuditEntry {
                actor: AuditActor::Sandbox(id),
                ..entry(n + 1, "one", AuditOutcome::Ok)
            });
        }
        assert_eq!(
            (waiting.repeats.len(), waiting.untracked),
            (MAX_REPEAT_KEYS, 3)
        );
        assert_eq!(waiting.keys_per_actor.len(), MAX_REPEAT_KEYS);
    }

    #[test]
    fn repeats_of_sandboxes_are_counted_and_those_of_users_are_written() {
        let sandbox = AuditActor::Sandbox(domain::id::SandboxId::parse("s").unwrap());
        let read = |n, secret: &str| AuditEntry {
            actor: sandbox.clone(),
            detail: Some(secret.to_owned()),
            ..entry(n, "one", AuditOutcome::Ok)
        };
        let mut waiting = AuditQueue::default();
        for n in 1..=3 {
            waiting.record(read(n, "secret:A"));
        }
        waiting.record(read(4, "secret:B"));
        assert_eq!(counts(&waiting), [(1, 1), (4, 1)]);
        waiting.close_window(Timestamp::from_micros(9), Uuid::nil);
        assert_eq!(counts(&waiting), [(1, 1), (4, 1), (3, 2)]);
        for n in 5..=6 {
            waiting.record(entry(n, "one", AuditOutcome::Ok));
        }
        assert_eq!(counts(&waiting)[3..], [(5, 1), (6, 1)]);
    }

    #[test]
    fn failures_are_counted_per_object() {
        let mut waiting = AuditQueue::default();
        for (n, object) in [(1, "a"), (2, "b"), (3, "b")] {
            waiting.record(AuditEntry {
                object: Some(object.to_owned()),
                ..entry(n, "one", AuditOutcome::Failed)
            });
        }
        assert_eq!(counts(&waiting), [(1, 1), (2, 1)]);
    }

    #[test]
    fn the_queue_is_bounded_and_counts_lost_entries() {
        let mut waiting = AuditQueue::default();
        for n in 0..MAX_QUEUED_ENTRIES as u128 + 3 {
            waiting.push(entry(n + 1, "one", AuditOutcome::Ok));
        }
        assert_eq!((waiting.queue.len(), waiting.lost), (MAX_QUEUED_ENTRIES, 3));
        assert_eq!(counts(&waiting)[0], (1, 1), "the first entries stay");
    }
}
