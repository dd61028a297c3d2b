//! Git providers on the wire; see `docs/reference/wire/git.md`.

use domain::conversation::GitProvider;
use domain::git::{
    GitBranch, GitPage, GitPageRequest, GitRepository, GitUser, OwnerType, RepositoryQuery,
    RepositorySort, RepositorySortKey, SuggestedTask, SuggestedTaskType,
};
use domain::page::PageRequest;
use serde::Serialize;
use utoipa::ToSchema;

use super::PageDto;
use super::enums::{GitProviderSchema, OwnerTypeSchema, SuggestedTaskTypeSchema};
use super::page::{PageQuery, ShortPageQuery};
use crate::decode::{Choice, model};

/// A repository.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Repository)]
pub struct RepositoryDto {
    /// The id at the provider.
    id: String,
    /// `owner/name`, with groups in between, or with an organization in front.
    full_name: String,
    #[schema(value_type = GitProviderSchema)]
    git_provider: GitProvider,
    is_public: bool,
    #[schema(required)]
    stargazers_count: Option<u64>,
    /// On legacy routes the address of the next page, elsewhere `null`: use `next_page_id`.
    #[schema(required)]
    link_header: Option<String>,
    /// In the provider's format.
    #[schema(required)]
    pushed_at: Option<String>,
    #[schema(value_type = Option<OwnerTypeSchema>, required)]
    owner_type: Option<OwnerType>,
    #[schema(required)]
    main_branch: Option<String>,
}

impl RepositoryDto {
    /// Adds the address of the next page.
    #[must_use]
    pub fn with_next_link(self, link_header: Option<String>) -> Self {
        Self {
            link_header,
            ..self
        }
    }
}

impl From<GitRepository> for RepositoryDto {
    fn from(found: GitRepository) -> Self {
        Self {
            id: found.id,
            full_name: found.full_name,
            git_provider: found.git_provider,
            is_public: found.is_public,
            stargazers_count: found.stargazers_count,
            link_header: None,
            pushed_at: found.pushed_at,
            owner_type: found.owner_type,
            main_branch: found.main_branch,
        }
    }
}

/// A branch.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Branch)]
pub struct BranchDto {
    name: String,
    commit_sha: String,
    /// Also `false` if the provider does not report it.
    protected: bool,
    /// In the provider's format, if it reports it.
    #[schema(required)]
    last_push_date: Option<String>,
}

impl From<GitBranch> for BranchDto {
    fn from(found: GitBranch) -> Self {
        Self {
            name: found.name,
            commit_sha: found.commit_sha,
            protected: found.protected,
            last_push_date: found.last_push_date,
        }
    }
}

/// A task that a conversation could be started for.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = GitSuggestedTask)]
pub struct SuggestedTaskDto {
    #[schema(value_type = GitProviderSchema)]
    git_provider: GitProvider,
    #[schema(value_type = SuggestedTaskTypeSchema)]
    task_type: SuggestedTaskType,
    repo: String,
    /// The number of the issue or pull request.
    issue_number: i64,
    title: String,
}

impl From<SuggestedTask> for SuggestedTaskDto {
    fn from(task: SuggestedTask) -> Self {
        Self {
            git_provider: task.git_provider,
            task_type: task.task_type,
            repo: task.repo,
            issue_number: task.issue_number,
            title: task.title,
        }
    }
}

/// The account that a token belongs to.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = GitUser)]
pub struct GitUserDto {
    id: String,
    login: String,
    avatar_url: String,
    #[schema(required)]
    company: Option<String>,
    #[schema(required)]
    name: Option<String>,
    #[schema(required)]
    email: Option<String>,
}

impl From<GitUser> for GitUserDto {
    fn from(user: GitUser) -> Self {
        Self {
            id: user.id,
            login: user.login,
            avatar_url: user.avatar_url,
            company: user.company,
            name: user.name,
            email: user.email,
        }
    }
}

impl<T> PageDto<T> {
    /// A page of a provider's list.
    pub fn from_git_page<D: Into<T>>(page: GitPage<D>) -> Self {
        Self {
            items: page.items.into_iter().map(Into::into).collect(),
            next_page_id: page.next,
        }
    }
}

impl Choice for RepositorySort {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("stars-desc", sort(RepositorySortKey::Stars, true)),
        ("stars-asc", sort(RepositorySortKey::Stars, false)),
        ("forks-desc", sort(RepositorySortKey::Forks, true)),
        ("forks-asc", sort(RepositorySortKey::Forks, false)),
        ("updated-desc", sort(RepositorySortKey::Updated, true)),
        ("updated-asc", sort(RepositorySortKey::Updated, false)),
    ];
}

const fn sort(by: RepositorySortKey, descending: bool) -> RepositorySort {
    RepositorySort { by, descending }
}

/// The page at a provider.
pub fn git_page(page: impl Into<PageRequest>) -> GitPageRequest {
    let page = page.into();
    GitPageRequest {
        after: page.after.map(|token| token.0),
        limit: page.limit.get(),
    }
}

/// `provider` and a page.
#[model(query)]
#[derive(Debug, Clone)]
pub struct InstallationsQuery {
    /// The git provider.
    #[param(value_type = GitProviderSchema)]
    pub provider: GitProvider,
    /// The page.
    #[decode(flatten)]
    pub page: PageQuery,
}

/// The query for repositories.
#[model(query)]
#[derive(Debug, Clone)]
pub struct RepositoriesQuery {
    /// The git provider.
    #[param(value_type = GitProviderSchema)]
    pub provider: GitProvider,
    /// Words, `owner/words` or the URL of a repository. Without it, repositories that the token can read.
    #[decode(rename = "query")]
    text: Option<String>,
    /// Only repositories of this installation, workspace, project or organization.
    #[decode(rename = "installation_id")]
    installation: Option<String>,
    /// The page.
    #[decode(flatten)]
    pub page: PageQuery,
    /// Order; only for searches.
    #[decode(rename = "sort_order")]
    #[param(
        value_type = String,
        required = false,
        pattern = "^(stars-desc|stars-asc|forks-desc|forks-asc|updated-desc|updated-asc)$"
    )]
    sort: Option<RepositorySort>,
}

impl RepositoriesQuery {
    /// The query without provider and page.
    pub fn query(&self) -> RepositoryQuery {
        RepositoryQuery {
            text: self.text.clone(),
            installation: self.installation.clone().filter(|text| !text.is_empty()),
            sort: self.sort,
        }
    }
}

/// The query for branches.
#[model(query)]
#[derive(Debug, Clone)]
pub struct BranchesQuery {
    /// The git provider.
    #[param(value_type = GitProviderSchema)]
    pub provider: GitProvider,
    /// `owner/name`.
    pub repository: String,
    /// A part of the branch name; empty for all branches.
    #[decode(rename = "query")]
    pub text: String,
    /// The page.
    #[decode(flatten)]
    pub page: ShortPageQuery,
}
