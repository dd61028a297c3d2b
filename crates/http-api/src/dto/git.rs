//! Git providers on the wire; see `docs/reference/wire/git.md`.

use domain::git::GitProvider;
use domain::git::{
    GitBranch, GitPage, GitPageRequest, GitRepository, GitUser, OwnerType, RepositoryQuery,
    RepositorySort, RepositorySortKey, SuggestedTask, SuggestedTaskType,
};
use domain::page::PageRequest;

use super::PageDto;
use super::page::PageQuery;
use crate::decode::{Choice, model};

/// A repository.
#[model(response = Repository, from(found: GitRepository))]
pub(crate) struct RepositoryDto {
    id: String,
    /// `owner/name`, with groups in between, or with an organization in front.
    full_name: String,
    git_provider: GitProvider,
    is_public: bool,
    stargazers_count: Option<u64>,
    /// On legacy routes the address of the next page, elsewhere `null`: use `next_page_id`.
    #[from(None)]
    pub(crate) link_header: Option<String>,
    /// In the provider's format.
    pushed_at: Option<String>,
    owner_type: Option<OwnerType>,
    main_branch: Option<String>,
}

/// A branch.
#[model(response = Branch, from(found: GitBranch))]
pub(crate) struct BranchDto {
    name: String,
    commit_sha: String,
    /// Also `false` if the provider does not report it.
    protected: bool,
    /// In the provider's format, if it reports it.
    last_push_date: Option<String>,
}

/// A task that a conversation could be started for.
#[model(response = GitSuggestedTask, from(task: SuggestedTask))]
pub(crate) struct SuggestedTaskDto {
    git_provider: GitProvider,
    task_type: SuggestedTaskType,
    repo: String,
    issue_number: i64,
    title: String,
}

/// The account that a token belongs to.
#[model(response = GitUser, from(user: GitUser))]
pub(crate) struct GitUserDto {
    id: String,
    login: String,
    avatar_url: String,
    company: Option<String>,
    name: Option<String>,
    email: Option<String>,
}

impl<T> PageDto<T> {
    /// A page of a provider's list.
    pub(crate) fn from_git_page<D: Into<T>>(page: GitPage<D>) -> Self {
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
pub(crate) fn git_page(page: impl Into<PageRequest>) -> GitPageRequest {
    let page = page.into();
    GitPageRequest {
        after: page.after.map(|token| token.0),
        limit: page.limit.get(),
    }
}

/// The query for installations.
#[model(query)]
pub(crate) struct InstallationsQuery {
    pub provider: GitProvider,
}

/// The query for repositories.
#[model(query)]
pub(crate) struct RepositoriesQuery {
    pub provider: GitProvider,
    /// Words, `owner/words` or the URL of a repository. Without it, repositories that the token can read.
    #[decode(rename = "query")]
    text: Option<String>,
    #[decode(rename = "installation_id")]
    installation: Option<String>,
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
    pub(crate) fn query(&self) -> RepositoryQuery {
        RepositoryQuery {
            text: self.text.clone(),
            installation: self.installation.clone().filter(|text| !text.is_empty()),
            sort: self.sort,
        }
    }
}

/// The query for branches.
#[model(query)]
pub(crate) struct BranchesQuery {
    pub provider: GitProvider,
    pub repository: String,
    /// A part of the branch name; empty for all branches.
    #[decode(rename = "query")]
    pub text: String,
}
