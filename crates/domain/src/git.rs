//! Git providers: where repositories are, and what can be asked of those who host them.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use url::Url;

use crate::conversation::{GitProvider, wire_enum};
use crate::error::{BoxError, Classify, ErrorClass};

/// A user's access to one provider.
#[derive(Debug, Clone)]
pub struct GitAccess {
    /// Which.
    pub provider: GitProvider,
    /// Base URL of a self-hosted installation; `None` is the provider's own.
    pub host: Option<Url>,
    /// Token.
    pub token: SecretString,
    /// The user's name there, as far as known: some providers want it beside the token.
    pub user: Option<String>,
}

/// How to clone a repository: an address without credentials, and the credentials for its host.
#[derive(Debug, Clone)]
pub struct CloneSource {
    /// `https://host/owner/repo.git`, never with a user name or password.
    pub url: Url,
    /// User name that goes with the token.
    pub username: String,
    /// Token; `None` for a public repository of a provider that the user has no token of.
    pub token: Option<SecretString>,
}

/// A repository in a provider's list (contract v1, section 3.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRepository {
    /// The provider's own id.
    pub id: String,
    /// `owner/name` (deeper for GitLab groups and Azure DevOps).
    pub full_name: String,
    /// Who hosts it.
    pub git_provider: GitProvider,
    /// Whether everybody may read it.
    pub is_public: bool,
    /// Stars, where the provider counts them.
    pub stargazers_count: Option<u64>,
    /// When somebody last pushed, as the provider writes it.
    pub pushed_at: Option<String>,
    /// Whose it is.
    pub owner_type: Option<OwnerType>,
    /// Default branch.
    pub main_branch: Option<String>,
}

wire_enum! {
    /// Whose a repository is.
    OwnerType {
        /// A person's.
        User = "user",
        /// An organisation's.
        Organization = "organization",
    }
}

/// A branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitBranch {
    /// Its name.
    pub name: String,
    /// Its newest commit.
    pub commit_sha: String,
    /// Whether it is protected.
    pub protected: bool,
    /// When somebody last pushed, as the provider writes it.
    pub last_push_date: Option<String>,
}

wire_enum! {
    /// Why a task is suggested.
    SuggestedTaskType {
        /// A pull request that does not merge.
        MergeConflicts = "MERGE_CONFLICTS",
        /// A pull request with failing checks.
        FailingChecks = "FAILING_CHECKS",
        /// A pull request with requested changes.
        UnresolvedComments = "UNRESOLVED_COMMENTS",
        /// An issue assigned to the user.
        OpenIssue = "OPEN_ISSUE",
        /// A pull request of the user.
        OpenPr = "OPEN_PR",
    }
}

/// Something worth starting a conversation for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestedTask {
    /// Who hosts it.
    pub git_provider: GitProvider,
    /// Why.
    pub task_type: SuggestedTaskType,
    /// `owner/name`.
    pub repo: String,
    /// Number of the issue or pull request.
    pub issue_number: i64,
    /// Its title.
    pub title: String,
}

/// Who a token belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitUser {
    /// The provider's id.
    pub id: String,
    /// Log-in name.
    pub login: String,
    /// Picture.
    pub avatar_url: String,
    /// Company.
    pub company: Option<String>,
    /// Full name.
    pub name: Option<String>,
    /// E-mail address.
    pub email: Option<String>,
}

/// How repositories are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepositorySort {
    /// By what.
    pub by: RepositorySortKey,
    /// Largest or newest first.
    pub descending: bool,
}

/// What repositories are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositorySortKey {
    /// Stars.
    Stars,
    /// Forks.
    Forks,
    /// Last change.
    Updated,
}

/// Which repositories are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryQuery {
    /// Words; without them all that the token sees.
    pub text: Option<String>,
    /// Only of this installation (GitHub), workspace (Bitbucket) or organisation (Azure DevOps).
    pub installation: Option<String>,
    /// Order.
    pub sort: Option<RepositorySort>,
}

/// Which page of a provider's list, and how long pages are (1 to 100).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPageRequest {
    /// What [`GitPage::next`] said; `None` is the first page.
    pub after: Option<String>,
    /// Items at most.
    pub limit: usize,
}

/// A page of a provider's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPage<T> {
    /// Items in the provider's order. None of them is on another page, unless the list changed meanwhile.
    pub items: Vec<T>,
    /// Where the next page begins, in the adapter's own words; `None` on the last one.
    pub next: Option<String>,
}

/// A pull request (merge request) to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// `owner/name` as in [`GitRepository::full_name`]; for GitLab also the number of the project.
    pub repository: String,
    /// Branch with the changes.
    pub source_branch: String,
    /// Branch that receives the changes.
    pub target_branch: String,
    /// Title.
    pub title: String,
    /// Text.
    pub body: Option<String>,
    /// Whether it is a draft.
    pub draft: bool,
    /// Labels.
    pub labels: Vec<String>,
}

/// A pull request that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedPullRequest {
    /// Its address for people.
    pub url: Url,
    /// Its number in the repository; `None` if the provider does not say.
    pub number: Option<i64>,
    /// What was asked for and is not so, for a person: labels that could not be set.
    pub note: Option<String>,
}

/// Why a provider did not answer what was asked. Never shows a token.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The token is not accepted.
    #[error("{provider} does not accept the token")]
    Denied {
        /// Who.
        provider: GitProvider,
    },
    /// The token is known, and may not do this: a scope is missing.
    #[error("the token that is stored for {provider} may not do this")]
    NotAllowed {
        /// Who.
        provider: GitProvider,
    },
    /// What was asked for is not there, or not for this token.
    #[error("not found at {provider}, or not visible with the token that is stored for it")]
    NotFound {
        /// Who.
        provider: GitProvider,
    },
    /// The provider cannot do this at all.
    #[error("{provider} does not support {what}")]
    Unsupported {
        /// Who.
        provider: GitProvider,
        /// What was asked.
        what: &'static str,
    },
    /// The host may not be called: a private address, or not a host name.
    #[error("the host of {provider} may not be called: {reason}")]
    Forbidden {
        /// Who.
        provider: GitProvider,
        /// Why, for the user.
        reason: String,
    },
    /// Not a name that a repository can have there.
    #[error("a repository of {provider} is named {expected}")]
    InvalidRepository {
        /// Who.
        provider: GitProvider,
        /// What names look like, for the user.
        expected: &'static str,
    },
    /// The provider understood what it was asked to do, and does not do it.
    #[error("{provider} refuses: {reason}")]
    Refused {
        /// Who.
        provider: GitProvider,
        /// What it says, cut to a length that a person reads.
        reason: String,
    },
    /// A page token that is not ours.
    #[error("page token was not issued by this server")]
    InvalidPageToken,
    /// The provider asks us to wait.
    #[error("{provider} limits requests")]
    Limited {
        /// Who.
        provider: GitProvider,
        /// Seconds to wait, if it says.
        retry_after: Option<u64>,
    },
    /// No answer, or none that makes sense.
    #[error("{provider} is unavailable")]
    Unavailable {
        /// Who.
        provider: GitProvider,
        /// Why.
        #[source]
        source: BoxError,
    },
}

impl Classify for GitError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } => ErrorClass::NotFound,
            Self::Unsupported { .. }
            | Self::Forbidden { .. }
            | Self::InvalidRepository { .. }
            | Self::Refused { .. } => ErrorClass::Invalid,
            Self::InvalidPageToken => ErrorClass::Unprocessable,
            Self::Denied { .. } => ErrorClass::Unauthenticated,
            Self::NotAllowed { .. } => ErrorClass::Forbidden,
            Self::Limited { .. } => ErrorClass::RateLimited,
            Self::Unavailable { .. } => ErrorClass::Upstream,
        }
    }

    fn public(&self) -> Cow<'_, str> {
        self.to_string().into()
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Limited { retry_after, .. } => {
                Some(Duration::from_secs(retry_after.unwrap_or(60)))
            }
            _ => None,
        }
    }
}

/// A host that is not called. The text is for the user and tells nothing of the addresses behind a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostNotAllowed(pub String);

/// The APIs of git providers. Only the named provider's host is ever called, and only with its own token; every call has a
/// deadline and reads a bounded answer.
#[async_trait]
pub trait GitHosting: Send + Sync + 'static {
    /// Whose the token is. Also the way to check one.
    async fn user(&self, access: &GitAccess) -> Result<GitUser, GitError>;
    /// Repositories.
    async fn repositories(
        &self,
        access: &GitAccess,
        query: &RepositoryQuery,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError>;
    /// Branches whose names contain `text` (empty: all).
    async fn branches(
        &self,
        access: &GitAccess,
        repository: &str,
        text: &str,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError>;
    /// Installations, workspaces or organisations.
    async fn installations(
        &self,
        access: &GitAccess,
        page: &GitPageRequest,
    ) -> Result<GitPage<String>, GitError>;
    /// The user's open issues and pull requests that want attention, at most 100.
    async fn suggested_tasks(&self, access: &GitAccess) -> Result<Vec<SuggestedTask>, GitError>;
    /// Opens a pull request. Sent once and never repeated; after `Unavailable` it may be open all the same.
    async fn open_pull_request(
        &self,
        access: &GitAccess,
        request: &NewPullRequest,
    ) -> Result<OpenedPullRequest, GitError>;
    /// How to clone a repository (`owner/name` as in [`GitRepository::full_name`]). `Forbidden` for a host that may not be called,
    /// after its name was resolved.
    async fn clone_source(
        &self,
        access: &GitAccess,
        repository: &str,
    ) -> Result<CloneSource, GitError>;
    /// The same without a token, for a public repository.
    async fn public_source(
        &self,
        provider: GitProvider,
        repository: &str,
    ) -> Result<CloneSource, GitError>;
    /// The addresses of the host in an address that something else than this port is going to call, if all of them may be.
    async fn resolve_allowed_host(&self, url: &Url) -> Result<Vec<IpAddr>, HostNotAllowed>;
}
