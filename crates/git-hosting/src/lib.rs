//! The APIs of git providers over HTTP.
//!
//! Knows: how each provider is asked, and which hosts may be called. Must never know: settings, stores, our own HTTP surface.

mod address;
mod clone;
mod guard;
mod names;

pub use address::{AllowedHost, Network, PrivateHosts};

use async_trait::async_trait;
use domain::conversation::GitProvider;
use domain::git::{
    Branch, CloneSource, GitAccess, GitError, GitHosting, GitPage, GitPageRequest, GitUser,
    Repository, RepositoryQuery, SuggestedTask,
};
use secrecy::SecretString;

use crate::guard::Guard;

/// What an operator may set.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Hosts beside public ones.
    pub private_hosts: PrivateHosts,
}

/// Every provider.
#[derive(Debug)]
pub struct HttpGitHosting {
    guard: Guard,
}

impl HttpGitHosting {
    /// Nothing is called before the first request.
    pub fn new(config: Config) -> Self {
        Self {
            guard: Guard::new(config.private_hosts),
        }
    }
}

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
    async fn clone_source(
        &self,
        access: &GitAccess,
        repository: &str,
    ) -> Result<CloneSource, GitError> {
        let source = clone::source(access, repository)?;
        // A provider's own host is as public as it is well known.
        if access.host.is_some() {
            self.guard.admit(access.provider, &source.url).await?;
        }
        Ok(source)
    }
    async fn public_source(
        &self,
        provider: GitProvider,
        repository: &str,
    ) -> Result<CloneSource, GitError> {
        let nobody = GitAccess {
            provider,
            host: None,
            token: SecretString::default(),
            user: None,
        };
        Ok(CloneSource {
            url: clone::address(&nobody, repository)?,
            username: String::new(),
            token: None,
        })
    }
}
