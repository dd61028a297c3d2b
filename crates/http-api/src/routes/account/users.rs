//! The caller: settings and role.

use actix_web::{HttpRequest, get, web};
use application::settings::SecretVisibility;
use serde_json::Value;

use crate::decode::{Decode, FieldErrors, Path, model};
use crate::dto::account::access::AccessDto;
use crate::dto::configuration::settings::UserDto;
use crate::extract::{
    Actor, ApiCall, Application, Caller, Query, SandboxCaller, State, UserOrSandbox, require_active,
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
            Ok(Self(UserOrSandbox::Sandbox(Box::new(sandbox.0))))
        } else {
            let actor = Actor::identify(req).await?;
            Ok(Self(UserOrSandbox::User(actor)))
        }
    }
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
    /// Requires the session key of a sandbox.
    #[decode(default = false)]
    expose_secrets: bool,
}

/// Loads the caller and their settings; defaults if nothing is stored. Secrets are masked. With `expose_secrets` and the key
/// of the user's own sandbox, while it runs or starts, they are in plain text.
#[utoipa::path(tag = "Users", params(MeOptions), responses((status = 200, body = UserDto)))]
#[get("/api/v1/users/me")]
pub(crate) async fn me(
    app: Application,
    state: State,
    ApiCall(MeCaller(caller), Query(_options)): ApiCall<MeCaller, Query<MeOptions>>,
) -> Result<web::Json<UserDto>, Problem> {
    let (user, reveal) = match caller {
        UserOrSandbox::User(actor) => (actor.user, SecretVisibility::Masked),
        UserOrSandbox::Sandbox(sandbox) => (sandbox.owner, SecretVisibility::Clear),
    };
    let settings = app.settings.load(&user).await?.unwrap_or_default();
    Ok(web::Json(UserDto::of(
        user,
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
