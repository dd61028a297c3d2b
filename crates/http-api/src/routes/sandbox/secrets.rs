//! Secrets for the running sandbox of their owner: the only responses with values.

use actix_web::http::header::ContentType;
use actix_web::{HttpRequest, HttpResponse, get, web};
use domain::sandbox::Sandbox;
use secrecy::{ExposeSecret, SecretString};

use crate::decode::model;
use crate::dto::configuration::secret::{SecretDto, SecretNamesDto};
use crate::extract::{
    Anonymous, ApiCall, Application, Caller, PathParams, callback_sandbox, require_active,
};
use crate::problem::Problem;

/// A sandbox that runs or starts, identified by its callback token or session key, on a path that names it.
pub(crate) struct ActiveSandbox(Sandbox);

impl Caller for ActiveSandbox {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let sandbox = callback_sandbox(req).await?;
        require_active(&sandbox)?;
        if req.match_info().query("sandbox_id") != sandbox.id.as_str() {
            return Err(Problem::forbidden("Session API key does not match sandbox"));
        }
        Ok(Self(sandbox))
    }
}

/// The name in the path, unvalidated.
#[model]
pub(crate) struct SecretNameParam {
    secret_name: String,
}

/// Lists the secrets that the sandbox may read. Requires its session key or callback token, while it runs or starts.
#[utoipa::path(tag = "Sandboxes", security(("ApiKey" = [])), responses(
    (status = 200, body = SecretNamesDto),
    (status = 403, description = "The session key or callback token of another sandbox"),
))]
#[get("/api/v1/sandboxes/{sandbox_id}/settings/secrets")]
pub(crate) async fn list(
    app: Application,
    ApiCall(ActiveSandbox(sandbox), ()): ApiCall<ActiveSandbox>,
) -> Result<web::Json<SecretNamesDto>, Problem> {
    let visible = app.secrets.visible(&sandbox).await?;
    Ok(web::Json(SecretNamesDto {
        secrets: visible.into_iter().map(SecretDto::from).collect(),
    }))
}

/// Loads the value of a secret: a custom one by its name, a git provider's token as `GITHUB_TOKEN` or `github_token`.
/// Requires the sandbox's own session key or callback token, while it runs or starts.
#[utoipa::path(tag = "Sandboxes", security(("ApiKey" = [])), responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 403, description = "The session key or callback token of another sandbox"),
))]
#[get("/api/v1/sandboxes/{sandbox_id}/settings/secrets/{secret_name}")]
pub(crate) async fn reveal(
    app: Application,
    ApiCall(ActiveSandbox(sandbox), PathParams(name)): ApiCall<
        ActiveSandbox,
        PathParams<SecretNameParam>,
    >,
) -> Result<HttpResponse, Problem> {
    Ok(plain(
        &app.secrets.reveal(&sandbox, &name.secret_name).await?,
    ))
}

/// Loads a git provider's token for an access token (header `X-Access-Token`). This service issues no access tokens, so every
/// token is refused.
#[utoipa::path(tag = "Webhooks", security(("AccessToken" = [])), responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 404, description = "The user has no token of this provider"),
))]
#[get("/api/v1/webhooks/secrets")]
pub(crate) async fn provider_token(
    ApiCall(Anonymous, ()): ApiCall<Anonymous>,
) -> Result<HttpResponse, Problem> {
    Err(Problem::unauthorized())
}

/// A plain text response. The middleware forbids caching it.
fn plain(secret: &SecretString) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::plaintext())
        .body(secret.expose_secret().to_owned())
}
