//! Sandboxes: start, list, pause, resume, delete.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, delete, get, post, web};
use application::sandboxes::RunRefusal;
use domain::id::SandboxId;
use domain::sandbox::Sandbox;
use serde_json::json;

use crate::audit::CreatedResource;
use crate::decode::{FieldError, Path};
use crate::dto::page::PageQuery;
use crate::dto::sandbox::record::{DeleteSandboxQuery, IdsQuery, NewSandboxQuery, SandboxDto};
use crate::dto::{PageDto, Success, check_batch};
use crate::extract::{Actor, ApiCall, Application, IdempotencyKey, PathParam, Query, State};
use crate::idempotency::{self, IdempotencyKeyHeader, repeatable, respond};
use crate::problem::Problem;

/// Searches sandboxes, newest first.
#[utoipa::path(tag = "Sandboxes", params(PageQuery), responses((status = 200, body = PageDto<SandboxDto>)))]
#[get("/api/v1/sandboxes/search")]
pub(crate) async fn search(
    app: Application,
    state: State,
    ApiCall(actor, Query(page)): ApiCall<Actor, Query<PageQuery>>,
) -> Result<web::Json<PageDto<SandboxDto>>, Problem> {
    let found = app.sandboxes.search(&actor.scope(), &page.into()).await?;
    Ok(web::Json(PageDto::of(found, |sandbox| {
        SandboxDto::of(sandbox, &app.sandboxes, &state.addresses)
    })))
}

/// Loads sandboxes by id, in the requested order, with `null` for unknown ones.
#[utoipa::path(tag = "Sandboxes", params(IdsQuery), responses(
    (status = 200, description = "One entry per id", body = Vec<Option<SandboxDto>>),
    (status = 400, description = "Too many ids"),
))]
#[get("/api/v1/sandboxes")]
pub(crate) async fn batch(
    app: Application,
    state: State,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<IdsQuery>>,
) -> Result<web::Json<Vec<Option<SandboxDto>>>, Problem> {
    check_batch(&query.ids, "sandboxes")?;
    // An invalid id counts as unknown.
    let ids: Vec<_> = query
        .ids
        .into_iter()
        .map(|text| SandboxId::parse(text).ok())
        .collect();
    let known: Vec<_> = ids.iter().flatten().cloned().collect();
    let found = app.sandboxes.find_many(&actor.scope(), &known).await?;
    let is_visible = |it: &Sandbox| !actor.is_automation || it.automation_key.is_some();
    let mut found = found.into_iter().map(|it| it.filter(is_visible));
    let sandboxes = ids
        .into_iter()
        .map(|id| id.and_then(|_| found.next().flatten()));
    Ok(web::Json(
        sandboxes
            .map(|sandbox| Some(SandboxDto::of(sandbox?, &app.sandboxes, &state.addresses)))
            .collect(),
    ))
}

/// Starts a sandbox. Answers immediately; poll until it is RUNNING.
#[utoipa::path(tag = "Sandboxes", params(NewSandboxQuery, IdempotencyKeyHeader), responses(
    (status = 200, body = SandboxDto),
    (status = 403, description = "Only the first user may have sandboxes here"),
    (status = 404, description = "Unknown sandbox spec"),
    (status = 409, description = "The settings have a list of hosts that the service does not enforce"),
))]
#[post("/api/v1/sandboxes")]
pub(crate) async fn start(
    app: Application,
    state: State,
    ApiCall(actor, (Query(query), IdempotencyKey(key))): ApiCall<
        Actor,
        (Query<NewSandboxQuery>, IdempotencyKey),
    >,
) -> Result<HttpResponse, Problem> {
    let (user, spec) = (&actor.owner, query.sandbox_spec_id.as_deref());
    let shown = |sandbox| SandboxDto::of(sandbox, &app.sandboxes, &state.addresses);
    let render = |sandbox: &Sandbox| idempotency::to_json(&shown(sandbox.clone()));
    let asked = spec.unwrap_or_default().as_bytes();
    let repeatable = |key| repeatable(key, "sandbox", asked, &render);
    let answer = if let Some(run) = actor.key.filter(|_| actor.is_automation) {
        let call = repeatable(format!("run {run}"));
        let started = app.sandboxes.start_for_run(user, spec, run, &call).await;
        started.map_err(refusal_of_run)?
    } else {
        let call = key.map(repeatable);
        let started = app.sandboxes.start_once(user, spec, call.as_ref());
        started.await?
    };
    let created = CreatedResource::of(&answer, |sandbox| format!("sandbox:{}", sandbox.id));
    Ok(respond(StatusCode::OK, answer, created, shown))
}

/// A refusal of a run. The automations service skips the run if it has a certain form, and else asks again.
fn refusal_of_run(refusal: RunRefusal) -> Problem {
    let problem = match refusal {
        RunRefusal::Busy(error) | RunRefusal::Failed(error) => return error.into(),
        RunRefusal::Skipped(error) => Problem::from(error),
    };
    let message = problem.body()["detail"].clone();
    let detail = json!({"error": "CONCURRENCY_LIMIT_REACHED", "message": message});
    Problem::with_body(problem.status(), json!({"detail": detail}))
}

/// Pauses a sandbox: interrupts its processes and frees its memory. The workspace stays.
#[utoipa::path(tag = "Sandboxes", responses(
    (status = 200, body = Success),
    (status = 409, description = "A concurrent change"),
    (status = 501, description = "This kind of sandbox cannot pause"),
    (status = 502, description = "The sandbox failed"),
))]
#[post("/api/v1/sandboxes/{sandbox_id}/pause")]
pub(crate) async fn pause(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, PathParam<SandboxId>>,
) -> Result<web::Json<Success>, Problem> {
    app.sandboxes.check_reachable(&actor, &id).await?;
    app.sandboxes.pause(&actor.scope(), &id).await?;
    Ok(web::Json(Success::DONE))
}

/// Resumes a sandbox that is paused or in ERROR. Answers immediately; poll until it is RUNNING.
#[utoipa::path(tag = "Sandboxes", responses(
    (status = 200, body = Success),
    (status = 403, description = "Only the first user may have sandboxes here"),
))]
#[post("/api/v1/sandboxes/{sandbox_id}/resume")]
pub(crate) async fn resume(
    app: Application,
    ApiCall(actor, PathParam(id)): ApiCall<Actor, PathParam<SandboxId>>,
) -> Result<web::Json<Success>, Problem> {
    app.sandboxes.check_reachable(&actor, &id).await?;
    app.sandboxes.resume(&actor.scope(), &id).await?;
    Ok(web::Json(Success::DONE))
}

/// Deletes a sandbox with its workspace. Its conversations remain and show MISSING.
#[utoipa::path(tag = "Sandboxes", params(DeleteSandboxQuery), responses((status = 200, body = Success)))]
#[delete("/api/v1/sandboxes/{sandbox_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ApiCall<
        Actor,
        (PathParam<SandboxId>, Query<DeleteSandboxQuery>),
    >,
) -> Result<web::Json<Success>, Problem> {
    if query.sandbox_id.is_some_and(|named| named != id.as_str()) {
        let fault = FieldError::value_error("sandbox_id is not the id in the path");
        return Err(Problem::unprocessable(
            &Path::query().key("sandbox_id"),
            fault,
        ));
    }
    app.sandboxes.check_reachable(&actor, &id).await?;
    app.sandboxes.delete(&actor.scope(), &id).await?;
    Ok(web::Json(Success::DONE))
}
