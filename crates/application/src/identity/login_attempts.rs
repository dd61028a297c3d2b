//! Limits attempts to guess a password, by account, by address, and by both, and mails with links by account.
//!
//! The limit of an account at one address is the lowest, so that a stranger elsewhere does not lock its owner out. Memory
//! is bounded; when it is full, the attempts are forgotten rather than logins refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::clock::Timestamp;
use domain::id::UserId;
use domain::user::identity::KeyHash;

/// Attempts are counted in windows of this length.
pub(crate) const ATTEMPT_WINDOW: Duration = Duration::from_secs(5 * 60);
const MAX_ATTEMPTS_PER_ACCOUNT_AND_ADDRESS: u32 = 10;
const MAX_ATTEMPTS_PER_ACCOUNT: u32 = 50;
const MAX_ATTEMPTS_PER_ADDRESS: u32 = 100;
const MAX_MAILS_PER_ACCOUNT: u32 = 3;
const MAX_WINDOWS: usize = 20_000;

/// What attempts are counted by. Names are hashed: they may be long, and they may be a password in the wrong field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AttemptKey {
    AccountAndAddress(KeyHash, IpAddr),
    Account(KeyHash),
    Address(IpAddr),
    /// Mails with a link for a new password.
    Mail(KeyHash),
}

impl AttemptKey {
    fn limit(self) -> u32 {
        match self {
            Self::AccountAndAddress(..) => MAX_ATTEMPTS_PER_ACCOUNT_AND_ADDRESS,
            Self::Account(_) => MAX_ATTEMPTS_PER_ACCOUNT,
            Self::Address(_) => MAX_ATTEMPTS_PER_ADDRESS,
            Self::Mail(_) => MAX_MAILS_PER_ACCOUNT,
        }
    }

    fn all(account: Option<&str>, address: Option<IpAddr>) -> Vec<Self> {
        let account = account.map(KeyHash::of);
        let both = account.zip(address);
        [
            both.map(|(account, address)| Self::AccountAndAddress(account, address)),
            account.map(Self::Account),
            address.map(Self::Address),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[derive(Debug, Clone, Copy)]
struct AttemptWindow {
    began: Timestamp,
    count: u32,
}

impl AttemptWindow {
    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.began) >= ATTEMPT_WINDOW
    }
}

#[derive(Debug, Default)]
pub(crate) struct LoginAttempts(Mutex<HashMap<AttemptKey, AttemptWindow>>);

impl LoginAttempts {
    /// Counts an attempt before its password is checked, so that parallel attempts do not exceed the limit. Returns
    /// `false`, and counts nothing, if a limit is reached.
    pub(crate) fn try_count(
        &self,
        account: Option<&str>,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> bool {
        self.try_count_all(AttemptKey::all(account, address), now)
    }

    /// Counts a mail to this user, which strangers can cause. Returns `false` if there were too many.
    pub(crate) fn try_count_mail(&self, user: &UserId, now: Timestamp) -> bool {
        self.try_count_all(vec![AttemptKey::Mail(KeyHash::of(user.as_str()))], now)
    }

    fn try_count_all(&self, keys: Vec<AttemptKey>, now: Timestamp) -> bool {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() + keys.len() > MAX_WINDOWS {
            windows.retain(|_, window| !window.is_over(now));
            // Windows of many made-up names and addresses must not reset that of an account under attack.
            if windows.len() + keys.len() > MAX_WINDOWS {
                windows.retain(|_, window| window.count > 1);
            }
            if windows.len() + keys.len() > MAX_WINDOWS {
                windows.clear();
            }
        }
        let is_full = |key: &AttemptKey| {
            let window = windows.get(key).filter(|window| !window.is_over(now));
            window.is_some_and(|window| window.count >= key.limit())
        };
        if keys.iter().any(is_full) {
            return false;
        }
        for key in keys {
            let new = AttemptWindow {
                began: now,
                count: 0,
            };
            let window = windows.entry(key).or_insert(new);
            if window.is_over(now) {
                *window = new;
            }
            window.count += 1;
        }
        true
    }

    /// Takes back the count of an attempt that succeeded.
    pub(crate) fn forgive(&self, account: Option<&str>, address: Option<IpAddr>) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in AttemptKey::all(account, address) {
            if let Some(window) = windows.get_mut(&key) {
                window.count = window.count.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn address(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    fn admitted(attempts: &LoginAttempts, name: &str, from: u8, now: i64) -> usize {
        let tried = (0..200).map(|_| attempts.try_count(Some(name), Some(address(from)), at(now)));
        tried.filter(|admitted| *admitted).count()
    }

    #[test]
    fn attempts_are_limited_by_account_and_address() {
        let attempts = LoginAttempts::default();
        assert_eq!(admitted(&attempts, "ada", 1, 0), 10);
        assert_eq!(admitted(&attempts, "ada", 2, 0), 10, "her own address");
        assert_eq!(admitted(&attempts, "bob", 1, 0), 10);
        let others: usize = (3..10).map(|n| admitted(&attempts, "ada", n, 0)).sum();
        assert_eq!(others, 30, "50 for the account");
        let names = (0..100).map(|n| admitted(&attempts, &format!("user{n}"), 1, 0));
        assert_eq!(names.sum::<usize>(), 80, "100 for the address");
        assert_eq!(admitted(&attempts, "ada", 1, 299), 0);
        assert_eq!(admitted(&attempts, "ada", 1, 300), 10);
    }

    #[test]
    fn successful_attempts_do_not_count() {
        let attempts = LoginAttempts::default();
        for _ in 0..200 {
            assert!(attempts.try_count(Some("ada"), Some(address(1)), at(0)));
            attempts.forgive(Some("ada"), Some(address(1)));
        }
        assert_eq!(admitted(&attempts, "ada", 1, 0), 10);
    }

    #[test]
    fn mails_are_limited_by_account() {
        let attempts = LoginAttempts::default();
        let user = |name: &str| UserId::parse(name).unwrap();
        let sent = (0..10).filter(|_| attempts.try_count_mail(&user("ada"), at(0)));
        assert_eq!(sent.count(), 3);
        assert!(attempts.try_count_mail(&user("bob"), at(0)));
        assert!(attempts.try_count_mail(&user("ada"), at(300)));
        assert!(
            attempts.try_count(Some("ada"), None, at(0)),
            "a login is another thing"
        );
    }

    #[test]
    fn memory_is_bounded_and_made_up_names_reset_no_limit() {
        let attempts = LoginAttempts::default();
        assert_eq!(admitted(&attempts, "ada", 1, 0), 10);
        for n in 0..30_000 {
            assert!(attempts.try_count(Some(&n.to_string()), None, at(0)));
        }
        assert!(attempts.0.lock().unwrap().len() <= MAX_WINDOWS);
        assert_eq!(admitted(&attempts, "ada", 1, 0), 0);
    }
}
