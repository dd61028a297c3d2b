//! A fake clock and a fake generator of ids.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use domain::clock::{Clock, Timestamp};
use domain::id::{IdGenerator, NewApiKey, SandboxId};
use secrecy::SecretString;
use uuid::Uuid;

/// A clock that only changes when a test sets it.
#[derive(Debug)]
pub struct FixedClock(AtomicI64);

impl FixedClock {
    /// A clock at this time.
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.micros()))
    }

    /// Sets the time, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.micros(), Ordering::SeqCst);
    }

    /// Advances the time by `span`.
    pub fn advance(&self, span: Duration) {
        self.set(self.now().plus(span));
    }
}

impl Default for FixedClock {
    /// A clock at 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self(AtomicI64::new(1_767_225_600_000_000))
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// Ids that count up from 1, with one counter for all kinds.
#[derive(Debug, Default)]
pub struct SequentialIds(AtomicU64);

impl SequentialIds {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

impl IdGenerator for SequentialIds {
    /// A valid version 4 UUID that ends in the number.
    fn uuid(&self) -> Uuid {
        Uuid::from_u128(0x4000_8000_0000_0000_0000 | u128::from(self.next()))
    }

    /// As long as a real one, and recognisable.
    fn secret(&self) -> SecretString {
        format!("secret{:0>37}", self.next()).into()
    }

    /// As long as a real one, and recognisable.
    fn sandbox_id(&self) -> SandboxId {
        SandboxId::parse(format!("sandbox{:0>15}", self.next()))
            .expect("letters and digits are a valid sandbox id")
    }

    /// Recognisable.
    fn api_key(&self) -> NewApiKey {
        let number = self.next();
        NewApiKey {
            text: format!("aw_key{number:0>46}").into(),
            prefix: format!("aw_key{number}"),
        }
    }
}
