//! The trait [`Api`], its implementation for each provider, and helpers that several of them share.

pub(crate) mod azure;
pub(crate) mod bitbucket;
pub(crate) mod bitbucket_data_center;
pub(crate) mod forgejo;
pub(crate) mod github;
pub(crate) mod gitlab;
pub(crate) mod lists;
mod paging;
mod pull_request;

use async_trait::async_trait;
use domain::git::{
    GitBranch, GitError, GitPage, GitPageRequest, GitProvider, GitRepository, GitUser,
    NewPullRequest, OwnerType, RepositoryQuery, RepositorySortKey, SuggestedTask,
    SuggestedTaskType,
};
use serde_json::Value;
use url::Url;

use crate::http::session::{flag, number, text};
use crate::repository_url::segments;

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
    /// `None` if the provider has none.
    async fn installations(&self, _: &GitPageRequest) -> Result<Option<GitPage<String>>, GitError> {
        Ok(None)
    }
    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError>;
    /// Sends one request and never repeats it.
    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError>;
    /// Sets labels after the request that opens a pull request, for providers where that request cannot carry them. `None` if this
    /// crate cannot set them.
    async fn label(&self, _: &NewPullRequest, _: i64) -> Result<Option<()>, GitError> {
        Ok(None)
    }
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

/// Splits the name of a repository into its N segments.
pub(crate) fn parts<const N: usize>(
    provider: GitProvider,
    repository: &str,
) -> Result<[&str; N], GitError> {
    let parts = segments(provider, repository)?.try_into();
    parts.map_err(|_| GitError::NotFound { provider })
}

/// The sort key and order of a search, by names that several APIs share.
pub(crate) fn sort_parameters(
    query: &RepositoryQuery,
    default: &'static str,
) -> [(&'static str, &'static str); 2] {
    let by = query.sort.map_or(default, |sort| match sort.by {
        RepositorySortKey::Stars => "stars",
        RepositorySortKey::Forks => "forks",
        RepositorySortKey::Updated => "updated",
    });
    [("sort", by), ("order", sort_order(query))]
}

/// The order of a search, descending by default.
pub(crate) fn sort_order(query: &RepositoryQuery) -> &'static str {
    match query.sort {
        Some(sort) if !sort.descending => "asc",
        _ => "desc",
    }
}

pub(crate) fn owner_type(is_organization: bool) -> OwnerType {
    if is_organization {
        OwnerType::Organization
    } else {
        OwnerType::User
    }
}

/// Leaves out repositories whose full name, in lower case, does not match.
pub(crate) fn if_named(
    repository: Option<GitRepository>,
    matches: impl Fn(&str) -> bool,
) -> Option<GitRepository> {
    repository.filter(|repository| matches(&repository.full_name.to_lowercase()))
}

/// A branch with `name`, and these pointers to its commit and to the time of that. Unprotected if the API does not say.
pub(crate) fn branch(value: &Value, commit: &str, pushed_at: &str) -> Option<GitBranch> {
    Some(GitBranch {
        name: text(value, "/name")?,
        commit_sha: text(value, commit).unwrap_or_default(),
        protected: flag(value, "/protected").unwrap_or_default(),
        last_push_date: text(value, pushed_at),
    })
}

/// A task with `title`, and this pointer to its number.
pub(crate) fn task(
    (git_provider, task_type): (GitProvider, SuggestedTaskType),
    repo: String,
    value: &Value,
    number_at: &str,
) -> Option<SuggestedTask> {
    Some(SuggestedTask {
        git_provider,
        task_type,
        repo,
        issue_number: number(value, number_at)?,
        title: text(value, "/title").unwrap_or_default(),
    })
}

/// The address of the entry with both flags.
pub(crate) fn usable_email(entries: &[Value], flags: [&str; 2]) -> Option<String> {
    let is_usable = |entry: &&Value| flags.iter().all(|path| flag(entry, path) == Some(true));
    let mut usable = entries.iter().filter(is_usable);
    usable.find_map(|entry| text(entry, "/email"))
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
