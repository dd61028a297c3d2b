//! Skills that users can choose from.

use actix_web::{get, post, web};
use application::skills::RegisteredMarketplace;

use crate::dto::PageDto;
use crate::dto::configuration::skills::{MarketplaceOffersDto, MarketplaceRegistration, SkillDto};
use crate::dto::page::PageQuery;
use crate::extract::{Actor, ApiCall, Application, Body, Query};
use crate::problem::Problem;

/// Lists the skills of this installation, by source and name.
#[utoipa::path(tag = "Skills", params(PageQuery), responses((status = 200, body = PageDto<SkillDto>)))]
#[get("/api/v1/skills/search")]
pub(crate) async fn search(
    app: Application,
    ApiCall(_actor, Query(page)): ApiCall<Actor, Query<PageQuery>>,
) -> Result<web::Json<PageDto<SkillDto>>, Problem> {
    let found = app.skills.search(&page.into()).await?;
    Ok(web::Json(PageDto::of(found, SkillDto::from)))
}

/// Lists the skills of marketplaces: public git repositories, fetched for each request. `errors` describes those that cannot
/// be read.
#[utoipa::path(tag = "Skills", request_body = Vec<MarketplaceRegistration>, responses(
    (status = 200, body = MarketplaceOffersDto),
))]
#[post("/api/v1/skills/marketplace-skills")]
pub(crate) async fn marketplace_skills(
    app: Application,
    ApiCall(actor, Body(input)): ApiCall<Actor, Body<Vec<MarketplaceRegistration>>>,
) -> Result<web::Json<MarketplaceOffersDto>, Problem> {
    let asked = input.into_iter().map(RegisteredMarketplace::from);
    let offers = app.skills.offers(&actor.owner, asked.collect()).await;
    Ok(web::Json(offers.into()))
}
