//! The names of models and their providers: the same for all users, and part of the build.

use actix_web::{get, web};
use application::catalogue::ModelCatalogue;

use crate::dto::PageDto;
use crate::dto::configuration::catalogue::{ModelDto, ModelQuery, ProviderDto, ProviderQuery};
use crate::dto::page::CataloguePageQuery;
use crate::extract::{Actor, ApiCall, Query};
use crate::problem::Problem;

/// Searches the names of models. Other names work too, if the agent server knows them.
#[utoipa::path(tag = "Config", params(CataloguePageQuery, ProviderQuery, ModelQuery), responses(
    (status = 200, body = PageDto<ModelDto>),
))]
#[get("/api/v1/config/models/search")]
pub(crate) async fn models(
    ApiCall(_actor, Query(query)): ApiCall<Actor, Query<ModelQuery>>,
) -> Result<web::Json<PageDto<ModelDto>>, Problem> {
    let (filter, page) = query.into_parts();
    let found = ModelCatalogue::embedded().models(&filter, &page)?;
    Ok(web::Json(PageDto::of(found, ModelDto::from)))
}

/// Searches the providers of models: `openhands`, verified ones, others.
#[utoipa::path(tag = "Config", params(CataloguePageQuery, ProviderQuery), responses(
    (status = 200, body = PageDto<ProviderDto>),
))]
#[get("/api/v1/config/providers/search")]
pub(crate) async fn providers(
    ApiCall(_actor, Query(query)): ApiCall<Actor, Query<ProviderQuery>>,
) -> Result<web::Json<PageDto<ProviderDto>>, Problem> {
    let (filter, page) = query.into_parts();
    let found = ModelCatalogue::embedded().providers(&filter, &page)?;
    Ok(web::Json(PageDto::of(found, ProviderDto::from)))
}
