//! Agent profiles: named agents with their model profile, tools, MCP servers and secrets.

use actix_web::http::StatusCode;
use actix_web::{delete, get, post, web};
use domain::id::AgentProfileId;

use crate::dto::configuration::agent_profiles::{
    AgentProfileActivatedDto, AgentProfileDetailDto, AgentProfileFields, AgentProfileListDto,
    RenameAgentProfileDto, agent_profile_problem,
};
use crate::dto::configuration::profiles::{ProfileChangedDto, ProfileName};
use crate::extract::{Actor, ApiCall, Application, Body, PathParam, State};
use crate::problem::Problem;
use crate::routes::account::organizations::OrganizationEditor;

type NameParam = PathParam<ProfileName>;

/// Lists the agent profiles.
#[utoipa::path(tag = "Settings", responses((status = 200, body = AgentProfileListDto)))]
#[get("/api/agent-profiles")]
pub(crate) async fn list(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor>,
) -> Result<web::Json<AgentProfileListDto>, Problem> {
    let profiles = app.settings.agent_profiles(&actor.owner).await?;
    Ok(web::Json(AgentProfileListDto::from(&profiles)))
}

/// Loads an agent profile.
#[utoipa::path(tag = "Settings", responses((status = 200, body = AgentProfileDetailDto)))]
#[get("/api/agent-profiles/{name}")]
pub(crate) async fn load(
    app: Application,
    ApiCall(actor, PathParam(ProfileName(name))): ApiCall<Actor, NameParam>,
) -> Result<web::Json<AgentProfileDetailDto>, Problem> {
    let profiles = app.settings.agent_profiles(&actor.owner).await?;
    let Some(profile) = profiles.find(&name) else {
        return Err(Problem::missing("Agent profile not found"));
    };
    Ok(web::Json(AgentProfileDetailDto::from(profile)))
}

/// Saves an agent profile. One of this name is replaced, and keeps its id. At most 50.
#[utoipa::path(tag = "Settings", request_body = serde_json::Value, responses(
    (status = 201, body = ProfileChangedDto),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "There are 50 agent profiles"),
))]
#[post("/api/agent-profiles/{name}")]
pub(crate) async fn save(
    app: Application,
    state: State,
    ApiCall(OrganizationEditor(actor), (PathParam(ProfileName(name)), Body(values))): ApiCall<
        OrganizationEditor<Actor>,
        (NameParam, Body<AgentProfileFields>),
    >,
) -> Result<(web::Json<ProfileChangedDto>, StatusCode), Problem> {
    let id = AgentProfileId::new(state.ports.ids.uuid());
    let settings = &app.settings;
    let saved = settings.save_agent_profile(&actor.owner, id, &name, &values.0);
    saved.await.map_err(agent_profile_problem)?;
    let message = format!("Agent profile '{name}' saved");
    let changed = web::Json(ProfileChangedDto { name, message });
    Ok((changed, StatusCode::CREATED))
}

/// Deletes an agent profile; an unknown one is not an error.
#[utoipa::path(tag = "Settings", responses(
    (status = 200, body = ProfileChangedDto),
    (status = 403, description = "The caller's role does not allow this"),
))]
#[delete("/api/agent-profiles/{name}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(OrganizationEditor(actor), PathParam(ProfileName(name))): ApiCall<
        OrganizationEditor<Actor>,
        NameParam,
    >,
) -> Result<web::Json<ProfileChangedDto>, Problem> {
    app.settings
        .delete_agent_profile(&actor.owner, &name)
        .await?;
    let message = format!("Agent profile '{name}' deleted");
    Ok(web::Json(ProfileChangedDto { name, message }))
}

/// Renames an agent profile. It keeps its id.
#[utoipa::path(tag = "Settings", request_body = RenameAgentProfileDto, responses(
    (status = 200, body = ProfileChangedDto),
    (status = 403, description = "The caller's role does not allow this"),
    (status = 409, description = "The name is taken"),
))]
#[post("/api/agent-profiles/{name}/rename")]
pub(crate) async fn rename(
    app: Application,
    ApiCall(OrganizationEditor(actor), (PathParam(ProfileName(old)), Body(input))): ApiCall<
        OrganizationEditor<Actor>,
        (NameParam, Body<RenameAgentProfileDto>),
    >,
) -> Result<web::Json<ProfileChangedDto>, Problem> {
    let name = input.new_name.0;
    let renamed = app.settings.rename_agent_profile(&actor.owner, &old, &name);
    renamed.await.map_err(agent_profile_problem)?;
    let message = format!("Agent profile '{old}' renamed to '{name}'");
    Ok(web::Json(ProfileChangedDto { name, message }))
}

/// Makes an agent profile the one of the caller's starts that name none.
#[utoipa::path(tag = "Settings", responses((status = 200, body = AgentProfileActivatedDto)))]
#[post("/api/agent-profiles/{profile_id}/activate")]
pub(crate) async fn activate(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, PathParam<AgentProfileId>>,
) -> Result<web::Json<AgentProfileActivatedDto>, Problem> {
    let activated = app.settings.activate_agent_profile(&actor.owner, id);
    activated.await.map_err(agent_profile_problem)?;
    Ok(web::Json(AgentProfileActivatedDto {
        id: id.dashed(),
        message: "Agent profile activated".to_owned(),
        agent_settings_applied: false,
    }))
}
