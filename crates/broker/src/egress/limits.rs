//! What limits single sandboxes.

use std::fmt::Debug;

use async_trait::async_trait;
use domain::egress_list::EgressList;
use domain::error::BoxError;
use domain::id::SandboxId;

/// The lists that hold for one sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxEgress {
    /// The operator's list for its template, which replaces the rules of the proxy.
    pub template: Option<EgressList>,
    /// Its owner's list: it reaches what both allow.
    pub own: Option<EgressList>,
}

/// Finds the lists of sandboxes.
#[async_trait]
pub trait EgressLimits: Debug + Send + Sync {
    /// The lists of this sandbox.
    ///
    /// # Errors
    /// The store does not answer.
    async fn of(&self, sandbox: &SandboxId) -> Result<SandboxEgress, BoxError>;
}
