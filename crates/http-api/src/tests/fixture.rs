//! An application in memory with one user, one sandbox and some test routes.

use std::sync::Arc;

use actix_web::dev::Service;
use actix_web::http::header::HeaderMap;
use actix_web::{HttpResponse, get, post, test, web};
use async_trait::async_trait;
use domain::clock::SystemClock;
use domain::id::{ConversationId, IdGenerator, NewApiKey, SandboxId, UserId};
use domain::sandbox::Sandbox;
use keyring::InstallationKey;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use store_memory::MemoryStore;
use uuid::Uuid;

use crate::decode::model;
use crate::dto::page::PageQuery;
use crate::extract::{
    Actor, ApiCall, Application, Authenticator, Body, IdempotencyKey, LegacyActor, PathParam,
    Query, SandboxCaller, WebhookBody,
};
use crate::problem::Problem;
use crate::readiness::{Readiness, ReadinessCheck};
use crate::route_registry::RouteRegistry;
use crate::route_table::RouteSet;
use crate::state::{HttpConfig, HttpPorts, HttpState, RequestLimits};

pub(super) const KEY: &str = "aw_user";
pub(super) const SANDBOX_KEY: &str = "sandbox-key";
pub(super) const ID: &str = "123e4567-e89b-12d3-a456-426614174000";

struct FakeAuthenticator;

#[async_trait]
impl Authenticator for FakeAuthenticator {
    async fn user(&self, key: Option<&SecretString>) -> Result<Option<Actor>, Problem> {
        // Suspends like a query of a store: concurrent extractors must not overtake it.
        futures::future::poll_fn(yield_once()).await;
        let known = key.is_some_and(|key| key.expose_secret() == KEY);
        Ok(known.then(|| Actor::plain(UserId::parse("ada").unwrap())))
    }

    async fn sandbox(&self, _: &SecretString) -> Result<Option<Sandbox>, Problem> {
        Ok(None)
    }
}

fn yield_once() -> impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<()> {
    let mut polled = false;
    move |context| {
        if std::mem::replace(&mut polled, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}

pub(super) struct FakeReadiness(pub(super) Option<&'static str>);

#[async_trait]
impl Readiness for FakeReadiness {
    async fn checks(&self) -> Vec<ReadinessCheck> {
        vec![
            ReadinessCheck {
                name: "store",
                failure: None,
            },
            ReadinessCheck {
                name: "sandboxes",
                failure: self.0.map(str::to_owned),
            },
        ]
    }
}

struct Ids;

impl IdGenerator for Ids {
    fn uuid(&self) -> Uuid {
        Uuid::from_u128(7)
    }
    fn secret(&self) -> SecretString {
        SecretString::from("secret")
    }
    fn sandbox_id(&self) -> SandboxId {
        SandboxId::parse("s").unwrap()
    }
    fn api_key(&self) -> NewApiKey {
        NewApiKey {
            text: SecretString::from("aw_key"),
            prefix: "aw_k".to_owned(),
        }
    }
}

pub(super) fn config() -> HttpConfig {
    let limits = RequestLimits {
        body: 1000,
        webhook_body: 3000,
        ..RequestLimits::default()
    };
    HttpConfig {
        limits,
        cors_origins: vec!["https://app.example".into()],
        open: false,
        accounts: false,
        addresses: crate::AddressConfig::default(),
        trusted_proxies: Vec::new(),
        gateway: gateway::GatewayLimits::default(),
        metrics_key: None,
        has_metrics_listener: false,
        sandbox_isolation: "none",
        egress_policy: "open",
        web_client: crate::WebClient::default(),
        traces: None,
        web_app: None,
        models: None,
        git: None,
        egress: None,
        automations: None,
    }
}

pub(super) fn state(config: &HttpConfig, failing: Option<&'static str>) -> HttpState {
    let ports = HttpPorts {
        authenticator: Arc::new(FakeAuthenticator),
        readiness: Arc::new(FakeReadiness(failing)),
        clock: Arc::new(SystemClock),
        ids: Arc::new(Ids),
        fingerprints: Arc::new(InstallationKey::generate().unwrap()),
        endpoints: Arc::new(endpoint_guard::Unguarded),
    };
    HttpState::new(config, ports)
}

#[model]
#[derive(Debug)]
struct Rename {
    title: String,
    token: Option<SecretString>,
}

type RenameInput = (PathParam<ConversationId>, Query<PageQuery>, Body<Rename>);

#[utoipa::path(params(("conversation_id" = Uuid, Path)), request_body = Value, responses((status = 200, body = Value)))]
#[post("/api/v1/things/{conversation_id}")]
async fn rename(
    ApiCall(actor, (PathParam(id), Query(page), Body(input))): ApiCall<Actor, RenameInput>,
) -> web::Json<Value> {
    let token = input.token.is_some();
    web::Json(
        json!({"user": actor.user, "id": id, "limit": page.limit.get(), "title": input.title, "token": token}),
    )
}

#[utoipa::path(responses((status = 200, body = Value)))]
#[get("/api/v1/things/search")]
async fn search(
    ApiCall(_caller, Query(page)): ApiCall<Actor, Query<PageQuery>>,
) -> web::Json<Value> {
    web::Json(json!(page.limit.get()))
}

#[utoipa::path(tag = "Legacy", request_body = Value, responses((status = 200, body = Value)))]
#[post("/api/legacy")]
async fn legacy(
    ApiCall(_caller, Body(input)): ApiCall<LegacyActor, Body<Rename>>,
) -> web::Json<Value> {
    web::Json(json!(input.title))
}

#[utoipa::path(request_body = Value, responses((status = 200, body = Value)))]
#[post("/api/v1/webhook")]
async fn webhook(
    ApiCall(_caller, WebhookBody(_body)): ApiCall<SandboxCaller, WebhookBody<Value>>,
) -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[utoipa::path(request_body = Value, responses((status = 200, body = Value)))]
#[post("/api/v1/large")]
async fn large(
    ApiCall(_caller, (key, WebhookBody(list))): ApiCall<
        Actor,
        (IdempotencyKey, WebhookBody<Vec<Value>>),
    >,
) -> web::Json<Value> {
    web::Json(json!({"items": list.len(), "key": key.0}))
}

#[utoipa::path(security(()), responses((status = 200, body = Value)))]
#[get("/api/v1/panic")]
async fn panicking() -> HttpResponse {
    panic!("planted panic with a secret")
}

#[utoipa::path(security(()), responses((status = 200, body = Value)))]
#[get("/api/v1/broken")]
async fn broken() -> Result<HttpResponse, Problem> {
    let source = std::io::Error::other("disk password=hunter2");
    Err(domain::error::StoreError::Other(Box::new(source)).into())
}

#[utoipa::path(security(()), responses((status = 200, body = Value)))]
#[get("/api/v1/busy")]
async fn busy() -> Result<HttpResponse, Problem> {
    Err(domain::error::StoreError::Unavailable {
        what: "pool",
        source: None,
    }
    .into())
}

/// All routes, and the test routes.
#[derive(Clone, Copy)]
pub(super) struct TestRoutes;

impl RouteSet for TestRoutes {
    fn register(self, config: &mut impl RouteRegistry) {
        crate::routes::register(config);
        config
            .service(search)
            .service(rename)
            .service(legacy)
            .service(webhook)
            .service(large);
        config.service(panicking).service(broken).service(busy);
    }
}

/// A response.
pub(super) struct TestResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl TestResponse {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Sends one request to a fresh application.
pub(super) async fn send_to(state: HttpState, request: test::TestRequest) -> TestResponse {
    let mut responses = send_all_to(state, [request]).await;
    responses.pop().expect("a response")
}

/// Sends requests to a fresh application. As the dispatcher does, an error of the outermost layer becomes its response.
pub(super) async fn send_all_to(
    state: HttpState,
    requests: impl IntoIterator<Item = test::TestRequest>,
) -> Vec<TestResponse> {
    let application = super::memory::application(&MemoryStore::new(), &state.ports.clock);
    let app = crate::assemble(state, TestRoutes).app_data(Application::new(application));
    let app = test::init_service(app).await;
    let mut responses = Vec::new();
    for request in requests {
        let response = match app.call(request.to_request()).await {
            Ok(response) => response.into_parts().1,
            Err(error) => error.error_response(),
        };
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = actix_web::body::to_bytes(response.into_body())
            .await
            .unwrap();
        responses.push(TestResponse {
            status,
            headers,
            body: String::from_utf8_lossy(&bytes).into_owned(),
        });
    }
    responses
}

/// Sends requests to one application.
pub(super) async fn ask_all(
    requests: impl IntoIterator<Item = test::TestRequest>,
) -> Vec<TestResponse> {
    send_all_to(state(&config(), None), requests).await
}

pub(super) async fn ask(request: test::TestRequest) -> TestResponse {
    send_to(state(&config(), None), request).await
}

/// A POST of a JSON text by the user.
pub(super) fn posting(path: &str, body: &str) -> test::TestRequest {
    test::TestRequest::post()
        .uri(path)
        .insert_header(("X-Session-API-Key", KEY))
        .insert_header(("Content-Type", "application/json"))
        .set_payload(body.to_owned())
}

pub(super) fn getting(path: &str) -> test::TestRequest {
    test::TestRequest::get().uri(path)
}
