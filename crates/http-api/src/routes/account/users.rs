//! The caller: settings and role.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, get, web};
use application::secrets::may_read_secrets;
use application::settings::SecretVisibility;
use serde_json::Value;

use crate::decode::{Decode, FieldErrors, Path, model};
use crate::dto::account::access::AccessDto;
use crate::dto::configuration::settings::UserDto;
use crate::extract::{Actor, ApiCall, Application, Caller, Query, SandboxCaller, State};
use crate::problem::Problem;

const EXPOSE: &str = "expose_secrets";

/// The caller of `/users/me`. Only sandboxes may read secrets in clear, and only users all else. A sandbox's key therefore
/// gives access only to what its agent needs, and a user's key never reveals a secret.
enum MeCaller {
    User(Actor),
    Sandbox(Box<SandboxCaller>),
}

impl Caller for MeCaller {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        if wants_secrets(req.query_string()) {
            let sandbox = SandboxCaller::identify(req).await?;
            if !may_read_secrets(&sandbox.0) {
                return Err(Problem::new(
                    StatusCode::UNAUTHORIZED,
                    "Sandbox is not running",
                ));
            }
            Ok(Self::Sandbox(Box::new(sandbox)))
        } else {
            Actor::identify(req).await.map(Self::User)
        }
    }
}

/// Whether secrets are requested. A value that is not a boolean counts as false, and is refused after authentication.
fn wants_secrets(query: &str) -> bool {
    let texts = url::form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == EXPOSE);
    let last = texts.last().map(|(_, text)| Value::from(text.into_owned()));
    let mut ignored = FieldErrors::new();
    last.is_some_and(|text| bool::decode(&text, &Path::query(), &mut ignored) == Some(true))
}

/// The query. (The kind of caller depends on it, so it is also read during authentication.)
#[model(query)]
#[expect(dead_code, reason = "read during authentication")]
struct MeOptions {
    /// Requires a sandbox's key.
    #[decode(default = false)]
    expose_secrets: bool,
}

/// Loads the caller and their settings; defaults if nothing is stored. Secrets are masked. With `expose_secrets` and the key
/// of the user's own sandbox, while it runs or starts, they are in clear.
#[utoipa::path(
    tag = "Users",
    params(MeOptions),
    responses((status = 200, description = "Done", body = UserDto))
)]
#[get("/api/v1/users/me")]
pub(crate) async fn me(
    app: Application,
    state: State,
    ApiCall(caller, Query(_options)): ApiCall<MeCaller, Query<MeOptions>>,
) -> Result<web::Json<UserDto>, Problem> {
    let (user, reveal) = match caller {
        MeCaller::User(actor) => (actor.user, SecretVisibility::Masked),
        MeCaller::Sandbox(caller) => (caller.0.owner, SecretVisibility::Clear),
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
#[utoipa::path(
    tag = "Users",
    responses((status = 200, description = "The caller", body = AccessDto))
)]
#[get("/api/v1/users/me/access")]
pub(crate) async fn access(ApiCall(actor, ()): ApiCall<Actor, ()>) -> web::Json<AccessDto> {
    web::Json(actor.into())
}
