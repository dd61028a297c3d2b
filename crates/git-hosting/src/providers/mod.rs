//! The trait [`Api`], its implementation for each provider, and helpers that several of them share.

pub(crate) mod azure;
pub(crate) mod bitbucket;
pub(crate) mod bitbucket_data_center;
pub(crate) mod forgejo;
pub(crate) mod github;
pub(crate) mod gitlab;
mod paging;
mod pull_request;

use async_trait::async_trait;
use domain::git::{
    GitBranch, GitError, GitPage, GitPageRequest, GitRepository, GitUser, NewPullRequest,
    RepositoryQuery, SuggestedTask,
};
use url::Url;

/// Longest list of suggested tasks.
pub(crate) const MAX_TASKS: usize = 100;

/// One provider's API, with one user's token.
#[async_trait]
pub(crate) trait Api: Send + Sync {
    async fn user(&self) -> Result<GitUser, GitError>;
    async fn repositories(
        &self,
        query: &RepositoryQuery,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError>;
    async fn branches(
        &self,
        repository: &str,
        text: &str,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError>;
    async fn installations(&self, page: &GitPageRequest) -> Result<GitPage<String>, GitError>;
    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError>;
    /// Sends one request and never repeats it.
    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError>;
    /// Sets labels after the request that opens a pull request, for providers where that request cannot carry them.
    async fn label(&self, request: &NewPullRequest, number: i64) -> Result<(), GitError>;
}

/// The parsed response to the request that opens a pull request.
#[derive(Debug)]
pub(crate) struct ParsedPullRequest {
    pub(crate) url: Url,
    pub(crate) number: Option<i64>,
}

/// Treats data that the token must not see as empty, so that one refused request does not spoil the others of a call.
pub(crate) fn or_default<T: Default>(result: Result<T, GitError>) -> Result<T, GitError> {
    match result {
        Err(GitError::Denied { .. } | GitError::NotAllowed { .. } | GitError::NotFound { .. }) => {
            Ok(T::default())
        }
        other => other,
    }
}

/// Extracts `owner/name` from a search text that is the URL of a repository on this host.
pub(crate) fn repository_in_url(text: &str, web: &Url) -> Option<String> {
    let url: Url = text.trim().parse().ok()?;
    let is_same_host = url.host() == web.host() && matches!(url.scheme(), "http" | "https");
    let path = url.path().strip_prefix(web.path().trim_end_matches('/'))?;
    let path = path.trim_matches('/').trim_end_matches(".git");
    (is_same_host && path.contains('/')).then(|| path.to_owned())
}

/// The trimmed text of a search, unless it is blank.
pub(crate) fn search_text(query: &RepositoryQuery) -> Option<&str> {
    let text = query.text.as_deref()?.trim();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_urls_are_found_in_search_texts() {
        let web = "https://git.example.com/sub".parse().unwrap();
        for (text, expected) in [
            ("https://git.example.com/sub/o/r", Some("o/r")),
            (" https://git.example.com/sub/o/r.git/ ", Some("o/r")),
            ("https://git.example.com/sub/o", None),
            ("https://git.example.com/o/r", None),
            ("https://github.com/sub/o/r", None),
            ("o/r", None),
            ("words", None),
        ] {
            assert_eq!(repository_in_url(text, &web).as_deref(), expected, "{text}");
        }
    }
}
