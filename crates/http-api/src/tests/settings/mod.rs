//! The settings routes of both APIs, with the application in memory. Bodies are those of the wire reference.

mod decisions;
mod legacy;
mod limits;
mod profiles;
mod secrets;
mod v1;

use std::rc::Rc;
use std::sync::Arc;

use actix_web::Error;
use actix_web::body::BoxBody;
use actix_web::dev::{Service, ServiceResponse};
use actix_web::http::Method;
use actix_web::test::{self, TestRequest};
use application::App;
use async_trait::async_trait;
use domain::clock::{Clock, Timestamp};
use domain::encryption::cipher::Sealed;
use domain::id::{HostId, SandboxId, SpecId, UserId};
use domain::sandbox::{DesiredState, Sandbox, SandboxStatus};
use domain::user::identity::KeyHash;
use domain::user::settings::{SettingsRepository, StoredSettings};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use store_memory::{FixedClock, MemoryStore, SequentialIds};
use tokio::sync::OnceCell;

use super::fixture::FakeReadiness;
use super::memory::application;
use crate::extract::{Actor, Authenticator};
use crate::problem::Problem;
use crate::state::{HttpConfig, HttpPorts, HttpState, RequestLimits};

const KEY: &str = "aw_user";
const OTHER_KEY: &str = "aw_other";
const SANDBOX_KEY: &str = "sandbox-key";

/// Two users, `ada` with one sandbox and `bob`.
struct FakeSandboxAuthenticator(Sandbox);

#[async_trait]
impl Authenticator for FakeSandboxAuthenticator {
    async fn user(&self, key: Option<&SecretString>) -> Result<Option<Actor>, Problem> {
        let user = match key.map(ExposeSecret::expose_secret) {
            Some(KEY) => ada(),
            Some(OTHER_KEY) => UserId::parse("bob").unwrap(),
            _ => return Ok(None),
        };
        Ok(Some(Actor::plain(user)))
    }

    async fn sandbox(&self, key: &SecretString) -> Result<Option<Sandbox>, Problem> {
        Ok((key.expose_secret() == SANDBOX_KEY).then(|| self.0.clone()))
    }
}

fn ada() -> UserId {
    UserId::parse("ada").unwrap()
}

pub(crate) fn sandbox() -> Sandbox {
    let now = Timestamp::from_micros(0);
    Sandbox {
        id: SandboxId::parse("s1").unwrap(),
        owner: ada().into(),
        spec_id: SpecId::parse("spec").unwrap(),
        host: HostId::parse("host").unwrap(),
        desired: DesiredState::Running,
        status: SandboxStatus::Running,
        status_detail: None,
        key_hash: KeyHash::of("key"),
        session_key: Sealed::from_text(""),
        secret_key: Sealed::from_text(""),
        agent_url: None,
        exposed_urls: std::sync::Arc::default(),
        workspace: None,
        has_proxy: false,
        egress: None,
        automation_key: None,
        created_at: now,
        updated_at: now,
        paused_at: None,
        callback_token_hash: None,
    }
}

type Routes = Box<dyn Fn(TestRequest) -> LocalBoxFuture<'static, SettingsResponse>>;

/// An application and its store; every request goes through all layers.
struct SettingsFixture {
    /// Set up once, because that takes longer than most requests.
    routes: OnceCell<Routes>,
    store: Arc<MemoryStore>,
    state: HttpState,
    application: App,
}

/// A response.
struct SettingsResponse {
    status: u16,
    text: String,
}

impl SettingsResponse {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }
}

impl SettingsFixture {
    fn new() -> Self {
        Self::with_sandbox(sandbox())
    }

    fn with_sandbox(sandbox: Sandbox) -> Self {
        // The clock stands still: all requests of a test are within one second.
        Self::limited(sandbox, 0)
    }

    /// With this rate limit per user.
    fn limited(sandbox: Sandbox, requests_per_second: u32) -> Self {
        let store = MemoryStore::new();
        let clock: Arc<dyn Clock> = Arc::new(FixedClock::default());
        let application = application(&store, &clock);
        let ports = HttpPorts {
            authenticator: Arc::new(FakeSandboxAuthenticator(sandbox)),
            readiness: Arc::new(FakeReadiness(None)),
            clock,
            ids: Arc::new(SequentialIds::default()),
            fingerprints: Arc::new(keyring::InstallationKey::generate().unwrap()),
            endpoints: Arc::new(endpoint_guard::Unguarded),
        };
        let limits = RequestLimits {
            requests_per_second,
            ..RequestLimits::default()
        };
        let config = HttpConfig {
            limits,
            ..HttpConfig::default()
        };
        let state = HttpState::new(&config, ports);
        Self {
            routes: OnceCell::new(),
            store,
            state,
            application,
        }
    }

    async fn send(&self, request: TestRequest) -> SettingsResponse {
        let set_up = async || {
            let app = crate::app(self.state.clone(), self.application.clone());
            let app = Rc::new(test::init_service(app).await);
            let routes: Routes = Box::new(move |request| {
                let app = Rc::clone(&app);
                async move { ask(&*app, request.to_request()).await }.boxed_local()
            });
            routes
        };
        let routes = self.routes.get_or_init(set_up).await;
        routes(request).await
    }

    async fn get(&self, path: &str) -> SettingsResponse {
        self.send(request(Method::GET, path, KEY)).await
    }

    async fn post_text(&self, path: &str, body: &str) -> SettingsResponse {
        self.send(posting(path, body)).await
    }

    async fn post(&self, path: &str, body: &Value) -> SettingsResponse {
        self.post_text(path, &body.to_string()).await
    }

    /// A POST that must succeed with this message.
    async fn post_ok(&self, path: &str, body: &Value, message: &str) {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
        assert_eq!(answer.json(), serde_json::json!({"message": message}));
    }

    /// The stored document in the clear text of the test cipher.
    async fn stored(&self) -> Option<Value> {
        let row = SettingsRepository::load(&*self.store, &ada().into())
            .await
            .unwrap()?;
        let context = StoredSettings::context(&ada().into());
        let text = row
            .document
            .as_text()
            .strip_prefix(&format!("{context}|"))
            .unwrap()
            .to_owned();
        Some(serde_json::from_str(&text).unwrap())
    }

    async fn damage(&self, document: &str) {
        let revision = SettingsRepository::load(&*self.store, &ada().into())
            .await
            .unwrap();
        let revision = revision.map(|row| row.revision);
        let sealed = Sealed::from_text(document);
        let at = Timestamp::from_micros(0);
        self.store
            .save(&ada().into(), &sealed, revision, at)
            .await
            .unwrap();
    }
}

/// Sends one request. As the dispatcher does, an error of the outermost layer becomes its response.
async fn ask<S, R>(app: &S, request: R) -> SettingsResponse
where
    S: Service<R, Response = ServiceResponse<BoxBody>, Error = Error>,
{
    let response = match app.call(request).await {
        Ok(response) => response.into_parts().1,
        Err(error) => error.error_response(),
    };
    let status = response.status().as_u16();
    let body = actix_web::body::to_bytes(response.into_body())
        .await
        .unwrap();
    SettingsResponse {
        status,
        text: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// A POST of a JSON text by the user.
fn posting(path: &str, body: &str) -> TestRequest {
    request(Method::POST, path, KEY)
        .insert_header(("Content-Type", "application/json"))
        .set_payload(body.to_owned())
}

fn request(method: Method, path: &str, key: &str) -> TestRequest {
    let request = TestRequest::default().method(method).uri(path);
    if key.is_empty() {
        request
    } else {
        request.insert_header(("X-Session-API-Key", key))
    }
}
