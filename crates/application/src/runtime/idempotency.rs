//! Requests that their sender may repeat (`Idempotency-Key`).

use std::time::Duration;

use domain::clock::Timestamp;
use domain::id::UserId;
use domain::idempotency::{IdempotentResponse, IdempotentRequest, IdempotencyCheck};

use crate::AppError;
use crate::ports::Ports;

/// How long an answer is kept (decisions, section 4).
pub(crate) const RESPONSE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The key of a request that may come again, and how its answer is written.
pub struct IdempotentCall<'a, T> {
    /// The sender's key.
    pub key: String,
    /// Which operation is asked for.
    pub operation: &'static str,
    /// What is asked of it, as it was sent. It may hold secrets: only a keyed hash of it is kept.
    pub input: &'a [u8],
    /// The body of the answer, as JSON. It is stored with what the request makes.
    pub render: &'a (dyn Fn(&T) -> String + Send + Sync),
}

/// The answer to a request that may have been sent before.
#[derive(Debug, Clone, PartialEq)]
pub enum IdempotentResult<T> {
    /// It was carried out now.
    New(T),
    /// It was carried out before: the body of the answer it got then.
    Repeated(String),
}

impl<T> IdempotentCall<'_, T> {
    fn request(&self, ports: &Ports, owner: &UserId, now: Timestamp) -> IdempotentRequest {
        let purpose = format!("idempotency/{}", self.operation);
        IdempotentRequest {
            owner: owner.clone(),
            key: self.key.clone(),
            fingerprint: ports.fingerprints.fingerprint(&purpose, self.input),
            since: now.minus(RESPONSE_TTL),
        }
    }

    /// What is to be stored with `made`.
    pub(crate) fn answer(&self, ports: &Ports, owner: &UserId, made: &T) -> IdempotentResponse {
        let at = ports.clock.now();
        IdempotentResponse {
            request: self.request(ports, owner, at),
            answer: (self.render)(made),
            at,
        }
    }

    /// The answer to a request that made nothing because `found` was there: kept too, so that a repetition gets the same
    /// whatever has become of it by then. There is no transaction that this could be part of, and it needs none: who dies
    /// before has answered nothing.
    pub(crate) async fn keep(
        &self,
        ports: &Ports,
        owner: &UserId,
        found: T,
    ) -> Result<IdempotentResult<T>, AppError> {
        let answer = self.answer(ports, owner, &found);
        let earlier = earlier_response(ports.answers.store_response(&answer).await?)?;
        Ok(earlier.map_or(IdempotentResult::New(found), IdempotentResult::Repeated))
    }

    /// The earlier answer, if there is one. Asked first, so that a repetition is not refused for what the first made.
    pub(crate) async fn earlier(
        &self,
        ports: &Ports,
        owner: &UserId,
    ) -> Result<Option<String>, AppError> {
        let request = self.request(ports, owner, ports.clock.now());
        earlier_response(ports.answers.look_up(&request).await?)
    }
}

/// The answer of a repetition; `None` for a first request.
pub(crate) fn earlier_response(known: IdempotencyCheck) -> Result<Option<String>, AppError> {
    match known {
        IdempotencyCheck::New => Ok(None),
        IdempotencyCheck::Replay(answer) => Ok(Some(answer)),
        IdempotencyCheck::Mismatch => Err(AppError::IdempotencyKeyReused),
    }
}
