//! Report rate of each sandbox: a token bucket with the bytes of one minute.
//!
//! A report is admitted before its body is read, so its size is unknown. It is admitted while the bucket is not empty,
//! and may overdraw it: a batch of any size passes, and the next one waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::SandboxId;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::time::Instant;

/// Maximum number of buckets in memory. Above this number those of the longest silent sandboxes are removed.
const MAX_BUCKETS: u64 = 10_000;

const MINUTE: Duration = Duration::from_secs(60);

/// Bytes that may still be reported; an overdraft is negative.
#[derive(Debug, Clone, Copy)]
struct ByteBucket {
    left: i128,
    at: Instant,
}

impl ByteBucket {
    fn refilled(self, bytes_per_minute: u64, now: Instant) -> Self {
        let passed = i128::try_from(now.duration_since(self.at).as_millis()).unwrap_or(i128::MAX);
        let capacity = i128::from(bytes_per_minute);
        let more = passed.saturating_mul(capacity) / 60_000;
        // The time only advances when a byte was added, so fractions are not lost.
        let at = if more > 0 { now } else { self.at };
        Self {
            left: self.left.saturating_add(more).min(capacity),
            at,
        }
    }
}

/// Buckets of recently reporting sandboxes.
pub(super) struct ReportRate(Cache<SandboxId, Arc<Mutex<ByteBucket>>>);

impl Default for ReportRate {
    fn default() -> Self {
        let buckets = Cache::builder().max_capacity(MAX_BUCKETS);
        Self(buckets.eviction_policy(EvictionPolicy::lru()).build())
    }
}

impl ReportRate {
    /// Time that the sandbox must wait before its next report; `None` if it need not wait.
    pub(super) fn retry_after(
        &self,
        sandbox: &SandboxId,
        bytes_per_minute: u64,
    ) -> Option<Duration> {
        let bucket = self.0.get(sandbox)?;
        let bucket = *bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let owed = 1 - bucket.refilled(bytes_per_minute, Instant::now()).left;
        let owed = u128::try_from(owed).ok().filter(|owed| *owed > 0)?;
        let millis = owed.saturating_mul(MINUTE.as_millis()) / u128::from(bytes_per_minute.max(1));
        let wait = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        Some(wait + Duration::from_secs(1))
    }

    /// Takes the bytes of a report from the bucket.
    pub(super) fn withdraw(&self, sandbox: &SandboxId, bytes: u64, bytes_per_minute: u64) {
        let (now, left) = (Instant::now(), i128::from(bytes_per_minute));
        let full = || Arc::new(Mutex::new(ByteBucket { left, at: now }));
        let bucket = self.0.get_with_by_ref(sandbox, full);
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        *bucket = bucket.refilled(bytes_per_minute, now);
        bucket.left -= i128::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(n: u64) -> SandboxId {
        SandboxId::parse(format!("s{n}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_minute_of_bytes_passes_at_once_and_an_overdraft_must_be_waited_for() {
        let (rate, one) = (ReportRate::default(), sandbox(1));
        assert_eq!(rate.retry_after(&one, 600), None);
        rate.withdraw(&one, 599, 600);
        assert_eq!(rate.retry_after(&one, 600), None, "one byte is left");
        rate.withdraw(&one, 300, 600);
        let wait = rate.retry_after(&one, 600).unwrap();
        assert_eq!(wait.as_secs(), 31);
        assert_eq!(rate.retry_after(&sandbox(2), 600), None, "each by itself");
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(rate.retry_after(&one, 600).is_some());
        tokio::time::sleep(wait).await;
        assert_eq!(rate.retry_after(&one, 600), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_never_overflows() {
        let (rate, one) = (ReportRate::default(), sandbox(1));
        rate.withdraw(&one, 100, 600);
        tokio::time::sleep(Duration::from_secs(600)).await;
        rate.withdraw(&one, 600, 600);
        assert!(rate.retry_after(&one, 600).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn buckets_are_bounded() {
        let rate = ReportRate::default();
        for n in 0..=MAX_BUCKETS {
            rate.withdraw(&sandbox(n), 1_000, 600);
        }
        rate.0.run_pending_tasks();
        assert!(rate.0.entry_count() <= MAX_BUCKETS);
        assert!(rate.retry_after(&sandbox(MAX_BUCKETS), 600).is_some());
    }
}
