//! Sandbox specs. They are few, come from the configuration and are the same for all users.

use actix_web::web::Bytes;
use actix_web::{HttpResponse, get, web};
use application::catalogue::page_of;
use domain::page::PageRequest;
use domain::sandbox::SandboxSpec;

use crate::dto::page::PageQuery;
use crate::dto::sandbox::record::IdsQuery;
use crate::dto::sandbox::spec::SpecDto;
use crate::dto::timestamped::json_response;
use crate::dto::{PageDto, check_batch};
use crate::extract::{Actor, ApiCall, Application, Query, State};
use crate::problem::Problem;

/// Searches sandbox specs; the default one comes first.
#[utoipa::path(tag = "Sandbox specs", params(PageQuery), responses((status = 200, body = PageDto<SpecDto>)))]
#[get("/api/v1/sandbox-specs/search")]
pub(crate) async fn search(
    app: Application,
    state: State,
    ApiCall(_actor, Query(query)): ApiCall<Actor, Query<PageQuery>>,
) -> Result<HttpResponse, Problem> {
    let (specs, page) = (app.sandboxes.specs().await?, PageRequest::from(query));
    let answer = if page.after.is_none() && page.limit.get() >= specs.len() {
        state.specs_cache.of(&specs, || to_json(&specs, &page))?
    } else {
        to_json(&specs, &page)?
    };
    Ok(json_response(answer))
}

fn to_json(specs: &[SandboxSpec], page: &PageRequest) -> Result<Bytes, Problem> {
    let found = page_of(specs, page, |spec| spec.id.as_str(), |_| true)?;
    let answer = PageDto::of(found, SpecDto::from);
    let bytes = serde_json::to_vec(&answer);
    let failed = |error| Problem::internal(format!("response cannot be serialized: {error}"));
    Ok(bytes.map_err(failed)?.into())
}

/// Loads sandbox specs by id, in the requested order, with `null` for unknown ones.
#[utoipa::path(tag = "Sandbox specs", params(IdsQuery), responses(
    (status = 200, description = "One entry per id", body = Vec<Option<SpecDto>>),
    (status = 400, description = "Too many ids"),
))]
#[get("/api/v1/sandbox-specs")]
pub(crate) async fn batch(
    app: Application,
    ApiCall(_actor, Query(query)): ApiCall<Actor, Query<IdsQuery>>,
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use domain::clock::Timestamp;
    use domain::id::SpecId;
    use domain::page::PageLimit;

    use super::*;
    use crate::specs_cache::SpecsCache;

    fn specs(id: &str) -> Arc<[SandboxSpec]> {
        Arc::new([SandboxSpec {
            id: SpecId::parse(id).unwrap(),
            command: None,
            created_at: Timestamp::from_micros(0),
            initial_env: BTreeMap::new(),
            working_dir: "/w".to_owned(),
            idle_stop: None,
            lifetime: None,
            egress: None,
            conversation_budget: None,
        }])
    }

    #[test]
    fn the_response_is_serialized_once_per_list() {
        let shown = SpecsCache::default();
        let page = PageRequest {
            after: None,
            limit: PageLimit::MAX,
        };
        for specs in [specs("a"), specs("b"), specs("a")] {
            let expected = to_json(&specs, &page).unwrap();
            let first = shown.of(&specs, || to_json(&specs, &page)).unwrap();
            let again = shown.of(&specs, || Err(Problem::internal("written twice")));
            assert_eq!([first, again.unwrap()], [expected.clone(), expected]);
        }
        assert!(
            shown
                .of(&specs("c"), || Err(Problem::internal("")))
                .is_err()
        );
    }
}
