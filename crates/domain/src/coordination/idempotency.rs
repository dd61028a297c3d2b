//! Requests that clients may repeat, by the header `Idempotency-Key`, see
//! `docs/explanation/decisions/0015-make-requests-repeatable.md`.
//!
//! The transaction that stores what a request creates also stores its response. A repetition therefore either comes
//! first or finds the response; it can neither create twice nor has to wait.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::OwnerId;

/// Maximum number of stored responses of one user. Beyond it the oldest is deleted and its key is free again. Clients
/// repeat requests within seconds, and starts that fail fast could fill an unbounded store.
pub const MAX_RESPONSES_PER_USER: usize = 2_000;

/// A request with an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotentRequest {
    /// The sender. Keys of different users are independent.
    pub owner: OwnerId,
    /// The key, 1 to 255 visible ASCII characters.
    pub key: String,
    /// Keyed hash of operation and input ([`Fingerprints`](crate::encryption::vault::Fingerprints)). The input may contain secrets,
    /// which a plain hash would let a reader of the database guess.
    pub fingerprint: String,
    /// Responses from before are ignored: a request with their key is new.
    pub since: Timestamp,
}

/// The response to a request, to be stored with what the request created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotentResponse {
    pub request: IdempotentRequest,
    pub response: String,
    pub at: Timestamp,
}

/// The result of looking up an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyCheck {
    New,
    /// The request was answered before: this is the stored response.
    Replay(String),
    /// The key belongs to another request.
    Mismatch,
}

/// Stored responses. The repositories of what requests create write them
/// ([`StartTaskRepository::insert`](crate::start_task::StartTaskRepository::insert),
/// [`SandboxRepository::insert_once`](crate::sandbox::SandboxRepository::insert_once)); `store_response` does so for a
/// request that created nothing. Each write deletes the owner's responses beyond the latest [`MAX_RESPONSES_PER_USER`].
#[async_trait]
pub trait IdempotencyRepository: Send + Sync + 'static {
    /// Looks up the key of a request.
    async fn look_up(&self, request: &IdempotentRequest) -> Result<IdempotencyCheck, StoreError>;
    /// Stores the response to a request that created nothing, because what it asks for exists.
    /// [`IdempotencyCheck::New`] if the response was stored, else the result of the look-up.
    async fn store_response(
        &self,
        response: &IdempotentResponse,
    ) -> Result<IdempotencyCheck, StoreError>;
    /// Deletes at most `limit` responses from before `before`; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
