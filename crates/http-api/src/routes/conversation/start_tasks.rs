//! Start tasks of conversations.

use actix_web::{get, web};

use domain::user::scope::Scope;

use crate::dto::conversation::start_task::{
    AdministeredStartDto, StartTaskCountQuery, StartTaskDto, StartTaskIdsQuery,
    StartTaskSearchQuery,
};
use crate::dto::page::PageQuery;
use crate::dto::{BATCH_READ_DOCUMENTS, BatchBytes, PageDto, check_batch};
use crate::extract::{Actor, Admin, ApiCall, Application, Query};
use crate::problem::Problem;

/// Searches start tasks. A page of large requests may end before its limit; `next_page_id` says whether more follow.
#[utoipa::path(tag = "Start tasks", params(StartTaskCountQuery, StartTaskSearchQuery, PageQuery), responses(
    (status = 200, body = PageDto<StartTaskDto>),
))]
#[get("/api/v1/app-conversations/start-tasks/search")]
pub(crate) async fn search(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<StartTaskSearchQuery>>,
) -> Result<web::Json<PageDto<StartTaskDto>>, Problem> {
    let (filter, order, page) = query.into_parts();
    let found = app
        .starts
        .search(&actor.scope(), &filter, order, &page)
        .await?;
    Ok(web::Json(PageDto::of(found, StartTaskDto::from)))
}

/// Counts all matches of a search.
#[utoipa::path(tag = "Start tasks", params(StartTaskCountQuery), responses(
    (status = 200, description = "How many there are", body = u64, content_type = "application/json"),
))]
#[get("/api/v1/app-conversations/start-tasks/count")]
pub(crate) async fn count(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<StartTaskCountQuery>>,
) -> Result<web::Json<u64>, Problem> {
    Ok(web::Json(
        app.starts.count(&actor.scope(), &query.into()).await?,
    ))
}

/// Loads start tasks by id, in the requested order, with `null` for unknown ones.
#[utoipa::path(tag = "Start tasks", params(StartTaskIdsQuery), responses(
    (status = 200, description = "One entry per id", body = Vec<Option<StartTaskDto>>),
    (status = 400, description = "Too many ids"),
    (status = 413, description = "More than 32 MiB of start tasks"),
))]
#[get("/api/v1/app-conversations/start-tasks")]
pub(crate) async fn batch(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<StartTaskIdsQuery>>,
) -> Result<web::Json<Vec<Option<StartTaskDto>>>, Problem> {
    check_batch(&query.ids, "start tasks")?;
    let (mut found, mut bytes) = (Vec::new(), BatchBytes::default());
    for some in query.ids.chunks(BATCH_READ_DOCUMENTS) {
        for task in app.starts.find_many(&actor.scope(), some).await? {
            let task = task.map(StartTaskDto::from);
            bytes.add(&task, "start tasks")?;
            found.push(task);
        }
    }
    Ok(web::Json(found))
}

/// Searches the starts of all users, without what they asked for.
#[utoipa::path(tag = "Administration", params(StartTaskCountQuery, StartTaskSearchQuery, PageQuery), responses(
    (status = 200, body = PageDto<AdministeredStartDto>),
))]
#[get("/api/v1/admin/starts")]
pub(crate) async fn search_all(
    app: Application,
    ApiCall(_admin, Query(query)): ApiCall<Admin, Query<StartTaskSearchQuery>>,
) -> Result<web::Json<PageDto<AdministeredStartDto>>, Problem> {
    let (filter, order, page) = query.into_parts();
    let found = app
        .starts
        .search(&Scope::System, &filter, order, &page)
        .await?;
    Ok(web::Json(PageDto::of(found, AdministeredStartDto::from)))
}
