//! The audit log, for administrators.

use actix_web::{get, web};

use crate::dto::PageDto;
use crate::dto::account::administration::{AuditEntryDto, AuditQuery};
use crate::dto::page::PageQuery;
use crate::extract::{Admin, ApiCall, Application, Query};
use crate::problem::{Detail, Problem};

/// Searches the audit log, newest first.
#[utoipa::path(
    tag = "Administration",
    params(AuditQuery, PageQuery),
    responses(
        (status = 200, description = "A page", body = PageDto<AuditEntryDto>),
        (status = 403, description = "The caller is not an administrator", body = Detail),
    )
)]
#[get("/api/v1/audit")]
pub(crate) async fn search(
    app: Application,
    ApiCall(_admin, Query(query)): ApiCall<Admin, Query<AuditQuery>>,
) -> Result<web::Json<PageDto<AuditEntryDto>>, Problem> {
    let (filter, page) = query.into_parts();
    let found = app.audit.search(&filter, &page).await?;
    Ok(web::Json(PageDto::of(found, AuditEntryDto::from)))
}
