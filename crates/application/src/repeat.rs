//! Requests that their sender may repeat (`Idempotency-Key`).

use std::time::Duration;

use domain::clock::Timestamp;
use domain::id::UserId;
use domain::idempotency::{KeptAnswer, KeyedRequest, Repetition};

use crate::AppError;
use crate::ports::Ports;

/// How long an answer is kept (decisions, section 4).
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The key of a request that may come again, and how its answer is written.
pub struct Repeatable<'a, T> {
    /// The sender's key.
    pub key: String,
    /// Hash of what is asked.
    pub fingerprint: String,
    /// The body of the answer, as JSON. It is stored with what the request makes.
    pub render: &'a (dyn Fn(&T) -> String + Send + Sync),
}

/// The answer to a request that may have been sent before.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<T> {
    /// It was carried out now.
    New(T),
    /// It was carried out before: the body of the answer it got then.
    Repeated(String),
}

impl<T> Repeatable<'_, T> {
    pub(crate) fn request(&self, owner: &UserId, now: Timestamp) -> KeyedRequest {
        KeyedRequest {
            owner: owner.clone(),
            key: self.key.clone(),
            fingerprint: self.fingerprint.clone(),
            since: now.minus(KEPT_FOR),
        }
    }

    pub(crate) fn answer(&self, owner: &UserId, made: &T, at: Timestamp) -> KeptAnswer {
        KeptAnswer {
            request: self.request(owner, at),
            answer: (self.render)(made),
            at,
        }
    }

    /// The earlier answer, if there is one. Asked first, so that a repetition is not refused for what the first made.
    pub(crate) async fn earlier(
        &self,
        ports: &Ports,
        owner: &UserId,
    ) -> Result<Option<String>, AppError> {
        let request = self.request(owner, ports.clock.now());
        repeated(ports.answers.look_up(&request).await?)
    }
}

/// The answer of a repetition; `None` for a first request.
pub(crate) fn repeated(known: Repetition) -> Result<Option<String>, AppError> {
    match known {
        Repetition::First => Ok(None),
        Repetition::Same(answer) => Ok(Some(answer)),
        Repetition::Other => Err(AppError::KeyReused),
    }
}
