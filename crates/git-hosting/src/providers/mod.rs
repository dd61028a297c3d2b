//! What every provider's file implements, and what several of them share.

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

/// Most tasks that are suggested.
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
    /// One request, which is never repeated.
    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError>;
    /// Sets the labels of one that was opened without them.
    async fn label(&self, request: &NewPullRequest, number: i64) -> Result<(), GitError>;
}

/// A pull request that a provider says it opened.
#[derive(Debug)]
pub(crate) struct ParsedPullRequest {
    pub(crate) url: Url,
    /// Its number there.
    pub(crate) number: Option<i64>,
}

/// A refusal of what one of several requests asked for, where the rest is worth an answer: what a token may not see is not
/// there.
pub(crate) fn or_nothing<T: Default>(result: Result<T, GitError>) -> Result<T, GitError> {
    match result {
        Err(GitError::Denied { .. } | GitError::NotAllowed { .. } | GitError::NotFound { .. }) => {
            Ok(T::default())
        }
        other => other,
    }
}

/// `owner/name` when the words of a search are the address of a repository on this host.
pub(crate) fn named_by_url(text: &str, web: &url::Url) -> Option<String> {
    let url: url::Url = text.trim().parse().ok()?;
    let same = url.host() == web.host() && matches!(url.scheme(), "http" | "https");
    let path = url.path().strip_prefix(web.path().trim_end_matches('/'))?;
    let path = path.trim_matches('/').trim_end_matches(".git");
    (same && path.contains('/')).then(|| path.to_owned())
}

/// The words of a search; `None` for blank ones.
pub(crate) fn words(query: &RepositoryQuery) -> Option<&str> {
    let text = query.text.as_deref()?.trim();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_searches() {
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
            assert_eq!(named_by_url(text, &web).as_deref(), expected, "{text}");
        }
    }
}
