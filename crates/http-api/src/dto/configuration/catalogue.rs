//! Names of models and their providers on the wire (contract v1, section 3.11).

use application::catalogue::{CatalogueFilter, CatalogueModel, ModelProvider};
use domain::page::{PageLimit, PageRequest, PageToken};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::decode::{Decode, FieldErrors, Object, Path};

/// Items of a page when no limit is asked for.
const DEFAULT_PAGE_SIZE: i64 = 50;

/// A model.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = LLMModel)]
pub struct ModelDto {
    /// What stands before the name in settings: `provider/name`.
    #[schema(required)]
    provider: Option<&'static str>,
    /// Without its provider.
    name: &'static str,
    /// Whether agents were seen to work with it.
    verified: bool,
    /// Always `false`: no model is kept from users.
    hidden: bool,
    /// Always `null`: no model is another name of another one.
    #[schema(required)]
    canonical: Option<&'static str>,
}

impl From<CatalogueModel> for ModelDto {
    fn from(model: CatalogueModel) -> Self {
        Self {
            provider: model.provider,
            name: model.name,
            verified: model.is_verified,
            hidden: false,
            canonical: None,
        }
    }
}

/// Who offers models.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = LLMProvider)]
pub struct ProviderDto {
    name: &'static str,
    /// Whether one of its models is verified.
    verified: bool,
}

impl From<ModelProvider> for ProviderDto {
    fn from(provider: ModelProvider) -> Self {
        Self {
            name: provider.name,
            verified: provider.is_verified,
        }
    }
}

/// What providers to search.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ProviderQuery {
    /// `next_page_id` of the page before.
    #[param(value_type = String, required = false)]
    page_id: Option<PageToken>,
    /// Most items of this page.
    #[param(value_type = i64, required = false, minimum = 1, maximum = 100, default = 50)]
    limit: PageLimit,
    /// Only what has this in its name, in any case.
    #[param(required = false)]
    query: Option<String>,
    /// Only what is, or is not, verified.
    #[param(rename = "verified__eq", required = false)]
    is_verified: Option<bool>,
}

/// What models to search, beside what providers can be searched by.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ModelQuery {
    #[param(ignore)]
    what: ProviderQuery,
    /// Only models of this provider.
    #[param(rename = "provider__eq", required = false)]
    provider: Option<String>,
}

impl ProviderQuery {
    fn read<Model: Decode>(object: &mut Object<'_, Model>) -> Option<Self> {
        let default_limit = PageLimit::new(DEFAULT_PAGE_SIZE).unwrap_or_default();
        let page = object.page(default_limit);
        let query = object.optional("query");
        let verified = object.optional("verified__eq");
        let PageRequest { after, limit } = page?;
        Some(Self {
            page_id: after,
            limit,
            query: query?,
            is_verified: verified?,
        })
    }

    /// Filter and page.
    pub fn into_parts(self) -> (CatalogueFilter, PageRequest) {
        let filter = CatalogueFilter {
            text: self.query,
            is_verified: self.is_verified,
            provider: None,
        };
        let page = PageRequest {
            after: self.page_id,
            limit: self.limit,
        };
        (filter, page)
    }
}

impl Decode for ProviderQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        Self::read(&mut object)
    }
}

impl ModelQuery {
    /// Filter and page.
    pub fn into_parts(self) -> (CatalogueFilter, PageRequest) {
        let (mut filter, page) = self.what.into_parts();
        filter.provider = self.provider;
        (filter, page)
    }
}

impl Decode for ModelQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let what = ProviderQuery::read(&mut object);
        let provider = object.optional("provider__eq");
        Some(Self {
            what: what?,
            provider: provider?,
        })
    }
}
