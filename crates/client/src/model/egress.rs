//! Hosts that the egress policy refused to sandboxes.

use serde::{Deserialize, Serialize};

use super::{EgressDecision, UtcTime};

/// A host that a sandbox asked for, and its owner's decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRequest {
    pub id: String,
    pub sandbox_id: String,
    pub host: String,
    pub port: u16,
    pub decision: EgressDecision,
    pub created_at: UtcTime,
    pub updated_at: UtcTime,
}

/// An approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EgressApproval {
    /// Whether all sandboxes of the user reach the host, and not only the one that asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_all_sandboxes: Option<bool>,
}
