//! Queries about git providers of front ends of the 1.0 to 1.3 line.

use application::git::{MAX_PAGE_NUMBER, NumberedPage, PageNumber};
use domain::conversation::GitProvider;
use domain::git::{GitBranch, GitRepository};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::decode::{Decode, FieldErrors, Object, Path};
use crate::dto::enums::GitProviderSchema;
use crate::dto::git::{BranchDto, RepositoryDto};

/// Default number of items on a page.
const DEFAULT_PAGE_SIZE: i64 = 30;

fn number(page: i64, length: i64) -> PageNumber {
    PageNumber {
        number: u32::try_from(page.max(1)).unwrap_or(u32::MAX),
        length: usize::try_from(length.clamp(1, 100)).unwrap_or(1),
    }
}

/// The query for repositories.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LegacyRepositoriesQuery {
    /// The git provider; if absent, all with a stored token.
    #[param(rename = "selected_provider", value_type = GitProviderSchema, required = false)]
    pub provider: Option<GitProvider>,
    /// Only repositories of this installation, workspace, project or organization.
    #[param(rename = "installation_id", nullable = false)]
    pub installation: Option<String>,
    /// `page`, from 1 to 20, and `per_page`, at most 100.
    #[param(ignore)]
    pub page: PageNumber,
}

impl Decode for LegacyRepositoriesQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let provider = object.optional("selected_provider");
        let page = object.integer("page", 1);
        let length = object.integer("per_page", DEFAULT_PAGE_SIZE);
        let installation = object.optional::<String>("installation_id");
        Some(Self {
            provider: provider?,
            installation: installation?.filter(|text| !text.is_empty()),
            page: number(page?, length?),
        })
    }
}

/// The query for branches.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LegacyBranchesQuery {
    /// `owner/name`.
    pub repository: String,
    /// The git provider; if absent, the first one that knows the repository.
    #[param(rename = "selected_provider", value_type = GitProviderSchema, required = false)]
    pub provider: Option<GitProvider>,
    /// `page`, from 1 to 20, and `per_page`, at most 100.
    #[param(ignore)]
    pub page: PageNumber,
}

impl Decode for LegacyBranchesQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let repository = object.required("repository");
        let provider = object.optional("selected_provider");
        let page = object.integer("page", 1);
        let length = object.integer("per_page", DEFAULT_PAGE_SIZE);
        Some(Self {
            repository: repository?,
            provider: provider?,
            page: number(page?, length?),
        })
    }
}

/// The query for installations.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LegacyInstallationsQuery {
    /// The git provider; if absent, the first one with a stored token.
    #[param(value_type = GitProviderSchema, required = false)]
    pub provider: Option<GitProvider>,
}

impl Decode for LegacyInstallationsQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let provider = object.optional("provider");
        Some(Self {
            provider: provider?,
        })
    }
}

/// The page, for the document.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(
    dead_code,
    reason = "only described; what is read are the models above"
)]
pub struct NumberedPageParams {
    /// The page number, 1 to 20; later pages are empty.
    #[param(required = false, default = 1)]
    page: i64,
    /// Maximum number of items on a page, at most 100.
    #[param(required = false, default = 30)]
    per_page: i64,
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
