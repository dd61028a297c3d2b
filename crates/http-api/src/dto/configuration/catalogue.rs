//! Names of models and their providers on the wire; see `docs/reference/wire/settings.md`.

use application::catalogue::{CatalogueFilter, CatalogueModel, ModelProvider};
use domain::page::{PageLimit, PageRequest, PageToken};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::decode::{Decode, FieldErrors, Object, Path};

/// Default number of items on a page.
const DEFAULT_PAGE_SIZE: i64 = 50;

/// A model.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = LLMModel)]
pub struct ModelDto {
    /// The prefix of the name in settings: `provider/name`.
    #[schema(required)]
    provider: Option<&'static str>,
    /// The name without the provider.
    name: &'static str,
    /// Whether agents are known to work with it.
    verified: bool,
    /// Always `false`: all models are listed.
    hidden: bool,
    /// Always `null`: there are no aliases.
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

/// A provider of models.
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

/// The query for providers.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ProviderQuery {
    /// `next_page_id` of the previous page.
    #[param(value_type = String, required = false)]
    page_id: Option<PageToken>,
    /// Maximum number of items on the page.
    #[param(value_type = i64, required = false, minimum = 1, maximum = 100, default = 50)]
    limit: PageLimit,
    /// Only names that contain this, case-insensitive.
    #[param(required = false)]
    query: Option<String>,
    /// Only verified, or only unverified ones.
    #[param(rename = "verified__eq", required = false)]
    is_verified: Option<bool>,
}

/// The query for models, in addition to [`ProviderQuery`].
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
