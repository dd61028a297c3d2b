//! Hosts that the egress policy refused to sandboxes, and the decisions of their owners.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{EgressRequestId, OwnerId, SandboxId};
use crate::page::{Page, PageRequest};
use crate::wire_enum::wire_enum;

/// Maximum number of requests of one owner.
pub const MAX_EGRESS_REQUESTS_PER_OWNER: usize = 500;

wire_enum! {
    /// What an owner decided about a host that the egress policy refused.
    EgressDecision {
        /// Nothing yet: the host stays refused.
        Pending = "pending",
        /// The sandbox that asked reaches the host.
        ApprovedForSandbox = "approved_for_sandbox",
        /// All sandboxes of the owner reach the host.
        Approved = "approved",
        Denied = "denied",
    }
}

/// A host that a sandbox asked for, and its owner's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRequest {
    pub id: EgressRequestId,
    pub owner: OwnerId,
    pub sandbox_id: SandboxId,
    /// A name in lower case, or an address; IPv6 in brackets.
    pub host: String,
    pub port: u16,
    pub decision: EgressDecision,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Requests of sandboxes, one for each sandbox, host and port.
#[async_trait]
pub trait EgressRequestRepository: Send + Sync + 'static {
    /// A page of the owner's requests with this decision, newest first.
    async fn search(
        &self,
        owner: &OwnerId,
        decision: Option<EgressDecision>,
        page: &PageRequest,
    ) -> Result<Page<EgressRequest>, StoreError>;
    /// Stores the owner's decision; `None` if the owner has no such request. A request that is
    /// [`Approved`](EgressDecision::Approved) replaces the owner's other ones for the same host and port.
    async fn decide(
        &self,
        owner: &OwnerId,
        id: EgressRequestId,
        decision: EgressDecision,
        at: Timestamp,
    ) -> Result<Option<EgressRequest>, StoreError>;
    /// Deletes a request with its decision. `false` if the owner has no such request.
    async fn delete(&self, owner: &OwnerId, id: EgressRequestId) -> Result<bool, StoreError>;
    /// The decision that holds for the owner, sandbox, host and port of this request: an approval for all sandboxes, else that
    /// of the sandbox's own request.
    async fn decision(&self, of: &EgressRequest) -> Result<Option<EgressDecision>, StoreError>;
    /// Stores a request, unless the sandbox has one for the same host and port, or is not one of the owner's. With
    /// [`MAX_EGRESS_REQUESTS_PER_OWNER`], it replaces the owner's oldest pending one, or is not stored if there is none. `Conflict` if another call stores the same at
    /// the same time.
    async fn insert(&self, request: &EgressRequest) -> Result<(), StoreError>;
    /// Deletes at most `limit` requests of sandboxes that are gone, except approvals for all sandboxes. Returns their number.
    async fn prune(&self, limit: usize) -> Result<u64, StoreError>;
}
