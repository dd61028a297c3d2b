//! Profiles of models: named configurations, one of which may be in force.

use actix_web::http::StatusCode;
use actix_web::{delete, get, post, web};
use application::settings::{ProfileRefusal, UpdateError};

use crate::dto::profiles::{
    ProfileActivatedDto, ProfileChangedDto, ProfileDetailDto, ProfileListDto, ProfileName,
    RenameProfileDto, SaveProfileDto, SaveProfileInput, refused,
};
use crate::extract::{Actor, Application, Body, Call, OptionalBody, PathParam, State};
use crate::problem::{Detail, Problem};

type Profile = PathParam<ProfileName>;

/// All profiles, without their keys.
#[utoipa::path(tag = "Settings", responses((status = 200, description = "Done", body = ProfileListDto)))]
#[get("/api/v1/settings/profiles")]
pub(super) async fn list(
    app: Application,
    Call(actor, ()): Call<Actor>,
) -> Result<web::Json<ProfileListDto>, Problem> {
    let profiles = app.settings.profiles(&actor.user).await?;
    Ok(web::Json(ProfileListDto::from(&profiles)))
}

/// One profile with its configuration, without its keys.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    responses((status = 200, description = "Done", body = ProfileDetailDto))
)]
#[get("/api/v1/settings/profiles/{name}")]
pub(super) async fn load(
    app: Application,
    state: State,
    Call(actor, PathParam(ProfileName(name))): Call<Actor, Profile>,
) -> Result<web::Json<ProfileDetailDto>, Problem> {
    let profiles = app.settings.profiles(&actor.user).await?;
    let found = profiles.find(&name);
    let profile =
        found.ok_or_else(|| refused(UpdateError::Refused(ProfileRefusal::NotFound(name))))?;
    Ok(web::Json(ProfileDetailDto::of(
        profile,
        state.ports().clock.now(),
    )))
}

/// Saves a profile: the configuration that is sent, or the one in force. At most 10.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    request_body = Option<SaveProfileDto>,
    responses((status = 201, description = "Saved", body = ProfileChangedDto), (status = 409, description = "There are 10 profiles", body = Detail))
)]
#[post("/api/v1/settings/profiles/{name}")]
pub(super) async fn save(
    app: Application,
    Call(actor, (PathParam(ProfileName(name)), OptionalBody(input))): Call<
        Actor,
        (Profile, OptionalBody<SaveProfileInput>),
    >,
) -> Result<(web::Json<ProfileChangedDto>, StatusCode), Problem> {
    let input = input.unwrap_or_default().0;
    let saved = app.settings.save_profile(&actor.user, &name, &input).await;
    saved.map_err(refused)?;
    let message = format!("Profile '{name}' saved");
    let changed = web::Json(ProfileChangedDto { name, message });
    Ok((changed, StatusCode::CREATED))
}

/// Deletes a profile; no error if there is none. After the active one the first of the others becomes active.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    responses((status = 200, description = "Done", body = ProfileChangedDto))
)]
#[delete("/api/v1/settings/profiles/{name}")]
pub(super) async fn remove(
    app: Application,
    Call(actor, PathParam(ProfileName(name))): Call<Actor, Profile>,
) -> Result<web::Json<ProfileChangedDto>, Problem> {
    app.settings.delete_profile(&actor.user, &name).await?;
    let message = format!("Profile '{name}' deleted");
    Ok(web::Json(ProfileChangedDto { name, message }))
}

/// Makes a profile's configuration the one in force.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    responses((status = 200, description = "Done", body = ProfileActivatedDto))
)]
#[post("/api/v1/settings/profiles/{name}/activate")]
pub(super) async fn activate(
    app: Application,
    Call(actor, PathParam(ProfileName(name))): Call<Actor, Profile>,
) -> Result<web::Json<ProfileActivatedDto>, Problem> {
    let activated = app.settings.activate_profile(&actor.user, &name).await;
    let model = Some(activated.map_err(refused)?);
    let message = format!("Switched to profile '{name}'");
    Ok(web::Json(ProfileActivatedDto {
        name,
        message,
        model,
    }))
}

/// Gives a profile another name.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    request_body = RenameProfileDto,
    responses((status = 200, description = "Done", body = ProfileChangedDto), (status = 409, description = "The name is taken", body = Detail))
)]
#[post("/api/v1/settings/profiles/{name}/rename")]
pub(super) async fn rename(
    app: Application,
    Call(actor, (PathParam(ProfileName(name)), Body(input))): Call<
        Actor,
        (Profile, Body<RenameProfileDto>),
    >,
) -> Result<web::Json<ProfileChangedDto>, Problem> {
    let new_name = input.new_name;
    let renamed = app.settings.rename_profile(&actor.user, &name, &new_name);
    renamed.await.map_err(refused)?;
    let message = format!("Profile '{name}' renamed to '{new_name}'");
    let name = new_name;
    Ok(web::Json(ProfileChangedDto { name, message }))
}
