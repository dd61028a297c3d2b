//! Git providers: repositories, branches and pull requests.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use url::Url;

use crate::error::{BoxError, Classify, ErrorClass};
use crate::wire_enum::wire_enum;

wire_enum! {
    /// Providers that tokens and repositories may name.
    GitProvider {
        /// github.com or an Enterprise Server.
        Github = "github",
        /// gitlab.com or self-managed.
        Gitlab = "gitlab",
        /// bitbucket.org.
        Bitbucket = "bitbucket",
        BitbucketDataCenter = "bitbucket_data_center",
        /// Forgejo or Gitea.
        Forgejo = "forgejo",
        AzureDevops = "azure_devops",
        /// A single-sign-on token.
        EnterpriseSso = "enterprise_sso",
    }
}

/// A user's access to one provider.
#[derive(Debug, Clone)]
pub struct GitAccess {
    pub provider: GitProvider,
    /// Base URL of a self-hosted installation; `None` means the provider's own host.
    pub host: Option<Url>,
    pub token: SecretString,
    /// The user's name at the provider, if known. Some providers require it beside the token.
    pub user: Option<String>,
}

/// The address of a repository or a host without credentials, and the credentials for the host.
#[derive(Debug, Clone)]
pub struct CloneSource {
    /// `https://host/owner/repo.git` of a repository, `https://host/` of a host; never with a user name or password.
    pub url: Url,
    pub username: String,
    /// Token; `None` for a public repository if the user has no token for the provider.
    pub token: Option<SecretString>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRepository {
    /// The provider's own id.
    pub id: String,
    /// `owner/name` (deeper for GitLab groups and Azure DevOps).
    pub full_name: String,
    pub git_provider: GitProvider,
    pub is_public: bool,
    /// Stars, if the provider counts them.
    pub stargazers_count: Option<u64>,
    /// Time of the last push, in the provider's format.
    pub pushed_at: Option<String>,
    pub owner_type: Option<OwnerType>,
    pub main_branch: Option<String>,
}

wire_enum! {
    OwnerType {
        User = "user",
        Organization = "organization",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitBranch {
    pub name: String,
    pub commit_sha: String,
    pub protected: bool,
    /// Time of the last push, in the provider's format.
    pub last_push_date: Option<String>,
}

wire_enum! {
    SuggestedTaskType {
        /// A pull request that does not merge.
        MergeConflicts = "MERGE_CONFLICTS",
        /// A pull request with failing checks.
        FailingChecks = "FAILING_CHECKS",
        /// A pull request with requested changes.
        UnresolvedComments = "UNRESOLVED_COMMENTS",
        /// An issue assigned to the user.
        OpenIssue = "OPEN_ISSUE",
        OpenPr = "OPEN_PR",
    }
}

/// An issue or pull request that a user may start a conversation for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestedTask {
    pub git_provider: GitProvider,
    pub task_type: SuggestedTaskType,
    /// `owner/name`.
    pub repo: String,
    pub issue_number: i64,
    pub title: String,
}

/// The owner of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitUser {
    /// The provider's id.
    pub id: String,
    pub login: String,
    pub avatar_url: String,
    pub company: Option<String>,
    pub name: Option<String>,
    pub email: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepositorySort {
    pub by: RepositorySortKey,
    /// Whether the largest or newest comes first.
    pub descending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositorySortKey {
    Stars,
    Forks,
    Updated,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryQuery {
    /// Search terms; without them, all repositories that the token can see.
    pub text: Option<String>,
    /// Only of this installation (GitHub), workspace (Bitbucket) or organisation (Azure DevOps).
    pub installation: Option<String>,
    pub sort: Option<RepositorySort>,
}

/// The requested page of a provider's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPageRequest {
    /// The [`GitPage::next`] of the previous page; `None` requests the first page.
    pub after: Option<String>,
    /// Maximum number of items, 1 to 100.
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPage<T> {
    /// Items in the provider's order. An item is on one page only, unless the list changes meanwhile.
    pub items: Vec<T>,
    /// The adapter's token for the next page; `None` on the last page.
    pub next: Option<String>,
}

/// A pull request (merge request) to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// `owner/name` as in [`GitRepository::full_name`]; for GitLab also the number of the project.
    pub repository: String,
    pub source_branch: String,
    pub target_branch: String,
    pub title: String,
    pub body: Option<String>,
    pub draft: bool,
    pub labels: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedPullRequest {
    /// Its address for browsers.
    pub url: Url,
    /// Its number in the repository; `None` if the provider does not report it.
    pub number: Option<i64>,
    /// What the provider did not apply, for the user: for example, labels that could not be set.
    pub note: Option<String>,
}

/// Failure of a request to a git provider. No text contains a token.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("{provider} does not accept the token")]
    Denied { provider: GitProvider },
    #[error("the token stored for {provider} lacks the scope for this request")]
    NotAllowed { provider: GitProvider },
    /// The object does not exist, or is not visible with this token.
    #[error("not found at {provider}, or not visible with the stored token")]
    NotFound { provider: GitProvider },
    #[error("{provider} does not support {what}")]
    Unsupported {
        provider: GitProvider,
        what: &'static str,
    },
    /// The host must not be called: it has a private address, or its name is invalid.
    #[error("the host of {provider} is not allowed: {reason}")]
    Forbidden {
        provider: GitProvider,
        /// Reason, for the user.
        reason: String,
    },
    /// The name is not a valid repository name of the provider.
    #[error("invalid repository name: {provider} expects {expected}")]
    InvalidRepository {
        provider: GitProvider,
        /// The expected form of a name, for the user.
        expected: &'static str,
    },
    /// The provider understood the request and refused it.
    #[error("{provider} refuses: {reason}")]
    Refused {
        provider: GitProvider,
        /// The provider's message, truncated.
        reason: String,
    },
    /// The page token was not issued by this service.
    #[error("page token is invalid: repeat the search without `page_id`")]
    InvalidPageToken,
    #[error("{provider} limits requests")]
    Limited {
        provider: GitProvider,
        /// Seconds to wait, if the provider reports them.
        retry_after: Option<u64>,
    },
    /// The provider did not respond, or its response is not usable.
    #[error("{provider} is unavailable")]
    Unavailable {
        provider: GitProvider,
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

/// A host that the service does not call. The text is for the user and does not reveal the addresses of the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostNotAllowed(pub String);

/// The APIs of git providers. The adapter calls only the host of the named provider, and only with the token for it.
/// Every call has a deadline and limits the size of responses.
#[async_trait]
pub trait GitHosting: Send + Sync + 'static {
    /// The owner of the token. It also verifies a token.
    async fn user(&self, access: &GitAccess) -> Result<GitUser, GitError>;
    async fn repositories(
        &self,
        access: &GitAccess,
        query: &RepositoryQuery,
        page: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError>;
    /// Branches whose names contain `text`; an empty `text` matches all.
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
    /// The user's open issues and pull requests that need attention, at most 100.
    async fn suggested_tasks(&self, access: &GitAccess) -> Result<Vec<SuggestedTask>, GitError>;
    /// Opens a pull request. The adapter sends the request once and never repeats it. After `Unavailable` the pull
    /// request may be open all the same.
    async fn open_pull_request(
        &self,
        access: &GitAccess,
        request: &NewPullRequest,
    ) -> Result<OpenedPullRequest, GitError>;
}

/// Finds where git may clone from. The adapter calls no provider, and resolves host names with a deadline.
#[async_trait]
pub trait CloneSourceResolver: Send + Sync + 'static {
    /// The clone address of a repository (`owner/name` as in [`GitRepository::full_name`]). The adapter resolves the
    /// host name and returns `Forbidden` for a host that must not be called.
    async fn clone_source(
        &self,
        access: &GitAccess,
        repository: &str,
    ) -> Result<CloneSource, GitError>;
    /// The clone address of a public repository, without a token.
    async fn public_source(
        &self,
        provider: GitProvider,
        repository: &str,
    ) -> Result<CloneSource, GitError>;
    /// The same address without credentials. Resolves no name.
    fn address(&self, access: &GitAccess, repository: &str) -> Result<Url, GitError>;
    /// The base of all repositories of the access's host, and the credentials for git. Resolves no name.
    fn host(&self, access: &GitAccess) -> Result<CloneSource, GitError>;
    /// Resolves the host of a URL that another component will call. Fails unless all its addresses are allowed.
    async fn resolve_allowed_host(&self, url: &Url) -> Result<Vec<IpAddr>, HostNotAllowed>;
}
