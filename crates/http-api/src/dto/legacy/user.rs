//! Queries about git providers of front ends of the 1.0 to 1.3 line.

use application::git::{MAX_PAGE_NUMBER, NumberedPage, PageNumber};
use domain::conversation::GitProvider;
use domain::git::{GitBranch, GitRepository};
use serde::Serialize;
use utoipa::ToSchema;

use crate::decode::{SaturatedInt, model};
use crate::dto::enums::GitProviderSchema;
use crate::dto::git::{BranchDto, RepositoryDto};

/// The page of a list, by its number.
#[model(query)]
#[derive(Debug, Clone, Copy)]
pub struct NumberedPageQuery {
    /// The page number, 1 to 20; later pages are empty.
    #[decode(default = SaturatedInt(1))]
    #[param(value_type = i64, default = 1)]
    page: SaturatedInt,
    /// Maximum number of items on a page, at most 100.
    #[decode(default = SaturatedInt(30))]
    #[param(value_type = i64, default = 30)]
    per_page: SaturatedInt,
}

impl From<NumberedPageQuery> for PageNumber {
    fn from(query: NumberedPageQuery) -> Self {
        let (SaturatedInt(page), SaturatedInt(length)) = (query.page, query.per_page);
        Self {
            number: u32::try_from(page.max(1)).unwrap_or(u32::MAX),
            length: usize::try_from(length.clamp(1, 100)).unwrap_or(1),
        }
    }
}

/// The query for repositories.
#[model(query)]
#[derive(Debug, Clone)]
pub struct LegacyRepositoriesQuery {
    /// The git provider; if absent, all with a stored token.
    #[decode(rename = "selected_provider")]
    #[param(value_type = GitProviderSchema, required = false)]
    pub provider: Option<GitProvider>,
    /// The page.
    #[decode(flatten)]
    pub page: NumberedPageQuery,
    /// Only repositories of this installation, workspace, project or organization.
    #[decode(rename = "installation_id")]
    pub installation: Option<String>,
}

/// The query for branches.
#[model(query)]
#[derive(Debug, Clone)]
pub struct LegacyBranchesQuery {
    /// `owner/name`.
    pub repository: String,
    /// The git provider; if absent, the first one that knows the repository.
    #[decode(rename = "selected_provider")]
    #[param(value_type = GitProviderSchema, required = false)]
    pub provider: Option<GitProvider>,
    /// The page.
    #[decode(flatten)]
    pub page: NumberedPageQuery,
}

/// The query for installations.
#[model(query)]
#[derive(Debug, Clone)]
pub struct LegacyInstallationsQuery {
    /// The git provider; if absent, the first one with a stored token.
    #[param(value_type = GitProviderSchema, required = false)]
    pub provider: Option<GitProvider>,
}

/// Converts repositories. Each has the address of the next page, if there is one, where front ends look for it.
pub fn repositories(page: NumberedPage<GitRepository>, number: u32) -> Vec<RepositoryDto> {
    let next = page.has_next.then(|| {
        let next = number.saturating_add(1).min(MAX_PAGE_NUMBER);
        format!("</api/user/repositories?page={next}>; rel=\"next\"")
    });
    let items = page.items.into_iter();
    items
        .map(|found| RepositoryDto::from(found).with_next_link(next.clone()))
        .collect()
}

/// Branches.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = PaginatedBranchesResponse)]
pub struct NumberedBranchesDto {
    branches: Vec<BranchDto>,
    has_next_page: bool,
    /// As requested.
    current_page: u32,
    /// As requested.
    per_page: usize,
    /// Always `null`: branches are not counted.
    #[schema(required)]
    total_count: Option<u64>,
}

impl NumberedBranchesDto {
    /// Converts a page of branches.
    pub fn of(found: NumberedPage<GitBranch>, page: PageNumber) -> Self {
        Self {
            branches: found.items.into_iter().map(BranchDto::from).collect(),
            has_next_page: found.has_next,
            current_page: page.number,
            per_page: page.length,
            total_count: None,
        }
    }
}
