//! Names of models and their providers on the wire; see `docs/reference/wire/settings.md`.

use application::catalogue::{CatalogueFilter, CatalogueModel, ModelProvider};
use domain::page::PageRequest;
use serde::Serialize;
use utoipa::ToSchema;

use crate::decode::model;
use crate::dto::page::CataloguePageQuery;

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
#[model(query)]
#[derive(Debug, Clone)]
pub struct ProviderQuery {
    #[decode(flatten)]
    page: CataloguePageQuery,
    /// Only names that contain this, case-insensitive.
    query: Option<String>,
    /// Only verified, or only unverified ones.
    #[decode(rename = "verified__eq")]
    is_verified: Option<bool>,
}

/// The query for models, in addition to [`ProviderQuery`].
#[model(query)]
#[derive(Debug, Clone)]
pub struct ModelQuery {
    #[decode(flatten)]
    names: ProviderQuery,
    /// Only models of this provider.
    #[decode(rename = "provider__eq")]
    provider: Option<String>,
}

impl ProviderQuery {
    /// Filter and page.
    pub fn into_parts(self) -> (CatalogueFilter, PageRequest) {
        let filter = CatalogueFilter {
            text: self.query,
            is_verified: self.is_verified,
            provider: None,
        };
        (filter, self.page.into())
    }
}

impl ModelQuery {
    /// Filter and page.
    pub fn into_parts(self) -> (CatalogueFilter, PageRequest) {
        let (mut filter, page) = self.names.into_parts();
        filter.provider = self.provider;
        (filter, page)
    }
}
