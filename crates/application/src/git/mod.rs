//! Git providers as users see them: repositories, branches, installations, suggested tasks and the user's account.
//!
//! Each query goes to the provider that it names, with the token that the user stored for it.

mod numbered_pages;
pub mod pull_requests;
pub(crate) mod rights;
pub mod sandbox_git;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use domain::clock::Clock;
use domain::conversation::ConversationRepository;
use domain::error::{Classify, ErrorClass, chain};
use domain::git::{
    GitAccess, GitBranch, GitError, GitHosting, GitPage, GitPageRequest, GitProvider,
    GitRepository, GitUser, RepositoryQuery, SuggestedTask, SuggestedTaskType,
};
use domain::id::OwnerId;
use futures::StreamExt as _;
use futures::stream::FuturesOrdered;

pub use numbered_pages::{MAX_PAGE_NUMBER, NumberedPage, PageNumber};
pub use rights::{BranchRule, GitPolicy, GitPush, GitRepositories};

use crate::error::AppError;
use crate::settings::{Settings, SettingsService};

#[derive(Debug, thiserror::Error)]
pub enum GitServiceError {
    /// The user has no token of this provider, or of any.
    #[error("no git token is stored")]
    NotConnected(Option<GitProvider>),
    #[error("no git provider accepts its token")]
    AllTokensRejected,
    /// The service's limits for agents.
    #[error("{0}")]
    Limited(String),
    #[error(transparent)]
    Provider(#[from] GitError),
    #[error(transparent)]
    App(#[from] AppError),
}

impl Classify for GitServiceError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotConnected(_) | Self::Limited(_) => ErrorClass::Forbidden,
            Self::AllTokensRejected => ErrorClass::Unauthenticated,
            Self::Provider(error) => error.class(),
            Self::App(error) => error.class(),
        }
    }

    fn public(&self) -> Cow<'_, str> {
        match self {
            // The texts of the reference, which front ends show.
            Self::NotConnected(None) => "Git provider token required (such as GitHub).".into(),
            Self::NotConnected(Some(provider)) => {
                format!("Git provider token required (of {provider}).").into()
            }
            Self::AllTokensRejected => "Need valid provider token".into(),
            Self::Limited(reason) => reason.into(),
            Self::Provider(GitError::Denied { provider }) => {
                format!("Invalid {provider} token").into()
            }
            Self::Provider(GitError::Unsupported { provider, what }) => {
                format!("Provider {provider} doesn't support {what}").into()
            }
            Self::Provider(error) => error.public(),
            Self::App(error) => error.public(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Provider(error) => error.retry_after(),
            Self::App(error) => error.retry_after(),
            Self::NotConnected(_) | Self::AllTokensRejected | Self::Limited(_) => None,
        }
    }
}

/// Queries git providers with the tokens of users.
#[derive(Clone)]
pub struct GitService {
    pub(crate) hosting: Arc<dyn GitHosting>,
    pub(crate) conversations: Arc<dyn ConversationRepository>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: SettingsService,
    /// The limits of agents.
    pub(crate) policy: GitPolicy,
}

impl GitService {
    /// The user's access to each provider with a stored token, in a fixed order.
    async fn accesses(&self, user: &OwnerId) -> Result<Vec<GitAccess>, GitServiceError> {
        let settings = self.settings.load(user).await?.unwrap_or_default();
        let accesses = accesses(&settings);
        if accesses.is_empty() {
            return Err(GitServiceError::NotConnected(None));
        }
        Ok(accesses)
    }

    async fn access(&self, user: &OwnerId, to: GitProvider) -> Result<GitAccess, GitServiceError> {
        let accesses = self.accesses(user).await?;
        let mut accesses = accesses.into_iter();
        let found = accesses.find(|access| access.provider == to);
        found.ok_or(GitServiceError::NotConnected(Some(to)))
    }

    /// Lists repositories of one provider. Only a search (a query with text) can be sorted; other lists with a sort
    /// order are `Invalid`.
    pub async fn repositories(
        &self,
        user: &OwnerId,
        provider: GitProvider,
        query: &RepositoryQuery,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitServiceError> {
        let access = self.access(user, provider).await?;
        let has_words = query
            .text
            .as_ref()
            .is_some_and(|text| !text.trim().is_empty());
        if query.sort.is_some() && !has_words {
            let detail =
                "sort_order needs a query: lists without one have the provider's own order";
            return Err(AppError::invalid(detail).into());
        }
        Ok(self.hosting.repositories(&access, query, page).await?)
    }

    /// Lists branches of a repository whose names contain `words` (all if empty).
    pub async fn branches(
        &self,
        user: &OwnerId,
        provider: GitProvider,
        (repository, words): (&str, &str),
        page: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitServiceError> {
        let access = self.access(user, provider).await?;
        Ok(self
            .hosting
            .branches(&access, repository, words.trim(), page)
            .await?)
    }

    /// Lists installations, workspaces, projects or organisations, where the provider has them.
    pub async fn installations(
        &self,
        user: &OwnerId,
        provider: GitProvider,
        page: &GitPageRequest,
    ) -> Result<GitPage<String>, GitServiceError> {
        let access = self.access(user, provider).await?;
        Ok(self.hosting.installations(&access, page).await?)
    }

    /// Suggests tasks from all providers, queried in parallel. A provider that fails is left out.
    pub async fn suggested_tasks(
        &self,
        user: &OwnerId,
        page: &GitPageRequest,
    ) -> Result<GitPage<SuggestedTask>, GitServiceError> {
        let after = page.after.as_deref().map(TaskCursor::decode).transpose()?;
        let accesses = self.accesses(user).await?;
        let git = &self.hosting;
        let mut answers: FuturesOrdered<_> = accesses
            .iter()
            .map(|access| async move { (access.provider, git.suggested_tasks(access).await) })
            .collect();
        let mut tasks = Vec::new();
        while let Some((provider, answer)) = answers.next().await {
            match answer {
                Ok(found) => tasks.extend(found),
                Err(GitError::Unsupported { .. }) => {}
                Err(error) => {
                    tracing::info!(git.provider = %provider, error = %chain(&error), "cannot load suggested tasks of {provider}");
                }
            }
        }
        Ok(page_of(tasks, after.as_ref(), page.limit))
    }

    /// The user's account at the first provider, in a fixed order, that returns it.
    pub async fn whoami(&self, user: &OwnerId) -> Result<GitUser, GitServiceError> {
        let accesses = self.accesses(user).await?;
        let git = &self.hosting;
        let mut answers: FuturesOrdered<_> =
            accesses.iter().map(|access| git.user(access)).collect();
        let mut failure = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(found) => return Ok(found),
                Err(
                    GitError::Denied { .. }
                    | GitError::NotAllowed { .. }
                    | GitError::Unsupported { .. },
                ) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.map_or(
            GitServiceError::AllTokensRejected,
            GitServiceError::Provider,
        ))
    }
}

/// One access for each provider with a stored token.
fn accesses(settings: &Settings) -> Vec<GitAccess> {
    let tokens = settings.provider_tokens.iter();
    tokens
        .map(|(provider, token)| token.access(*provider))
        .collect()
}

/// Cursor of suggested tasks: the last task of a page. The next page begins after it, wherever it is then.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct TaskCursor(usize, GitProvider, String, i64, SuggestedTaskType);

impl TaskCursor {
    fn matches(&self, task: &SuggestedTask) -> bool {
        // An issue and a merge request of one project may have the same number.
        self.1 == task.git_provider
            && self.2 == task.repo
            && self.3 == task.issue_number
            && self.4 == task.task_type
    }

    /// Hexadecimal: the cursor is opaque and may contain any text.
    fn encode(&self) -> Option<String> {
        let text = serde_json::to_string(self).ok()?;
        let digit = |four: u8| char::from_digit(u32::from(four), 16);
        let digits = text.bytes().flat_map(|byte| [byte >> 4, byte & 15]);
        digits.map(digit).collect()
    }

    fn decode(token: &str) -> Result<Self, GitError> {
        let pairs = token.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let cursor = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        cursor.ok_or(GitError::InvalidPageToken)
    }
}

fn page_of(
    tasks: Vec<SuggestedTask>,
    after: Option<&TaskCursor>,
    limit: usize,
) -> GitPage<SuggestedTask> {
    let start = after.map_or(0, |cursor| {
        // If the task has disappeared, its position belongs to the next one.
        let found = tasks.iter().position(|task| cursor.matches(task));
        found.map_or(cursor.0, |found| found + 1)
    });
    let end = start.saturating_add(limit);
    let has_more = tasks.len() > end;
    let items: Vec<_> = tasks.into_iter().skip(start).take(limit).collect();
    let last = items.last().filter(|_| has_more);
    let next = last.and_then(|task| {
        TaskCursor(
            end - 1,
            task.git_provider,
            task.repo.clone(),
            task.issue_number,
            task.task_type,
        )
        .encode()
    });
    GitPage { items, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(numbers: impl IntoIterator<Item = i64>) -> Vec<SuggestedTask> {
        let task = |issue_number| SuggestedTask {
            git_provider: GitProvider::Forgejo,
            task_type: SuggestedTaskType::OpenIssue,
            repo: "o/r".into(),
            issue_number,
            title: "t".into(),
        };
        numbers.into_iter().map(task).collect()
    }

    fn numbers(page: &GitPage<SuggestedTask>) -> Vec<i64> {
        page.items.iter().map(|task| task.issue_number).collect()
    }

    #[test]
    fn every_task_once_for_any_limit() {
        for limit in 1..=12 {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let page = page_of(tasks(0..10), after.as_ref(), limit);
                seen.extend(numbers(&page));
                let Some(next) = page.next else { break };
                after = Some(TaskCursor::decode(&next).unwrap());
            }
            assert_eq!(seen, (0..10).collect::<Vec<_>>(), "limit {limit}");
        }
    }

    #[test]
    fn an_issue_is_not_the_merge_request_of_its_number() {
        let mut all = tasks([5, 7, 5, 8]);
        all[0].task_type = SuggestedTaskType::OpenPr;
        let cursor = TaskCursor::decode(&page_of(all.clone(), None, 3).next.unwrap()).unwrap();
        assert_eq!(numbers(&page_of(all, Some(&cursor), 3)), [8]);
    }

    #[test]
    fn appearing_and_disappearing_tasks_do_not_affect_others() {
        let first = page_of(tasks([1, 2, 3, 4, 5]), None, 2);
        let cursor = TaskCursor::decode(&first.next.unwrap()).unwrap();
        assert_eq!(
            numbers(&page_of(tasks([9, 1, 2, 3, 4]), Some(&cursor), 2)),
            [3, 4]
        );
        assert_eq!(
            numbers(&page_of(tasks([1, 3, 4, 5]), Some(&cursor), 2)),
            [3, 4]
        );
    }

    #[test]
    fn foreign_cursors_are_refused() {
        for token in ["", "zz", "5b5d", "Mg", "é", "7b7d7"] {
            assert!(TaskCursor::decode(token).is_err(), "{token}");
        }
    }
}
