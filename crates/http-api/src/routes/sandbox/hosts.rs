//! The hosts of sandboxes, for administrators.

use actix_web::{delete, get, patch, web};
use domain::id::HostId;

use crate::dto::sandbox::host::{HostDto, HostUpdateDto};
use crate::dto::{PageDto, Success};
use crate::extract::{Admin, ApiCall, Application, Body, PathParam};
use crate::problem::Problem;

/// Lists the hosts that share the store, by id, all on one page.
#[utoipa::path(tag = "Administration", responses((status = 200, body = PageDto<HostDto>)))]
#[get("/api/v1/admin/hosts")]
pub(crate) async fn list(
    app: Application,
    ApiCall(_admin, ()): ApiCall<Admin, ()>,
) -> Result<web::Json<PageDto<HostDto>>, Problem> {
    let (hosts, now) = app.hosts.list().await?;
    let items = hosts.into_iter().map(|host| HostDto::of(host, now));
    Ok(web::Json(PageDto {
        items: items.collect(),
        next_page_id: None,
    }))
}

/// Drains a host, so that it takes no new starts, or ends that. Starts go to other hosts within seconds; sandboxes on the host
/// keep running.
#[utoipa::path(tag = "Administration", request_body = HostUpdateDto, responses((status = 200, body = HostDto)))]
#[patch("/api/v1/admin/hosts/{host_id}")]
pub(crate) async fn update(
    app: Application,
    ApiCall(_admin, (PathParam(host), Body(input))): ApiCall<
        Admin,
        (PathParam<HostId>, Body<HostUpdateDto>),
    >,
) -> Result<web::Json<HostDto>, Problem> {
    let (host, now) = app.hosts.set_draining(&host, input.draining).await?;
    Ok(web::Json(HostDto::of(host, now)))
}

/// Removes a lost host that does not return, with its sandboxes. Conversations in them stay, and show MISSING.
#[utoipa::path(tag = "Administration", responses(
    (status = 200, body = Success),
    (status = 409, description = "The host is not lost"),
))]
#[delete("/api/v1/admin/hosts/{host_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(_admin, PathParam(host)): ApiCall<Admin, PathParam<HostId>>,
) -> Result<web::Json<Success>, Problem> {
    app.hosts.remove(&host).await?;
    Ok(web::Json(Success::DONE))
}
