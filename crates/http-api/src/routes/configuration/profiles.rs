//! Model profiles: named configurations, one of which may be active. They are under two paths: that of the organization in which
//! the caller acts, and that of a named organization.

use actix_web::http::StatusCode;
use actix_web::{delete, get, post, web};
use application::settings::{ProfileRefusal, SaveProfile, UpdateError};

use crate::dto::configuration::profiles::{
    ProfileActivatedDto, ProfileChangedDto, ProfileDetailDto, ProfileListDto, ProfileName,
    RenameProfileDto, SaveProfileDto, profile_problem,
};
use crate::extract::{Actor, ApiCall, Application, Body, OptionalBody, PathParam, State};
use crate::problem::Problem;
use crate::routes::account::organizations::{OrganizationEditor, OrganizationMember};

type ProfileParam = PathParam<ProfileName>;

macro_rules! profile_routes {
    ($caller:ty {
        $profiles:tt => $list:ident,
        $profile:tt => $load:ident $save:ident $remove:ident,
        $activation:tt => $activate:ident,
        $renaming:tt => $rename:ident,
    }) => {
        /// Lists the profiles, without their keys.
        #[utoipa::path(tag = "Settings", responses((status = 200, body = ProfileListDto)))]
        #[get($profiles)]
        pub(crate) async fn $list(
            app: Application,
            ApiCall(caller, ()): ApiCall<$caller>,
        ) -> Result<web::Json<ProfileListDto>, Problem> {
            let profiles = app.settings.profiles(&caller.owner).await?;
            Ok(web::Json(ProfileListDto::from(&profiles)))
        }

        /// Loads a profile with its configuration, without its keys.
        #[utoipa::path(tag = "Settings", responses((status = 200, body = ProfileDetailDto)))]
        #[get($profile)]
        pub(crate) async fn $load(
            app: Application,
            state: State,
            ApiCall(caller, PathParam(ProfileName(name))): ApiCall<$caller, ProfileParam>,
        ) -> Result<web::Json<ProfileDetailDto>, Problem> {
            let profiles = app.settings.profiles(&caller.owner).await?;
            let Some(profile) = profiles.find(&name) else {
                let refusal = ProfileRefusal::NotFound(name);
                return Err(profile_problem(UpdateError::Refused(refusal)));
            };
            let now = state.ports.clock.now();
            Ok(web::Json(ProfileDetailDto::of(profile, &profiles, now)))
        }

        /// Saves a profile: the configuration in the body, or the active one. At most 10.
        #[utoipa::path(tag = "Settings", request_body = Option<SaveProfileDto>, responses((status = 201, body = ProfileChangedDto), (status = 403, description = "The caller's role does not allow this"), (status = 409, description = "There are 10 profiles")))]
        #[post($profile)]
        pub(crate) async fn $save(
            app: Application,
            ApiCall(
                OrganizationEditor(caller),
                (PathParam(ProfileName(name)), OptionalBody(input)),
            ): ApiCall<
                OrganizationEditor<$caller>,
                (ProfileParam, OptionalBody<SaveProfileDto>),
            >,
        ) -> Result<(web::Json<ProfileChangedDto>, StatusCode), Problem> {
            let input = input.map(SaveProfile::from).unwrap_or_default();
            let saved = app.settings.save_profile(&caller.owner, &name, &input);
            saved.await.map_err(profile_problem)?;
            let message = format!("Profile '{name}' saved");
            let changed = web::Json(ProfileChangedDto { name, message });
            Ok((changed, StatusCode::CREATED))
        }

        /// Deletes a profile; an unknown one is not an error. If it was active, the first remaining profile becomes active.
        #[utoipa::path(tag = "Settings", responses((status = 200, body = ProfileChangedDto), (status = 403, description = "The caller's role does not allow this")))]
        #[delete($profile)]
        pub(crate) async fn $remove(
            app: Application,
            ApiCall(OrganizationEditor(caller), PathParam(ProfileName(name))): ApiCall<
                OrganizationEditor<$caller>,
                ProfileParam,
            >,
        ) -> Result<web::Json<ProfileChangedDto>, Problem> {
            app.settings.delete_profile(&caller.owner, &name).await?;
            let message = format!("Profile '{name}' deleted");
            Ok(web::Json(ProfileChangedDto { name, message }))
        }

        /// Activates a profile. In a shared organization, for all members who have set no model of their own, and for the caller.
        #[utoipa::path(tag = "Settings", responses((status = 200, body = ProfileActivatedDto), (status = 403, description = "The caller's role does not allow this")))]
        #[post($activation)]
        pub(crate) async fn $activate(
            app: Application,
            ApiCall(OrganizationEditor(caller), PathParam(ProfileName(name))): ApiCall<
                OrganizationEditor<$caller>,
                ProfileParam,
            >,
        ) -> Result<web::Json<ProfileActivatedDto>, Problem> {
            let activated = app.settings.activate_profile(&caller.owner, &name).await;
            let model = Some(activated.map_err(profile_problem)?);
            let message = format!("Switched to profile '{name}'");
            Ok(web::Json(ProfileActivatedDto { name, message, model }))
        }

        /// Renames a profile.
        #[utoipa::path(tag = "Settings", request_body = RenameProfileDto, responses((status = 200, body = ProfileChangedDto), (status = 403, description = "The caller's role does not allow this"), (status = 409, description = "The name is taken")))]
        #[post($renaming)]
        pub(crate) async fn $rename(
            app: Application,
            ApiCall(OrganizationEditor(caller), (PathParam(ProfileName(old)), Body(input))): ApiCall<
                OrganizationEditor<$caller>,
                (ProfileParam, Body<RenameProfileDto>),
            >,
        ) -> Result<web::Json<ProfileChangedDto>, Problem> {
            let name = input.new_name.0;
            let renamed = app.settings.rename_profile(&caller.owner, &old, &name);
            renamed.await.map_err(profile_problem)?;
            let message = format!("Profile '{old}' renamed to '{name}'");
            Ok(web::Json(ProfileChangedDto { name, message }))
        }
    };
}

profile_routes!(Actor {
    "/api/v1/settings/profiles" => list,
    "/api/v1/settings/profiles/{name}" => load save remove,
    "/api/v1/settings/profiles/{name}/activate" => activate,
    "/api/v1/settings/profiles/{name}/rename" => rename,
});

profile_routes!(OrganizationMember {
    "/api/organizations/{organization_id}/profiles" => list_profiles,
    "/api/organizations/{organization_id}/profiles/{name}" => load_profile save_profile remove_profile,
    "/api/organizations/{organization_id}/profiles/{name}/activate" => activate_profile,
    "/api/organizations/{organization_id}/profiles/{name}/rename" => rename_profile,
});
