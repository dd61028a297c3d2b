//! A service in memory: Ada has 100 conversations, each in its own sandbox, and one of them has 100 events.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use actix_http::Request;
use actix_web::body::{BoxBody, to_bytes};
use actix_web::dev::{Service, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::rt::{System, SystemRunner};
use actix_web::test::{TestRequest, init_service};
use actix_web::web::Bytes;
use actix_web::{App, Error, HttpResponse, HttpServer, web};
use async_trait::async_trait;
use domain::sandbox::SandboxCaps;
use futures::future::LocalBoxFuture;
use http_api::{HttpConfig, HttpPorts, HttpState, Readiness, ReadinessCheck};
use keyring::InstallationKey;
use serde_json::{Value, json};
use store_memory::SequentialIds;

use crate::fixture::{ADA, World};

pub(crate) const KEY: &str = "X-Session-API-Key";
/// The response of the agent server.
pub(crate) const TOOL_LIST: &str = r#"["terminal","file_editor","task_tracker"]"#;
const MANY: usize = 100;
/// The number without measuring.
const FEW: usize = 3;
/// Limits that are never reached.
const CAPS: SandboxCaps = SandboxCaps {
    per_user: 1_000,
    overall: 1_000,
};

/// Sends a request and reads the whole response, which must be a success.
pub(crate) type Ask = Box<dyn Fn(Request) -> LocalBoxFuture<'static, Bytes>>;

struct Ready;

#[async_trait]
impl Readiness for Ready {
    async fn checks(&self) -> Vec<ReadinessCheck> {
        Vec::new()
    }
}

pub(crate) struct Stage {
    pub(crate) system: SystemRunner,
    pub(crate) world: World,
    pub(crate) state: HttpState,
    /// The address of all agent servers.
    pub(crate) agent: SocketAddr,
    /// A conversation with events.
    conversation: String,
    /// The key of its sandbox.
    pub(crate) session_key: String,
}

/// An application without sockets.
pub(crate) async fn whole<F>(app: App<F>) -> Ask
where
    F: ServiceFactory<
            ServiceRequest,
            Config = (),
            Response = ServiceResponse<BoxBody>,
            Error = Error,
            InitError = (),
        > + 'static,
{
    let service = Rc::new(init_service(app).await);
    Box::new(move |request| {
        let service = Rc::clone(&service);
        Box::pin(async move {
            let answered = service.call(request).await;
            let answer = answered.unwrap_or_else(|error| panic!("{error}"));
            let status = answer.status();
            let bytes = to_bytes(answer.into_body()).await;
            let bytes = bytes.unwrap_or_else(|error| panic!("{error}"));
            assert!(status.is_success(), "{status}: {bytes:?}");
            bytes
        })
    })
}

/// An event of a report, of 1.2 KB.
pub(crate) fn event(number: usize) -> Value {
    json!({
        "id": format!("event-{number}"), "timestamp": format!("2026-11-21T10:00:{:02}.000000", number % 60),
        "source": "environment", "kind": "ObservationEvent", "tool_name": "terminal",
        "observation": {"kind": "TerminalObservation", "text": "a line of output\n".repeat(58)},
    })
}

impl Stage {
    pub(crate) fn set() -> Self {
        let system = System::new();
        let agent = agent_server();
        let (world, state, conversation, session_key) = system.block_on(async {
            let world = World::idle().await;
            world.backend.set_port(agent.port());
            let world = world.at_work().await;
            world.app.set_caps(CAPS);
            let state = state(&world);
            let ask = whole(http_api::app(state.clone(), world.app.clone())).await;
            let many = if is_measuring() { MANY } else { FEW };
            let conversation = fill(&ask, many).await;
            let shown = world.read(ADA, &conversation).await;
            let key = shown["session_api_key"].as_str().expect("it runs");
            let path = format!("/api/v1/webhooks/events/{conversation}");
            let events: Vec<Value> = (0..many).map(event).collect();
            ask(post(&path, key, &json!(events))).await;
            (world, state, conversation, key.to_owned())
        });
        Self {
            system,
            world,
            state,
            agent,
            conversation,
            session_key,
        }
    }

    /// The surface.
    pub(crate) fn ask(&self) -> Ask {
        let app = http_api::app(self.state.clone(), self.world.app.clone());
        self.system.block_on(whole(app))
    }

    /// The path of the event search.
    pub(crate) fn events_path(&self) -> String {
        format!("/api/v1/conversation/{}/events/search", self.conversation)
    }

    /// The conversation with events.
    pub(crate) fn conversation(&self) -> &str {
        &self.conversation
    }
}

/// Like the tests' application, without a rate limit: its clock stands still.
fn state(world: &World) -> HttpState {
    let ports = HttpPorts {
        authenticator: Arc::new(world.app.clone()),
        readiness: Arc::new(Ready),
        clock: world.clock.clone(),
        ids: Arc::new(SequentialIds::default()),
        fingerprints: Arc::new(InstallationKey::generate().expect("a key")),
        endpoints: Arc::new(endpoint_guard::Unguarded),
    };
    let mut config = HttpConfig::default();
    config.limits.requests_per_second = 0;
    HttpState::new(&config, ports)
}

/// Whether to measure, rather than only to check that it works.
fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Starts this many conversations; returns the last one's id.
async fn fill(ask: &Ask, many: usize) -> String {
    let mut last = String::new();
    for _ in 0..many {
        let path = "/api/v1/app-conversations/stream-start";
        let states = ask(post(path, ADA, &json!({}))).await;
        let states: Value = serde_json::from_slice(&states).expect("JSON");
        let state = states.as_array().and_then(|states| states.last());
        let state = state.expect("a state");
        assert_eq!(state["status"], "READY", "{states}");
        let id = state["app_conversation_id"].as_str();
        id.expect("an id").clone_into(&mut last);
    }
    last
}

fn post(path: &str, key: &str, body: &Value) -> Request {
    let request = TestRequest::post().uri(path).insert_header((KEY, key));
    request.set_json(body).to_request()
}

/// Answers every request with the same response, on its own thread, until the program ends.
fn agent_server() -> SocketAddr {
    let tell = || async {
        HttpResponse::Ok()
            .content_type("application/json")
            .body(TOOL_LIST)
    };
    let server = HttpServer::new(move || App::new().default_service(web::to(tell)))
        .workers(1)
        .disable_signals()
        .bind("127.0.0.1:0")
        .expect("a port");
    let at = server.addrs()[0];
    let server = server.run();
    std::thread::spawn(move || System::new().block_on(server));
    at
}
