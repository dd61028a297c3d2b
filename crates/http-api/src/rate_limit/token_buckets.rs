//! Token buckets that hold the requests of one second and refill steadily.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use domain::clock::Timestamp;

/// Maximum number of buckets in memory at the same time.
const MAX_BUCKETS: usize = 20_000;
/// Cost of a request, in units of which a bucket gains one per microsecond and permitted request per second.
const REQUEST_COST: i64 = 1_000_000;
/// Largest debt of a bucket, in seconds of its rate.
const MAX_DEBT_SECONDS: i64 = 10;

/// One bucket per key of the map.
#[derive(Debug)]
pub(super) struct TokenBuckets<S>(Mutex<HashMap<S, TokenBucket>>);

impl<S> Default for TokenBuckets<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    /// Requests that fit in the bucket.
    rate: u64,
    /// Negative when in debt.
    left: i64,
    at: Timestamp,
}

/// Capacity of a bucket, in units.
fn size(rate: u64) -> i64 {
    i64::try_from(rate)
        .unwrap_or(i64::MAX)
        .saturating_mul(REQUEST_COST)
}

impl TokenBucket {
    fn full(rate: u64, at: Timestamp) -> Self {
        let left = size(rate);
        Self { rate, left, at }
    }

    /// The bucket at this moment. The rate may have changed since.
    fn now(found: Option<&Self>, rate: u64, now: Timestamp) -> Self {
        let found = found.copied().unwrap_or(Self::full(rate, now));
        Self {
            rate,
            left: found.filled(now).min(size(rate)),
            at: now.max(found.at),
        }
    }

    fn filled(self, now: Timestamp) -> i64 {
        let passed = now.micros().saturating_sub(self.at.micros()).max(0);
        let rate = i64::try_from(self.rate).unwrap_or(i64::MAX);
        let more = passed.saturating_mul(rate);
        self.left.saturating_add(more).min(size(self.rate))
    }

    /// The outcome as of the last refill.
    fn outcome(self, is_admitted: bool) -> DrawOutcome {
        DrawOutcome {
            is_admitted,
            left: u64::try_from(self.left / REQUEST_COST).unwrap_or(0),
            full_after_micros: size(self.rate).abs_diff(self.left).div_ceil(self.rate),
        }
    }
}

/// The outcome of taking a request out of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DrawOutcome {
    pub(super) is_admitted: bool,
    /// Requests that may follow immediately.
    pub(super) left: u64,
    /// Microseconds until the bucket is full.
    pub(super) full_after_micros: u64,
}

impl<S: Eq + Hash> TokenBuckets<S> {
    /// Takes one request out of each bucket, or out of none if one is empty. The outcome describes the first bucket, or
    /// the empty one.
    pub(super) fn try_take<const N: usize>(
        &self,
        requested: [(S, u64); N],
        now: Timestamp,
    ) -> DrawOutcome {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut buckets, N, now);
        let found = requested
            .each_ref()
            .map(|(sender, rate)| TokenBucket::now(buckets.get(sender), *rate, now));
        if let Some(empty) = found.iter().find(|bucket| bucket.left < REQUEST_COST) {
            return empty.outcome(false);
        }
        let taken = found.map(|bucket| TokenBucket {
            left: bucket.left - REQUEST_COST,
            ..bucket
        });
        for ((sender, _), bucket) in requested.into_iter().zip(taken) {
            buckets.insert(sender, bucket);
        }
        let first = taken.first().copied();
        first.unwrap_or(TokenBucket::full(1, now)).outcome(true)
    }

    /// Takes one request even out of an empty bucket: concurrent requests that were counted late leave a debt.
    pub(super) fn charge(&self, sender: S, rate: u64, now: Timestamp) {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut buckets, 1, now);
        let found = TokenBucket::now(buckets.get(&sender), rate, now);
        let least = size(rate).saturating_mul(-MAX_DEBT_SECONDS);
        let left = (found.left - REQUEST_COST).max(least);
        buckets.insert(sender, TokenBucket { left, ..found });
    }

    /// Whether a request is left in the bucket.
    pub(super) fn has_tokens(&self, sender: &S, now: Timestamp) -> bool {
        let buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = buckets.get(sender);
        found.is_none_or(|bucket| bucket.filled(now) >= REQUEST_COST)
    }
}

/// Drops full buckets, which carry no information. If that frees too little, drops all: forgetting is better than
/// refusing everyone.
fn make_room<S: Eq + Hash>(
    buckets: &mut HashMap<S, TokenBucket>,
    requested: usize,
    now: Timestamp,
) {
    if buckets.len() + requested <= MAX_BUCKETS {
        return;
    }
    buckets.retain(|_, bucket| bucket.filled(now) < size(bucket.rate));
    if buckets.len() + requested > MAX_BUCKETS {
        buckets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_bounded() {
        let (buckets, now) = (TokenBuckets::default(), Timestamp::from_micros(0));
        for n in 0..=MAX_BUCKETS {
            assert!(buckets.try_take([(n, 1)], now).is_admitted);
        }
        assert!(buckets.0.lock().unwrap().len() <= MAX_BUCKETS);
    }

    #[test]
    fn debt_delays_requests_and_is_bounded() {
        let (buckets, at) = (TokenBuckets::default(), Timestamp::from_micros);
        for _ in 0..15 {
            buckets.charge("guesser", 5, at(0));
        }
        assert!(
            !buckets.has_tokens(&"guesser", at(2_000_000)),
            "10 too many"
        );
        assert!(buckets.has_tokens(&"guesser", at(2_200_000)));
        for _ in 0..1_000 {
            buckets.charge("guesser", 5, at(0));
        }
        assert!(!buckets.has_tokens(&"guesser", at(10_000_000)));
        assert!(buckets.has_tokens(&"guesser", at(10_200_000)));
        let outcome = buckets.try_take([("guesser", 5)], at(0));
        assert_eq!((outcome.is_admitted, outcome.left), (false, 0));
        assert_eq!(outcome.full_after_micros, 11_000_000);
    }

    #[test]
    fn one_empty_bucket_leaves_the_others_unchanged() {
        let (buckets, now) = (TokenBuckets::default(), Timestamp::from_micros(0));
        let both = || buckets.try_take([("key", 10), ("user", 2)], now);
        let first = DrawOutcome {
            is_admitted: true,
            left: 9,
            full_after_micros: 100_000,
        };
        assert_eq!(both(), first);
        assert!(both().is_admitted);
        let refused = DrawOutcome {
            is_admitted: false,
            left: 0,
            full_after_micros: 1_000_000,
        };
        assert_eq!(both(), refused);
        assert_eq!(buckets.try_take([("key", 10)], now).left, 7);
        assert!(buckets.has_tokens(&"key", now) && buckets.has_tokens(&"new", now));
        assert!(!buckets.has_tokens(&"user", now));
        assert!(buckets.has_tokens(&"user", Timestamp::from_micros(500_000)));
    }
}
