//! Git providers that know nothing.

use async_trait::async_trait;
use domain::conversation::GitProvider;
use domain::git::{
    Branch, CloneSource, GitAccess, GitError, GitHosting, GitPage, GitPageRequest, GitUser,
    Repository, RepositoryQuery, SuggestedTask,
};

/// Answers that nothing is there.
#[derive(Debug, Default)]
pub struct FakeGitHosting;

fn nothing<T>(provider: GitProvider) -> Result<T, GitError> {
    Err(GitError::NotFound { provider })
}

#[async_trait]
impl GitHosting for FakeGitHosting {
    async fn user(&self, access: &GitAccess) -> Result<GitUser, GitError> {
        nothing(access.provider)
    }
    async fn repositories(
        &self,
        access: &GitAccess,
        _: &RepositoryQuery,
        _: &GitPageRequest,
    ) -> Result<GitPage<Repository>, GitError> {
        nothing(access.provider)
    }
    async fn branches(
        &self,
        access: &GitAccess,
        _: &str,
        _: &str,
        _: &GitPageRequest,
    ) -> Result<GitPage<Branch>, GitError> {
        nothing(access.provider)
    }
    async fn installations(
        &self,
        access: &GitAccess,
        _: &GitPageRequest,
    ) -> Result<GitPage<String>, GitError> {
        nothing(access.provider)
    }
    async fn suggested_tasks(&self, access: &GitAccess) -> Result<Vec<SuggestedTask>, GitError> {
        nothing(access.provider)
    }
    async fn clone_source(&self, access: &GitAccess, _: &str) -> Result<CloneSource, GitError> {
        nothing(access.provider)
    }
    async fn public_source(&self, provider: GitProvider, _: &str) -> Result<CloneSource, GitError> {
        nothing(provider)
    }
}
