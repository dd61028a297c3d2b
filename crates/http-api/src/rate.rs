//! How many requests one user, or one sandbox, may send: decision D26 of the legacy contract, generous by default.
//!
//! Counted per user and not per address: behind a proxy all users have one address. What sandboxes look up is counted
//! for each sandbox by itself, so that one that runs wild takes nothing from its owner, nor from the sandboxes beside
//! it. What they report is not counted: an agent server gives up after four tries and loses what it had to say, and
//! reports have bounds of their own (their size, the memory for reading them, their own connections to the store).
//! Requests without a valid key are not counted; they cost one look-up of a hash.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use actix_web::http::StatusCode;
use domain::clock::Timestamp;
use domain::id::{SandboxId, UserId};
use serde_json::json;

use crate::problem::Problem;

/// Whose requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    /// With any of the user's keys.
    User(UserId),
    /// With the sandbox's key.
    Sandbox(SandboxId),
}

/// Senders whose requests are counted at the same time.
const MOST_SENDERS: usize = 10_000;
/// What one request costs, in the unit in which buckets fill by one for each microsecond and permitted request a second.
const COST: u64 = 1_000_000;

/// A bucket for each sender, which holds the requests of one second and fills steadily.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// Requests a second; 0: no limit.
    rate: u64,
    buckets: Mutex<HashMap<Sender, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u64,
    at: Timestamp,
}

impl Bucket {
    fn filled(self, rate: u64, now: Timestamp) -> u64 {
        let passed = now.micros().saturating_sub(self.at.micros());
        let passed = u64::try_from(passed).unwrap_or(0);
        let more = passed.saturating_mul(rate);
        self.left.saturating_add(more).min(rate * COST)
    }
}

impl RateLimit {
    pub(crate) fn new(requests_per_second: u32) -> Self {
        Self {
            rate: requests_per_second.into(),
            buckets: Mutex::default(),
        }
    }

    /// Counts a request. Too many are 429 with `Retry-After`.
    pub(crate) fn admit(&self, sender: Sender, now: Timestamp) -> Result<(), Problem> {
        if self.rate == 0 || self.takes(sender, now) {
            return Ok(());
        }
        let body = json!({"message": "Too many requests"});
        Err(Problem::with_body(StatusCode::TOO_MANY_REQUESTS, body))
    }

    fn takes(&self, sender: Sender, now: Timestamp) -> bool {
        let (rate, full) = (self.rate, self.rate * COST);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST_SENDERS && !buckets.contains_key(&sender) {
            // A full bucket says nothing. Of so many senders at once some are forgotten rather than all refused.
            buckets.retain(|_, bucket| bucket.filled(rate, now) < full);
            if buckets.len() >= MOST_SENDERS {
                buckets.clear();
            }
        }
        let fresh = Bucket {
            left: full,
            at: now,
        };
        let bucket = buckets.entry(sender).or_insert(fresh);
        let left = bucket.filled(rate, now).checked_sub(COST);
        *bucket = Bucket {
            left: left.unwrap_or_else(|| bucket.filled(rate, now)),
            at: now.max(bucket.at),
        };
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    fn user(name: &str) -> Sender {
        Sender::User(UserId::parse(name).unwrap())
    }

    #[test]
    fn a_second_holds_so_many_requests_of_each_user() {
        let limit = RateLimit::new(10);
        let admitted = |name: &str, millis| {
            let tries = 0..50;
            let admitted = tries.filter(|_| limit.admit(user(name), at(millis)).is_ok());
            admitted.count()
        };
        assert_eq!(admitted("ada", 0), 10);
        assert_eq!(admitted("bob", 0), 10, "each by themselves");
        let sandbox = || Sender::Sandbox(SandboxId::parse("ada").unwrap());
        assert!(
            limit.admit(sandbox(), at(0)).is_ok(),
            "also what runs in their sandboxes"
        );
        assert_eq!(admitted("ada", 50), 0);
        assert_eq!(admitted("ada", 100), 1, "it fills steadily");
        assert_eq!(admitted("ada", 600), 5);
        assert_eq!(
            admitted("ada", 90_000),
            10,
            "and holds no more than a second's"
        );
        assert_eq!(admitted("ada", 0), 0, "also when the clock goes back");
        let refused = limit.admit(user("ada"), at(0)).unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    }

    #[test]
    fn no_limit_is_no_limit_and_users_are_bounded() {
        let none = RateLimit::new(0);
        assert!((0..1_000).all(|_| none.admit(user("ada"), at(0)).is_ok()));
        let limit = RateLimit::new(1);
        for n in 0..=MOST_SENDERS {
            assert!(limit.admit(user(&format!("u{n}")), at(0)).is_ok());
        }
        assert!(limit.buckets.lock().unwrap().len() <= MOST_SENDERS);
    }
}
