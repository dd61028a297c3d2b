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
use crate::problem::{Detail, Problem};

type ConversationPath = PathParam<ConversationId>;

/// Reads a text file of the sandbox, at most 1 MiB; without a path, the plan. Empty if the file does not exist or cannot be
/// read.
#[utoipa::path(
    tag = "Conversations",
    params(("conversation_id" = Uuid, Path), FileQuery),
    responses(
        (status = 200, description = "The text", body = String, content_type = "application/json"),
        (status = 404, description = "The path is outside of the workspace", body = Detail),
    )
)]
#[get("/api/v1/app-conversations/{conversation_id}/file")]
pub(crate) async fn file(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ApiCall<
        Actor,
        (ConversationPath, Query<FileQuery>),
    >,
) -> Result<web::Json<String>, Problem> {
    let path = query.file_path.as_deref();
    let text = app.inspector.file(&actor.scope(), id, path).await?;
    Ok(web::Json(text))
}

/// Lists the files below a directory of the sandbox, relative to it: at most 2,000, without those of git, packages and build
/// outputs.
#[utoipa::path(
    tag = "Conversations",
    params(("conversation_id" = Uuid, Path), FilesQuery),
    responses(
        (status = 200, description = "Their paths", body = Vec<String>),
        (status = 409, description = "The sandbox is paused", body = Detail),
        (status = 502, description = "The agent server failed, or cannot be reached", body = Detail),
    )
)]
#[get("/api/v1/app-conversations/{conversation_id}/files")]
pub(crate) async fn files(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ApiCall<
        Actor,
        (ConversationPath, Query<FilesQuery>),
    >,
) -> Result<web::Json<Vec<String>>, Problem> {
    let files = app.inspector.files(&actor.scope(), id, &query.path).await?;
    Ok(web::Json(files))
}

/// Lists the changed files of a repository in the sandbox.
#[utoipa::path(
    tag = "Conversations",
    params(("conversation_id" = Uuid, Path), GitQuery),
    responses(
        (status = 200, description = "What has changed", body = Vec<GitChangeDto>),
        (status = 409, description = "The sandbox is paused", body = Detail),
        (status = 502, description = "The agent server failed, or cannot be reached", body = Detail),
    )
)]
#[get("/api/v1/app-conversations/{conversation_id}/git/changes")]
pub(crate) async fn git_changes(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ApiCall<
        Actor,
        (ConversationPath, Query<GitQuery>),
    >,
) -> Result<web::Json<Value>, Problem> {
    let reference = query.reference.as_deref();
    let (scope, path) = (actor.scope(), &query.path);
    let changes = app.inspector.git_changes(&scope, id, path, reference);
    Ok(web::Json(changes.await?))
}

/// Shows a changed file of the sandbox before and after.
#[utoipa::path(
    tag = "Conversations",
    params(("conversation_id" = Uuid, Path), GitQuery),
    responses(
        (status = 200, description = "Both texts", body = GitDiffDto),
        (status = 409, description = "The sandbox is paused", body = Detail),
        (status = 502, description = "The agent server failed, or cannot be reached", body = Detail),
    )
)]
#[get("/api/v1/app-conversations/{conversation_id}/git/diff")]
pub(crate) async fn git_diff(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ApiCall<
        Actor,
        (ConversationPath, Query<GitQuery>),
    >,
) -> Result<web::Json<Value>, Problem> {
    let reference = query.reference.as_deref();
    let (scope, path) = (actor.scope(), &query.path);
    let diff = app.inspector.git_diff(&scope, id, path, reference);
    Ok(web::Json(diff.await?))
}

/// Lists the skills of the conversation's project; none while the sandbox is paused.
#[utoipa::path(
    tag = "Conversations",
    params(("conversation_id" = Uuid, Path)),
    responses(
        (status = 200, description = "The skills", body = ProjectSkillsDto),
        (status = 404, description = "Unknown, or its sandbox does not run", body = ErrorText),
    )
)]
#[get("/api/v1/app-conversations/{conversation_id}/skills")]
pub(crate) async fn skills(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, ConversationPath>,
) -> Result<web::Json<ProjectSkillsDto>, Problem> {
    let skills = app.inspector.skills(&actor.scope(), id).await;
    let skills = skills.map_err(|error| Problem::from(error).in_error_family())?;
    Ok(web::Json(skills.into()))
}

/// Lists the agent hooks of the conversation's project by event; none while the sandbox is paused.
#[utoipa::path(
    tag = "Conversations",
    params(("conversation_id" = Uuid, Path)),
    responses(
        (status = 200, description = "The hooks", body = ProjectHooksDto),
        (status = 404, description = "Unknown, or its sandbox does not run", body = ErrorText),
        (status = 502, description = "The agent server failed, or cannot be reached", body = ErrorText),
    )
)]
#[get("/api/v1/app-conversations/{conversation_id}/hooks")]
pub(crate) async fn hooks(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, ConversationPath>,
) -> Result<web::Json<ProjectHooksDto>, Problem> {
    let hooks = app.inspector.hooks(&actor.scope(), id).await;
    let hooks = hooks.map_err(|error| Problem::from(error).in_error_family())?;
    Ok(web::Json(hooks.into()))
}

/// Switches the agent to the model of one of the caller's profiles.
#[utoipa::path(
    tag = "Conversations",
    params(("conversation_id" = Uuid, Path)),
    request_body = SwitchProfileDto,
    responses(
        (status = 200, description = "Switched", body = Success),
        (status = 400, description = "The profile is incomplete, or the agent is an ACP agent", body = Detail),
        (status = 409, description = "The sandbox is paused", body = Detail),
        (status = 502, description = "The agent server failed, or cannot be reached", body = Detail),
    )
)]
#[post("/api/v1/app-conversations/{conversation_id}/switch_profile")]
pub(crate) async fn switch_profile(
    app: Application,
    ApiCall(actor, (PathParam(id), Body(input))): ApiCall<
        Actor,
        (ConversationPath, Body<SwitchProfileDto>),
    >,
) -> Result<web::Json<Success>, Problem> {
    let (scope, name) = (actor.scope(), &input.profile_name);
    let switched = app.inspector.switch_profile(&scope, &actor.user, id, name);
    switched.await?;
    Ok(web::Json(Success::DONE))
}

/// Switches an ACP agent to another model.
#[utoipa::path(
    tag = "Conversations",
    params(("conversation_id" = Uuid, Path)),
    request_body = SwitchAcpModelDto,
    responses(
        (status = 200, description = "Switched", body = Success),
        (status = 400, description = "The agent is not an ACP agent, or cannot switch models", body = Detail),
        (status = 409, description = "The sandbox is paused", body = Detail),
        (status = 502, description = "The agent server failed, or cannot be reached", body = Detail),
        (status = 504, description = "The agent does not respond", body = Detail),
    )
)]
#[post("/api/v1/app-conversations/{conversation_id}/switch_acp_model")]
pub(crate) async fn switch_acp_model(
    app: Application,
    ApiCall(actor, (PathParam(id), Body(input))): ApiCall<
        Actor,
        (ConversationPath, Body<SwitchAcpModelDto>),
    >,
) -> Result<web::Json<Success>, Problem> {
    let scope = actor.scope();
    let switched = app.inspector.switch_acp_model(&scope, id, &input.model);
    switched.await?;
    Ok(web::Json(Success::DONE))
}
