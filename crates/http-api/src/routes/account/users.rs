//! The caller: settings and role.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, get, web};
use application::settings::SecretVisibility;
use domain::sandbox::Sandbox;
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::decode::{Decode, FieldErrors, Path, model};
use crate::dto::account::access::AccessDto;
use crate::dto::configuration::settings::UserDto;
use crate::extract::{
    Actor, ApiCall, Application, Caller, Query, SandboxCaller, State, UserOrSandbox, bearer_of,
    require_active, state_of, user_of,
};
use crate::problem::Problem;

const EXPOSE_SECRETS_PARAM: &str = "expose_secrets";

/// The caller of `/users/me`. Only sandboxes may read secrets in plain text, and only users everything else. A sandbox's
/// key therefore gives access only to what its agent needs, and a user's key never reveals a secret.
struct MeCaller(UserOrSandbox);

impl Caller for MeCaller {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        if wants_secrets(req.query_string()) {
            let sandbox = SandboxCaller::identify(req).await?;
            require_active(&sandbox.0)?;
            if state_of(req)?.models.is_some() {
                require_owner(req, &sandbox.0).await?;
            }
            Ok(Self(UserOrSandbox::Sandbox(Box::new(sandbox.0))))
        } else {
            let actor = Actor::identify(req).await?;
            Ok(Self(UserOrSandbox::User(actor)))
        }
    }
}

/// Refuses a request without a key of the sandbox's owner. Where the keys of models stay outside of sandboxes, the session
/// key alone must not fetch them.
async fn require_owner(req: &HttpRequest, sandbox: &Sandbox) -> Result<(), Problem> {
    let key = bearer_of(req);
    let found = user_of(req, key.as_ref().map(ExposeSecret::expose_secret)).await?;
    if found.is_some_and(|actor| actor.user == sandbox.owner.user()) {
        return Ok(());
    }
    let refusal =
        "expose_secrets also requires an API key of the sandbox's owner, as a bearer token";
    Err(Problem::new(StatusCode::UNAUTHORIZED, refusal))
}

/// Whether secrets are requested. A value that is not a boolean counts as false, and is refused after authentication.
fn wants_secrets(query: &str) -> bool {
    let texts = url::form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| name == EXPOSE_SECRETS_PARAM);
    let last = texts.last().map(|(_, text)| Value::from(text.into_owned()));
    let mut ignored = FieldErrors::new();
    last.is_some_and(|text| bool::decode(&text, &Path::query(), &mut ignored) == Some(true))
}

/// The query. (The kind of caller depends on it, so it is also read during authentication.)
#[model(query)]
#[expect(dead_code, reason = "read during authentication")]
struct MeOptions {
    /// Requires the session key of a sandbox, and its owner's API key as a bearer token.
    #[decode(default = false)]
    expose_secrets: bool,
}

/// Loads the caller and their settings; defaults if nothing is stored. Secrets are masked. With `expose_secrets` and the key
/// of the user's own sandbox, while it runs or starts, they are in plain text, without those of a shared organization. That
/// also requires the user's API key as a bearer token, unless sandboxes have the keys of models themselves
/// (`broker.models = false`).
#[utoipa::path(tag = "Users", params(MeOptions), responses((status = 200, body = UserDto)))]
#[get("/api/v1/users/me")]
pub(crate) async fn me(
    app: Application,
    state: State,
    ApiCall(MeCaller(caller), Query(_options)): ApiCall<MeCaller, Query<MeOptions>>,
) -> Result<web::Json<UserDto>, Problem> {
    let (owner, reveal, settings) = match caller {
        UserOrSandbox::User(actor) => {
            let settings = app.settings.load(&actor.owner).await?;
            let settings = settings.unwrap_or_default();
            (actor.owner, SecretVisibility::Masked, settings)
        }
        UserOrSandbox::Sandbox(sandbox) => {
            let settings = app.settings.load_for_sandbox(&sandbox.owner).await?;
            (sandbox.owner, SecretVisibility::Clear, settings)
        }
    };
    Ok(web::Json(UserDto::of(
        owner.user(),
        &settings,
        reveal,
        state.ports.clock.now(),
    )))
}

/// Loads the caller's identity and role.
#[utoipa::path(tag = "Users", responses((status = 200, body = AccessDto)))]
#[get("/api/v1/users/me/access")]
pub(crate) async fn access(ApiCall(actor, ()): ApiCall<Actor, ()>) -> web::Json<AccessDto> {
    web::Json(actor.into())
}
