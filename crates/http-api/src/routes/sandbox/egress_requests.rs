//! Hosts that the egress policy refused to the user's sandboxes, and the user's decisions.

use actix_web::{HttpResponse, delete, get, post, web};
use domain::id::EgressRequestId;
use domain::user::egress::{EgressDecision, EgressRequest};

use crate::audit::CreatedResource;
use crate::dto::page::{PageQuery, Paged};
use crate::dto::sandbox::egress_request::{
    EgressApprovalDto, EgressRequestDto, EgressRequestQuery,
};
use crate::dto::{PageDto, Success};
use crate::extract::{Actor, ApiCall, Application, OptionalBody, PathParam, Query};
use crate::problem::Problem;

/// Searches requests of the user's sandboxes for hosts that the egress policy refused, newest first.
#[utoipa::path(tag = "Sandboxes", params(EgressRequestQuery, PageQuery), responses(
    (status = 200, body = PageDto<EgressRequestDto>),
))]
#[get("/api/v1/egress/requests/search")]
pub(crate) async fn search(
    app: Application,
    ApiCall(actor, Query(Paged { query, page })): ApiCall<Actor, Query<Paged<EgressRequestQuery>>>,
) -> Result<web::Json<PageDto<EgressRequestDto>>, Problem> {
    let found = app
        .egress
        .search(&actor.owner, query.decision, &page.into())
        .await?;
    Ok(web::Json(PageDto::of(found, EgressRequestDto::from)))
}

/// Lets the sandbox that asked, or all sandboxes of the user, reach the host at this port. The body is optional.
#[utoipa::path(tag = "Sandboxes", request_body = EgressApprovalDto, responses((status = 200, body = EgressRequestDto)))]
#[post("/api/v1/egress/requests/{egress_request_id}/approve")]
pub(crate) async fn approve(
    app: Application,
    ApiCall(actor, (PathParam(id), OptionalBody(body))): ApiCall<
        Actor,
        (PathParam<EgressRequestId>, OptionalBody<EgressApprovalDto>),
    >,
) -> Result<HttpResponse, Problem> {
    let decision = body.unwrap_or_default().decision();
    Ok(decided(
        app.egress.decide(&actor.owner, id, decision).await?,
    ))
}

/// Refuses the host for good. The sandbox does not ask again.
#[utoipa::path(tag = "Sandboxes", responses((status = 200, body = EgressRequestDto)))]
#[post("/api/v1/egress/requests/{egress_request_id}/deny")]
pub(crate) async fn deny(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, PathParam<EgressRequestId>>,
) -> Result<HttpResponse, Problem> {
    let denied = EgressDecision::Denied;
    Ok(decided(app.egress.decide(&actor.owner, id, denied).await?))
}

/// Deletes a request with its decision: an approval ends for new connections, and the next attempt asks again.
#[utoipa::path(tag = "Sandboxes", responses((status = 200, body = Success)))]
#[delete("/api/v1/egress/requests/{egress_request_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, PathParam<EgressRequestId>>,
) -> Result<web::Json<Success>, Problem> {
    app.egress.delete(&actor.owner, id).await?;
    Ok(web::Json(Success::DONE))
}

/// The request, whose host the audit log names.
fn decided(request: EgressRequest) -> HttpResponse {
    let host = format!("host:{}:{}", request.host, request.port);
    let mut response = HttpResponse::Ok().json(EgressRequestDto::from(request));
    response.extensions_mut().insert(CreatedResource(host));
    response
}
