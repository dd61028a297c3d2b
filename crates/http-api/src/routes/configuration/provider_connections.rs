//! Connections to model providers: endpoints and keys that the profiles of an organization share.

use actix_web::http::StatusCode;
use actix_web::{delete, get, patch, post, web};
use domain::id::ProviderConnectionId;

use crate::dto::configuration::provider_connections::{
    NewProviderConnectionDto, ProviderConnectionChangeDto, ProviderConnectionDto,
    ProviderConnectionsDto,
};
use crate::extract::{ApiCall, Application, Body, PathParam, State};
use crate::problem::Problem;
use crate::routes::account::organizations::{OrganizationEditor, OrganizationMember};

/// Lists the connections, without their keys.
#[utoipa::path(tag = "Settings", responses((status = 200, body = ProviderConnectionsDto)))]
#[get("/api/organizations/{organization_id}/provider-connections")]
pub(crate) async fn list(
    app: Application,
    ApiCall(member, ()): ApiCall<OrganizationMember>,
) -> Result<web::Json<ProviderConnectionsDto>, Problem> {
    let profiles = app.settings.profiles(&member.owner).await?;
    Ok(web::Json(ProviderConnectionsDto::from(&profiles)))
}

/// Adds a connection. At most 50.
#[utoipa::path(tag = "Settings", request_body = NewProviderConnectionDto, responses(
    (status = 201, body = ProviderConnectionDto),
    (status = 400, description = "The endpoint is no usable URL"),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "There are 50 connections"),
))]
#[post("/api/organizations/{organization_id}/provider-connections")]
pub(crate) async fn create(
    app: Application,
    state: State,
    ApiCall(OrganizationEditor(member), Body(input)): ApiCall<
        OrganizationEditor<OrganizationMember>,
        Body<NewProviderConnectionDto>,
    >,
) -> Result<(web::Json<ProviderConnectionDto>, StatusCode), Problem> {
    let id = ProviderConnectionId::new(state.ports.ids.uuid());
    let (settings, input) = (&app.settings, input.into());
    let added = settings.add_provider_connection(&member.owner, id, &input);
    let added = web::Json(ProviderConnectionDto::from(&added.await?));
    Ok((added, StatusCode::CREATED))
}

/// Changes a connection. The next start of each profile that refers to it uses the new values.
#[utoipa::path(tag = "Settings", request_body = ProviderConnectionChangeDto, responses(
    (status = 200, body = ProviderConnectionDto),
    (status = 400, description = "The endpoint is no usable URL"),
    (status = 403, description = "The caller's role does not allow this"),
))]
#[patch("/api/organizations/{organization_id}/provider-connections/{connection_id}")]
pub(crate) async fn update(
    app: Application,
    ApiCall(OrganizationEditor(member), (PathParam(id), Body(change))): ApiCall<
        OrganizationEditor<OrganizationMember>,
        (
            PathParam<ProviderConnectionId>,
            Body<ProviderConnectionChangeDto>,
        ),
    >,
) -> Result<web::Json<ProviderConnectionDto>, Problem> {
    let (settings, change) = (&app.settings, change.into());
    let changed = settings.change_provider_connection(&member.owner, id, &change);
    Ok(web::Json(ProviderConnectionDto::from(&changed.await?)))
}

/// Deletes a connection that no profile refers to.
#[utoipa::path(tag = "Settings", responses(
    (status = 200, body = ProviderConnectionDto),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "A profile or the current model uses it"),
))]
#[delete("/api/organizations/{organization_id}/provider-connections/{connection_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(OrganizationEditor(member), PathParam(id)): ApiCall<
        OrganizationEditor<OrganizationMember>,
        PathParam<ProviderConnectionId>,
    >,
) -> Result<web::Json<ProviderConnectionDto>, Problem> {
    let deleted = app
        .settings
        .delete_provider_connection(&member.owner, id)
        .await?;
    Ok(web::Json(ProviderConnectionDto::from(&deleted)))
}
