//! Deletion of users and organizations.

use domain::clock::Clock;
use domain::id::{OrganizationId, UserId};
use domain::user::identity::{PurgeCounts, UserRepository};
use domain::user::organization::OrganizationDeletionRepository;

use crate::AppError;

/// Maximum number of rows of one transaction.
const MAX_BATCH_ROWS: usize = 500;

/// Deletes what the members of a deleted organization own in it, like [`purge`].
pub async fn purge_organization(
    organizations: &dyn OrganizationDeletionRepository,
    clock: &dyn Clock,
    id: OrganizationId,
) -> Result<(), AppError> {
    while organizations
        .purge(id, clock.now(), MAX_BATCH_ROWS)
        .await?
        .more
    {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Deletes all data of a user except the sandboxes, which the reconcilers of their hosts remove. Also for programs
/// that only have the store. Returns `None` if the user does not exist. After an interruption nothing of the user can
/// be used, and the next call or housekeeping continues.
pub async fn purge(
    users: &dyn UserRepository,
    clock: &dyn Clock,
    user: &UserId,
) -> Result<Option<PurgeCounts>, AppError> {
    let mut sum: Option<PurgeCounts> = None;
    while let Some(purged) = users.purge(user, clock.now(), MAX_BATCH_ROWS).await? {
        *sum.get_or_insert_default() += purged;
        if !purged.more {
            break;
        }
        // Other users of the store come first.
        tokio::task::yield_now().await;
    }
    if let Some(purged) = &sum {
        tracing::info!(user = %user, ?purged, "user {user} is deleted");
    }
    Ok(sum)
}
