//! The proxy: HTTP/1.1 with `CONNECT` and absolute-form requests (RFC 9110, section 9.3.6; RFC 9112, section 3.2.2).

use std::convert::Infallible;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::egress_list::SandboxEgress;
use domain::id::SandboxId;
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::HeaderValue;
use hyper::rt::Executor as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use outbound_http::{CaCertificates, RequestSlots};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::activity::{ActiveStream, ActivityClock};
use super::approvals::EgressApprovals;
use super::authority::AuthorityError;
use super::destination::{Destination, EgressError, PlaceholderRefusal, RuleSet, TLS_PORT};
use super::limits::EgressLimits;
use super::messages::{
    HEAD_TIMEOUT, MAX_HEAD_BYTES, MAX_HEADERS, ProxyBody, RESPONSE_TIMEOUT, error_response,
    outgoing, returned, text_body,
};
use super::outcomes::{EgressCounts, EgressOutcomes};
use super::placeholders::{SearchedValue, find};
use super::rules::EgressRules;
use super::secrets::{SandboxSecrets, SecretConnection, SecretRoute, SecretSender};
use super::tunnel::{self, ClientBegin, TunnelEnd};

/// Connections of all sandboxes, and of one.
const MAX_CONNECTIONS: usize = 2_048;
const MAX_CONNECTIONS_PER_SANDBOX: usize = 64;
const SLOT_TIMEOUT: Duration = Duration::from_secs(30);

const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

const HTTP_PORT: u16 = 80;
/// Serves connections of sandboxes to hosts that its rules allow.
#[derive(Debug)]
pub struct EgressProxy {
    rules: RuleSet,
    slots: RequestSlots,
    secrets: Option<SecretSender>,
    limits: Option<Arc<dyn EgressLimits>>,
    approvals: Option<Arc<dyn EgressApprovals>>,
    outcomes: EgressOutcomes,
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
        Self {
            rules: RuleSet::new(rules),
            limits: None,
            slots: RequestSlots::new(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_SANDBOX),
            secrets: None,
            approvals: None,
            outcomes: EgressOutcomes::default(),
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

    /// Also limits sandboxes to lists of their own.
    #[must_use]
    pub fn with_limits(mut self, limits: Arc<dyn EgressLimits>) -> Self {
        self.limits = Some(limits);
        self
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

    /// What happened since the start.
    pub fn counts(&self) -> EgressCounts {
        self.outcomes.counts()
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
            let route = SecretRoute {
                sender,
                sandbox,
                destination,
                outcomes: &self.outcomes,
            };
            return SecretConnection::new(route, open.host).serve(client).await;
        }
        let ended = tunnel::run(client, open.host, destination, begin).await;
        if let Ok(TunnelEnd::Refused(reason)) = ended {
            let reason = format!("{}: {reason}", open.destination.host);
            self.outcomes.refused(sandbox, &reason);
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
                self.outcomes.allowed();
                return response;
            }
            Err(error) => error,
        };
        if error.is_refusal() {
            self.outcomes.refused(sandbox, &error.to_string());
        } else {
            self.outcomes.failed();
        }
        error_response(&error)
    }

    /// Checks the rules, the lists of the sandbox, and then what the owner approved.
    async fn destination(
        &self,
        sandbox: &SandboxId,
        to: (&str, u16),
        usual_port: u16,
    ) -> Result<Destination, EgressError> {
        let SandboxEgress { template, own } = match &self.limits {
            Some(limits) => limits.of(sandbox).await.map_err(EgressError::Limits)?,
            None => SandboxEgress::default(),
        };
        let of_template = template.map(|list| RuleSet::new(EgressRules::Listed(list)));
        let rules = of_template.as_ref().unwrap_or(&self.rules);
        let found = Destination::new(rules, own.as_ref(), to, usual_port);
        match (&self.approvals, &found) {
            (
                Some(approvals),
                Err(EgressError::NotListed { .. } | EgressError::NotInOwnList { .. }),
            ) => Destination::approved(approvals.as_ref(), rules, (sandbox, to.0, to.1)).await,
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
        let host = destination.connect().await?;
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
            sender.refuse(sandbox, &error, &self.outcomes);
            return Ok(error_response(&error));
        }
        let stream = destination.connect().await?;
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
