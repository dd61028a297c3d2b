//! Reads from a user's git providers: repositories, branches, installations, suggested tasks, the user.

use actix_web::http::StatusCode;
use actix_web::{get, web};
use application::git::GitServiceError;
use domain::error::{Classify as _, ErrorClass};
use domain::git::{GitError, GitPage};

use crate::decode::{FieldError, Path};
use crate::dto::PageDto;
use crate::dto::git::{
    BranchDto, BranchesQuery, GitUserDto, InstallationsQuery, RepositoriesQuery, RepositoryDto,
    SuggestedTaskDto, git_page,
};
use crate::dto::page::{PageQuery, Paged, ShortPageQuery};
use crate::extract::{Actor, ApiCall, Application, Query};
use crate::problem::{GitProviderErrors, Problem};

/// The error response: a plain text for a rejected token, otherwise `detail`.
pub(crate) fn problem(failure: GitServiceError) -> Problem {
    match &failure {
        GitServiceError::Provider(error @ GitError::InvalidPageToken) => {
            let at = Path::query();
            Problem::unprocessable(&at.key("page_id"), FieldError::value_error(error))
        }
        failure if failure.class() == ErrorClass::Unauthenticated => {
            Problem::with_body(StatusCode::UNAUTHORIZED, failure.public().into())
        }
        _ => failure.into(),
    }
}

fn answer<T, D: Into<T>>(
    found: Result<GitPage<D>, GitServiceError>,
) -> Result<web::Json<PageDto<T>>, Problem> {
    let page = PageDto::from_git_page(found.map_err(problem)?);
    Ok(web::Json(page))
}

/// Lists installations (GitHub), workspaces (Bitbucket), projects (Bitbucket Data Center) or organizations (Azure DevOps).
#[utoipa::path(tag = "Git", params(InstallationsQuery, PageQuery), responses(
    (status = 200, body = PageDto<String>),
    (status = 400, description = "The provider does not support this, or its host may not be called"),
    (status = 403, description = "No token is stored"),
    GitProviderErrors,
))]
#[get("/api/v1/git/installations/search")]
pub(crate) async fn installations(
    app: Application,
    ApiCall(actor, Query(Paged { query, page })): ApiCall<Actor, Query<Paged<InstallationsQuery>>>,
) -> Result<web::Json<PageDto<String>>, Problem> {
    let page = git_page(page);
    let found = app.git.installations(&actor.owner, query.provider, &page);
    answer(found.await)
}

/// Lists repositories that the token can read, or that a search finds.
#[utoipa::path(tag = "Git", params(RepositoriesQuery, PageQuery), responses(
    (status = 200, body = PageDto<RepositoryDto>),
    (status = 400, description = "Only searches can be sorted, or the provider's host may not be called"),
    (status = 403, description = "No token is stored"),
    (status = 404, description = "The provider does not find it"),
    GitProviderErrors,
))]
#[get("/api/v1/git/repositories/search")]
pub(crate) async fn repositories(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<RepositoriesQuery>>,
) -> Result<web::Json<PageDto<RepositoryDto>>, Problem> {
    let (wanted, page) = (query.query(), git_page(query.page));
    let (git, provider) = (&app.git, query.provider);
    let found = git.repositories(&actor.owner, provider, &wanted, &page);
    answer(found.await)
}

/// Lists branches of a repository.
#[utoipa::path(tag = "Git", params(BranchesQuery, ShortPageQuery), responses(
    (status = 200, body = PageDto<BranchDto>),
    (status = 400, description = "Not a repository name, or the provider's host may not be called"),
    (status = 403, description = "No token is stored"),
    (status = 404, description = "The provider does not find it"),
    GitProviderErrors,
))]
#[get("/api/v1/git/branches/search")]
pub(crate) async fn branches(
    app: Application,
    ApiCall(actor, Query(Paged { query, page })): ApiCall<
        Actor,
        Query<Paged<BranchesQuery, ShortPageQuery>>,
    >,
) -> Result<web::Json<PageDto<BranchDto>>, Problem> {
    let which = (query.repository.as_str(), query.text.as_str());
    let page = git_page(page);
    let found = app.git.branches(&actor.owner, query.provider, which, &page);
    answer(found.await)
}

/// Lists issues and pull requests that need the user's attention, of all providers with a stored token. Failing providers
/// are skipped.
#[utoipa::path(tag = "Git", params(ShortPageQuery), responses(
    (status = 200, body = PageDto<SuggestedTaskDto>),
    (status = 403, description = "No token is stored"),
))]
#[get("/api/v1/git/suggested-tasks/search")]
pub(crate) async fn suggested_tasks(
    app: Application,
    ApiCall(actor, Query(page)): ApiCall<Actor, Query<ShortPageQuery>>,
) -> Result<web::Json<PageDto<SuggestedTaskDto>>, Problem> {
    let page = git_page(page);
    let found = app.git.suggested_tasks(&actor.owner, &page);
    answer(found.await)
}

/// Loads the user's account at the first provider that returns one.
#[utoipa::path(tag = "Users", responses(
    (status = 200, body = GitUserDto),
    (status = 403, description = "No token is stored"),
    GitProviderErrors,
))]
#[get("/api/v1/users/git-info")]
pub(crate) async fn git_info(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor, ()>,
) -> Result<web::Json<GitUserDto>, Problem> {
    match app.git.whoami(&actor.owner).await {
        Ok(user) => Ok(web::Json(user.into())),
        Err(GitServiceError::NotConnected(_)) => {
            Err(Problem::forbidden("Git provider not connected"))
        }
        Err(failure) => Err(problem(failure)),
    }
}
