//! The proxy: HTTP/1.1 with `CONNECT` and absolute-form requests (RFC 9110, section 9.3.6; RFC 9112, section 3.2.2).

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::Cursor;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::SandboxId;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::rt::Executor as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use outbound_http::{CaCertificates, RequestSlots};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::activity::{ActiveStream, ActivityClock};
use super::approvals::EgressApprovals;
use super::authority::AuthorityError;
use super::destination::{AddressGuard, Destination, EgressError, PlaceholderRefusal, TLS_PORT};
use super::placeholders::{SearchedValue, find};
use super::rules::EgressRules;
use super::secrets::{SandboxSecrets, SecretConnection, SecretSender};
use super::tunnel::{self, ClientBegin, TunnelEnd};

/// Connections of all sandboxes, and of one.
const MAX_CONNECTIONS: usize = 2_048;
const MAX_CONNECTIONS_PER_SANDBOX: usize = 64;
const SLOT_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const MAX_HEAD_BYTES: usize = 32 * 1024;
pub(super) const MAX_HEADERS: usize = 100;
/// Also the time for which a connection without a request stays open.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// From a request with its body to the head of the response.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Different refusals that the log names: an agent must not fill it.
const MAX_LOGGED_REFUSALS: usize = 1_000;

const HTTP_PORT: u16 = 80;
/// Headers of one connection (RFC 9110, section 7.6.1), and those for this proxy.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("te"),
    HeaderName::from_static("transfer-encoding"),
    HeaderName::from_static("upgrade"),
];

pub(super) type ProxyBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// Requests and tunnels since the start of the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EgressCounts {
    /// Those that reached their host.
    pub allowed: u64,
    /// Those that the policy refused.
    pub refused: u64,
    /// Those that were allowed, and failed.
    pub failed: u64,
}

/// Serves connections of sandboxes to hosts that its rules allow.
#[derive(Debug)]
pub struct EgressProxy {
    rules: EgressRules,
    guard: AddressGuard,
    slots: RequestSlots,
    secrets: Option<SecretSender>,
    approvals: Option<Arc<dyn EgressApprovals>>,
    allowed: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    logged: Mutex<HashSet<(SandboxId, String)>>,
}

/// A tunnel that begins when its client has the response.
struct OpenTunnel {
    client: OnUpgrade,
    host: TcpStream,
    destination: Destination,
    /// Whether secrets may go to the host.
    gets_secrets: bool,
}

/// The tunnel of a connection, if it asked for one.
type TunnelSlot = Mutex<Option<OpenTunnel>>;

impl EgressProxy {
    /// A proxy with these rules. Connects to nothing.
    pub fn new(rules: EgressRules) -> Self {
        let guard = AddressGuard::new(&rules);
        Self {
            rules,
            guard,
            slots: RequestSlots::new(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_SANDBOX),
            secrets: None,
            approvals: None,
            allowed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            logged: Mutex::default(),
        }
    }

    /// Replaces placeholders of these secrets, in requests to hosts with certificates of these authorities.
    ///
    /// # Errors
    /// The TLS library is not usable.
    pub fn with_secrets(
        mut self,
        secrets: Arc<dyn SandboxSecrets>,
        trusted: CaCertificates,
    ) -> Result<Self, rustls::Error> {
        self.secrets = Some(SecretSender::new(secrets, trusted)?);
        Ok(self)
    }

    /// Also lets sandboxes reach what their owners approve.
    #[must_use]
    pub fn with_approvals(mut self, approvals: Arc<dyn EgressApprovals>) -> Self {
        self.approvals = Some(approvals);
        self
    }

    /// The certificate, as PEM, of the authority that programs of a sandbox must trust. `None`: the proxy replaces no
    /// placeholders.
    pub fn authority(&self, sandbox: &SandboxId) -> Option<Result<String, AuthorityError>> {
        let sender = self.secrets.as_ref()?;
        Some(sender.certificate(sandbox))
    }

    pub(super) fn guard(&self) -> &AddressGuard {
        &self.guard
    }

    /// What happened since the start.
    pub fn counts(&self) -> EgressCounts {
        EgressCounts {
            allowed: self.allowed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Serves one connection of a sandbox until it ends. The caller knows for certain that it comes from this sandbox.
    pub async fn serve(&self, sandbox: &SandboxId, stream: TcpStream) {
        // Without a slot, the client sees a closed connection.
        let Ok(Ok(_slot)) = timeout(SLOT_TIMEOUT, self.slots.take(sandbox.as_str())).await else {
            return;
        };
        let clock = ActivityClock::new();
        let stream = ActiveStream::new(stream, clock.clone());
        tokio::select! {
            () = self.serve_requests(sandbox, stream) => {}
            () = clock.idle(IDLE_TIMEOUT) => {}
        }
    }

    async fn serve_requests(&self, sandbox: &SandboxId, stream: ActiveStream<TcpStream>) {
        let tunnel = TunnelSlot::default();
        let service = service_fn(|request| async {
            Ok::<_, Infallible>(self.respond(sandbox, request, &tunnel).await)
        });
        // An error is one of the connection: the client has got its response, or is gone.
        let _ = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
        let open = tunnel.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open {
            self.run_tunnel(sandbox, open).await;
        }
    }

    async fn run_tunnel(&self, sandbox: &SandboxId, open: OpenTunnel) {
        let Ok(client) = open.client.await else {
            return;
        };
        let destination = &open.destination;
        let mut client = TokioIo::new(client);
        let begin = if destination.must_be_tls() || open.gets_secrets {
            let Ok(begin) = ClientBegin::read(&mut client).await else {
                return;
            };
            Some(begin)
        } else {
            None
        };
        if let (Some(begin), Some(sender), true) = (&begin, &self.secrets, open.gets_secrets)
            && begin.is_plain_tls()
        {
            let (read, write) = tokio::io::split(client);
            let client = tokio::io::join(Cursor::new(begin.bytes.clone()).chain(read), write);
            let connection = SecretConnection::new(self, sender, sandbox, destination, open.host);
            return connection.serve(client).await;
        }
        let ended = tunnel::run(client, open.host, destination, begin).await;
        if let Ok(TunnelEnd::Refused(reason)) = ended {
            self.log_refusal(sandbox, &format!("{}: {reason}", open.destination.host));
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn respond(
        &self,
        sandbox: &SandboxId,
        request: Request<Incoming>,
        tunnel: &TunnelSlot,
    ) -> Response<ProxyBody> {
        let result = if request.method() == Method::CONNECT {
            self.connect(sandbox, request, tunnel).await
        } else {
            self.forward(sandbox, request).await
        };
        let error = match result {
            Ok(response) => {
                self.allowed.fetch_add(1, Ordering::Relaxed);
                return response;
            }
            Err(error) => error,
        };
        if error.is_refusal() {
            self.log_refusal(sandbox, &error.to_string());
            self.refused.fetch_add(1, Ordering::Relaxed);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        error_response(&error)
    }

    /// Checks the rules, and then what the owner approved.
    async fn destination(
        &self,
        sandbox: &SandboxId,
        (host, port): (&str, u16),
        usual_port: u16,
    ) -> Result<Destination, EgressError> {
        let found = Destination::new(&self.rules, host, port, usual_port);
        match (&self.approvals, &found) {
            (Some(approvals), Err(EgressError::NotListed { .. })) => {
                let wanted = (sandbox, host, port);
                Destination::approved(approvals.as_ref(), &self.guard, wanted).await
            }
            _ => found,
        }
    }

    async fn connect(
        &self,
        sandbox: &SandboxId,
        mut request: Request<Incoming>,
        tunnel: &TunnelSlot,
    ) -> Result<Response<ProxyBody>, EgressError> {
        let (host, port) = authority(request.uri())?;
        let port = port.ok_or(EgressError::Invalid("CONNECT needs a port"))?;
        let destination = self.destination(sandbox, (host, port), TLS_PORT).await?;
        let gets_secrets = match &self.secrets {
            Some(sender) => sender.are_for(sandbox, &destination).await?,
            None => false,
        };
        let host = destination.connect(&self.guard).await?;
        let open = OpenTunnel {
            client: hyper::upgrade::on(&mut request),
            host,
            destination,
            gets_secrets,
        };
        *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
        Ok(Response::new(text_body(String::new())))
    }

    async fn forward(
        &self,
        sandbox: &SandboxId,
        request: Request<Incoming>,
    ) -> Result<Response<ProxyBody>, EgressError> {
        let uri = request.uri();
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(EgressError::Invalid("https:// needs CONNECT")),
            Some(_) => return Err(EgressError::Invalid("its scheme is not http")),
            None => {
                return Err(EgressError::Invalid(
                    "a proxy needs the whole URL (absolute form)",
                ));
            }
        }
        let (host, port) = authority(uri)?;
        let port = port.unwrap_or(HTTP_PORT);
        let destination = self.destination(sandbox, (host, port), HTTP_PORT).await?;
        let request = outgoing(request, &destination, HTTP_PORT)?;
        if let Some(sender) = &self.secrets
            && has_placeholder(&request)
        {
            let error = EgressError::from(PlaceholderRefusal::PlainHttp);
            self.refuse_placeholder(sender, sandbox, &error);
            return Ok(error_response(&error));
        }
        let stream = destination.connect(&self.guard).await?;
        let no_response = || EgressError::NoResponse(destination.host.to_string());
        let opened = handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = opened.map_err(|_| no_response())?;
        // It ends with the request: when the response was read, or when the client has gone.
        TokioExecutor::new().execute(async {
            let _ = connection.await;
        });
        let response = timeout(RESPONSE_TIMEOUT, sender.send_request(request)).await;
        let response = response.ok().and_then(Result::ok).ok_or_else(no_response)?;
        Ok(returned(response))
    }

    /// Names a refusal once.
    pub(super) fn log_refusal(&self, sandbox: &SandboxId, reason: &str) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() < MAX_LOGGED_REFUSALS && logged.insert((sandbox.clone(), reason.to_owned()))
        {
            tracing::info!(
                sandbox.id = %sandbox,
                "refused a connection of sandbox {sandbox}: {reason}"
            );
        }
    }

    /// Names and records the refusal of a request with a placeholder.
    pub(super) fn refuse_placeholder(
        &self,
        sender: &SecretSender,
        sandbox: &SandboxId,
        error: &EgressError,
    ) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let reason = error.to_string();
        self.log_refusal(sandbox, &reason);
        sender.secrets.refused(sandbox, &reason);
    }
}

fn authority(uri: &Uri) -> Result<(&str, Option<u16>), EgressError> {
    let invalid = EgressError::Invalid("its host is not valid");
    let Some(authority) = uri.authority() else {
        return Err(invalid);
    };
    // Also a user name, and a port that is none.
    let port = authority.port_u16();
    let written = port.map_or_else(
        || authority.host().to_owned(),
        |port| format!("{}:{port}", authority.host()),
    );
    if written != authority.as_str() || port == Some(0) {
        return Err(invalid);
    }
    Ok((authority.host(), port))
}

/// Whether a request shows a placeholder to everyone on its way.
fn has_placeholder(request: &Request<Incoming>) -> bool {
    let in_header = |value: &HeaderValue| find(SearchedValue::new(value.as_bytes()).text());
    let target = request.uri().to_string();
    find(target.as_bytes()).is_some()
        || request.headers().values().any(|it| in_header(it).is_some())
}

/// The response as the client gets it.
pub(super) fn returned(response: Response<Incoming>) -> Response<ProxyBody> {
    let (mut parts, body) = response.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    Response::from_parts(parts, body.boxed_unsync())
}

/// The request as the host gets it. `Host` is that of the connection, whatever the client sent.
pub(super) fn outgoing(
    request: Request<Incoming>,
    destination: &Destination,
    usual_port: u16,
) -> Result<Request<Incoming>, EgressError> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path
        .parse()
        .map_err(|_| EgressError::Invalid("its path is not valid"))?;
    remove_hop_by_hop(&mut parts.headers);
    let host = match destination.port {
        port if port == usual_port => destination.host.to_string(),
        port => format!("{}:{port}", destination.host),
    };
    let host = HeaderValue::try_from(host);
    let host = host.map_err(|_| EgressError::Invalid("its host is not valid"))?;
    parts.headers.insert(HOST, host);
    parts.version = Version::HTTP_11;
    Ok(Request::from_parts(parts, body))
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

pub(super) fn error_response(error: &EgressError) -> Response<ProxyBody> {
    let mut response = Response::new(text_body(format!("agent-workspace: {error}.\n")));
    *response.status_mut() = match error {
        EgressError::Invalid(_) => StatusCode::BAD_REQUEST,
        error if error.is_refusal() => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_GATEWAY,
    };
    if error.is_refusal() {
        // Programs show this line when a tunnel is refused, and not the text.
        let reason = ReasonPhrase::from_static(b"Refused by the egress policy");
        response.extensions_mut().insert(reason);
    }
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

fn text_body(text: String) -> ProxyBody {
    Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed_unsync()
}
