//! The members of an organization, and the invitations to join it.

use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::{HttpResponse, delete, get, patch, post, web};
use application::organizations::NewInvitation;
use domain::id::InvitationId;
use domain::user::organization::MemberFilter;
use secrecy::{ExposeSecret as _, SecretString};

use crate::decode::model;
use crate::dto::Success;
use crate::dto::account::organization::{
    AcceptInvitationDto, AcceptedInvitationDto, FailedInvitationDto, InvitationDto, InvitationsDto,
    InviteDto, InviteResultDto, MemberCountDto, MemberDto, MemberPageDto, MemberPageQuery,
    MemberParams, MemberQuery, MemberUpdateDto, is_email,
};
use crate::dto::page::Paged;
use crate::extract::{
    Actor, Anonymous, ApiCall, Application, AuditOrigin, Body, PathParam, PathParams, Query, State,
};
use crate::problem::Problem;
use crate::routes::account::organizations::OrganizationMember;

/// Lists members by name.
#[utoipa::path(tag = "Organizations", params(MemberQuery, MemberPageQuery), responses((status = 200, body = MemberPageDto)))]
#[get("/api/organizations/{organization_id}/members")]
pub(crate) async fn list(
    app: Application,
    ApiCall(member, Query(query)): ApiCall<
        OrganizationMember,
        Query<Paged<MemberQuery, MemberPageQuery>>,
    >,
) -> Result<web::Json<MemberPageDto>, Problem> {
    let (number, limit) = (query.page.page_id, query.page.limit.get());
    let skip = usize::try_from(number - 1).unwrap_or_default() * limit;
    let filter = filter(query.query);
    let found = app
        .organizations
        .members(&member.actor, &filter, skip, limit + 1);
    let mut found = found.await?;
    let is_more = found.len() > limit;
    found.truncate(limit);
    Ok(web::Json(MemberPageDto {
        items: found.into_iter().map(MemberDto::from).collect(),
        current_page: number,
        per_page: i64::try_from(limit).unwrap_or(i64::MAX),
        next_page_id: is_more.then(|| (number + 1).to_string()),
    }))
}

/// Counts members.
#[utoipa::path(tag = "Organizations", params(MemberQuery), responses((status = 200, body = MemberCountDto)))]
#[get("/api/organizations/{organization_id}/members/count")]
pub(crate) async fn count(
    app: Application,
    ApiCall(member, Query(query)): ApiCall<OrganizationMember, Query<MemberQuery>>,
) -> Result<web::Json<MemberCountDto>, Problem> {
    let filter = filter(query);
    let count = app.organizations.count_members(&member.actor, &filter);
    let count = i64::try_from(count.await?).unwrap_or(i64::MAX);
    Ok(web::Json(MemberCountDto { count }))
}

fn filter(query: MemberQuery) -> MemberFilter {
    MemberFilter {
        name: query.name.or(query.email),
    }
}

/// Loads a member.
#[utoipa::path(tag = "Organizations", responses((status = 200, body = MemberDto)))]
#[get("/api/organizations/{organization_id}/members/{user_id}")]
pub(crate) async fn load(
    app: Application,
    ApiCall(member, PathParams(at)): ApiCall<OrganizationMember, PathParams<MemberParams>>,
) -> Result<web::Json<MemberDto>, Problem> {
    let found = app.organizations.member(&member.actor, &at.user).await?;
    Ok(web::Json(found.into()))
}

/// Changes the role of another member.
#[utoipa::path(tag = "Organizations", request_body = MemberUpdateDto, responses(
    (status = 200, body = MemberDto),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "The member is the caller or the last owner"),
))]
#[patch("/api/organizations/{organization_id}/members/{user_id}")]
pub(crate) async fn update(
    app: Application,
    ApiCall(member, (origin, PathParams(at), Body(input))): ApiCall<
        OrganizationMember,
        (AuditOrigin, PathParams<MemberParams>, Body<MemberUpdateDto>),
    >,
) -> Result<web::Json<MemberDto>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    let organizations = &app.organizations;
    let changed = organizations.set_member_role(&origin, &member.actor, &at.user, input.role);
    Ok(web::Json(changed.await?.into()))
}

/// Removes a member, or leaves the organization. The keys of the member for this organization end, and their sandboxes in it
/// pause; their data stays.
#[utoipa::path(tag = "Organizations", responses(
    (status = 200, body = Success),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "The member is the last owner"),
))]
#[delete("/api/organizations/{organization_id}/members/{user_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(member, (origin, PathParams(at))): ApiCall<
        OrganizationMember,
        (AuditOrigin, PathParams<MemberParams>),
    >,
) -> Result<web::Json<Success>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    let organizations = &app.organizations;
    organizations
        .remove_member(&origin, &member.actor, &at.user)
        .await?;
    Ok(web::Json(Success::DONE))
}

/// Invites people, by mail if the service sends mail. Only this response contains the links; the inviter passes on those that
/// were not sent.
#[utoipa::path(tag = "Organizations", request_body = InviteDto, responses(
    (status = 201, body = InviteResultDto),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "The organization has the maximum number of invitations"),
))]
#[post("/api/organizations/{organization_id}/members/invite")]
pub(crate) async fn invite(
    app: Application,
    state: State,
    ApiCall(member, (origin, Body(input))): ApiCall<
        OrganizationMember,
        (AuditOrigin, Body<InviteDto>),
    >,
) -> Result<HttpResponse, Problem> {
    let origin = origin.with_status(StatusCode::CREATED);
    let (emails, refused): (Vec<String>, Vec<String>) =
        input.emails.into_iter().partition(|it| is_email(it));
    let failed = refused.into_iter().map(|email| FailedInvitationDto {
        email,
        error: "This is not an e-mail address".to_owned(),
    });
    let failed: Vec<FailedInvitationDto> = failed.collect();
    let made = if emails.is_empty() && !failed.is_empty() {
        Vec::new()
    } else {
        app.organizations
            .invite(&origin, &member.actor, &emails, input.role)
            .await?
    };
    let base = state.addresses.public();
    let made: Vec<(NewInvitation, SecretString)> = made
        .into_iter()
        .map(|new| {
            let link = format!("{base}/invite#{}", new.token.expose_secret());
            (new, link.into())
        })
        .collect();
    let deliveries = app.organizations.mail_invitations(&member.actor, &made);
    let deliveries = deliveries.await;
    let successful = made.into_iter().zip(deliveries);
    let successful = successful.map(|((new, link), delivery)| {
        InvitationDto::of(new.invitation, Some(link.into()), delivery)
    });
    Ok(HttpResponse::Created().json(InviteResultDto {
        successful: successful.collect(),
        failed,
        email_delivery_configured: app.organizations.mails_invitations(),
    }))
}

/// Lists the pending invitations, oldest first, without their links.
#[utoipa::path(tag = "Organizations", responses(
    (status = 200, body = InvitationsDto),
    (status = 403, description = "The caller's role does not allow this"),
))]
#[get("/api/organizations/{organization_id}/members/invite")]
pub(crate) async fn invitations(
    app: Application,
    ApiCall(member, ()): ApiCall<OrganizationMember, ()>,
) -> Result<web::Json<InvitationsDto>, Problem> {
    let found = app.organizations.invitations(&member.actor).await?;
    let items = found
        .into_iter()
        .map(|it| InvitationDto::of(it, None, None));
    Ok(web::Json(InvitationsDto {
        items: items.collect(),
    }))
}

/// Withdraws an invitation. Its link stops working.
#[utoipa::path(tag = "Organizations", responses(
    (status = 204, description = "Withdrawn"),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "The organization is personal"),
))]
#[delete("/api/organizations/{organization_id}/members/invite/{invitation_id}")]
pub(crate) async fn withdraw(
    app: Application,
    ApiCall(member, (origin, PathParam(id))): ApiCall<
        OrganizationMember,
        (AuditOrigin, PathParam<InvitationId>),
    >,
) -> Result<HttpResponse, Problem> {
    let origin = origin.with_status(StatusCode::NO_CONTENT);
    let organizations = &app.organizations;
    organizations
        .withdraw_invitation(&origin, &member.actor, id)
        .await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Accepts an invitation: the caller becomes a member.
#[utoipa::path(tag = "Organizations", request_body = AcceptInvitationDto, responses(
    (status = 200, body = AcceptedInvitationDto),
    (status = 400, description = "The invitation is not valid"),
    (status = 409, description = "The caller is a member already"),
))]
#[post("/api/organizations/members/invite/accept")]
pub(crate) async fn accept(
    app: Application,
    ApiCall(actor, (origin, Body(input))): ApiCall<Actor, (AuditOrigin, Body<AcceptInvitationDto>)>,
) -> Result<web::Json<AcceptedInvitationDto>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    let token = input.token.expose_secret();
    let joined = app.organizations.accept(&origin, &actor.user, token);
    Ok(web::Json(joined.await?.into()))
}

/// The query of a link to accept an invitation.
#[model(query)]
pub(crate) struct AcceptQuery {
    /// The token of the invitation.
    #[decode(default)]
    #[validate(length(max = 200))]
    token: String,
}

/// Leads to the page on which a person accepts an invitation.
#[utoipa::path(tag = "Organizations", security(()), params(AcceptQuery), responses((status = 303, description = "The page `/invite`")))]
#[get("/api/organizations/members/invite/accept")]
pub(crate) async fn accept_page(
    state: State,
    ApiCall(_caller, Query(query)): ApiCall<Anonymous, Query<AcceptQuery>>,
) -> Result<HttpResponse, Problem> {
    let is_token = |c: char| c.is_ascii_alphanumeric();
    let token: String = query.token.chars().filter(|c| is_token(*c)).collect();
    let page = format!("{}/invite#{token}", state.addresses.prefix());
    Ok(HttpResponse::SeeOther()
        .insert_header((LOCATION, page))
        .finish())
}
