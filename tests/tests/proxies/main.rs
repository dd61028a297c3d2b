//! The service behind real proxies with the configurations for operators (`config/proxies`): TLS, and only the proxy's port is
//! reachable.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod transfer;

use std::time::Duration;

use acceptance::client::Conversation;
use acceptance::proxy::ports::{listeners, listeners_of};
use acceptance::proxy::wire::Connection;
use acceptance::proxy::{Proxy, ProxyKind};
use acceptance::wait::wait_for;
use acceptance::{Client, Sandboxing, Service, Stub};
use serde_json::{Value, json};

/// Until an audit entry is written, or a container runs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
/// Headers with which clients claim another address. The service must ignore them.
const FORGED_HEADERS: &str = "X-Forwarded-For: 198.51.100.7\r\nForwarded: for=198.51.100.7\r\nX-Forwarded-Host: evil.example\r\n";

/// A service behind a proxy, with a conversation of the first user.
struct ProxyBench {
    service: Service,
    proxy: Proxy,
    /// The path of the public URL, without a slash at its end.
    path: &'static str,
    user: Client,
    conversation: Conversation,
    /// The sandbox's session key.
    key: String,
    _stub: Stub,
}

impl ProxyBench {
    async fn behind(kind: ProxyKind, path: &'static str) -> Self {
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

    fn key_header(&self) -> String {
        format!("X-Session-API-Key: {}\r\n", self.key)
    }

    /// A connection serves several requests, and another host name is refused.
    async fn assert_routing(&self) {
        let mut connection = self.proxy.connect().await;
        for _ in 0..2 {
            let request = format!("GET {}/ready", self.path);
            let (head, text) = connection.exchange(&request, "").await;
            assert_eq!(head.status, 200, "{text}");
        }
        let mut other = self.proxy.connect().await.with_host("other.example.org");
        other.send_head("GET /alive", "").await;
        assert_eq!(other.read_head().await.status, 421);
        let mut connection = self.proxy.connect().await;
        let request = format!("GET {}/openapi.json", self.path);
        let (_, document) = connection.exchange(&request, "").await;
        let document: Value = serde_json::from_str(&document).unwrap();
        let below = json!([{"url": self.path}]);
        let servers = if self.path.is_empty() {
            &Value::Null
        } else {
            &below
        };
        assert_eq!(document["servers"], *servers);
    }

    /// URLs in responses lead to the agent server through the proxy.
    async fn assert_public_urls(&self) {
        let url = self.conversation.conversation_url.clone().unwrap();
        let public = self.proxy.url(self.path);
        let rest = url.strip_prefix(&public);
        let rest = rest.unwrap_or_else(|| panic!("{url} does not lead through the proxy"));
        let request = format!("GET {}/{rest}/events/count", self.path);
        let mut connection = self.proxy.connect().await;
        let (head, text) = connection.exchange(&request, &self.key_header()).await;
        assert_eq!(head.status, 200, "{text}");
        let (head, _) = connection
            .exchange(&request, "X-Session-API-Key: wrong\r\n")
            .await;
        assert_eq!(head.status, 401);
        let sandboxes = self.user.get("/api/v1/sandboxes/search").await.ok();
        let urls = sandboxes["items"][0]["exposed_urls"].as_array().unwrap();
        for url in urls.iter().map(|it| it["url"].as_str().unwrap()) {
            assert!(url.starts_with(public.trim_end_matches('/')), "{url}");
        }
    }

    /// Neither the proxy nor the service buffers endless responses.
    async fn assert_streaming(&self) {
        let slow = format!("GET {}/api/bash/slow", self.path);
        let id = &self.conversation.id;
        let events = format!("GET {}/api/v1/conversation/{id}/events/stream", self.path);
        let user = format!("X-Session-API-Key: {}\r\n", self.user.key());
        for (request, header) in [(slow, self.key_header()), (events, user)] {
            let mut connection = self.proxy.connect().await;
            connection.send_head(&request, &header).await;
            let head = connection.read_head().await;
            assert_eq!(head.status, 200, "{request}: {head:?}");
            assert_ne!(connection.read_some().await.len(), 0, "{request}");
        }
    }

    async fn open_socket(&self, key: &str) -> Connection {
        let id = &self.conversation.id;
        let path = self.path;
        let mut connection = self.proxy.connect().await;
        let path = format!("{path}/sockets/events/{id}?resend_all=true&session_api_key={key}");
        connection.upgrade(&path).await;
        connection.assert_echo("hello").await;
        connection
    }

    /// Sockets stay open while their key is valid and their sandbox runs.
    async fn assert_sockets(&self) {
        let mut kept = self.open_socket(&self.key).await;
        let created = self.user.post("/api/v1/keys", &json!({})).await.ok();
        let mut lost = self.open_socket(created["key"].as_str().unwrap()).await;
        let id = created["record"]["id"].as_str().unwrap();
        let revoked = self.user.delete(&format!("/api/v1/keys/{id}")).await;
        assert_eq!(revoked.status, 200, "{}", revoked.text);
        // A close frame with 1008, a violation of policy.
        assert_eq!(
            lost.read_rest().await,
            [0x88, 2, 0x03, 0xf0],
            "the socket of a revoked key must be closed with 1008"
        );
        kept.assert_echo("still there").await;
        self.user.pause(&self.conversation.sandbox_id).await;
        // The agent server may end first, without a close frame.
        kept.read_rest().await;
    }

    /// Client addresses come from trusted proxies, never from headers of clients.
    async fn assert_client_addresses(&self) {
        let request = format!("POST {}/api/v1/keys", self.path);
        let header = format!(
            "X-Session-API-Key: {}\r\nContent-Length: 0\r\n{FORGED_HEADERS}",
            self.user.key()
        );
        let mut proxied = self.proxy.connect_from([127, 0, 0, 2]).await;
        let mut direct = Connection::connect_plain([127, 0, 0, 3], self.service.address()).await;
        for connection in [&mut proxied, &mut direct] {
            let (head, text) = connection.exchange(&request, &header).await;
            assert_eq!(head.status, 201, "{text}");
        }
        let sources = wait_for("two entries of the audit log", WAIT_TIMEOUT, || async {
            let lines = self.user.get_all_pages("/api/v1/audit").await;
            let created = lines
                .iter()
                .filter(|it| it["action"] == "POST /api/v1/keys");
            let sources = created.map(|it| it["source"].clone());
            let sources: Vec<Value> = sources.filter(|it| it != "127.0.0.1").collect();
            (sources.len() >= 2).then_some(sources)
        })
        .await;
        for address in ["127.0.0.2", "127.0.0.3"] {
            assert!(sources.contains(&json!(address)), "{sources:?}");
        }
        assert!(
            !self.service.log().contains("198.51.100.7"),
            "the log contains a forged address"
        );
    }

    /// The service and its sandboxes listen on loopback addresses only.
    fn assert_loopback_only(&self) {
        let sandboxes = self.service.processes();
        let sandboxes = sandboxes.iter().filter_map(|it| u32::try_from(it.pid).ok());
        let pids: Vec<u32> = sandboxes.chain([self.service.pid()]).collect();
        let found = listeners_of(&pids);
        assert!(
            found.len() >= 2,
            "the service and an agent server must listen: {found:?}"
        );
        assert!(found.iter().all(|it| it.is_loopback), "{found:?}");
    }
}

/// The same assertions for every proxy.
async fn assert_serves(kind: ProxyKind, path: &'static str) {
    let bench = ProxyBench::behind(kind, path).await;
    bench.assert_loopback_only();
    bench.assert_routing().await;
    bench.assert_public_urls().await;
    bench.assert_streaming().await;
    bench.assert_client_addresses().await;
    bench.assert_sockets().await;
}

#[tokio::test]
async fn nginx_serves() {
    assert_serves(ProxyKind::Nginx, "").await;
}

#[tokio::test]
async fn nginx_serves_below_a_path() {
    assert_serves(ProxyKind::Nginx, "/agents").await;
}

#[tokio::test]
async fn haproxy_serves() {
    assert_serves(ProxyKind::HaProxy, "").await;
}

#[tokio::test]
async fn haproxy_serves_below_a_path() {
    assert_serves(ProxyKind::HaProxy, "/agents").await;
}

#[tokio::test]
async fn nginx_forwards_large_files() {
    transfer::upload_and_download(&ProxyBench::behind(ProxyKind::Nginx, "").await).await;
}

#[tokio::test]
async fn haproxy_forwards_large_files() {
    transfer::upload_and_download(&ProxyBench::behind(ProxyKind::HaProxy, "").await).await;
}

#[tokio::test]
async fn container_ports_are_published_on_loopback_only() {
    let stub = Stub::new();
    let sandboxing = Sandboxing::docker();
    let Sandboxing::Docker(engine) = &sandboxing else {
        unreachable!("Sandboxing::docker is Docker")
    };
    let builder = Service::builder().sandboxing(&sandboxing).stub(&stub);
    let service = builder.start().await;
    let user = service.admin();
    let sandbox = user.start_sandbox().await;
    let sandbox = user
        .wait_for_sandbox_status(&sandbox.id, "RUNNING", WAIT_TIMEOUT)
        .await;
    let container = service.container(&sandbox.id).unwrap();
    // `8000/tcp -> 127.0.0.1:32768`
    let published = engine.docker(&["port", &container]);
    let published_addresses = published.lines().filter_map(|line| line.rsplit(' ').next());
    let published_addresses: Vec<(&str, &str)> = published_addresses
        .filter_map(|it| it.rsplit_once(':'))
        .collect();
    assert!(!published_addresses.is_empty(), "{published}");
    for (address, port) in published_addresses {
        assert_eq!(address, "127.0.0.1", "{published}");
        let port: u16 = port.parse().unwrap();
        let mut others = listeners().into_iter().filter(|it| it.port == port);
        assert!(others.all(|it| it.is_loopback), "{port}");
    }
}
