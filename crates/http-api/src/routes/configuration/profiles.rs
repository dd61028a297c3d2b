//! Model profiles: named configurations, one of which may be active.

use actix_web::http::StatusCode;
use actix_web::{delete, get, post, web};
use application::App;
use application::settings::{ProfileRefusal, SaveProfile, UpdateError};
use domain::clock::Timestamp;
use domain::id::UserId;

use crate::dto::configuration::profiles::{
    ProfileActivatedDto, ProfileChangedDto, ProfileDetailDto, ProfileListDto, ProfileName,
    RenameProfileDto, SaveProfileDto, profile_problem,
};
use crate::extract::{Actor, ApiCall, Application, Body, OptionalBody, PathParam, State};
use crate::problem::{Detail, Problem};

/// The path parameter that names a profile.
pub(crate) type ProfileParam = PathParam<ProfileName>;
pub(crate) type ProfileResponse<T> = Result<web::Json<T>, Problem>;

/// Lists the profiles, without their keys.
#[utoipa::path(tag = "Settings", responses((status = 200, description = "Done", body = ProfileListDto)))]
#[get("/api/v1/settings/profiles")]
pub(crate) async fn list(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor>,
) -> ProfileResponse<ProfileListDto> {
    list_for(&app, &actor.user).await
}

/// Loads a profile with its configuration, without its keys.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    responses((status = 200, description = "Done", body = ProfileDetailDto))
)]
#[get("/api/v1/settings/profiles/{name}")]
pub(crate) async fn load(
    app: Application,
    state: State,
    ApiCall(actor, PathParam(ProfileName(name))): ApiCall<Actor, ProfileParam>,
) -> ProfileResponse<ProfileDetailDto> {
    load_for(&app, &actor.user, name, state.ports.clock.now()).await
}

/// Saves a profile: the configuration in the body, or the active one. At most 10.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    request_body = Option<SaveProfileDto>,
    responses((status = 201, description = "Saved", body = ProfileChangedDto), (status = 409, description = "There are 10 profiles", body = Detail))
)]
#[post("/api/v1/settings/profiles/{name}")]
pub(crate) async fn save(
    app: Application,
    ApiCall(actor, (PathParam(ProfileName(name)), OptionalBody(input))): ApiCall<
        Actor,
        (ProfileParam, OptionalBody<SaveProfileDto>),
    >,
) -> Result<(web::Json<ProfileChangedDto>, StatusCode), Problem> {
    save_for(&app, &actor.user, name, input).await
}

/// Deletes a profile; an unknown one is no error. If it was active, the first remaining profile becomes active.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    responses((status = 200, description = "Done", body = ProfileChangedDto))
)]
#[delete("/api/v1/settings/profiles/{name}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(actor, PathParam(ProfileName(name))): ApiCall<Actor, ProfileParam>,
) -> ProfileResponse<ProfileChangedDto> {
    remove_for(&app, &actor.user, name).await
}

/// Activates a profile.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    responses((status = 200, description = "Done", body = ProfileActivatedDto))
)]
#[post("/api/v1/settings/profiles/{name}/activate")]
pub(crate) async fn activate(
    app: Application,
    ApiCall(actor, PathParam(ProfileName(name))): ApiCall<Actor, ProfileParam>,
) -> ProfileResponse<ProfileActivatedDto> {
    activate_for(&app, &actor.user, name).await
}

/// Renames a profile.
#[utoipa::path(
    tag = "Settings",
    params(("name" = String, Path, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]{1,64}$")),
    request_body = RenameProfileDto,
    responses((status = 200, description = "Done", body = ProfileChangedDto), (status = 409, description = "The name is taken", body = Detail))
)]
#[post("/api/v1/settings/profiles/{name}/rename")]
pub(crate) async fn rename(
    app: Application,
    ApiCall(actor, (PathParam(ProfileName(name)), Body(input))): ApiCall<
        Actor,
        (ProfileParam, Body<RenameProfileDto>),
    >,
) -> ProfileResponse<ProfileChangedDto> {
    rename_for(&app, &actor.user, &name, input.new_name.0).await
}

/// Lists the profiles of a user. This and the following functions are shared with the routes of organizations.
pub(crate) async fn list_for(app: &App, user: &UserId) -> ProfileResponse<ProfileListDto> {
    let profiles = app.settings.profiles(user).await?;
    Ok(web::Json(ProfileListDto::from(&profiles)))
}

pub(crate) async fn load_for(
    app: &App,
    user: &UserId,
    name: String,
    now: Timestamp,
) -> ProfileResponse<ProfileDetailDto> {
    let profiles = app.settings.profiles(user).await?;
    let found = profiles.find(&name);
    let profile = found
        .ok_or_else(|| profile_problem(UpdateError::Refused(ProfileRefusal::NotFound(name))))?;
    Ok(web::Json(ProfileDetailDto::of(profile, now)))
}

pub(crate) async fn save_for(
    app: &App,
    user: &UserId,
    name: String,
    input: Option<SaveProfileDto>,
) -> Result<(web::Json<ProfileChangedDto>, StatusCode), Problem> {
    let input = input.map(SaveProfile::from).unwrap_or_default();
    let saved = app.settings.save_profile(user, &name, &input).await;
    saved.map_err(profile_problem)?;
    let message = format!("Profile '{name}' saved");
    let changed = web::Json(ProfileChangedDto { name, message });
    Ok((changed, StatusCode::CREATED))
}

pub(crate) async fn remove_for(
    app: &App,
    user: &UserId,
    name: String,
) -> ProfileResponse<ProfileChangedDto> {
    app.settings.delete_profile(user, &name).await?;
    let message = format!("Profile '{name}' deleted");
    Ok(web::Json(ProfileChangedDto { name, message }))
}

pub(crate) async fn activate_for(
    app: &App,
    user: &UserId,
    name: String,
) -> ProfileResponse<ProfileActivatedDto> {
    let activated = app.settings.activate_profile(user, &name).await;
    let model = Some(activated.map_err(profile_problem)?);
    let message = format!("Switched to profile '{name}'");
    Ok(web::Json(ProfileActivatedDto {
        name,
        message,
        model,
    }))
}

pub(crate) async fn rename_for(
    app: &App,
    user: &UserId,
    name: &str,
    new_name: String,
) -> ProfileResponse<ProfileChangedDto> {
    let renamed = app.settings.rename_profile(user, name, &new_name);
    renamed.await.map_err(profile_problem)?;
    let message = format!("Profile '{name}' renamed to '{new_name}'");
    let name = new_name;
    Ok(web::Json(ProfileChangedDto { name, message }))
}
