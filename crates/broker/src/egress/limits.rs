//! What limits single sandboxes.

use std::fmt::Debug;

use async_trait::async_trait;
use domain::egress_list::SandboxEgress;
use domain::error::BoxError;
use domain::id::SandboxId;

/// Finds the lists of sandboxes.
#[async_trait]
pub trait EgressLimits: Debug + Send + Sync {
    /// The lists of this sandbox.
    ///
    /// # Errors
    /// The store does not answer.
    async fn of(&self, sandbox: &SandboxId) -> Result<SandboxEgress, BoxError>;
}
