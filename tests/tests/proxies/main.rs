//! The service behind real proxies, with the configurations that are given to operators (`config/proxies`): TLS, and no
//! other port than the proxy's.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod transfer;

use std::time::Duration;

use acceptance::client::Conversation;
use acceptance::proxy::ports::{listeners, listeners_of};
use acceptance::proxy::wire::Connection;
use acceptance::proxy::{Kind, Proxy};
use acceptance::wait::wait_for;
use acceptance::{Client, Sandboxing, Service, Stub};
use serde_json::{Value, json};

/// Until something is written, or a container runs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
/// What clients say of themselves, and nobody believes.
const CLAIM: &str = "X-Forwarded-For: 198.51.100.7\r\nForwarded: for=198.51.100.7\r\nX-Forwarded-Host: evil.example\r\n";

/// A conversation of the first user's, behind a proxy.
struct ProxyBench {
    service: Service,
    proxy: Proxy,
    /// The path of the public URL, without a slash at its end.
    path: &'static str,
    user: Client,
    conversation: Conversation,
    /// The sandbox's.
    key: String,
    _stub: Stub,
}

impl ProxyBench {
    async fn behind(kind: Kind, path: &'static str) -> Self {
        let stub = Stub::new();
        let proxy = Proxy::reserve(kind);
        let service = Service::builder()
            .stub(&stub)
            .env("WORKSPACE_HTTP__PUBLIC_URL", &proxy.url(path))
            .env("WORKSPACE_HTTP__TRUSTED_PROXIES", "127.0.0.1")
            .start()
            .await;
        let proxy = proxy.start(service.address(), path).await;
        let user = service.admin();
        user.use_model("test/model", "http://127.0.0.1:9", "k")
            .await;
        let conversation = user.converse("Hello.").await;
        Self {
            key: conversation.session_api_key.clone().unwrap(),
            conversation,
            service,
            proxy,
            path,
            user,
            _stub: stub,
        }
    }

    fn header(&self) -> String {
        format!("X-Session-API-Key: {}\r\n", self.key)
    }

    /// One connection takes one request after another; other names get nothing.
    async fn has_a_front(&self) {
        let mut connection = self.proxy.connect().await;
        for _ in 0..2 {
            let request = format!("GET {}/ready", self.path);
            let (head, text) = connection.ask(&request, "").await;
            assert_eq!(head.status, 200, "{text}");
        }
        let mut other = self.proxy.connect().await.asking_for("other.example.org");
        other.begin("GET /alive", "").await;
        assert_eq!(other.head().await.status, 421);
        let mut connection = self.proxy.connect().await;
        let request = format!("GET {}/openapi.json", self.path);
        let (_, document) = connection.ask(&request, "").await;
        let document: Value = serde_json::from_str(&document).unwrap();
        let below = json!([{"url": self.path}]);
        let servers = if self.path.is_empty() {
            &Value::Null
        } else {
            &below
        };
        assert_eq!(document["servers"], *servers);
    }

    /// What clients are told leads to the agent server, through here.
    async fn tells_its_own_addresses(&self) {
        let url = self.conversation.conversation_url.clone().unwrap();
        let public = self.proxy.url(self.path);
        let rest = url.strip_prefix(&public);
        let rest = rest.unwrap_or_else(|| panic!("{url} is elsewhere"));
        let request = format!("GET {}/{rest}/events/count", self.path);
        let mut connection = self.proxy.connect().await;
        let (head, text) = connection.ask(&request, &self.header()).await;
        assert_eq!(head.status, 200, "{text}");
        let (head, _) = connection
            .ask(&request, "X-Session-API-Key: wrong\r\n")
            .await;
        assert_eq!(head.status, 401);
        let sandboxes = self.user.get("/api/v1/sandboxes/search").await.ok();
        let urls = sandboxes["items"][0]["exposed_urls"].as_array().unwrap();
        for url in urls.iter().map(|it| it["url"].as_str().unwrap()) {
            assert!(url.starts_with(public.trim_end_matches('/')), "{url}");
        }
    }

    /// Nothing on the way collects what does not end.
    async fn streams(&self) {
        let slow = format!("GET {}/api/bash/slow", self.path);
        let id = &self.conversation.id;
        let events = format!("GET {}/api/v1/conversation/{id}/events/stream", self.path);
        let user = format!("X-Session-API-Key: {}\r\n", self.user.key());
        for (request, header) in [(slow, self.header()), (events, user)] {
            let mut connection = self.proxy.connect().await;
            connection.begin(&request, &header).await;
            let head = connection.head().await;
            assert_eq!(head.status, 200, "{request}: {head:?}");
            assert_ne!(connection.some().await.len(), 0, "{request}");
        }
    }

    async fn socket(&self, key: &str) -> Connection {
        let id = &self.conversation.id;
        let path = self.path;
        let mut connection = self.proxy.connect().await;
        let path = format!("{path}/sockets/events/{id}?resend_all=true&session_api_key={key}");
        connection.upgrade(&path).await;
        connection.hears_itself("hello").await;
        connection
    }

    /// Open as long as their key is good and their sandbox runs.
    async fn has_sockets(&self) {
        let mut kept = self.socket(&self.key).await;
        let made = self.user.post("/api/v1/keys", &json!({})).await.ok();
        let mut lost = self.socket(made["key"].as_str().unwrap()).await;
        let id = made["record"]["id"].as_str().unwrap();
        let revoked = self.user.delete(&format!("/api/v1/keys/{id}")).await;
        assert_eq!(revoked.status, 200, "{}", revoked.text);
        // 1008: they may not have it any more.
        assert_eq!(
            lost.rest().await,
            [0x88, 2, 0x03, 0xf0],
            "the key is revoked"
        );
        kept.hears_itself("still there").await;
        self.user.pause(&self.conversation.sandbox_id).await;
        // Or its server is the first to be gone, and says nothing.
        kept.rest().await;
    }

    /// Clients are known by what trusted proxies say, and by nothing that they say themselves.
    async fn knows_who_asks(&self) {
        let request = format!("POST {}/api/v1/keys", self.path);
        let header = format!(
            "X-Session-API-Key: {}\r\nContent-Length: 0\r\n{CLAIM}",
            self.user.key()
        );
        let mut proxied = self.proxy.connect_from([127, 0, 0, 2]).await;
        let mut direct = Connection::plain([127, 0, 0, 3], self.service.address()).await;
        for connection in [&mut proxied, &mut direct] {
            let (head, text) = connection.ask(&request, &header).await;
            assert_eq!(head.status, 201, "{text}");
        }
        let sources = wait_for("two lines of the audit log", WAIT_TIMEOUT, || async {
            let lines = self.user.all("/api/v1/audit").await;
            let made = lines
                .iter()
                .filter(|it| it["action"] == "POST /api/v1/keys");
            let sources = made.map(|it| it["source"].clone());
            let sources: Vec<Value> = sources.filter(|it| it != "127.0.0.1").collect();
            (sources.len() >= 2).then_some(sources)
        })
        .await;
        for address in ["127.0.0.2", "127.0.0.3"] {
            assert!(sources.contains(&json!(address)), "{sources:?}");
        }
        assert!(
            !self.service.log().contains("198.51.100.7"),
            "a claim is believed"
        );
    }

    /// Neither the service nor what runs in sandboxes is to be had but on this machine.
    fn listens_on_loopback_only(&self) {
        let sandboxes = self.service.processes();
        let sandboxes = sandboxes.iter().filter_map(|it| u32::try_from(it.pid).ok());
        let pids: Vec<u32> = sandboxes.chain([self.service.pid()]).collect();
        let found = listeners_of(&pids);
        assert!(
            found.len() >= 2,
            "the service and an agent server: {found:?}"
        );
        assert!(found.iter().all(|it| it.is_loopback), "{found:?}");
    }
}

/// What clients of a proxy see must not depend on which proxy it is.
async fn serves(kind: Kind, path: &'static str) {
    let bench = ProxyBench::behind(kind, path).await;
    bench.listens_on_loopback_only();
    bench.has_a_front().await;
    bench.tells_its_own_addresses().await;
    bench.streams().await;
    bench.knows_who_asks().await;
    bench.has_sockets().await;
}

#[tokio::test]
async fn nginx_serves() {
    serves(Kind::Nginx, "").await;
}

#[tokio::test]
async fn nginx_serves_below_a_path() {
    serves(Kind::Nginx, "/agents").await;
}

#[tokio::test]
async fn haproxy_serves() {
    serves(Kind::HaProxy, "").await;
}

#[tokio::test]
async fn haproxy_serves_below_a_path() {
    serves(Kind::HaProxy, "/agents").await;
}

#[tokio::test]
async fn nginx_hands_on_files_of_any_size() {
    transfer::there_and_back(&ProxyBench::behind(Kind::Nginx, "").await).await;
}

#[tokio::test]
async fn haproxy_hands_on_files_of_any_size() {
    transfer::there_and_back(&ProxyBench::behind(Kind::HaProxy, "").await).await;
}

#[tokio::test]
async fn ports_of_containers_are_on_loopback_only() {
    let stub = Stub::new();
    let sandboxing = Sandboxing::docker();
    let Sandboxing::Docker(engine) = &sandboxing else {
        unreachable!("it was asked for")
    };
    let builder = Service::builder().sandboxing(&sandboxing).stub(&stub);
    let service = builder.start().await;
    let user = service.admin();
    let sandbox = user.start_sandbox().await;
    let sandbox = user
        .sandbox_becomes(&sandbox.id, "RUNNING", WAIT_TIMEOUT)
        .await;
    let container = service.container(&sandbox.id).unwrap();
    // `8000/tcp -> 127.0.0.1:32768`
    let published = engine.docker(&["port", &container]);
    let places = published.lines().filter_map(|line| line.rsplit(' ').next());
    let places: Vec<(&str, &str)> = places.filter_map(|it| it.rsplit_once(':')).collect();
    assert!(!places.is_empty(), "{published}");
    for (address, port) in places {
        assert_eq!(address, "127.0.0.1", "{published}");
        let port: u16 = port.parse().unwrap();
        let mut others = listeners().into_iter().filter(|it| it.port == port);
        assert!(others.all(|it| it.is_loopback), "{port}");
    }
}
