//! Bounds the requests of a key, a user and a sandbox, and the wrong keys that an address may try. Generous by default; see
//! `docs/explanation/decisions/0027-bound-everything.md`.
//!
//! Requests are counted per key, and per user at a multiple of the rate, so that more keys do not multiply a user's share.
//! They are not counted per address: behind a proxy, all users share one. Look-ups of a sandbox are counted per sandbox, so
//! that a runaway one takes nothing from its owner or from other sandboxes. Webhook reports are not counted: an agent server
//! gives up after four tries and loses events, and reports have their own bounds (size, bytes per minute, memory for
//! parsing, store connections). Health is not counted either.
//!
//! A wrong key costs a query. Addresses that have tried too many wrong keys are therefore refused before the query, unless
//! the key was valid before ([`KnownKeys`]), so that an attacker does not lock out users behind the same proxy. A wrong key is
//! counted after its query. Concurrent ones may exceed the limit and go into debt, so a slow store does not raise the limit.

mod known_keys;
mod limit_status;
mod refusals;
mod token_buckets;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::http::StatusCode;
use domain::audit::AuditActor;
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, ConversationId};
use domain::metrics::Counter;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use self::known_keys::KnownKeys;
use self::refusals::{HeldRefusal, MAX_PROMPT_REFUSALS_PER_SECOND, Refusals};
use self::token_buckets::TokenBuckets;
use crate::problem::Problem;

pub(crate) use self::limit_status::{EXPOSED_HEADERS, RateLimitStatus};

/// The rate of a user, as a multiple of the rate of one key.
const USER_RATE_FACTOR: u64 = 4;

/// Sockets without a key that one address may open to a conversation in a second. Each costs a query and a connection to the
/// agent server. Their clients send the key in the first frame, and open one socket at a time.
const KEYLESS_SOCKETS_PER_SECOND: u64 = 50;

/// What requests are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RateKey {
    Key(ApiKeyId),
    /// One user with any key, or one sandbox by its keys.
    Sender(AuditActor),
    /// Refusals of requests of this user or sandbox.
    Refused(AuditActor),
    /// Sockets without a key from this address to one conversation.
    Keyless(IpAddr, ConversationId),
    /// Wrong keys of one address. Reports are counted separately, so that attackers who guess user keys block no reports.
    Wrong(IpAddr, KeyPurpose),
}

/// The purpose for which a key is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyPurpose {
    /// A call of a user, or a look-up of a sandbox.
    Call,
    /// A webhook report.
    Report,
}

#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Requests per second; 0 means no limit. It may change at runtime.
    rate: AtomicU64,
    /// Wrong keys per second; 0 means no limit.
    wrong_key_rate: u64,
    buckets: TokenBuckets<RateKey>,
    known_keys: KnownKeys,
    /// Requests refused because of the rate, and because of wrong keys.
    rate_refusals: Counter,
    wrong_key_refusals: Counter,
    refusals: Refusals,
}

impl RateLimiter {
    pub(crate) fn new(requests_per_second: u32, wrong_keys_per_second: u32) -> Self {
        Self {
            rate: AtomicU64::new(requests_per_second.into()),
            wrong_key_rate: wrong_keys_per_second.into(),
            buckets: TokenBuckets::default(),
            known_keys: KnownKeys::default(),
            rate_refusals: Counter::default(),
            wrong_key_refusals: Counter::default(),
            refusals: Refusals::default(),
        }
    }

    /// Requests refused since the process started, by reason.
    pub(crate) fn refusals(&self) -> [(&'static str, u64); 2] {
        [
            ("too_many", self.rate_refusals.get()),
            ("wrong_keys", self.wrong_key_refusals.get()),
        ]
    }

    /// Counts a request of a user, with its key if it has one, or of a sandbox. `None` if there is no limit.
    pub(crate) fn count_request(
        &self,
        sender: &AuditActor,
        key: Option<ApiKeyId>,
        now: Timestamp,
    ) -> Option<RateLimitStatus> {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        let sender = RateKey::Sender(sender.clone());
        let drawn = match key {
            None => self.buckets.try_take([(sender, rate)], now),
            Some(key) => {
                let of_key = (RateKey::Key(key), rate);
                let of_user = (sender, rate * USER_RATE_FACTOR);
                self.buckets.try_take([of_key, of_user], now)
            }
        };
        if !drawn.is_admitted {
            self.rate_refusals.add(1);
        }
        Some(RateLimitStatus::new(rate, drawn))
    }

    /// Holds a refusal of a request, unless it is among the first ones of this sender in a second.
    pub(crate) fn hold_refusal(
        &self,
        sender: &AuditActor,
        now: Timestamp,
    ) -> Option<HeldRefusal<'_>> {
        let prompt = (
            RateKey::Refused(sender.clone()),
            MAX_PROMPT_REFUSALS_PER_SECOND,
        );
        if self.buckets.try_take([prompt], now).is_admitted {
            return None;
        }
        self.refusals.hold()
    }

    /// Counts a socket without a key.
    ///
    /// # Errors
    /// Too many from this address to this conversation. The refusal is held, unless too many are.
    pub(crate) fn count_keyless_socket(
        &self,
        address: IpAddr,
        conversation: ConversationId,
        now: Timestamp,
    ) -> Result<(), Option<HeldRefusal<'_>>> {
        let sender = RateKey::Keyless(address, conversation);
        let drawn = [(sender, KEYLESS_SOCKETS_PER_SECOND)];
        if self.buckets.try_take(drawn, now).is_admitted {
            return Ok(());
        }
        self.rate_refusals.add(1);
        Err(self.refusals.hold())
    }

    /// Changes the requests per second; 0 means no limit.
    pub(crate) fn set_rate(&self, requests_per_second: u32) {
        self.rate
            .store(requests_per_second.into(), Ordering::Relaxed);
    }

    /// Remembers a key that was valid a moment ago.
    pub(crate) fn remember_key(&self, key: &str) {
        self.known_keys.add(key);
    }

    pub(crate) fn is_known_key(&self, key: &SecretString) -> bool {
        self.known_keys.contains(key.expose_secret())
    }

    /// Forgets a key that is no longer valid: it then counts like any other.
    pub(crate) fn forget_key(&self, key: &SecretString) {
        self.known_keys.forget(key);
    }

    /// Checks that keys may be looked up for this address: it has not tried too many wrong ones, or one of these keys was valid
    /// before.
    pub(crate) fn check_key_attempts<'a>(
        &self,
        mut keys: impl Iterator<Item = &'a str>,
        (address, attempt): (Option<IpAddr>, KeyPurpose),
        now: Timestamp,
    ) -> Result<(), Problem> {
        let Some(address) = address.filter(|_| self.wrong_key_rate > 0) else {
            return Ok(());
        };
        let sender = || RateKey::Wrong(client_network(address), attempt);
        if keys.any(|key| self.known_keys.contains(key)) || self.buckets.has_tokens(&sender(), now)
        {
            return Ok(());
        }
        self.wrong_key_refusals.add(1);
        Err(too_many_requests("Too many wrong keys from this address"))
    }

    pub(crate) fn count_wrong_key(
        &self,
        address: Option<IpAddr>,
        attempt: KeyPurpose,
        now: Timestamp,
    ) {
        if let Some(address) = address.filter(|_| self.wrong_key_rate > 0) {
            let sender = RateKey::Wrong(client_network(address), attempt);
            self.buckets.charge(sender, self.wrong_key_rate, now);
        }
    }
}

/// The response to a request over the limit.
pub(crate) fn too_many_requests(message: &str) -> Problem {
    Problem::with_body(StatusCode::TOO_MANY_REQUESTS, json!({"message": message}))
}

/// The unit that addresses are assigned in: for IPv6 the /64 network, whose 2^64 addresses belong to one machine.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() >> 64 << 64).into(),
        it @ IpAddr::V4(_) => it,
    }
}

#[cfg(test)]
mod tests {
    use domain::id::{SandboxId, UserId};

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    fn key(n: u128) -> ApiKeyId {
        ApiKeyId::new(uuid::Uuid::from_u128(n))
    }

    fn user(name: &str) -> AuditActor {
        AuditActor::User(UserId::parse(name).unwrap())
    }

    fn sandbox(id: &str) -> AuditActor {
        AuditActor::Sandbox(SandboxId::parse(id).unwrap())
    }

    fn admitted(limit: &RateLimiter, name: &str, key: Option<ApiKeyId>, millis: i64) -> usize {
        let user = user(name);
        let asked = (0..50).map(|_| limit.count_request(&user, key, at(millis)).unwrap());
        asked
            .filter(|limit_status| limit_status.admit().is_ok())
            .count()
    }

    #[test]
    fn a_changed_rate_applies_immediately() {
        let limit = RateLimiter::new(1_000, 0);
        assert_eq!(admitted(&limit, "ada", None, 0), 50);
        limit.set_rate(5);
        assert_eq!(admitted(&limit, "ada", None, 0), 5);
        assert_eq!(limit.refusals(), [("too_many", 45), ("wrong_keys", 0)]);
        limit.set_rate(0);
        let counted = limit.count_request(&user("ada"), None, at(0));
        assert!(counted.is_none(), "any number");
    }

    #[test]
    fn the_rate_is_limited_per_user_and_sandbox() {
        let limit = RateLimiter::new(10, 0);
        assert_eq!(admitted(&limit, "ada", None, 0), 10);
        assert_eq!(admitted(&limit, "bob", None, 0), 10, "each by themselves");
        let (user, sandbox) = (user("ada"), sandbox("ada"));
        let of_sandbox = limit.count_request(&sandbox, None, at(0)).unwrap();
        assert!(
            of_sandbox.admit().is_ok(),
            "sandboxes are counted separately"
        );
        assert_eq!(admitted(&limit, "ada", None, 50), 0);
        assert_eq!(admitted(&limit, "ada", None, 100), 1, "it refills steadily");
        assert_eq!(admitted(&limit, "ada", None, 600), 5);
        let later = admitted(&limit, "ada", None, 90_000);
        assert_eq!(later, 10, "and holds no more than a second's");
        let before = admitted(&limit, "ada", None, 0);
        assert_eq!(before, 0, "also when the clock goes back");
        let refused = limit.count_request(&user, None, at(0)).unwrap();
        let refused = refused.admit().unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let none = RateLimiter::new(0, 0);
        assert!(none.count_request(&user, Some(key(1)), at(0)).is_none());
        assert!(none.count_request(&sandbox, None, at(0)).is_none());
    }

    #[test]
    fn refusals_are_held_of_those_who_repeat_them() {
        let limit = RateLimiter::new(10, 0);
        let held = |name: &str, millis| {
            let user = user(name);
            let asked = (0..60).map(|_| limit.hold_refusal(&user, at(millis)));
            asked.flatten().count()
        };
        assert_eq!(held("ada", 0), 10, "the first 50 in a second are not");
        assert_eq!(held("bob", 0), 10, "each by themselves");
        assert_eq!(held("ada", 1_000), 10);
        assert_eq!(held("ada", 1_500), 35);
        assert!(limit.hold_refusal(&sandbox("ada"), at(0)).is_none());
    }

    #[test]
    fn sockets_without_a_key_are_limited_per_address_and_conversation() {
        let limit = RateLimiter::new(10, 0);
        let admitted = |address: &str, conversation: u128, millis| {
            let (address, conversation) = (
                address.parse().unwrap(),
                uuid::Uuid::from_u128(conversation),
            );
            let asked = (0..60).map(|_| {
                limit
                    .count_keyless_socket(address, ConversationId::new(conversation), at(millis))
                    .is_ok()
            });
            asked.filter(|is_admitted| *is_admitted).count()
        };
        assert_eq!(admitted("192.0.2.1", 1, 0), 50);
        assert_eq!(admitted("192.0.2.1", 2, 0), 50);
        assert_eq!(admitted("192.0.2.2", 1, 0), 50);
        assert_eq!(admitted("192.0.2.1", 1, 100), 5);
    }

    #[test]
    fn keys_are_counted_separately_within_the_users_limit() {
        let limit = RateLimiter::new(10, 0);
        let each: Vec<usize> = (0..10)
            .map(|n| admitted(&limit, "ada", Some(key(n)), 0))
            .collect();
        assert_eq!(each, [10, 10, 10, 10, 0, 0, 0, 0, 0, 0]);
        assert_eq!(admitted(&limit, "bob", Some(key(11)), 0), 10);
    }

    #[test]
    fn wrong_keys_block_only_unknown_keys_of_the_address() {
        let limit = RateLimiter::new(0, 5);
        let (good, new) = (SecretString::from("good"), SecretString::from("new"));
        limit.remember_key(good.expose_secret());
        let address: Option<IpAddr> = "2001:db8::1".parse().ok();
        let neighbour: Option<IpAddr> = "2001:db8::2".parse().ok();
        let check_key_attempts = |key: &SecretString, from| {
            let tried = limit.check_key_attempts(std::iter::once(key.expose_secret()), from, at(0));
            tried.is_ok()
        };
        for n in 0..5 {
            assert!(check_key_attempts(&new, (address, KeyPurpose::Call)), "{n}");
            limit.count_wrong_key(address, KeyPurpose::Call, at(0));
        }
        assert!(!check_key_attempts(&new, (address, KeyPurpose::Call)));
        assert!(!check_key_attempts(&new, (neighbour, KeyPurpose::Call)));
        assert!(check_key_attempts(&good, (address, KeyPurpose::Call)));
        assert!(check_key_attempts(&new, (address, KeyPurpose::Report)));
        for other in ["2001:db8:0:1::1", "192.0.2.1"] {
            assert!(check_key_attempts(
                &new,
                (other.parse().ok(), KeyPurpose::Call)
            ));
        }
        assert!(
            check_key_attempts(&new, (None, KeyPurpose::Call)),
            "in memory"
        );
        let later = |millis| {
            let from = (address, KeyPurpose::Call);
            limit.check_key_attempts(std::iter::once(new.expose_secret()), from, at(millis))
        };
        assert!(later(200).is_ok(), "it fills again");
        // Looked up concurrently, and counted when the results arrived.
        for _ in 0..10 {
            limit.count_wrong_key(address, KeyPurpose::Call, at(200));
        }
        assert!(later(2_000).is_err(), "nine were too many");
        assert!(later(2_400).is_ok());
        limit.forget_key(&good);
        assert!(
            !check_key_attempts(&good, (address, KeyPurpose::Call)),
            "it was revoked"
        );
    }
}
