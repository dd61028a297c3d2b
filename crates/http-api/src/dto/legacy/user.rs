//! Queries about git providers of front ends of the 1.0 to 1.3 line.

use application::git::{MAX_PAGE_NUMBER, NumberedPage, PageNumber};
use domain::git::{GitBranch, GitProvider, GitRepository};

use crate::decode::{SaturatedInt, model};
use crate::dto::each;
use crate::dto::git::{BranchDto, RepositoryDto};

/// The page of a list, by its number.
#[model(query)]
pub(crate) struct NumberedPageQuery {
    /// The page number, 1 to 20; later pages are empty.
    #[decode(default = SaturatedInt(1))]
    #[param(default = 1)]
    page: SaturatedInt,
    /// Maximum number of items on a page, at most 100.
    #[decode(default = SaturatedInt(30))]
    #[param(default = 30)]
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
pub(crate) struct LegacyRepositoriesQuery {
    /// The git provider; if absent, all with a stored token.
    #[decode(rename = "selected_provider")]
    pub provider: Option<GitProvider>,
    #[decode(flatten)]
    pub page: NumberedPageQuery,
    #[decode(rename = "installation_id")]
    pub installation: Option<String>,
}

/// The query for branches.
#[model(query)]
pub(crate) struct LegacyBranchesQuery {
    pub repository: String,
    /// The git provider; if absent, the first one that knows the repository.
    #[decode(rename = "selected_provider")]
    pub provider: Option<GitProvider>,
    #[decode(flatten)]
    pub page: NumberedPageQuery,
}

/// The query for installations.
#[model(query)]
pub(crate) struct LegacyInstallationsQuery {
    /// The git provider; if absent, the first one with a stored token.
    pub provider: Option<GitProvider>,
}

/// Converts repositories. Each has the address of the next page, if there is one, where front ends look for it.
pub(crate) fn repositories(page: NumberedPage<GitRepository>, number: u32) -> Vec<RepositoryDto> {
    let next = page.has_next.then(|| {
        let next = number.saturating_add(1).min(MAX_PAGE_NUMBER);
        format!("</api/user/repositories?page={next}>; rel=\"next\"")
    });
    let shown = page.items.into_iter().map(|found| {
        let mut shown = RepositoryDto::from(found);
        shown.link_header.clone_from(&next);
        shown
    });
    shown.collect()
}

/// Branches.
#[model(response = PaginatedBranchesResponse, from(found: NumberedPage<GitBranch>, page: PageNumber))]
pub(crate) struct NumberedBranchesDto {
    #[from(each(found.items))]
    branches: Vec<BranchDto>,
    #[from(found.has_next)]
    has_next_page: bool,
    /// As requested.
    #[from(page.number)]
    current_page: u32,
    /// As requested.
    #[from(page.length)]
    per_page: usize,
    /// Always `null`: branches are not counted.
    #[from(None)]
    total_count: Option<u64>,
}
