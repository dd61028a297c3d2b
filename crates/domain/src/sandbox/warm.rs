//! Warm sandboxes: booted with a dormant agent server before a start needs them. A start claims one.
//!
//! ```text
//!   insert ──► BOOTING ──it answers, dormant──► READY ──claim──► CLAIMED ──its id is a sandbox's row──► (removed)
//!                 │                               ▲                 │
//!                 │ stale, unhealthy, too many    └────release──────┘ (claim not used)
//!                 ▼                               │
//!             (removed) ◄─────────────────────────┘
//! ```
//!
//! A warm sandbox has no owner: no user sees it, no cap counts it, and its session key gives no access. It already has
//! the keys of the [`Sandbox`](super::Sandbox) that it becomes, so a start only inserts the sandbox row. The reconciler
//! then finds the agent server dormant and wakes it ([`AgentLifecycle::wake`](crate::agent::AgentLifecycle::wake)). After a
//! crash between the claim and the insert, the claimed warm sandbox has no sandbox row and is removed.

use async_trait::async_trait;

use super::SandboxEndpoints;
use crate::clock::Timestamp;
use crate::encryption::cipher::Sealed;
use crate::error::StoreError;
use crate::id::{HostId, SandboxId, SpecId};
use crate::user::identity::KeyHash;
use crate::wire_enum::wire_enum;

/// Maximum number of warm sandboxes of one host, whatever the configuration says.
pub const MAX_WARM_SANDBOXES_PER_HOST: usize = 200;

wire_enum! {
    WarmState {
        Booting = "booting",
        /// Its agent server answers, dormant.
        Ready = "ready",
        /// Reserved for a sandbox that is being stored.
        Claimed = "claimed",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct WarmSandbox {
    /// Its id, also the backend's name for it, and the id of the sandbox that it becomes.
    pub id: SandboxId,
    /// The sandbox spec that it was booted from.
    pub spec_id: SpecId,
    pub host: HostId,
    /// Hash of the image, settings, agent server and webhook address that it was booted with. The sandbox is stale if a
    /// cold start would now use another recipe.
    pub recipe: String,
    pub state: WarmState,
    /// Hash of its future session key.
    pub key_hash: KeyHash,
    /// Its future session key, sealed with context [`Sandbox::key_context`](super::Sandbox::key_context).
    pub session_key: Sealed,
    /// The agent server's encryption key, which also authenticates the request that wakes it; same context.
    pub secret_key: Sealed,
    /// Addresses of the sandbox, once it is [`WarmState::Ready`].
    pub endpoints: Option<SandboxEndpoints>,
    pub created_at: Timestamp,
    /// Time of the last change of its state.
    pub updated_at: Timestamp,
}

#[async_trait]
pub trait WarmRepository: Send + Sync + 'static {
    /// Stores a warm sandbox unless this host and spec have `max_count` already (in any state but CLAIMED), or the host
    /// has [`MAX_WARM_SANDBOXES_PER_HOST`] in any state. Counting and inserting are one transaction. `false` if it was
    /// not stored, `Conflict` if its id or key is taken.
    async fn insert(&self, warm: &WarmSandbox, max_count: u32) -> Result<bool, StoreError>;
    /// Records that its agent server answers and is dormant: BOOTING becomes READY. `false` if it is not BOOTING.
    async fn mark_ready(
        &self,
        id: &SandboxId,
        endpoints: &SandboxEndpoints,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Claims the oldest READY sandbox of this host, spec and recipe. Of several concurrent claims, each gets another
    /// sandbox, and none waits for another. A sandbox whose id is already that of a sandbox row is never claimed.
    async fn claim(
        &self,
        host: &HostId,
        spec: &SpecId,
        recipe: &str,
        at: Timestamp,
    ) -> Result<Option<WarmSandbox>, StoreError>;
    /// Returns a claimed sandbox to READY, when the claim was not used. `false` if it is not CLAIMED, or a sandbox row
    /// has its id.
    async fn release(&self, id: &SandboxId, at: Timestamp) -> Result<bool, StoreError>;
    /// All warm sandboxes of a host, in any state, oldest first, at most [`MAX_WARM_SANDBOXES_PER_HOST`].
    async fn list_on_host(&self, host: &HostId) -> Result<Vec<WarmSandbox>, StoreError>;
    /// Removes the row; the sandbox that it became stays. `false` if there is none.
    async fn remove(&self, id: &SandboxId) -> Result<bool, StoreError>;
    /// Removes the row of a sandbox that is about to be removed, so that it cannot be claimed any more. `false` if
    /// there is none or it is CLAIMED.
    async fn dismiss(&self, id: &SandboxId) -> Result<bool, StoreError>;
}
