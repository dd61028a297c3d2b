//! Secrets on their way to hosts, and attacks on them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::error::BoxError;
use domain::host_rule::HostRules;
use domain::id::SandboxId;
use domain::secret_rule::SecretRules;
use domain::user::secret::PLACEHOLDER_PREFIX;
use futures::future::OptionFuture;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use outbound_http::CaCertificates;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{EgressProxy, EgressRules, SandboxSecrets};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const VALUE: &str = "real-value";

fn placeholder(sandbox: &str, name: char) -> String {
    let sealed = name.to_string().repeat(40);
    format!("{PLACEHOLDER_PREFIX}{sandbox}.{sealed}")
}

/// Secrets by placeholder, and the refusals.
#[derive(Debug, Default)]
struct FixedSecrets {
    all: HashMap<String, (String, SecretRules)>,
    refusals: Mutex<Vec<String>>,
}

#[async_trait]
impl SandboxSecrets for FixedSecrets {
    async fn hosts(&self, _: &SandboxId) -> Result<HostRules, BoxError> {
        let all = self.all.values().cloned();
        Ok(all.flat_map(|(_, rules)| rules.hosts()).collect())
    }

    async fn reveal(
        &self,
        sandbox: &SandboxId,
        placeholder: &str,
    ) -> Result<Option<(SecretString, SecretRules)>, BoxError> {
        let own = format!("{PLACEHOLDER_PREFIX}{sandbox}.");
        let found = self.all.get(placeholder);
        let found = found.filter(|_| placeholder.starts_with(&own));
        Ok(found.map(|(value, hosts)| (value.clone().into(), hosts.clone())))
    }

    fn refused(&self, sandbox: &SandboxId, reason: &str) {
        let line = format!("{sandbox}: {reason}");
        self.refusals.lock().unwrap().push(line);
    }

    fn authority_seed(&self, sandbox: &SandboxId) -> SecretString {
        format!("seed of {sandbox}").into()
    }
}

/// A host with TLS that answers with what it got.
struct EchoHost {
    port: u16,
    authority: String,
    requests: Arc<Mutex<Vec<String>>>,
    /// Of which it has got bytes.
    connections: Arc<AtomicUsize>,
}

impl EchoHost {
    async fn start(tasks: &mut JoinSet<()>) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        tasks.spawn(async move {
            let mut tasks = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
                let count = Arc::clone(&count);
                tasks.spawn(async move {
                    if stream.peek(&mut [0]).await.is_ok_and(|bytes| bytes > 0) {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    if let Ok(tls) = acceptor.accept(stream).await {
                        let socket = Mutex::default();
                        let service = service_fn(|request| echo(request, &seen, &socket));
                        let _ = server::Builder::new()
                            .serve_connection(TokioIo::new(tls), service)
                            .with_upgrades()
                            .await;
                        let socket = socket.into_inner().unwrap();
                        if let Some(Ok(socket)) = OptionFuture::from(socket).await {
                            let (mut read, mut write) = tokio::io::split(TokioIo::new(socket));
                            let _ = tokio::io::copy(&mut read, &mut write).await;
                        }
                    }
                });
            }
        });
        Self {
            port,
            authority: issuer.pem(),
            requests,
            connections,
        }
    }
}

/// Answers with the request, or changes to a web socket.
async fn echo(
    mut request: Request<Incoming>,
    seen: &Mutex<Vec<String>>,
    socket: &Mutex<Option<OnUpgrade>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_socket = request.uri().path() == "/socket";
    if is_socket {
        *socket.lock().unwrap() = Some(hyper::upgrade::on(&mut request));
    }
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        let value = String::from_utf8_lossy(value.as_bytes());
        let _ = writeln!(text, "{name}: {value}");
    }
    let body = request.into_body().collect().await;
    text += &body.map_or("broken".to_owned(), |body| {
        String::from_utf8_lossy(&body.to_bytes()).into_owned()
    });
    seen.lock().unwrap().push(text.clone());
    if is_socket {
        let response = Response::builder()
            .status(101)
            .header("upgrade", "websocket");
        let response = response.header("connection", "upgrade");
        return Ok(response.body(Full::default()).unwrap());
    }
    Ok(Response::new(Full::new(text.into())))
}

struct Fixture {
    host: EchoHost,
    secrets: Arc<FixedSecrets>,
    proxy: Arc<EgressProxy>,
    tasks: JoinSet<()>,
}

impl Fixture {
    async fn new() -> Self {
        let mut tasks = JoinSet::new();
        let host = EchoHost::start(&mut tasks).await;
        let own = format!("127.0.0.1:{}", host.port);
        let secret = |value: &str, hosts: &str| (value.to_owned(), hosts.parse().unwrap());
        let secrets = Arc::new(FixedSecrets {
            all: HashMap::from([
                (placeholder("s1", 'a'), secret(VALUE, &own)),
                (
                    placeholder("s1", 'b'),
                    secret("other-value", "api.example.org"),
                ),
                (placeholder("s1", 'c'), secret("two\r\nlines: x", &own)),
                (
                    placeholder("s1", 'd'),
                    secret("x", &format!("{own}/repos/acme")),
                ),
                (placeholder("s2", 'a'), secret(VALUE, &own)),
            ]),
            ..FixedSecrets::default()
        });
        let rules = EgressRules::parse([own.as_str()]).unwrap();
        let trusted = CaCertificates::from_pem(host.authority.as_bytes()).unwrap();
        let proxy = EgressProxy::new(rules).with_secrets(Arc::clone(&secrets) as _, trusted);
        Self {
            host,
            secrets,
            proxy: Arc::new(proxy.unwrap()),
            tasks,
        }
    }

    /// A connection of sandbox `s1` to the proxy.
    async fn connected(&mut self) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let client = client.await.unwrap();
        let (served, _) = listener.accept().await.unwrap();
        let proxy = Arc::clone(&self.proxy);
        let sandbox = SandboxId::parse("s1").unwrap();
        self.tasks
            .spawn(async move { proxy.serve(&sandbox, served).await });
        client
    }

    /// A tunnel to the host.
    async fn tunnel(&mut self) -> std::io::Result<TcpStream> {
        let mut stream = self.connected().await;
        let connect = format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\n\r\n", self.host.port);
        stream.write_all(connect.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{head:?}");
        Ok(stream)
    }

    /// TLS with the host through the proxy, by a client that trusts the authority of a sandbox.
    async fn client(
        &mut self,
        sandbox: &str,
    ) -> std::io::Result<client::SendRequest<http_body_util::combinators::BoxBody<Bytes, Infallible>>>
    {
        let stream = self.tunnel().await?;
        let authority = self.proxy.authority(&SandboxId::parse(sandbox).unwrap());
        let authority = authority.unwrap().unwrap();
        let trusted = CaCertificates::from_pem(authority.as_bytes()).unwrap();
        let config = Arc::new(trusted.into_client_config().unwrap());
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let tls = TlsConnector::from(config).connect(name, stream).await?;
        let (sender, connection) = client::handshake(TokioIo::new(tls)).await.unwrap();
        self.tasks.spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(sender)
    }

    /// The status and text of the response to one request.
    async fn exchange(&mut self, request: Request<Vec<&'static str>>) -> (u16, String) {
        let mut sender = self.client("s1").await.unwrap();
        let request = request.map(|chunks| {
            let frames = chunks
                .into_iter()
                .map(|chunk| Ok(Frame::data(Bytes::from(chunk))));
            StreamBody::new(futures::stream::iter(frames)).boxed()
        });
        let response = timeout(TEST_TIMEOUT, sender.send_request(request)).await;
        let response = response.unwrap().unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn requests(&self) -> Vec<String> {
        self.host.requests.lock().unwrap().clone()
    }
}

fn get(header: &str) -> Request<Vec<&'static str>> {
    let request = Request::get("/path?query").header("authorization", header);
    request.body(Vec::new()).unwrap()
}

#[tokio::test]
async fn headers_get_values_and_keep_their_form() {
    let mut fixture = Fixture::new().await;
    let own = placeholder("s1", 'a');
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    for (sent, got) in [
        (own.clone(), VALUE.to_owned()),
        (format!("Bearer {own}"), format!("Bearer {VALUE}")),
        (format!("{own}, {own}"), format!("{VALUE}, {VALUE}")),
        (basic(&format!("me:{own}")), basic(&format!("me:{VALUE}"))),
        ("Bearer plain".to_owned(), "Bearer plain".to_owned()),
    ] {
        let (status, text) = fixture.exchange(get(&sent)).await;
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(&format!("authorization: {got}\n")), "{text}");
        assert!(text.starts_with("GET /path?query\n"), "{text}");
    }
    // Another name would lead the value to another site of the same machine.
    let mut request = get(&own);
    let other = "evil.example".parse().unwrap();
    request.headers_mut().insert("host", other);
    let (_, text) = fixture.exchange(request).await;
    let host = format!("host: 127.0.0.1:{}\n", fixture.host.port);
    assert!(text.contains(&host) && !text.contains("evil"), "{text}");
    assert!(fixture.secrets.refusals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn requests_of_one_connection_and_streamed_bodies_pass() {
    let mut fixture = Fixture::new().await;
    let mut sender = fixture.client("s1").await.unwrap();
    for body in ["", "text", "workspace_secret_ is how placeholders begin"] {
        let request = Request::post("/")
            .header("x-key", placeholder("s1", 'a'))
            .body(Full::new(Bytes::from(body)).boxed())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains(&format!("x-key: {VALUE}\n")), "{text}");
        assert!(text.ends_with(body), "{text}");
    }
    assert_eq!(fixture.requests().len(), 3);
}

#[tokio::test]
async fn the_request_of_a_web_socket_gets_values_and_its_messages_pass() {
    let mut fixture = Fixture::new().await;
    let own = placeholder("s1", 'a');
    let socket = |protocol| {
        let request = Request::get("/socket").header("connection", "Upgrade, X-Key");
        let request = request.header("upgrade", protocol).header("x-key", "1");
        request.header("authorization", format!("Bearer {own}"))
    };
    let mut sender = fixture.client("s1").await.unwrap();
    let request = socket("WebSocket").body(Full::default().boxed()).unwrap();
    let response = timeout(TEST_TIMEOUT, sender.send_request(request)).await;
    let mut response = response.unwrap().unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["upgrade"], "websocket");
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    let mut upgraded = TokioIo::new(upgraded);
    upgraded.write_all(own.as_bytes()).await.unwrap();
    let mut echoed = vec![0; own.len()];
    upgraded.read_exact(&mut echoed).await.unwrap();
    assert_eq!(echoed, own.as_bytes());
    let [text] = fixture.requests().try_into().expect("one request");
    for header in [
        &format!("authorization: Bearer {VALUE}\n")[..],
        "connection: upgrade\n",
        "upgrade: websocket\n",
    ] {
        assert!(text.contains(header), "{text}");
    }
    assert!(!text.contains("x-key"), "{text}");
    // No other protocol is asked for, and none is taken that was not asked for.
    let (status, text) = fixture
        .exchange(socket("h2c").body(Vec::new()).unwrap())
        .await;
    assert_eq!(status, 502, "{text}");
    assert!(!fixture.requests()[1].contains("upgrade"), "{text}");
}

#[tokio::test]
async fn placeholders_in_wrong_places_are_refused_and_recorded() {
    let mut fixture = Fixture::new().await;
    let own: &'static str = placeholder("s1", 'a').leak();
    let (begin, end) = own.split_at(30);
    let post = |chunks: Vec<&'static str>| Request::post("/").body(chunks).unwrap();
    let attacks = [
        ("may not go to", get(&placeholder("s1", 'b'))),
        ("not one of this sandbox", get(&placeholder("s2", 'a'))),
        ("not one of this sandbox", get(&placeholder("s1", 'z'))),
        ("not valid in a header", get(&placeholder("s1", 'c'))),
        ("too many", get(&[own; 9].join(" "))),
        (
            "TRACE and CONNECT",
            Request::builder()
                .method("TRACE")
                .uri("/")
                .body(vec![])
                .unwrap(),
        ),
        (
            "not in a URL",
            Request::get(format!("/?key={own}")).body(vec![]).unwrap(),
        ),
        ("not in a body", post(vec!["key=", own])),
        (
            "not in a body",
            post(vec!["{\"key\":\"", begin, end, "\"}"]),
        ),
    ];
    let count = attacks.len();
    for (reason, request) in attacks {
        let (status, text) = fixture.exchange(request).await;
        assert_eq!(status, 403, "{reason}: {text}");
        assert!(text.contains(reason), "{reason}: {text}");
    }
    let refusals = fixture.secrets.refusals.lock().unwrap().join("\n");
    assert_eq!(refusals.lines().count(), count, "{refusals}");
    assert!(refusals.starts_with("s1: "), "{refusals}");
    for text in fixture.requests().iter().chain([&refusals]) {
        assert!(!text.contains(VALUE) && !text.contains("other-value"));
        assert!(!text.contains(PLACEHOLDER_PREFIX), "{text}");
    }
}

#[tokio::test]
async fn a_secret_goes_to_its_paths_only() {
    let mut fixture = Fixture::new().await;
    for (path, expected) in [("/repos/acme/x?y", 200), ("/repos/acme/%2E%2e/x", 403)] {
        let request = Request::get(path).header("authorization", placeholder("s1", 'd'));
        let (status, text) = fixture.exchange(request.body(vec![]).unwrap()).await;
        assert_eq!(status, expected, "{path}: {text}");
    }
}

#[tokio::test]
async fn plain_http_with_a_placeholder_is_refused() {
    let mut fixture = Fixture::new().await;
    let (own, port) = (placeholder("s1", 'a'), fixture.host.port);
    for request in [
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nX: {own}\r\n\r\n"),
        format!("GET http://127.0.0.1:{port}/{own} HTTP/1.1\r\n\r\n"),
    ] {
        let mut client = fixture.connected().await;
        client.write_all(request.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 403"), "{text}");
        assert!(text.contains("over https only"), "{text}");
    }
    assert!(fixture.requests().is_empty());
}

#[tokio::test]
async fn the_authority_of_another_sandbox_is_not_trusted() {
    let mut fixture = Fixture::new().await;
    assert!(fixture.client("s1").await.is_ok());
    // A client with the certificate of another sandbox meets this one's.
    assert!(fixture.client("s2").await.is_err());
}

#[tokio::test]
async fn a_host_with_a_foreign_certificate_gets_nothing() {
    let mut fixture = Fixture::new().await;
    let other = EchoHost::start(&mut fixture.tasks).await;
    let trusted = CaCertificates::from_pem(other.authority.as_bytes()).unwrap();
    let rules = EgressRules::parse([format!("127.0.0.1:{}", fixture.host.port).as_str()]).unwrap();
    let secrets = Arc::clone(&fixture.secrets) as _;
    let proxy = EgressProxy::new(rules).with_secrets(secrets, trusted);
    fixture.proxy = Arc::new(proxy.unwrap());
    let (status, text) = fixture.exchange(get(&placeholder("s1", 'a'))).await;
    assert_eq!(status, 502, "{text}");
    assert!(text.contains("cannot establish TLS"), "{text}");
    assert!(fixture.requests().is_empty());
}

/// A browser trusts authorities of its own, so its connection stays a tunnel. It is known by the extension for encrypted names.
#[tokio::test]
async fn a_client_that_encrypts_the_server_name_speaks_with_the_host() {
    const ALERT: u8 = 21;
    let mut fixture = Fixture::new().await;
    for extension in [0xfe0d_u16, 0xfe0e] {
        let mut stream = fixture.tunnel().await.unwrap();
        stream.write_all(&hello_with(extension)).await.unwrap();
        let mut answer = vec![0; 1];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, [ALERT], "{extension:x}");
        let _ = stream.read_to_end(&mut answer).await;
    }
    assert_eq!(fixture.host.connections.load(Ordering::SeqCst), 1);
}

/// A message with this extension alone, which no server takes.
fn hello_with(extension: u16) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([0; 32 + 1]);
    body.extend([0, 2, 0x13, 0x01, 1, 0, 0, 4]);
    body.extend(extension.to_be_bytes());
    body.extend([0, 0]);
    let length = u8::try_from(body.len()).unwrap();
    let begin = [22, 3, 1, 0, length + 4, 1, 0, 0, length];
    [&begin[..], &body].concat()
}
