//! The APIs of git providers over HTTP.
//!
//! Knows: how each provider is asked, and which hosts may be called. Must never know: settings, stores, our own HTTP surface.

use async_trait::async_trait;
use domain::conversation::GitProvider;
use domain::git::{
    Branch, CloneSource, GitAccess, GitError, GitHosting, GitPage, GitPageRequest, GitUser,
    Repository, RepositoryQuery, SuggestedTask,
};

/// Every provider.
#[derive(Debug, Default)]
pub struct HttpGitHosting;

fn nothing<T>(provider: GitProvider) -> Result<T, GitError> {
    Err(GitError::NotFound { provider })
}

#[async_trait]
impl GitHosting for HttpGitHosting {
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
