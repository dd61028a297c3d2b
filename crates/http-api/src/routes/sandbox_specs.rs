//! The templates of sandboxes. They are few, come from the configuration and are the same for everybody.

use actix_web::{get, web};
use domain::error::StoreError;
use domain::page::{Page, PageRequest, PageToken};
use domain::sandbox::SandboxSpec;

use crate::dto::page::PageQuery;
use crate::dto::sandbox::IdsQuery;
use crate::dto::spec::SpecDto;
use crate::dto::{PageDto, check_batch};
use crate::extract::{Actor, Application, Call, Query};
use crate::problem::{Detail, Problem};

/// Searches sandbox specs; the default one comes first.
#[utoipa::path(
    tag = "Sandbox specs",
    params(PageQuery),
    responses((status = 200, description = "A page", body = PageDto<SpecDto>))
)]
#[get("/api/v1/sandbox-specs/search")]
pub(super) async fn search(
    app: Application,
    Call(_actor, Query(query)): Call<Actor, Query<PageQuery>>,
) -> Result<web::Json<PageDto<SpecDto>>, Problem> {
    let found = cut(app.sandboxes.specs().await?, &query.into())?;
    Ok(web::Json(PageDto::of(found, SpecDto::from)))
}

/// Sandbox specs by id, in the order asked for, with `null` for unknown ones.
#[utoipa::path(
    tag = "Sandbox specs",
    params(IdsQuery),
    responses(
        (status = 200, description = "One entry per id", body = Vec<Option<SpecDto>>),
        (status = 400, description = "Too many ids", body = Detail),
    )
)]
#[get("/api/v1/sandbox-specs")]
pub(super) async fn batch(
    app: Application,
    Call(_actor, Query(query)): Call<Actor, Query<IdsQuery>>,
) -> Result<web::Json<Vec<Option<SpecDto>>>, Problem> {
    check_batch(&query.ids, "sandbox specs")?;
    let specs = app.sandboxes.specs().await?;
    let find = |id: &String| {
        specs
            .iter()
            .find(|spec| spec.id.as_str() == id)
            .cloned()
            .map(SpecDto::from)
    };
    Ok(web::Json(query.ids.iter().map(find).collect()))
}

/// One page of the list; its token is the last spec on it.
fn cut(specs: Vec<SandboxSpec>, request: &PageRequest) -> Result<Page<SandboxSpec>, StoreError> {
    let start = match &request.after {
        None => 0,
        Some(token) => {
            let last = specs.iter().position(|spec| spec.id.as_str() == token.0);
            last.ok_or(StoreError::InvalidPageToken)? + 1
        }
    };
    let more = specs.len() > start + request.limit.get();
    let items: Vec<_> = specs
        .into_iter()
        .skip(start)
        .take(request.limit.get())
        .collect();
    let next = items
        .last()
        .filter(|_| more)
        .map(|spec| PageToken(spec.id.to_string()));
    Ok(Page { items, next })
}
