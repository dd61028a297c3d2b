//! The caller: settings and role.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, get, web};
use application::settings::SecretVisibility;
use domain::sandbox::Sandbox;
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::decode::{Decode, FieldErrors, Path, model};
use crate::dto::account::access::AccessDto;
use crate::dto::account::organization::MembershipDto;
use crate::dto::configuration::settings::UserDto;
use crate::extract::{
    Actor, ApiCall, Application, Caller, KEY_HEADER, Query, SandboxCaller, State, bearer_of,
    require_active, state_of, user_of,
};
use crate::problem::Problem;

const EXPOSE_SECRETS_PARAM: &str = "expose_secrets";

/// The caller of `/users/me`. Only sandboxes may read secrets in plain text, and only users everything else. A sandbox's
/// key therefore gives access only to what its agent needs, and a user's key never reveals a secret.
enum MeCaller {
    User(Actor),
    /// The automations service; with its sandbox, a run.
    Automation(Actor, Option<Box<Sandbox>>),
    Sandbox(Box<Sandbox>),
    /// A sandbox of a run, with a key of the automations service.
    Run(Box<Sandbox>),
}

impl Caller for MeCaller {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        if wants_secrets(req.query_string()) {
            let sandbox = SandboxCaller::identify(req).await?;
            require_active(&sandbox.0)?;
            let owner = owner_of(req, &sandbox.0).await?;
            let sandbox = Box::new(sandbox.0);
            match owner {
                Some(owner) if owner.is_automation => Ok(Self::Run(sandbox)),
                None if state_of(req)?.models.is_some() => Err(owner_required()),
                _ => Ok(Self::Sandbox(sandbox)),
            }
        } else {
            let actor = Actor::identify(req).await?;
            if actor.is_automation {
                let sandbox = sandbox_of_run(req, &actor).await?;
                return Ok(Self::Automation(actor, sandbox.map(Box::new)));
            }
            Ok(Self::User(actor))
        }
    }
}

/// The sandbox of a run. It sends its session key beside the run's key, which is the bearer token then.
async fn sandbox_of_run(req: &HttpRequest, actor: &Actor) -> Result<Option<Sandbox>, Problem> {
    if bearer_of(req).is_none() || !req.headers().contains_key(&KEY_HEADER) {
        return Ok(None);
    }
    let SandboxCaller(sandbox) = SandboxCaller::identify(req).await?;
    require_active(&sandbox)?;
    let is_of_run = sandbox.automation_key.is_some() && sandbox.owner == actor.owner;
    Ok(is_of_run.then_some(sandbox))
}

/// The owner of the sandbox, if the request has a key of theirs as well. Where the keys of models stay outside of sandboxes,
/// the session key alone must not fetch them.
async fn owner_of(req: &HttpRequest, sandbox: &Sandbox) -> Result<Option<Actor>, Problem> {
    let key = bearer_of(req);
    let Some(key) = &key else {
        return Ok(None);
    };
    let found = user_of(req, Some(key.expose_secret())).await?;
    Ok(found.filter(|actor| actor.user == sandbox.owner.user()))
}

fn owner_required() -> Problem {
    let refusal =
        "expose_secrets also requires an API key of the sandbox's owner, as a bearer token";
    Problem::new(StatusCode::UNAUTHORIZED, refusal)
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
/// of the user's own sandbox, while it runs or starts, they are in plain text, without those of a shared organization. A run of
/// an automation gets its models only, with tokens in place of their keys where the service calls models. That also requires the user's API key as a bearer token, unless sandboxes have the keys of models themselves
/// (`broker.models = false`).
#[utoipa::path(tag = "Users", params(MeOptions), responses((status = 200, body = UserDto)))]
#[get("/api/v1/users/me")]
pub(crate) async fn me(
    app: Application,
    state: State,
    ApiCall(caller, Query(_options)): ApiCall<MeCaller, Query<MeOptions>>,
) -> Result<web::Json<UserDto>, Problem> {
    let now = state.ports.clock.now();
    let user = match caller {
        MeCaller::User(actor) => {
            let settings = app.settings.load(&actor.owner).await?.unwrap_or_default();
            UserDto::of(&actor.user, &settings, SecretVisibility::Masked, now)
        }
        MeCaller::Automation(actor, sandbox) => {
            let settings = app.settings.load(&actor.owner).await?.unwrap_or_default();
            let mcp = sandbox.map(|sandbox| app.secrets.mcp_of_run(&sandbox, &settings));
            UserDto::of(&actor.user, &settings, SecretVisibility::Masked, now)
                .for_automations(MembershipDto::from(&actor), mcp.transpose()?)
        }
        MeCaller::Sandbox(sandbox) => {
            let settings = app.settings.load_for_sandbox(&sandbox.owner).await?;
            let user = sandbox.owner.user();
            UserDto::of(&user, &settings, SecretVisibility::Clear, now)
        }
        MeCaller::Run(sandbox) => {
            let settings = app.settings.load_for_sandbox(&sandbox.owner).await?;
            let models = app.models.for_run(&sandbox.id, &settings).await?;
            let user = sandbox.owner.user();
            UserDto::of(&user, &settings, SecretVisibility::Masked, now).with_models(&models)
        }
    };
    Ok(web::Json(user))
}

/// Loads the caller's identity and role.
#[utoipa::path(tag = "Users", responses((status = 200, body = AccessDto)))]
#[get("/api/v1/users/me/access")]
pub(crate) async fn access(ApiCall(actor, ()): ApiCall<Actor, ()>) -> web::Json<AccessDto> {
    web::Json(actor.into())
}
