//! Organizations, as the web front end of the 1.20 line requests them: it saves model profiles only for the owner of one.
//! Each user has one organization, whose profiles are the user's (`/api/v1/settings/profiles`).

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, delete, get, post, web};
use domain::id::{OrganizationId, UserId};

use crate::dto::account::organization::{MemberDto, OrganizationsDto, ProviderConnectionsDto};
use crate::dto::configuration::profiles::{
    ProfileActivatedDto, ProfileChangedDto, ProfileDetailDto, ProfileListDto, ProfileName,
    RenameProfileDto, SaveProfileDto,
};
use crate::extract::{Actor, ApiCall, Application, Body, Caller, OptionalBody, PathParam, State};
use crate::problem::{Detail, Problem};
use crate::routes::configuration::profiles::{self, ProfileParam, ProfileResponse};

/// A user who is a member of the organization in the path.
pub(crate) struct OrganizationMember(UserId);

impl Caller for OrganizationMember {
    /// Refuses other users before anything else of the request is read.
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let user = Actor::identify(req).await?.user;
        let named = req.match_info().get("organization_id").unwrap_or_default();
        let named = named.parse::<OrganizationId>();
        if named.is_ok_and(|named| named == OrganizationId::personal(&user)) {
            Ok(Self(user))
        } else {
            Err(Problem::missing("Organization not found"))
        }
    }
}

/// Lists the caller's organizations: exactly one, with the caller as its only member.
#[utoipa::path(
    tag = "Users",
    responses((status = 200, description = "The organization", body = OrganizationsDto))
)]
#[get("/api/organizations")]
pub(crate) async fn list(ApiCall(actor, ()): ApiCall<Actor, ()>) -> web::Json<OrganizationsDto> {
    web::Json(OrganizationsDto::from(&actor.user))
}

/// Loads the caller's role and permissions in their organization.
#[utoipa::path(
    tag = "Users",
    params(("organization_id" = Uuid, Path)),
    responses((status = 200, description = "The caller as a member", body = MemberDto))
)]
#[get("/api/organizations/{organization_id}/me")]
pub(crate) async fn me(
    ApiCall(OrganizationMember(user), ()): ApiCall<OrganizationMember, ()>,
) -> web::Json<MemberDto> {
    web::Json(MemberDto::from(&user))
}

/// Lists keys of model providers that profiles share; always empty.
#[utoipa::path(
    tag = "Settings",
    params(("organization_id" = Uuid, Path)),
    responses((status = 200, description = "None", body = ProviderConnectionsDto))
)]
#[get("/api/organizations/{organization_id}/provider-connections")]
pub(crate) async fn provider_connections(
    ApiCall(_member, ()): ApiCall<OrganizationMember, ()>,
) -> web::Json<ProviderConnectionsDto> {
    web::Json(ProviderConnectionsDto::NONE)
}

/// Lists the profiles of the organization, without their keys.
#[utoipa::path(
    tag = "Settings",
    params(("organization_id" = Uuid, Path)),
    responses((status = 200, description = "Done", body = ProfileListDto))
)]
#[get("/api/organizations/{organization_id}/profiles")]
pub(crate) async fn list_profiles(
    app: Application,
    ApiCall(OrganizationMember(user), ()): ApiCall<OrganizationMember>,
) -> ProfileResponse<ProfileListDto> {
    profiles::list_for(&app, &user).await
}

/// Loads a profile with its configuration, without its keys.
#[utoipa::path(
    tag = "Settings",
    params(
        ("organization_id" = Uuid, Path),
        ("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$"),
    ),
    responses((status = 200, description = "Done", body = ProfileDetailDto))
)]
#[get("/api/organizations/{organization_id}/profiles/{name}")]
pub(crate) async fn load_profile(
    app: Application,
    state: State,
    ApiCall(OrganizationMember(user), PathParam(ProfileName(name))): ApiCall<
        OrganizationMember,
        ProfileParam,
    >,
) -> ProfileResponse<ProfileDetailDto> {
    profiles::load_for(&app, &user, name, state.ports.clock.now()).await
}

/// Saves a profile: the configuration in the body, or the active one. At most 10.
#[utoipa::path(
    tag = "Settings",
    params(
        ("organization_id" = Uuid, Path),
        ("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$"),
    ),
    request_body = Option<SaveProfileDto>,
    responses(
        (status = 201, description = "Saved", body = ProfileChangedDto),
        (status = 409, description = "There are 10 profiles", body = Detail),
    )
)]
#[post("/api/organizations/{organization_id}/profiles/{name}")]
pub(crate) async fn save_profile(
    app: Application,
    ApiCall(OrganizationMember(user), (PathParam(ProfileName(name)), OptionalBody(input))): ApiCall<
        OrganizationMember,
        (ProfileParam, OptionalBody<SaveProfileDto>),
    >,
) -> Result<(web::Json<ProfileChangedDto>, StatusCode), Problem> {
    profiles::save_for(&app, &user, name, input).await
}

/// Deletes a profile; an unknown one is no error. If it was active, the first remaining profile becomes active.
#[utoipa::path(
    tag = "Settings",
    params(
        ("organization_id" = Uuid, Path),
        ("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$"),
    ),
    responses((status = 200, description = "Done", body = ProfileChangedDto))
)]
#[delete("/api/organizations/{organization_id}/profiles/{name}")]
pub(crate) async fn remove_profile(
    app: Application,
    ApiCall(OrganizationMember(user), PathParam(ProfileName(name))): ApiCall<
        OrganizationMember,
        ProfileParam,
    >,
) -> ProfileResponse<ProfileChangedDto> {
    profiles::remove_for(&app, &user, name).await
}

/// Activates a profile.
#[utoipa::path(
    tag = "Settings",
    params(
        ("organization_id" = Uuid, Path),
        ("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$"),
    ),
    responses((status = 200, description = "Done", body = ProfileActivatedDto))
)]
#[post("/api/organizations/{organization_id}/profiles/{name}/activate")]
pub(crate) async fn activate_profile(
    app: Application,
    ApiCall(OrganizationMember(user), PathParam(ProfileName(name))): ApiCall<
        OrganizationMember,
        ProfileParam,
    >,
) -> ProfileResponse<ProfileActivatedDto> {
    profiles::activate_for(&app, &user, name).await
}

/// Renames a profile.
#[utoipa::path(
    tag = "Settings",
    params(
        ("organization_id" = Uuid, Path),
        ("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$"),
    ),
    request_body = RenameProfileDto,
    responses(
        (status = 200, description = "Done", body = ProfileChangedDto),
        (status = 409, description = "The name is taken", body = Detail),
    )
)]
#[post("/api/organizations/{organization_id}/profiles/{name}/rename")]
pub(crate) async fn rename_profile(
    app: Application,
    ApiCall(OrganizationMember(user), (PathParam(ProfileName(name)), Body(input))): ApiCall<
        OrganizationMember,
        (ProfileParam, Body<RenameProfileDto>),
    >,
) -> ProfileResponse<ProfileChangedDto> {
    profiles::rename_for(&app, &user, &name, input.new_name.0).await
}
