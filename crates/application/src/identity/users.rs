//! Listing and deletion of users, for administrators.

use std::sync::Arc;

use domain::clock::Clock;
use domain::id::UserId;
use domain::user::identity::{PurgeCounts, User, UserRepository};

use crate::{AppError, Inner};

/// Maximum number of rows of one transaction.
const MAX_BATCH_ROWS: usize = 500;

/// Lists and deletes users.
#[derive(Clone)]
pub struct UserService(Arc<Inner>);

impl UserService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// Lists users by name after `after`, at most `limit`, including users whose deletion is not complete.
    pub async fn list(&self, after: Option<&UserId>, limit: usize) -> Result<Vec<User>, AppError> {
        Ok(self.0.ports.users.list(after, limit).await?)
    }

    /// Deletes a user and all their data. The reconciler removes their sandboxes: at once on this host, soon on
    /// others. Returns `None` if the user does not exist.
    pub async fn delete(&self, user: &UserId) -> Result<Option<PurgeCounts>, AppError> {
        let ports = &self.0.ports;
        let purged = purge(ports.users.as_ref(), ports.clock.as_ref(), user).await;
        // After a failure too: the first step removes the keys.
        self.0.api_keys.clear();
        self.0.reconciler.reporters().clear();
        let purged = purged?;
        self.0.look_again.notify_one();
        Ok(purged)
    }
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
