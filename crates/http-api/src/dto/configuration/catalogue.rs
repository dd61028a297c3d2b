//! Names of models and their providers on the wire; see `docs/reference/wire/settings.md`.

use application::catalogue::{CatalogueFilter, CatalogueModel, ModelProvider};
use domain::page::PageRequest;

use crate::decode::model;
use crate::dto::page::CataloguePageQuery;

/// A model.
#[model(response = LLMModel, from(model: CatalogueModel))]
pub(crate) struct ModelDto {
    /// The prefix of the name in settings: `provider/name`.
    provider: Option<&'static str>,
    /// The name without the provider.
    name: &'static str,
    /// Whether agents are known to work with it.
    #[from(model.is_verified)]
    verified: bool,
    /// Always `false`: all models are listed.
    #[from(false)]
    hidden: bool,
    /// Always `null`: there are no aliases.
    #[from(None)]
    canonical: Option<&'static str>,
}

/// A provider of models.
#[model(response = LLMProvider, from(provider: ModelProvider))]
pub(crate) struct ProviderDto {
    name: &'static str,
    /// Whether one of its models is verified.
    #[from(provider.is_verified)]
    verified: bool,
}

/// The query for providers.
#[model(query)]
pub(crate) struct ProviderQuery {
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
pub(crate) struct ModelQuery {
    #[decode(flatten)]
    names: ProviderQuery,
    /// Only models of this provider.
    #[decode(rename = "provider__eq")]
    provider: Option<String>,
}

impl ProviderQuery {
    pub(crate) fn into_parts(self) -> (CatalogueFilter, PageRequest) {
        let filter = CatalogueFilter {
            text: self.query,
            is_verified: self.is_verified,
            provider: None,
        };
        (filter, self.page.into())
    }
}

impl ModelQuery {
    pub(crate) fn into_parts(self) -> (CatalogueFilter, PageRequest) {
        let (mut filter, page) = self.names.into_parts();
        filter.provider = self.provider;
        (filter, page)
    }
}
