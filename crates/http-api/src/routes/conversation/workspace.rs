//! The workspace of a conversation's sandbox, and switching the agent's model.

use actix_web::{get, post, web};
use domain::id::ConversationId;
use serde_json::Value;

use crate::dto::Success;
use crate::dto::configuration::settings::ErrorText;
use crate::dto::conversation::workspace::{
    FileQuery, FilesQuery, GitChangeDto, GitDiffDto, GitQuery, ProjectHooksDto, ProjectSkillsDto,
    SwitchAcpModelDto, SwitchProfileDto,
};
use crate::extract::{Actor, ApiCall, Application, Body, PathParam, Query};
use crate::problem::{AgentServerErrors, Problem};

/// A user's call about a conversation.
pub(crate) type ConversationCall<P> = ApiCall<Actor, (PathParam<ConversationId>, P)>;

/// Reads a text file of the sandbox, at most 1 MiB; without a path, the plan. Empty if the file does not exist or cannot be
/// read.
#[utoipa::path(tag = "Conversations", params(FileQuery), responses(
    (status = 200, body = String, content_type = "application/json"),
    (status = 404, description = "The path is outside of the workspace"),
))]
#[get("/api/v1/app-conversations/{conversation_id}/file")]
pub(crate) async fn file(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ConversationCall<Query<FileQuery>>,
) -> Result<web::Json<String>, Problem> {
    let path = query.file_path.as_deref();
    let text = app.inspector.file(&actor.scope(), id, path).await?;
    Ok(web::Json(text))
}

/// Lists the files below a directory of the sandbox, relative to it: at most 2,000, without those of git, packages and build
/// outputs.
#[utoipa::path(tag = "Conversations", params(FilesQuery), responses(
    (status = 200, body = Vec<String>),
    AgentServerErrors,
))]
#[get("/api/v1/app-conversations/{conversation_id}/files")]
pub(crate) async fn files(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ConversationCall<Query<FilesQuery>>,
) -> Result<web::Json<Vec<String>>, Problem> {
    let files = app.inspector.files(&actor.scope(), id, &query.path).await?;
    Ok(web::Json(files))
}

/// Lists the changed files of a repository in the sandbox.
#[utoipa::path(tag = "Conversations", params(GitQuery), responses(
    (status = 200, body = Vec<GitChangeDto>),
    AgentServerErrors,
))]
#[get("/api/v1/app-conversations/{conversation_id}/git/changes")]
pub(crate) async fn git_changes(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ConversationCall<Query<GitQuery>>,
) -> Result<web::Json<Value>, Problem> {
    let reference = query.reference.as_deref();
    let (scope, path) = (actor.scope(), &query.path);
    let changes = app.inspector.git_changes(&scope, id, path, reference);
    Ok(web::Json(changes.await?))
}

/// Shows a changed file of the sandbox before and after.
#[utoipa::path(tag = "Conversations", params(GitQuery), responses(
    (status = 200, body = GitDiffDto),
    AgentServerErrors,
))]
#[get("/api/v1/app-conversations/{conversation_id}/git/diff")]
pub(crate) async fn git_diff(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ConversationCall<Query<GitQuery>>,
) -> Result<web::Json<Value>, Problem> {
    let reference = query.reference.as_deref();
    let (scope, path) = (actor.scope(), &query.path);
    let diff = app.inspector.git_diff(&scope, id, path, reference);
    Ok(web::Json(diff.await?))
}

/// Lists the skills of the conversation's project; none while the sandbox is paused.
#[utoipa::path(tag = "Conversations", responses(
    (status = 200, body = ProjectSkillsDto),
    (status = 404, description = "Unknown, or its sandbox does not run", body = ErrorText),
))]
#[get("/api/v1/app-conversations/{conversation_id}/skills")]
pub(crate) async fn skills(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, PathParam<ConversationId>>,
) -> Result<web::Json<ProjectSkillsDto>, Problem> {
    let skills = app.inspector.skills(&actor.scope(), id).await;
    let skills = skills.map_err(|error| Problem::from(error).in_error_family())?;
    Ok(web::Json(skills.into()))
}

/// Lists the agent hooks of the conversation's project by event; none while the sandbox is paused.
#[utoipa::path(tag = "Conversations", responses(
    (status = 200, body = ProjectHooksDto),
    (status = 404, description = "Unknown, or its sandbox does not run", body = ErrorText),
    (status = 502, description = "The agent server failed, or cannot be reached", body = ErrorText),
))]
#[get("/api/v1/app-conversations/{conversation_id}/hooks")]
pub(crate) async fn hooks(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, PathParam<ConversationId>>,
) -> Result<web::Json<ProjectHooksDto>, Problem> {
    let hooks = app.inspector.hooks(&actor.scope(), id).await;
    let hooks = hooks.map_err(|error| Problem::from(error).in_error_family())?;
    Ok(web::Json(hooks.into()))
}

/// Switches the agent to the model of one of the caller's profiles.
#[utoipa::path(tag = "Conversations", request_body = SwitchProfileDto, responses(
    (status = 200, body = Success),
    (status = 400, description = "The profile is incomplete, or the agent is an ACP agent"),
    AgentServerErrors,
))]
#[post("/api/v1/app-conversations/{conversation_id}/switch_profile")]
pub(crate) async fn switch_profile(
    app: Application,
    ApiCall(actor, (PathParam(id), Body(input))): ConversationCall<Body<SwitchProfileDto>>,
) -> Result<web::Json<Success>, Problem> {
    let (scope, name) = (actor.scope(), &input.profile_name);
    let switched = app.inspector.switch_profile(&scope, &actor.owner, id, name);
    switched.await?;
    Ok(web::Json(Success::DONE))
}

/// Switches an ACP agent to another model.
#[utoipa::path(tag = "Conversations", request_body = SwitchAcpModelDto, responses(
    (status = 200, body = Success),
    (status = 400, description = "The agent is not an ACP agent, or cannot switch models"),
    (status = 504, description = "The agent does not respond"),
    AgentServerErrors,
))]
#[post("/api/v1/app-conversations/{conversation_id}/switch_acp_model")]
pub(crate) async fn switch_acp_model(
    app: Application,
    ApiCall(actor, (PathParam(id), Body(input))): ConversationCall<Body<SwitchAcpModelDto>>,
) -> Result<web::Json<Success>, Problem> {
    let scope = actor.scope();
    let switched = app.inspector.switch_acp_model(&scope, id, &input.model);
    switched.await?;
    Ok(web::Json(Success::DONE))
}
