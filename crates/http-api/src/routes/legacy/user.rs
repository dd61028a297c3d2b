//! Git providers under the paths of front ends of the 1.0 to 1.3 line. Without a stored token they answer 401 with a plain
//! text.

use actix_web::http::StatusCode;
use actix_web::{get, web};
use application::git::{GitServiceError, PageNumber};
use domain::git::GitPageRequest;

use crate::dto::git::{GitUserDto, RepositoryDto, SuggestedTaskDto};
use crate::dto::legacy::user::{
    LegacyBranchesQuery, LegacyInstallationsQuery, LegacyRepositoriesQuery, NumberedBranchesDto,
    NumberedPageQuery, repositories as with_links,
};
use crate::extract::{Actor, ApiCall, Application, Query};
use crate::problem::{GitProviderErrors, Problem};
use crate::routes::integration::git::problem;

/// Maximum number of tasks in one response.
const MAX_SUGGESTED_TASKS: usize = 100;

fn refusal(failure: GitServiceError, without_token: &str) -> Problem {
    match failure {
        GitServiceError::NotConnected(_) => {
            Problem::with_body(StatusCode::UNAUTHORIZED, without_token.into())
        }
        failure => problem(failure),
    }
}

/// The error response of most of these routes.
fn refused(failure: GitServiceError) -> Problem {
    refusal(failure, "Git provider token required. (such as GitHub).")
}

/// Loads the user's account at the first provider that returns one.
#[utoipa::path(tag = "Git of older front ends", responses((status = 200, body = GitUserDto), GitProviderErrors))]
#[get("/api/user/info")]
pub(crate) async fn info(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor, ()>,
) -> Result<web::Json<GitUserDto>, Problem> {
    let user = app.git.whoami(&actor.owner).await;
    Ok(web::Json(user.map_err(refused)?.into()))
}

/// Lists repositories that the tokens can read.
#[utoipa::path(tag = "Git of older front ends", params(LegacyRepositoriesQuery, NumberedPageQuery), responses(
    (status = 200, body = Vec<RepositoryDto>),
    (status = 400, description = "The provider's host may not be called"),
    (status = 404, description = "Not found at the git provider"),
    GitProviderErrors,
))]
#[get("/api/user/repositories")]
pub(crate) async fn repositories(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<LegacyRepositoriesQuery>>,
) -> Result<web::Json<Vec<RepositoryDto>>, Problem> {
    let installation = query.installation.filter(|text| !text.is_empty());
    let (installation, page) = (installation.as_deref(), PageNumber::from(query.page));
    let found = app
        .git
        .numbered_repositories(&actor.owner, query.provider, installation, page)
        .await
        .map_err(refused)?;
    Ok(web::Json(with_links(found, page.number)))
}

/// Lists branches of a repository.
#[utoipa::path(tag = "Git of older front ends", params(LegacyBranchesQuery, NumberedPageQuery), responses(
    (status = 200, body = NumberedBranchesDto),
    (status = 400, description = "Not a repository's name, or the provider's host may not be called"),
    (status = 404, description = "Not found at the git provider"),
    GitProviderErrors,
))]
#[get("/api/user/repository/branches")]
pub(crate) async fn branches(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<LegacyBranchesQuery>>,
) -> Result<web::Json<NumberedBranchesDto>, Problem> {
    let page = PageNumber::from(query.page);
    let found = app
        .git
        .numbered_branches(&actor.owner, query.provider, &query.repository, page)
        .await
        .map_err(refused)?;
    Ok(web::Json(NumberedBranchesDto::of(found, page)))
}

/// Lists issues and pull requests that need the user's attention, at most 100.
#[utoipa::path(tag = "Git of older front ends", responses(
    (status = 200, body = Vec<SuggestedTaskDto>),
    (status = 401, description = "No token is stored", body = String, content_type = "application/json"),
))]
#[get("/api/user/suggested-tasks")]
pub(crate) async fn suggested_tasks(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor, ()>,
) -> Result<web::Json<Vec<SuggestedTaskDto>>, Problem> {
    let all = GitPageRequest {
        after: None,
        limit: MAX_SUGGESTED_TASKS,
    };
    let found = app.git.suggested_tasks(&actor.owner, &all).await;
    let found = found.map_err(|failure| refusal(failure, "No providers set."))?;
    Ok(web::Json(found.items.into_iter().map(Into::into).collect()))
}

/// Lists installations (GitHub), workspaces (Bitbucket), projects (Bitbucket Data Center) or organizations (Azure DevOps).
#[utoipa::path(tag = "Git of older front ends", params(LegacyInstallationsQuery), responses(
    (status = 200, description = "At most 100", body = Vec<String>),
    (status = 400, description = "The provider has no such thing, or its host may not be called"),
    GitProviderErrors,
))]
#[get("/api/user/installations")]
pub(crate) async fn installations(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<LegacyInstallationsQuery>>,
) -> Result<web::Json<Vec<String>>, Problem> {
    let found = app
        .git
        .all_installations(&actor.owner, query.provider)
        .await;
    Ok(web::Json(found.map_err(refused)?))
}
