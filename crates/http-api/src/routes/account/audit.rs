//! The audit log, for administrators.

use actix_web::{get, web};

use crate::dto::PageDto;
use crate::dto::account::administration::{AuditEntryDto, AuditQuery};
use crate::dto::page::{PageQuery, Paged};
use crate::extract::{Admin, ApiCall, Application, Query};
use crate::problem::Problem;

/// Searches the audit log, newest first.
#[utoipa::path(tag = "Administration", params(AuditQuery, PageQuery), responses(
    (status = 200, body = PageDto<AuditEntryDto>),
))]
#[get("/api/v1/audit")]
pub(crate) async fn search(
    app: Application,
    ApiCall(_admin, Query(Paged { query, page })): ApiCall<Admin, Query<Paged<AuditQuery>>>,
) -> Result<web::Json<PageDto<AuditEntryDto>>, Problem> {
    let found = app.audit.search(&query.into(), &page.into()).await?;
    Ok(web::Json(PageDto::of(found, AuditEntryDto::from)))
}
