//! What owners of sandboxes approved beyond the rules.

use std::fmt::Debug;

use async_trait::async_trait;
use domain::error::BoxError;
use domain::id::SandboxId;

/// Asks the owners of sandboxes for hosts that no rule allows.
#[async_trait]
pub trait EgressApprovals: Debug + Send + Sync {
    /// Whether the owner of this sandbox approved a host and port. If not, the owner is asked, unless that was done before. The
    /// host is in the spelling of [`domain::host_rule::parse_host`].
    ///
    /// # Errors
    /// The store does not answer.
    async fn is_approved(
        &self,
        sandbox: &SandboxId,
        host: &str,
        port: u16,
    ) -> Result<bool, BoxError>;
}
