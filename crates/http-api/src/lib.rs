//! The HTTP surface. It translates between the wire and the application and makes no decisions of its own.
//!
//! **Knows** actix-web, the names and shapes of the wire, and the status of each failure. **Must never know** a store,
//! a container engine, an agent server's protocol, or how a key is checked.
//!
//! # Adding an endpoint
//!
//! 1. Add the request and response types in `dto/<subject>/<resource>.rs` (or beside the handler when they are small).
//!    [`decode::model`] makes their decoder or serialiser, their conversions and their part of the document. Declare the fields
//!    in the order in which errors should be listed.
//!
//! ```
//! use http_api::decode::{Patch, Path, decode, model};
//! # use serde_json::json;
//!
//! /// A change of a conversation.
//! #[model]                 // #[model(body)] for the document; #[model(query)], #[model(response)]
//! struct Rename {
//!     #[validate(length(min = 1, max = 200))]
//!     title: String,
//!     public: Option<bool>,                   // may be absent or null
//!     branch: Patch<String>,                  // absent keeps, null clears
//!     #[decode(default = 100)]
//!     #[validate(range(min = 1, max = 1000))]
//!     limit: i64,
//! }
//! # let body = json!({"public": 7, "limit": 0});
//! # let errors = decode::<Rename>(&body, &Path::body(false)).err().unwrap();
//! # assert_eq!(errors.len(), 3);
//! # let Rename { title, public, branch, limit } = decode(&json!({"title": "a"}), &Path::body(false)).ok().unwrap();
//! # assert_eq!((title.as_str(), public, branch, limit), ("a", None, Patch::Keep, 100));
//! ```
//!
//!    A model with a `SecretString`, a [`decode::Sensitive`] or a [`decode::JsonObject`] is sensitive by itself: no error
//!    quotes its members. The macro `choice!` of `dto::enums` declares a closed set of words, a `model` of an enum
//!    alternatives. `#[decode(flatten)]` with `PageQuery` reads `page_id` and `limit`. The rest is in
//!    [`decode::model`]. Only what no attribute can say implements [`decode::Decode`] by hand, and says why.
//!    Shapes that several resources share are in `dto` (`PageDto::of`, `Success::DONE`, `Message`, `check_batch`).
//! 2. Add the handler in `routes/<subject>/<resource>.rs`, at most 15 lines: one [`extract::ApiCall`], one call of the
//!    application, one conversion.
//!
//! ```ignore
//! /// Renames a conversation.            ← summary in the document
//! #[utoipa::path(tag = "Conversations", request_body = Rename, responses(
//!     (status = 200, body = ConversationDto),
//!     (status = 409, description = "The sandbox is paused"),
//! ))]
//! #[patch("/api/v1/app-conversations/{conversation_id}")]       // the whole path, no scopes
//! pub(crate) async fn rename(
//!     app: Application,
//!     ApiCall(actor, (PathParam(id), Body(input))): ApiCall<Actor, (PathParam<ConversationId>, Body<Rename>)>,
//! ) -> Result<web::Json<ConversationDto>, Problem> {
//!     let conversation = app.conversations.update(&actor.scope(), id, &input.into()).await?;
//!     Ok(web::Json(conversation.into()))
//! }
//! ```
//!
//!    [`extract::ApiCall`] authenticates first (`Actor`, `LegacyActor`, `SandboxCaller`, `Reporter`, `UserOrSandbox`,
//!    `Anonymous`). Then it reads its parts (`PathParam`, `PathParams`, `Query`, `Body`, `OptionalBody`, `BodyWithBytes`,
//!    `WebhookBody`, `EventBatch`, `RawJson`, `IdempotencyKey`) into one list of errors. Errors of the application convert
//!    with `?`; for other shapes see [`problem::Problem`] (`missing("…")`, `conflict("…")`, `.in_error_family()`,
//!    `with_body(…)`). [`extract::NamedParam`] gives a path parameter's type its name.
//!    utoipa also reads the arguments and needs names in the pattern: `ApiCall(_caller, ())`, not `ApiCall(_, ())`.
//! 3. Register the handler in `routes::register` (static segments before `{parameters}` of the same method). Register it in
//!    `routes::register_callback` if, and only if, it takes a sandbox's key and no other.
//! 4. Document only what is specific to the route. `openapi::complete` adds the parameters in the path, the body `Detail` of
//!    errors, and to every operation 401, 404 (with a path parameter), 422, 429, 500, 503 and the errors of a body.
//!    `security(())` marks a public route, the tag `Legacy` the legacy error shape, the tag `Administration` a route that
//!    answers 403 to others, `security(("ApiKey" = []))` a route for sandbox keys.
//! 5. Test with `actix_web::test::init_service(http_api::app(state, application))`.

// The macros of `decode` name this crate, so that they also work in its examples.
extern crate self as http_api;

mod access_recheck;
mod addresses;
mod audit;
mod automations;
mod body_writer;
mod browser_session;
mod connections;
pub mod decode;
mod dto;
pub mod extract;
mod forwarding;
mod idempotency;
mod mcp;
mod metrics;
mod middleware;
mod openapi;
mod page_security;
pub mod problem;
mod process_stats;
mod rate_limit;
mod readiness;
mod route_registry;
mod route_table;
mod routes;
mod specs_cache;
mod state;
#[cfg(test)]
mod tests;
mod trace;
mod unsent_bytes;
mod zip;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::{App, Error, web};
use serde_json::Value;

use crate::extract::Application;
use crate::openapi::{RouteSurface, ServedDocument};
use crate::route_table::RouteSet;

pub use addresses::AddressConfig;
pub use automations::{AutomationsSite, AutomationsStatus};
pub use connections::{ClientConnection, ConnectionLimits, Connections};
pub use dto::configuration::web_client::WebClient;
pub use gateway::{GatewayLimits, SharedGateway as Gateway};
pub use metrics::PoolStatsSource;
pub use middleware::CONTAINER_HOST_NAMES;
pub use process_stats::open_io_counters;
pub use readiness::{Readiness, ReadinessCheck};
pub use state::{HttpConfig, HttpPorts, HttpState, Listener, RequestLimits, WebAppSite};
pub use unsent_bytes::UnsentLimits;

/// The service that a listener runs for every connection.
pub trait Surface:
    ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<BoxBody>,
        Error = Error,
        InitError = (),
    >
{
}

impl<S> Surface for S where
    S: ServiceFactory<
            ServiceRequest,
            Config = (),
            Response = ServiceResponse<BoxBody>,
            Error = Error,
            InitError = (),
        >
{
}

/// The whole surface of the public listener; tests run it in memory.
pub fn app(state: HttpState, application: application::App) -> App<impl Surface> {
    app_on_listener(Listener::Public, state, application)
}

/// The surface of one listener. The server builds one for every worker.
pub fn app_on_listener(
    listener: Listener,
    state: HttpState,
    application: application::App,
) -> App<impl Surface> {
    assemble(state.on_listener(listener), listener).app_data(Application::new(application))
}

/// Builds what all workers of a listener share. Optional: otherwise the first worker builds it, and the memory that this
/// takes for a moment stays with that worker's thread.
pub fn prepare(listener: Listener, state: &HttpState) {
    init_surface(&state.clone().on_listener(listener), listener);
}

/// Builds the list of routes, once for all workers.
fn init_surface(state: &HttpState, routes: impl RouteSet) {
    let has_docs = state.listener == Listener::Public;
    state.set_surface(|| {
        let prefix = state.addresses.prefix();
        let document = has_docs.then(|| ServedDocument::new(prefix.to_owned()));
        RouteSurface::new(routes.operations(), document)
    });
    state.http_metrics.set_routes(|| {
        if has_docs {
            routes.operations()
        } else {
            Listener::Public.operations()
        }
    });
}

/// Wraps a set of routes in the layers.
fn assemble(state: HttpState, routes: impl RouteSet) -> App<impl Surface> {
    init_surface(&state, routes);
    let mut app = App::new().configure(|config: &mut web::ServiceConfig| routes.register(config));
    if matches!(state.listener, Listener::Public | Listener::Automations) {
        // One gateway per worker: its connections live on this thread. The callback and metrics listeners have none, so that
        // sandboxes do not reach each other through them.
        let gateway = gateway::Gateway::new(state.gateway.clone());
        app = app.app_data(web::Data::new(gateway));
    }
    if state.listener == Listener::Public {
        app = app.configure(routes::register_docs);
    }
    if let Some(site) = &state.automations {
        app = app.app_data(automations::AutomationsGateway::new(site));
        app = match state.listener {
            Listener::Public => app.configure(routes::register_automations),
            Listener::Callback => app.configure(routes::register_runs),
            Listener::Automations => app.configure(routes::register_automation_keys),
            Listener::Metrics => app,
        };
    }
    let has_sandboxes = matches!(state.listener, Listener::Public | Listener::Callback);
    // As with the gateway, the connections of each worker live on its thread.
    if let Some(models) = state.models.as_ref().filter(|_| has_sandboxes) {
        app = app
            .app_data(web::Data::new(models.for_worker()))
            .configure(routes::register_models);
    }
    if let Some(git) = state.git.as_ref().filter(|_| has_sandboxes) {
        app = app
            .app_data(web::Data::new(git.for_worker()))
            .configure(routes::register_git);
    }
    app.app_data(web::Data::new(state))
        .default_service(web::to(routes::unmatched))
        .wrap(from_fn(middleware::edge))
}

/// Returns the `OpenAPI` document without starting anything. Debug builds collect it from the code. The condition is constant, so
/// that a release build contains no code for that.
pub fn openapi_document() -> Value {
    if openapi::IS_PREBUILT {
        openapi::prebuilt_document().unwrap_or_default()
    } else {
        Listener::Public.collect()
    }
}
