//! Requests of sandboxes for hosts on the wire. An addition: the reference has none.

use domain::clock::Timestamp;
use domain::id::{EgressRequestId, SandboxId};
use domain::user::egress::{EgressDecision, EgressRequest};

use crate::decode::model;
use crate::extract::NamedParam;

/// A host that the egress policy refused to a sandbox, and the decision of the sandbox's owner.
#[model(response = EgressRequest, from(request: EgressRequest))]
pub(crate) struct EgressRequestDto {
    id: EgressRequestId,
    /// The sandbox that asked.
    sandbox_id: SandboxId,
    /// A name, or an address.
    host: String,
    /// The port of the host.
    port: u16,
    /// What the owner decided.
    decision: EgressDecision,
    /// When the sandbox asked first.
    created_at: Timestamp,
    /// When the owner decided, or `created_at`.
    updated_at: Timestamp,
}

/// The query of a search.
#[model(query)]
pub(crate) struct EgressRequestQuery {
    /// Only requests with this decision.
    #[decode(rename = "decision__eq")]
    pub decision: Option<EgressDecision>,
}

/// An approval.
#[model(body = EgressApproval)]
#[derive(Default)]
pub(crate) struct EgressApprovalDto {
    /// Whether all sandboxes of the user reach the host, also later ones, and not only the one that asked.
    #[decode(default = false)]
    pub for_all_sandboxes: bool,
}

impl EgressApprovalDto {
    pub(crate) fn decision(&self) -> EgressDecision {
        if self.for_all_sandboxes {
            EgressDecision::Approved
        } else {
            EgressDecision::ApprovedForSandbox
        }
    }
}

impl NamedParam for EgressRequestId {
    const NAME: &'static str = "egress_request_id";
}
