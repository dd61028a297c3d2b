//! Buckets that hold the requests of one second and fill steadily.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use domain::clock::Timestamp;

/// Buckets that are remembered at the same time.
const MOST: usize = 20_000;
/// What one request costs, in the unit in which a bucket fills by one for each microsecond and permitted request a second.
const COST: i64 = 1_000_000;
/// How much a sender may owe, in seconds of its rate.
const DEBT: i64 = 10;

/// A bucket for each sender.
#[derive(Debug)]
pub(super) struct Buckets<S>(Mutex<HashMap<S, Bucket>>);

impl<S> Default for Buckets<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Requests that fit in.
    rate: u64,
    /// Below 0: what is owed.
    left: i64,
    at: Timestamp,
}

/// What a bucket holds.
fn size(rate: u64) -> i64 {
    i64::try_from(rate).unwrap_or(i64::MAX).saturating_mul(COST)
}

impl Bucket {
    fn full(rate: u64, at: Timestamp) -> Self {
        let left = size(rate);
        Self { rate, left, at }
    }

    /// As it is now. The rate may be another than it was.
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

    /// As of when it was last filled.
    fn told(self, is_admitted: bool) -> Drawn {
        Drawn {
            is_admitted,
            left: u64::try_from(self.left / COST).unwrap_or(0),
            full_in: size(self.rate).abs_diff(self.left).div_ceil(self.rate),
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) is_admitted: bool,
    /// Requests that may follow at once.
    pub(super) left: u64,
    /// Microseconds until all of them may.
    pub(super) full_in: u64,
}

impl<S: Eq + Hash> Buckets<S> {
    /// Takes one request out of each bucket, or out of none if one of them has too little. What is left is told of the
    /// first, or of the one that has too little.
    pub(super) fn draw<const N: usize>(&self, wanted: [(S, u64); N], now: Timestamp) -> Drawn {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut buckets, N, now);
        let found = wanted
            .each_ref()
            .map(|(sender, rate)| Bucket::now(buckets.get(sender), *rate, now));
        if let Some(empty) = found.iter().find(|bucket| bucket.left < COST) {
            return empty.told(false);
        }
        let taken = found.map(|bucket| Bucket {
            left: bucket.left - COST,
            ..bucket
        });
        for ((sender, _), bucket) in wanted.into_iter().zip(taken) {
            buckets.insert(sender, bucket);
        }
        let first = taken.first().copied();
        first.unwrap_or(Bucket::full(1, now)).told(true)
    }

    /// Takes one more, also out of an empty bucket: what several did at the same time, before the first of them was counted,
    /// is waited for afterwards.
    pub(super) fn owe(&self, sender: S, rate: u64, now: Timestamp) {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut buckets, 1, now);
        let found = Bucket::now(buckets.get(&sender), rate, now);
        let least = size(rate).saturating_mul(-DEBT);
        let left = (found.left - COST).max(least);
        buckets.insert(sender, Bucket { left, ..found });
    }

    /// Whether there is a request left for a sender.
    pub(super) fn has(&self, sender: &S, now: Timestamp) -> bool {
        let buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = buckets.get(sender);
        found.is_none_or(|bucket| bucket.filled(now) >= COST)
    }
}

/// A full bucket says nothing. Of so many senders at once some are forgotten rather than all refused.
fn make_room<S: Eq + Hash>(buckets: &mut HashMap<S, Bucket>, wanted: usize, now: Timestamp) {
    if buckets.len() + wanted <= MOST {
        return;
    }
    buckets.retain(|_, bucket| bucket.filled(now) < size(bucket.rate));
    if buckets.len() + wanted > MOST {
        buckets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_bounded() {
        let (buckets, now) = (Buckets::default(), Timestamp::from_micros(0));
        for n in 0..=MOST {
            assert!(buckets.draw([(n, 1)], now).is_admitted);
        }
        assert!(buckets.0.lock().unwrap().len() <= MOST);
    }

    #[test]
    fn what_is_owed_is_waited_for_but_not_for_ever() {
        let (buckets, at) = (Buckets::default(), Timestamp::from_micros);
        for _ in 0..15 {
            buckets.owe("guesser", 5, at(0));
        }
        assert!(!buckets.has(&"guesser", at(2_000_000)), "10 too many");
        assert!(buckets.has(&"guesser", at(2_200_000)));
        for _ in 0..1_000 {
            buckets.owe("guesser", 5, at(0));
        }
        assert!(!buckets.has(&"guesser", at(10_000_000)));
        assert!(buckets.has(&"guesser", at(10_200_000)));
        let told = buckets.draw([("guesser", 5)], at(0));
        assert_eq!((told.is_admitted, told.left), (false, 0));
        assert_eq!(told.full_in, 11_000_000);
    }

    #[test]
    fn one_empty_bucket_leaves_the_others_as_they_are() {
        let (buckets, now) = (Buckets::default(), Timestamp::from_micros(0));
        let both = || buckets.draw([("key", 10), ("user", 2)], now);
        let first = Drawn {
            is_admitted: true,
            left: 9,
            full_in: 100_000,
        };
        assert_eq!(both(), first);
        assert!(both().is_admitted);
        let refused = Drawn {
            is_admitted: false,
            left: 0,
            full_in: 1_000_000,
        };
        assert_eq!(both(), refused);
        assert_eq!(buckets.draw([("key", 10)], now).left, 7);
        assert!(buckets.has(&"key", now) && buckets.has(&"new", now));
        assert!(!buckets.has(&"user", now));
        assert!(buckets.has(&"user", Timestamp::from_micros(500_000)));
    }
}
