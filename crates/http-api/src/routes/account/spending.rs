//! What model calls cost.

use actix_web::{get, web};
use application::spending::MonthBudgets;
use domain::user::scope::Scope;

use crate::dto::account::spending::{SpendingDto, SpendingQuery};
use crate::extract::{Actor, Admin, ApiCall, Application, Query};
use crate::problem::Problem;

/// Adds up what the caller's model calls cost.
#[utoipa::path(tag = "Users", params(SpendingQuery), responses((status = 200, body = SpendingDto)))]
#[get("/api/v1/usage/models")]
pub(crate) async fn own(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<SpendingQuery>>,
) -> Result<web::Json<SpendingDto>, Problem> {
    answer(&app, &actor.scope(), query).await
}

/// Adds up what the model calls of all users cost.
#[utoipa::path(tag = "Administration", params(SpendingQuery), responses((status = 200, body = SpendingDto)))]
#[get("/api/v1/admin/usage/models")]
pub(crate) async fn of_everybody(
    app: Application,
    ApiCall(_admin, Query(query)): ApiCall<Admin, Query<SpendingQuery>>,
) -> Result<web::Json<SpendingDto>, Problem> {
    answer(&app, &Scope::System, query).await
}

async fn answer(
    app: &Application,
    scope: &Scope,
    query: SpendingQuery,
) -> Result<web::Json<SpendingDto>, Problem> {
    let spending = &app.spending;
    let (days, group) = query.into_parts(spending.today());
    let totals = spending.totals(scope, days, group).await?;
    let month = spending.of_month(scope).await?;
    let Some(owner) = scope.owner() else {
        let budgets = MonthBudgets::default();
        return Ok(web::Json(SpendingDto::new(totals, month, &budgets, None)));
    };
    let budgets = spending.month_budgets(owner).await?;
    let of_organization = match owner.shared_organization() {
        Some(id) => Some(spending.of_organization(id).await?),
        None => None,
    };
    let dto = SpendingDto::new(totals, month, &budgets, of_organization);
    Ok(web::Json(dto))
}
