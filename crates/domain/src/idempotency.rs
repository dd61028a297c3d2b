//! Requests that their sender may repeat: `Idempotency-Key` (decisions, section 4).
//!
//! The answer is stored in the transaction that stores what the request made. So there is no moment at which a repetition
//! could make it twice, and none at which it would have to be told to wait: it either comes first or finds the answer.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::UserId;

/// Answers that are kept for one user at most: with one more the oldest goes, and its key is free again. Whoever repeats a
/// request does so within seconds, and an unbounded memory could be filled by starts that fail fast.
pub const MAX_RESPONSES_PER_USER: usize = 2_000;

/// A request with a key that its sender chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotentRequest {
    /// Who sent it. Keys of different users have nothing to do with each other.
    pub owner: UserId,
    /// The key, 1 to 255 visible ASCII characters.
    pub key: String,
    /// Keyed hash of what was asked, operation and input ([`Fingerprints`](crate::vault::Fingerprints)): the input may hold
    /// secrets, and a plain hash would let whoever reads the database guess them.
    pub fingerprint: String,
    /// Answers from before are forgotten: a request with their key is a new one.
    pub since: Timestamp,
}

/// The answer to a request, to be stored with what it made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotentResponse {
    /// The request.
    pub request: IdempotentRequest,
    /// The body of its answer.
    pub answer: String,
    /// When it was given.
    pub at: Timestamp,
}

/// What is known of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyCheck {
    /// The key is new.
    New,
    /// The request was answered before: this is the stored response.
    Replay(String),
    /// The key belongs to another request.
    Mismatch,
}

/// Answers that were given. They are written by the repositories of what the requests made
/// ([`StartTaskRepository::insert`](crate::start_task::StartTaskRepository::insert),
/// [`SandboxRepository::insert_once`](crate::sandbox::SandboxRepository::insert_once)), or by `keep` for a request that made
/// nothing. Whoever writes one forgets those of the same owner beyond the latest [`MAX_RESPONSES_PER_USER`].
#[async_trait]
pub trait IdempotencyRepository: Send + Sync + 'static {
    /// What is known of this request.
    async fn look_up(&self, request: &IdempotentRequest) -> Result<IdempotencyCheck, StoreError>;
    /// Stores the answer to a request that made nothing, because what it asks for was there. [`IdempotencyCheck::New`] if it is
    /// stored now; else what was known, and nothing is written.
    async fn store_response(&self, answer: &IdempotentResponse) -> Result<IdempotencyCheck, StoreError>;
    /// Deletes answers from before, at most `limit`; how many there were.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
