//! The APIs of git providers over HTTP: [`HttpGitHosting`] implements [`GitHosting`] and [`CloneSourceResolver`].
//!
//! Knows: each provider's API (one file each in `providers`), how to cut pages of any length from a provider's pages
//! (`providers/paging.rs`). A token goes only to the host that it was stored with.
//! Must never know: settings, stores, this service's own HTTP API.

mod clone_source;
mod config;
mod http;
mod providers;
mod repository_url;

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use domain::error::BoxError;
use domain::git::{
    CloneSource, CloneSourceResolver, GitAccess, GitBranch, GitError, GitHosting, GitPage,
    GitPageRequest, GitProvider, GitRepository, GitUser, HostNotAllowed, NewPullRequest,
    OpenedPullRequest, RepositoryQuery, SuggestedTask,
};
use outbound_http::{HostGuard, RequestSlots};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

pub use config::Config;
pub use outbound_http::{AllowedHost, CaCertificates, PrivateHosts};

use crate::http::client::{Http, host_error, unavailable};
use crate::providers::Api;

/// Concurrent calls in total, and per token and host. A call sends at most two requests at a time and keeps their responses in
/// memory until it ends.
const MAX_CONCURRENT_CALLS: usize = 32;
const MAX_CONCURRENT_CALLS_PER_TOKEN: usize = 4;

/// [`GitHosting`] over HTTP, for all providers.
#[derive(Debug)]
pub struct HttpGitHosting {
    http: Http,
    guard: HostGuard,
    request_slots: RequestSlots,
    timeout: Duration,
}

impl HttpGitHosting {
    /// Reads the system's certificate authorities. Sends nothing.
    ///
    /// # Errors
    /// TLS is not available.
    pub fn new(config: &Config) -> Result<Self, BoxError> {
        let guard = HostGuard::new(config.private_hosts.clone());
        Ok(Self {
            http: Http::new(config, guard.clone())?,
            guard,
            request_slots: RequestSlots::new(MAX_CONCURRENT_CALLS, MAX_CONCURRENT_CALLS_PER_TOKEN),
            timeout: config.timeout,
        })
    }

    fn api(&self, access: &GitAccess) -> Result<Box<dyn Api>, GitError> {
        let http = &self.http;
        Ok(match access.provider {
            GitProvider::Github => Box::new(providers::github::Github::new(http, access)?),
            GitProvider::Gitlab => Box::new(providers::gitlab::Gitlab::new(http, access)?),
            GitProvider::Bitbucket => Box::new(providers::bitbucket::Bitbucket::new(http, access)?),
            GitProvider::BitbucketDataCenter => Box::new(
                providers::bitbucket_data_center::BitbucketDataCenter::new(http, access)?,
            ),
            GitProvider::Forgejo => Box::new(providers::forgejo::Forgejo::new(http, access)?),
            GitProvider::AzureDevops => Box::new(providers::azure::Azure::new(http, access)?),
            GitProvider::EnterpriseSso => {
                return Err(GitError::Unsupported {
                    provider: access.provider,
                    what: "repositories",
                });
            }
        })
    }

    /// Runs a call. The deadline covers the wait for a slot and all requests.
    async fn bounded<T>(
        &self,
        access: &GitAccess,
        call: impl Future<Output = Result<T, GitError>> + Send,
    ) -> Result<T, GitError> {
        let call_in_slot = async {
            let caller = (&access.host, access.token.expose_secret(), access.provider);
            let slot = self.request_slots.take(caller).await;
            let _slot = slot.map_err(|exhausted| unavailable(access.provider, exhausted))?;
            call.await
        };
        let result = tokio::time::timeout(self.timeout, call_in_slot).await;
        result.unwrap_or_else(|_| {
            let what = format!("no response within {:?} (git.timeout)", self.timeout);
            Err(unavailable(access.provider, what))
        })
    }
}

#[async_trait]
impl GitHosting for HttpGitHosting {
    async fn user(&self, access: &GitAccess) -> Result<GitUser, GitError> {
        self.bounded(access, self.api(access)?.user()).await
    }

    async fn repositories(
        &self,
        access: &GitAccess,
        query: &RepositoryQuery,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError> {
        self.bounded(access, self.api(access)?.repositories(query, page))
            .await
    }

    async fn branches(
        &self,
        access: &GitAccess,
        repository: &str,
        text: &str,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        self.bounded(access, self.api(access)?.branches(repository, text, page))
            .await
    }

    async fn installations(
        &self,
        access: &GitAccess,
        page: &GitPageRequest,
    ) -> Result<GitPage<String>, GitError> {
        let api = self.api(access)?;
        let installations = self.bounded(access, api.installations(page)).await?;
        installations.ok_or(GitError::Unsupported {
            provider: access.provider,
            what: "installations",
        })
    }

    async fn suggested_tasks(&self, access: &GitAccess) -> Result<Vec<SuggestedTask>, GitError> {
        self.bounded(access, self.api(access)?.suggested_tasks())
            .await
    }

    async fn open_pull_request(
        &self,
        access: &GitAccess,
        request: &NewPullRequest,
    ) -> Result<OpenedPullRequest, GitError> {
        let api = self.api(access)?;
        let opened = self.bounded(access, api.open_pull_request(request)).await?;
        let mut note = None;
        if let Some(number) = opened.number.filter(|_| !request.labels.is_empty()) {
            // The pull request is open even if the labels fail.
            let labelled = self.bounded(access, api.label(request, number)).await;
            let labelled = labelled.and_then(|labelled| {
                labelled.ok_or(GitError::Unsupported {
                    provider: access.provider,
                    what: "labels here",
                })
            });
            note = labelled
                .err()
                .map(|error| format!("its labels were not set: {error}"));
        }
        let (url, number) = (opened.url, opened.number);
        Ok(OpenedPullRequest { url, number, note })
    }
}

#[async_trait]
impl CloneSourceResolver for HttpGitHosting {
    async fn clone_source(
        &self,
        access: &GitAccess,
        repository: &str,
    ) -> Result<CloneSource, GitError> {
        let source = clone_source::source(access, repository)?;
        // A provider's own host is public: only a host that the user named needs the check.
        if access.host.is_some() {
            let addresses = self.guard.addresses(&source.url).await;
            addresses.map_err(|error| host_error(access.provider, error))?;
        }
        Ok(source)
    }

    async fn public_source(
        &self,
        provider: GitProvider,
        repository: &str,
    ) -> Result<CloneSource, GitError> {
        let anonymous = GitAccess {
            provider,
            host: None,
            token: SecretString::default(),
            user: None,
        };
        Ok(CloneSource {
            url: clone_source::address(&anonymous, repository)?,
            username: String::new(),
            token: None,
        })
    }

    fn address(&self, access: &GitAccess, repository: &str) -> Result<Url, GitError> {
        clone_source::address(access, repository)
    }

    fn host(&self, access: &GitAccess) -> Result<CloneSource, GitError> {
        clone_source::host(access)
    }

    async fn resolve_allowed_host(&self, url: &Url) -> Result<Vec<IpAddr>, HostNotAllowed> {
        let addresses = self.guard.addresses(url).await;
        addresses.map_err(|error| HostNotAllowed(error.to_string()))
    }
}
