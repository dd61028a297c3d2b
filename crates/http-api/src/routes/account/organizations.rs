//! Organizations: which ones the caller has, and which one sessions act in. An organization in a path of which the caller is
//! no member is not found, whatever else the request has.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, patch, post, web};
use domain::id::{OrganizationId, OwnerId};
use domain::user::permission::Permission;

use crate::dto::Success;
use crate::dto::account::organization::{
    MembershipDto, NewOrganizationDto, OrganizationDto, OrganizationUpdateDto, OrganizationsDto,
};
use crate::extract::{
    Actor, Admin, ApiCall, Application, AuditOrigin, Body, Caller, State, named_organization,
    state_of, unplaced_actor,
};
use crate::problem::Problem;

/// A user who acts in the organization in the path, as a member of it.
pub(crate) struct OrganizationMember {
    pub(crate) actor: Actor,
    pub(crate) owner: OwnerId,
}

impl Caller for OrganizationMember {
    /// Refuses other users before anything else of the request is read.
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let actor = unplaced_actor(req).await?;
        let missing = || Problem::missing("Organization not found");
        let named = req.match_info().get("organization_id").unwrap_or_default();
        let id: OrganizationId = named.parse().map_err(|_| missing())?;
        let authenticator = &state_of(req)?.ports.authenticator;
        let placed = authenticator.act_in(actor, id).await?;
        let actor = placed.ok_or_else(missing)?;
        if named_organization(req)?.is_some_and(|named| named != id) {
            return Err(Problem::bad_request(
                "X-Org-Id names another organization than the path: leave the header out",
            ));
        }
        let owner = actor.owner.clone();
        Ok(Self { actor, owner })
    }
}

impl AsRef<Actor> for OrganizationMember {
    fn as_ref(&self) -> &Actor {
        &self.actor
    }
}

/// A caller who may edit what belongs to the organization in which they act: model profiles, provider connections, agent
/// profiles.
pub(crate) struct OrganizationEditor<C>(pub(crate) C);

impl<C: Caller + AsRef<Actor>> Caller for OrganizationEditor<C> {
    /// Refuses other members before anything else of the request is read.
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let caller = C::identify(req).await?;
        caller
            .as_ref()
            .check_permission(Permission::EditOrgSettings)?;
        Ok(Self(caller))
    }
}

/// A user, whatever organization `X-Org-Id` names: clients whose organization is gone, or another user's, find the others.
pub(crate) struct AnywhereActor(pub(crate) Actor);

impl Caller for AnywhereActor {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        unplaced_actor(req).await.map(Self)
    }
}

/// Lists the caller's organizations, the personal one first. `X-Org-Id` is ignored.
#[utoipa::path(tag = "Organizations", responses((status = 200, body = OrganizationsDto)))]
#[get("/api/organizations")]
pub(crate) async fn list(
    app: Application,
    ApiCall(AnywhereActor(actor), ()): ApiCall<AnywhereActor, ()>,
) -> Result<web::Json<OrganizationsDto>, Problem> {
    let found = app.organizations.list(&actor).await?;
    Ok(web::Json(OrganizationsDto {
        items: found.into_iter().map(OrganizationDto::from).collect(),
        current_org_id: actor.owner.organization(),
    }))
}

/// Creates an organization that users share. Only for administrators of the installation.
#[utoipa::path(tag = "Organizations", request_body = NewOrganizationDto, responses(
    (status = 201, body = OrganizationDto),
    (status = 404, description = "There is no such user"),
))]
#[post("/api/organizations")]
pub(crate) async fn create(
    app: Application,
    ApiCall(Admin(actor), (origin, Body(input))): ApiCall<
        Admin,
        (AuditOrigin, Body<NewOrganizationDto>),
    >,
) -> Result<HttpResponse, Problem> {
    let origin = origin.with_status(StatusCode::CREATED);
    let owner = input.owner.unwrap_or(actor.user);
    let made = app.organizations.create(&origin, &input.name, &owner);
    Ok(HttpResponse::Created().json(OrganizationDto::from(made.await?)))
}

/// Loads an organization.
#[utoipa::path(tag = "Organizations", responses((status = 200, body = OrganizationDto)))]
#[get("/api/organizations/{organization_id}")]
pub(crate) async fn load(
    app: Application,
    ApiCall(member, ()): ApiCall<OrganizationMember, ()>,
) -> Result<web::Json<OrganizationDto>, Problem> {
    let found = app.organizations.current(&member.actor).await?;
    Ok(web::Json(found.into()))
}

/// Changes the name or the budget of an organization.
#[utoipa::path(tag = "Organizations", request_body = OrganizationUpdateDto, responses(
    (status = 200, body = OrganizationDto),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "The organization is personal"),
))]
#[patch("/api/organizations/{organization_id}")]
pub(crate) async fn update(
    app: Application,
    ApiCall(member, (origin, Body(input))): ApiCall<
        OrganizationMember,
        (AuditOrigin, Body<OrganizationUpdateDto>),
    >,
) -> Result<web::Json<OrganizationDto>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    let organizations = &app.organizations;
    let changed = organizations.update(&origin, &member.actor, input.into());
    Ok(web::Json(changed.await?.into()))
}

/// Deletes an organization with all that its members own in it, permanently; sandboxes follow shortly after.
#[utoipa::path(tag = "Organizations", responses(
    (status = 200, body = Success),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "The organization is personal"),
))]
#[delete("/api/organizations/{organization_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(member, origin): ApiCall<OrganizationMember, AuditOrigin>,
) -> Result<web::Json<Success>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    app.organizations.delete(&origin, &member.actor).await?;
    Ok(web::Json(Success::DONE))
}

/// Loads the caller's role and permissions in the organization.
#[utoipa::path(tag = "Organizations", responses((status = 200, body = MembershipDto)))]
#[get("/api/organizations/{organization_id}/me")]
pub(crate) async fn me(
    state: State,
    ApiCall(member, ()): ApiCall<OrganizationMember, ()>,
) -> web::Json<MembershipDto> {
    let membership = MembershipDto::from(&member.actor);
    web::Json(match state.automations {
        Some(_) => membership,
        None => membership.without_automations(),
    })
}

/// Sets the organization in which the caller's sessions act when a request names none.
#[utoipa::path(tag = "Organizations", responses((status = 200, body = OrganizationDto)))]
#[post("/api/organizations/{organization_id}/switch")]
pub(crate) async fn switch(
    app: Application,
    ApiCall(member, origin): ApiCall<OrganizationMember, AuditOrigin>,
) -> Result<web::Json<OrganizationDto>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    app.organizations.switch(&origin, &member.actor).await?;
    let found = app.organizations.current(&member.actor).await?;
    Ok(web::Json(found.into()))
}
