//! Why a run of a start task ends early.

use domain::error::{Classify as _, StoreError};

use crate::AppError;

pub(super) enum RunStop {
    /// The start failed: detail for the owner, cause for the log.
    Failed(String, Option<AppError>),
    /// The run stops silently: the lease is lost, the task was ended elsewhere, or the store is unavailable. The next
    /// worker continues.
    Abandoned,
}

impl RunStop {
    pub(super) fn failed(detail: impl Into<String>) -> Self {
        Self::Failed(detail.into(), None)
    }
}

impl From<AppError> for RunStop {
    fn from(error: AppError) -> Self {
        match error {
            AppError::Store(StoreError::Unavailable { .. } | StoreError::Stale { .. })
            | AppError::TakenOver => Self::Abandoned,
            // Only the owner reads a task, so it may show the agent server's objection, which helps them. (The client
            // has removed all keys from it.)
            AppError::Agent(agent) => Self::Failed(agent.to_string(), Some(agent.into())),
            other => Self::Failed(other.public().into_owned(), Some(other)),
        }
    }
}

impl From<StoreError> for RunStop {
    fn from(error: StoreError) -> Self {
        AppError::from(error).into()
    }
}
