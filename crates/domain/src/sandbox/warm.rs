//! Warm sandboxes: booted dormant before anybody asks for them, and given to whoever asks first.
//!
//! ```text
//!   insert ──► BOOTING ──it answers, dormant──► READY ──claim──► CLAIMED ──its id is a sandbox's row──► (removed)
//!                 │                               ▲                 │
//!                 │ stale, unhealthy, too many    └────release──────┘ (nothing came of the claim)
//!                 ▼                               │
//!             (removed) ◄─────────────────────────┘
//! ```
//!
//! A warm sandbox is nobody's: no user sees it, no cap counts it, its session key opens nothing. It has the keys of the
//! [`Sandbox`](super::Sandbox) that it becomes from its birth, so becoming one is a row and no more: whoever brings that
//! sandbox up finds its agent server dormant and wakes it
//! ([`AgentRuntime::wake`](crate::agent::AgentRuntime::wake)). A crash between the claim and the row leaves a claimed one
//! without a row, which is removed.

use async_trait::async_trait;

use super::SandboxEndpoints;
use crate::cipher::Sealed;
use crate::clock::Timestamp;
use crate::conversation::wire_enum;
use crate::error::StoreError;
use crate::id::{HostId, SandboxId, SpecId};
use crate::identity::KeyHash;

/// Warm sandboxes of one host at most, whatever the configuration says.
pub const MAX_WARM_SANDBOXES_PER_HOST: usize = 200;

wire_enum! {
    /// How far it is.
    WarmState {
        /// Being started.
        Booting = "booting",
        /// Its agent server answers, dormant.
        Ready = "ready",
        /// Promised to a sandbox that is being stored.
        Claimed = "claimed",
    }
}

/// One warm sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmSandbox {
    /// Its id, also the backend's name for it, and the id of the sandbox that it becomes.
    pub id: SandboxId,
    /// From which template.
    pub spec_id: SpecId,
    /// Where it lives.
    pub host: HostId,
    /// What it was booted from (image, settings, agent server, address of the webhooks), as a hash: one that was booted from
    /// something else than what a cold start would take now is stale.
    pub recipe: String,
    /// How far it is.
    pub state: WarmState,
    /// Hash of the session key that it will have.
    pub key_hash: KeyHash,
    /// That key, sealed with context [`Sandbox::key_context`](super::Sandbox::key_context).
    pub session_key: Sealed,
    /// The agent server's encryption key, by which it is also told to wake up; same context.
    pub secret_key: Sealed,
    /// Where it is, once it is [`WarmState::Ready`].
    pub located: Option<SandboxEndpoints>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When its state last changed.
    pub updated_at: Timestamp,
}

/// Rows of warm sandboxes.
#[async_trait]
pub trait WarmRepository: Send + Sync + 'static {
    /// Stores a new one unless `most` of this host and template are there already (in any state but CLAIMED), or [`MAX_WARM_SANDBOXES_PER_HOST`]
    /// of this host in any state: counting and inserting are one transaction. `false` if it was not stored, `Conflict` if its
    /// id or key is there already.
    async fn insert(&self, warm: &WarmSandbox, most: u32) -> Result<bool, StoreError>;
    /// It answers, dormant: BOOTING becomes READY. `false` if it is not BOOTING.
    async fn mark_ready(
        &self,
        id: &SandboxId,
        located: &SandboxEndpoints,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Takes the READY one of this host, template and recipe that was made first: it is CLAIMED then. One transaction, with
    /// exactly one winner for each, and claims at the same time take different ones without waiting for each other. One whose
    /// id is a sandbox's is never taken.
    async fn claim(
        &self,
        host: &HostId,
        spec: &SpecId,
        recipe: &str,
        at: Timestamp,
    ) -> Result<Option<WarmSandbox>, StoreError>;
    /// Nothing came of a claim: it is READY again. `false` if it is not CLAIMED, or a sandbox's row has its id.
    async fn release(&self, id: &SandboxId, at: Timestamp) -> Result<bool, StoreError>;
    /// All of a host, in any state, oldest first, at most [`MAX_WARM_SANDBOXES_PER_HOST`].
    async fn list_on_host(&self, host: &HostId) -> Result<Vec<WarmSandbox>, StoreError>;
    /// Removes the row; the sandbox that it became stays. `false` if there is none.
    async fn remove(&self, id: &SandboxId) -> Result<bool, StoreError>;
    /// Removes the row of one that is to be ended, unless it is CLAIMED: from then on nobody can claim it. `false` if there
    /// is none or it is CLAIMED.
    async fn dismiss(&self, id: &SandboxId) -> Result<bool, StoreError>;
}
