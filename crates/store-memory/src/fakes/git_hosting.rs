//! A fake of git providers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use domain::git::{
    CloneSource, CloneSourceResolver, GitAccess, GitBranch, GitError, GitHosting, GitPage,
    GitPageRequest, GitProvider, GitRepository, GitUser, HostNotAllowed, NewPullRequest,
    OpenedPullRequest, RepositoryQuery, SuggestedTask,
};
use secrecy::ExposeSecret as _;
use url::Url;

/// The contents of one provider.
#[derive(Debug, Clone, Default)]
pub struct FakeProvider {
    /// The owner of every token. `None`: the provider refuses tokens.
    pub user: Option<GitUser>,
    /// Repositories in the provider's order. A query filters by name; sort keys are ignored.
    pub repositories: Vec<GitRepository>,
    /// Branches of every repository.
    pub branches: Vec<GitBranch>,
    /// Installations; `None` if the provider has no such concept.
    pub installations: Option<Vec<String>>,
    /// Suggested tasks.
    pub tasks: Vec<SuggestedTask>,
    /// Makes every request fail with this error.
    pub fault: Option<fn(GitProvider) -> GitError>,
}

/// The fake of all providers. They are empty until [`FakeGitHosting::set`] is called. Clone addresses do not depend on
/// their contents.
#[derive(Debug, Default)]
pub struct FakeGitHosting {
    providers: Mutex<BTreeMap<GitProvider, FakeProvider>>,
    calls: Mutex<Vec<(GitProvider, String)>>,
    pull_requests: Mutex<Vec<(GitProvider, NewPullRequest)>>,
}

impl FakeGitHosting {
    /// Sets the contents of a provider.
    pub fn set(&self, provider: GitProvider, contents: FakeProvider) {
        lock(&self.providers).insert(provider, contents);
    }

    /// The requests so far: provider and token.
    pub fn calls(&self) -> Vec<(GitProvider, String)> {
        lock(&self.calls).clone()
    }

    /// The opened pull requests.
    pub fn pull_requests(&self) -> Vec<(GitProvider, NewPullRequest)> {
        lock(&self.pull_requests).clone()
    }

    /// Records the request and returns the contents of the provider.
    fn contents(&self, access: &GitAccess) -> Result<FakeProvider, GitError> {
        let provider = access.provider;
        let token = access.token.expose_secret().to_owned();
        lock(&self.calls).push((provider, token));
        let contents = lock(&self.providers).get(&provider).cloned();
        let contents = contents.ok_or(GitError::NotFound { provider })?;
        match contents.fault {
            Some(fault) => Err(fault(provider)),
            None => Ok(contents),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A page whose token is the number of items before it.
fn page_of<T>(items: Vec<T>, page: &GitPageRequest) -> Result<GitPage<T>, GitError> {
    let before = page.after.as_deref().map_or(Ok(0), str::parse::<usize>);
    let before = before.map_err(|_| GitError::InvalidPageToken)?;
    let end = before.saturating_add(page.limit);
    let next = (end < items.len()).then(|| end.to_string());
    Ok(GitPage {
        items: items.into_iter().skip(before).take(page.limit).collect(),
        next,
    })
}

fn source(provider: GitProvider, base: &str, repository: &str) -> Result<CloneSource, GitError> {
    let base = base.trim_end_matches('/');
    let url = format!("{base}/{repository}.git").parse();
    Ok(CloneSource {
        url: url.map_err(|_| GitError::InvalidRepository {
            provider,
            expected: "owner/repository",
        })?,
        username: String::new(),
        token: None,
    })
}

#[async_trait]
impl GitHosting for FakeGitHosting {
    async fn user(&self, access: &GitAccess) -> Result<GitUser, GitError> {
        let provider = access.provider;
        self.contents(access)?
            .user
            .ok_or(GitError::Denied { provider })
    }

    async fn repositories(
        &self,
        access: &GitAccess,
        query: &RepositoryQuery,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError> {
        let text = query.text.as_deref().unwrap_or_default();
        let mut repositories = self.contents(access)?.repositories;
        repositories.retain(|repository| repository.full_name.contains(text));
        page_of(repositories, page)
    }

    async fn branches(
        &self,
        access: &GitAccess,
        _repository: &str,
        text: &str,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let mut branches = self.contents(access)?.branches;
        branches.retain(|branch| branch.name.contains(text));
        page_of(branches, page)
    }

    async fn installations(
        &self,
        access: &GitAccess,
        page: &GitPageRequest,
    ) -> Result<GitPage<String>, GitError> {
        let provider = access.provider;
        let what = "installations";
        let installations = self.contents(access)?.installations;
        let installations = installations.ok_or(GitError::Unsupported { provider, what })?;
        page_of(installations, page)
    }

    async fn suggested_tasks(&self, access: &GitAccess) -> Result<Vec<SuggestedTask>, GitError> {
        Ok(self.contents(access)?.tasks)
    }

    async fn open_pull_request(
        &self,
        access: &GitAccess,
        request: &NewPullRequest,
    ) -> Result<OpenedPullRequest, GitError> {
        let provider = access.provider;
        self.contents(access)?;
        let mut opened = lock(&self.pull_requests);
        opened.push((provider, request.clone()));
        let (repository, number) = (&request.repository, opened.len());
        let url = format!("https://{provider}.example.com/{repository}/pull/{number}");
        let url = Url::parse(&url).map_err(|_| GitError::NotFound { provider })?;
        Ok(OpenedPullRequest {
            url,
            number: i64::try_from(number).ok(),
            note: None,
        })
    }
}

#[async_trait]
impl CloneSourceResolver for FakeGitHosting {
    async fn clone_source(
        &self,
        access: &GitAccess,
        repository: &str,
    ) -> Result<CloneSource, GitError> {
        let base = access.host.as_ref().map(ToString::to_string);
        let base = base.unwrap_or_else(|| format!("https://{}.example.com", access.provider));
        Ok(CloneSource {
            username: "git-user".to_owned(),
            token: Some(access.token.clone()),
            ..source(access.provider, &base, repository)?
        })
    }

    async fn public_source(
        &self,
        provider: GitProvider,
        repository: &str,
    ) -> Result<CloneSource, GitError> {
        let base = format!("https://{provider}.example.com");
        source(provider, &base, repository)
    }

    fn address(&self, access: &GitAccess, repository: &str) -> Result<Url, GitError> {
        let base = access.host.as_ref().map(ToString::to_string);
        let base = base.unwrap_or_else(|| format!("https://{}.example.com", access.provider));
        Ok(source(access.provider, &base, repository)?.url)
    }

    fn host(&self, access: &GitAccess) -> Result<CloneSource, GitError> {
        let provider = access.provider;
        let public = format!("https://{provider}.example.com");
        let url = access.host.clone().or_else(|| public.parse().ok());
        let url = url.ok_or(GitError::NotFound { provider })?;
        let token = Some(access.token.clone());
        Ok(CloneSource {
            url,
            username: "git-user".to_owned(),
            token: token.filter(|token| !token.expose_secret().is_empty()),
        })
    }

    /// Names that end in `.internal` are in a private network; all others resolve to one public address.
    async fn resolve_allowed_host(&self, url: &Url) -> Result<Vec<IpAddr>, HostNotAllowed> {
        match url.host_str() {
            Some(host) if !host.ends_with(".internal") => {
                Ok(vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))])
            }
            _ => Err(HostNotAllowed("it is in a private network".to_owned())),
        }
    }
}
