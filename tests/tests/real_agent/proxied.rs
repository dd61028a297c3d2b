//! Remote clients: the real agent server behind a real proxy with TLS. Clients reach only the proxy's port.

use std::collections::BTreeSet;
use std::time::Duration;

use acceptance::client::text;
use acceptance::processes::Process;
use acceptance::proxy::ports::{outer_address, scan};
use acceptance::proxy::wire::Connection;
use acceptance::proxy::{Proxy, ProxyKind as Kind};
use acceptance::wait::wait_for;
use acceptance::{Engine, Sandboxing, ScriptedLlm, Service};
use serde_json::{Value, json};

use crate::support::{Setup, actions, tool_outputs};

/// Time for the boot of a real agent server: some seconds, more on a busy machine.
const READY: Duration = Duration::from_secs(150);

pub(crate) async fn a_socket_through_nginx(setup: Setup) {
    is_followed(Kind::Nginx, setup).await;
}

pub(crate) async fn a_socket_through_haproxy(setup: Setup) {
    is_followed(Kind::HaProxy, setup).await;
}

/// A client that knows only the proxy's name and port, and a key.
struct RemoteClient {
    service: Service,
    proxy: Proxy,
    header: String,
    llm: ScriptedLlm,
}

impl RemoteClient {
    async fn behind(kind: Kind, setup: &Setup) -> Self {
        let llm = setup.sandboxing.model().await;
        let proxy = Proxy::reserve_everywhere(kind);
        let service = setup
            .service()
            .env("WORKSPACE_HTTP__PUBLIC_URL", &proxy.url(""))
            .env("WORKSPACE_HTTP__TRUSTED_PROXIES", "127.0.0.1")
            .start()
            .await;
        let proxy = proxy.start(service.address(), "").await;
        let it = Self {
            header: format!("X-Session-API-Key: {}\r\n", service.admin().key()),
            service,
            proxy,
            llm,
        };
        let url = it.llm.base_url();
        let llm =
            json!({"model": "openai/scripted", "base_url": url, "api_key": "k", "num_retries": 0});
        let settings = json!({"agent_settings_diff": {"llm": llm}});
        it.post("/api/v1/settings", &settings).await;
        it
    }

    /// Uses a new connection for each request, because polls exceed the number of requests that nginx allows on one.
    async fn get(&self, path: &str) -> Value {
        let mut connection = self.proxy.connect().await;
        let (head, answer) = connection
            .exchange(&format!("GET {path}"), &self.header)
            .await;
        assert!(matches!(head.status, 200..300), "{path}: {head:?} {answer}");
        serde_json::from_str(&answer).expect("answers are JSON")
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let mut connection = self.proxy.connect().await;
        let request = format!("POST {path}");
        let (head, answer) = connection.call(&request, &self.header, body).await;
        assert!(matches!(head.status, 200..300), "{path}: {head:?} {answer}");
        answer
    }

    async fn conversation(&self, id: &str) -> Value {
        let path = format!("/api/v1/app-conversations?ids={id}");
        self.get(&path).await[0].clone()
    }

    /// Starts a conversation and waits until it is ready.
    async fn converse(&self, message: &str) -> Value {
        let first = json!({"role": "user", "content": text(message), "run": true});
        let request = json!({"initial_message": first});
        let task = self.post("/api/v1/app-conversations", &request).await;
        let task = task["id"].as_str().expect("an id");
        let path = format!("/api/v1/app-conversations/start-tasks?ids={task}");
        let id = wait_for("the end of the start", READY, || async {
            let task = self.get(&path).await[0].clone();
            assert_ne!(task["status"], "ERROR", "{task}");
            (task["status"] == "READY").then(|| task["app_conversation_id"].clone())
        });
        let id = id.await;
        self.conversation(id.as_str().expect("an id")).await
    }

    /// Opens the socket of a conversation as front ends do, at the address in the service's response.
    async fn socket(&self, conversation: &Value) -> Connection {
        let url = conversation["conversation_url"].as_str();
        let rest = url.and_then(|url| url.strip_prefix(&self.proxy.url("")));
        let id = rest.and_then(|rest| rest.strip_prefix("api/conversations/"));
        let id = id.unwrap_or_else(|| panic!("it is elsewhere: {conversation}"));
        let key = conversation["session_api_key"].as_str();
        let key = key.expect("a running sandbox has a key");
        let mut connection = self.proxy.connect().await;
        let path = format!("/sockets/events/{id}?resend_all=true&session_api_key={key}");
        connection.upgrade(&path).await;
        connection
    }

    /// Asserts that other machines reach no port but the proxy's.
    async fn only_the_proxy_is_open(&self) {
        let inner: BTreeSet<u16> = match self.service.sandboxing() {
            Sandboxing::Process | Sandboxing::UnconfinedProcess => {
                let servers = self.service.agent_servers();
                servers.iter().filter_map(port_of).collect()
            }
            Sandboxing::Docker(engine) => published(engine, &self.service),
        };
        assert!(!inner.is_empty(), "the agent server listens somewhere");
        let scanned = tokio::task::spawn_blocking(|| scan(outer_address()));
        let open = scanned.await.expect("a scan ends");
        assert!(open.contains(&self.proxy.port()), "{open:?}");
        let own = self.service.address().port();
        let closed = inner.iter().copied().chain([own]);
        let found: Vec<u16> = closed.filter(|port| open.contains(port)).collect();
        assert!(
            found.is_empty(),
            "{found:?} of {inner:?} are open to others"
        );
    }
}

/// The port of an agent server. That of a confined one is in a network of its own.
fn port_of(server: &Process) -> Option<u16> {
    let mut arguments = server.arguments.iter();
    arguments.find(|it| *it == "--port")?;
    arguments.next()?.parse().ok()
}

/// The ports of this machine that the service's containers publish.
fn published(engine: &Engine, service: &Service) -> BTreeSet<u16> {
    let instance = service.instance().expect("it has been started");
    let containers = engine.containers_of(&instance).into_iter();
    // `8000/tcp -> 127.0.0.1:32768`
    let lines = containers.map(|it| engine.docker(&["port", &it.id]));
    let lines: Vec<String> = lines.collect();
    let ports = lines.iter().flat_map(|it| it.lines());
    let ports = ports.filter_map(|line| line.rsplit(':').next()?.parse().ok());
    ports.collect()
}

/// Receives events from a socket until `runs` runs have finished.
async fn until_finished(
    socket: &mut Connection,
    known: &mut BTreeSet<String>,
    runs: usize,
) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    let is_end = |event: &Value| {
        event["kind"] == "ConversationStateUpdateEvent"
            && event["key"] == "execution_status"
            && event["value"] == "finished"
    };
    while events.iter().filter(|event| is_end(event)).count() < runs {
        let heard = socket.receive_text().await;
        let heard = heard.unwrap_or_else(|| panic!("closed after {events:#?}"));
        let event: Value = serde_json::from_str(&heard).expect("events are JSON");
        // An event that happens while earlier ones are resent may arrive twice.
        if known.insert(event["id"].to_string()) {
            events.push(event);
        }
    }
    events
}

async fn is_followed(kind: Kind, setup: Setup) {
    let user = RemoteClient::behind(kind, &setup).await;
    let conversation = user.converse("RUN: echo one > first.txt").await;
    let id = conversation["id"].as_str().expect("an id");
    let sandbox = conversation["sandbox_id"].as_str().expect("an id");
    user.only_the_proxy_is_open().await;

    let (mut socket, mut known) = (user.socket(&conversation).await, BTreeSet::new());
    let events = until_finished(&mut socket, &mut known, 1).await;
    assert!(actions(&events, "terminal") >= 1, "{events:#?}");
    // A message over the socket starts a run, and its events arrive on the socket.
    let message =
        json!({"role": "user", "content": text("RUN: echo \"$((40 + 2)) seen\" | tee second.txt")});
    socket.send_text(&message.to_string()).await;
    let events = until_finished(&mut socket, &mut known, 1).await;
    assert!(tool_outputs(&events).contains("42 seen"), "{events:#?}");

    user.post(&format!("/api/v1/sandboxes/{sandbox}/pause"), &json!({}))
        .await;
    while socket.receive_text().await.is_some() {}
    let paused = user.conversation(id).await;
    assert_eq!(paused["sandbox_status"], "PAUSED", "{paused}");
    user.post(&format!("/api/v1/sandboxes/{sandbox}/resume"), &json!({}))
        .await;
    let resumed = wait_for("the sandbox to run again", READY, || async {
        let now = user.conversation(id).await;
        (now["sandbox_status"] == "RUNNING").then_some(now)
    })
    .await;
    let mut socket = user.socket(&resumed).await;
    let message = json!({"role": "user", "content": text("RUN: cat first.txt second.txt")});
    socket.send_text(&message.to_string()).await;
    let events = until_finished(&mut socket, &mut BTreeSet::new(), 3).await;
    assert!(
        tool_outputs(&events).contains("one\\n42 seen"),
        "{events:#?}"
    );
}
