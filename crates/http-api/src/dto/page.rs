//! The query of searches with only a page.

use domain::page::{PageLimit, PageRequest, PageToken};
use utoipa::IntoParams;

use crate::decode::{Decode, FieldErrors, Object, Path};

/// `page_id` and `limit`.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// `next_page_id` of the previous page.
    #[param(value_type = String, required = false)]
    pub page_id: Option<PageToken>,
    /// Maximum number of items on the page.
    #[param(value_type = i64, required = false, minimum = 1, maximum = 100, default = 100)]
    pub limit: PageLimit,
}

impl Decode for PageQuery {
    fn decode(value: &serde_json::Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        object.page(PageLimit::MAX).map(Self::from)
    }
}

impl From<PageRequest> for PageQuery {
    fn from(page: PageRequest) -> Self {
        Self {
            page_id: page.after,
            limit: page.limit,
        }
    }
}

impl From<PageQuery> for PageRequest {
    fn from(query: PageQuery) -> Self {
        Self {
            after: query.page_id,
            limit: query.limit,
        }
    }
}
