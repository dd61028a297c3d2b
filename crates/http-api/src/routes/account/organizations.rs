//! Organizations, as the web front end of the 1.20 line requests them: it saves model profiles only for the owner of one.
//! Each user has one organization, whose profiles are the user's (`/api/v1/settings/profiles`).

use actix_web::{HttpRequest, get, web};
use domain::id::{OrganizationId, UserId};

use crate::dto::account::organization::{MemberDto, OrganizationsDto, ProviderConnectionsDto};
use crate::extract::{Actor, ApiCall, Caller};
use crate::problem::Problem;

/// A user who is a member of the organization in the path.
pub(crate) struct OrganizationMember {
    pub(crate) user: UserId,
}

impl Caller for OrganizationMember {
    /// Refuses other users before anything else of the request is read.
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let user = Actor::identify(req).await?.user;
        let named = req.match_info().get("organization_id").unwrap_or_default();
        let named = named.parse::<OrganizationId>();
        if named.is_ok_and(|named| named == OrganizationId::personal(&user)) {
            Ok(Self { user })
        } else {
            Err(Problem::missing("Organization not found"))
        }
    }
}

/// Lists the caller's organizations: exactly one, with the caller as its only member.
#[utoipa::path(tag = "Users", responses((status = 200, body = OrganizationsDto)))]
#[get("/api/organizations")]
pub(crate) async fn list(ApiCall(actor, ()): ApiCall<Actor, ()>) -> web::Json<OrganizationsDto> {
    web::Json(OrganizationsDto::from(&actor.user))
}

/// Loads the caller's role and permissions in their organization.
#[utoipa::path(tag = "Users", responses((status = 200, body = MemberDto)))]
#[get("/api/organizations/{organization_id}/me")]
pub(crate) async fn me(
    ApiCall(OrganizationMember { user }, ()): ApiCall<OrganizationMember, ()>,
) -> web::Json<MemberDto> {
    web::Json(MemberDto::from(&user))
}

/// Lists keys of model providers that profiles share; always empty.
#[utoipa::path(tag = "Settings", responses((status = 200, body = ProviderConnectionsDto)))]
#[get("/api/organizations/{organization_id}/provider-connections")]
pub(crate) async fn provider_connections(
    ApiCall(_member, ()): ApiCall<OrganizationMember, ()>,
) -> web::Json<ProviderConnectionsDto> {
    web::Json(ProviderConnectionsDto::NONE)
}
