//! Users, for whoever administers the service.

use std::sync::Arc;

use domain::clock::Clock;
use domain::id::UserId;
use domain::identity::{PurgeCounts, User, UserRepository};

use crate::{AppError, Inner};

/// Rows of one transaction.
const MAX_BATCH_ROWS: usize = 500;

/// Lists and deletes users.
#[derive(Clone)]
pub struct Users(Arc<Inner>);

impl Users {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// By name, after `after`, at most `limit`; also those whose deletion is not complete.
    pub async fn list(&self, after: Option<&UserId>, limit: usize) -> Result<Vec<User>, AppError> {
        Ok(self.0.ports.users.list(after, limit).await?)
    }

    /// Deletes a user with everything of theirs. Their sandboxes are removed at once where this process serves their host,
    /// and soon elsewhere. `None` if there is no such user.
    pub async fn delete(&self, user: &UserId) -> Result<Option<PurgeCounts>, AppError> {
        let ports = &self.0.ports;
        let purged = purge(ports.users.as_ref(), ports.clock.as_ref(), user).await;
        // Also after a failure: the keys are gone with the first step.
        self.0.api_keys.clear();
        self.0.keeper.reporters().clear();
        let purged = purged?;
        self.0.look_again.notify_one();
        Ok(purged)
    }
}

/// Deletes everything of a user but the sandboxes, which are left to whoever serves their host. For programs that have the
/// store and nothing else. `None` if there is no such user. If it is cut off, nothing of the user can be used any more,
/// and the next call, or the housekeeping of any process on the store, goes on.
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
        // Whoever waits for the store comes first.
        tokio::task::yield_now().await;
    }
    if let Some(purged) = &sum {
        tracing::info!(user = %user, ?purged, "user {user} is deleted");
    }
    Ok(sum)
}
