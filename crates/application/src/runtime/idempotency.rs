//! Idempotent requests (`Idempotency-Key`).

use std::sync::Arc;
use std::time::Duration;

use domain::clock::{Clock, Timestamp};
use domain::coordination::idempotency::{
    IdempotencyCheck, IdempotencyRepository, IdempotentRequest, IdempotentResponse,
};
use domain::encryption::vault::Fingerprints;
use domain::id::OwnerId;

use crate::AppError;
use crate::ports::Ports;

/// How long a response is kept (`docs/explanation/decisions/0015-make-requests-repeatable.md`).
pub(crate) const RESPONSE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// An idempotent request: its key, its input and how its response is rendered.
pub struct IdempotentCall<'a, T> {
    pub key: String,
    pub operation: &'static str,
    /// The input as it was sent. It may contain secrets; only a keyed hash is stored.
    pub input: &'a [u8],
    /// Renders the body of the response as JSON. It is stored with the created object.
    pub render: &'a (dyn Fn(&T) -> String + Send + Sync),
}

#[derive(Debug, Clone, PartialEq)]
pub enum IdempotentResult<T> {
    /// The request was carried out now.
    New(T),
    /// The request was carried out before: the body of its response then.
    Repeated(String),
}

impl<T> IdempotentResult<T> {
    /// What a request without an idempotency key created: it is never a repetition.
    pub(crate) fn into_new(self) -> Result<T, AppError> {
        match self {
            Self::New(made) => Ok(made),
            Self::Repeated(_) => Err(AppError::IdempotencyKeyReused),
        }
    }
}

/// The stored responses of idempotent requests.
#[derive(Clone)]
pub(crate) struct IdempotencyService {
    responses: Arc<dyn IdempotencyRepository>,
    fingerprints: Arc<dyn Fingerprints>,
    clock: Arc<dyn Clock>,
}

impl IdempotencyService {
    pub(crate) fn new(ports: &Ports) -> Self {
        Self {
            responses: Arc::clone(&ports.idempotent_responses),
            fingerprints: Arc::clone(&ports.fingerprints),
            clock: Arc::clone(&ports.clock),
        }
    }
}

impl<T> IdempotentCall<'_, T> {
    fn request(
        &self,
        service: &IdempotencyService,
        owner: &OwnerId,
        now: Timestamp,
    ) -> IdempotentRequest {
        let purpose = format!("idempotency/{}", self.operation);
        IdempotentRequest {
            owner: owner.clone(),
            key: self.key.clone(),
            fingerprint: service.fingerprints.fingerprint(&purpose, self.input),
            since: now.minus(RESPONSE_TTL),
        }
    }

    /// The response to store in one transaction with `made`.
    pub(crate) fn response(
        &self,
        service: &IdempotencyService,
        owner: &OwnerId,
        made: &T,
    ) -> IdempotentResponse {
        let at = service.clock.now();
        IdempotentResponse {
            request: self.request(service, owner, at),
            response: (self.render)(made),
            at,
        }
    }

    /// Stores the response of a request that found an existing object, so that a repetition gets the same response
    /// whatever happens to the object. No transaction is needed: a process that dies before has sent no response.
    pub(crate) async fn store(
        &self,
        service: &IdempotencyService,
        owner: &OwnerId,
        found: T,
    ) -> Result<IdempotentResult<T>, AppError> {
        let response = self.response(service, owner, &found);
        let earlier = earlier_response(service.responses.store_response(&response).await?)?;
        Ok(earlier.map_or(IdempotentResult::New(found), IdempotentResult::Repeated))
    }

    /// The earlier response, if there is one. Queried first, so that quotas do not refuse a repetition.
    pub(crate) async fn find_earlier(
        &self,
        service: &IdempotencyService,
        owner: &OwnerId,
    ) -> Result<Option<String>, AppError> {
        let request = self.request(service, owner, service.clock.now());
        earlier_response(service.responses.look_up(&request).await?)
    }
}

/// The response of a repetition; `None` for a first request.
pub(crate) fn earlier_response(known: IdempotencyCheck) -> Result<Option<String>, AppError> {
    match known {
        IdempotencyCheck::New => Ok(None),
        IdempotencyCheck::Replay(response) => Ok(Some(response)),
        IdempotencyCheck::Mismatch => Err(AppError::IdempotencyKeyReused),
    }
}
