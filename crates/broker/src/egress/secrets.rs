//! Requests that carry secrets: the proxy ends their TLS, and replaces placeholders by the values.
//!
//! ```text
//! sandbox ══TLS by the sandbox's authority══► proxy ══TLS══► the host
//!            Authorization: Bearer placeholder        Authorization: Bearer value
//! ```

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use domain::error::{BoxError, chain};
use domain::host_rule::HostRules;
use domain::id::SandboxId;
use domain::secret_rule::{SecretRefusal, SecretRules};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HeaderValue;
use hyper::rt::Executor as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use moka::sync::Cache;
use outbound_http::CaCertificates;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use url::Host;

use super::authority::{AuthorityError, SandboxAuthority};
use super::destination::{Destination, EgressError, PlaceholderRefusal, TLS_PORT};
use super::messages::{
    HEAD_TIMEOUT, MAX_HEAD_BYTES, MAX_HEADERS, ProxyBody, RESPONSE_TIMEOUT, error_response,
    outgoing, returned,
};
use super::outcomes::EgressOutcomes;
use super::placeholders::{SearchedBody, SearchedValue, find};
use super::upgrade::{self, WebSocket};

const TLS_TIMEOUT: Duration = Duration::from_secs(15);
/// Placeholders in one header: each costs a look-up.
const MAX_PLACEHOLDERS: usize = 8;
/// Certificates that are kept. Each takes some kilobytes.
const MAX_CACHED_CONFIGS: u64 = 1_000;
/// Less than the certificates last.
const CONFIG_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// The secrets of sandboxes' owners, as the proxy uses them.
#[async_trait]
pub trait SandboxSecrets: Debug + Send + Sync {
    /// All hosts to which secrets of the sandbox's owner may go.
    async fn hosts(&self, sandbox: &SandboxId) -> Result<HostRules, BoxError>;
    /// The value of a placeholder, and where it may go. `None`: it is not one of this sandbox, or its secret is
    /// gone.
    async fn reveal(
        &self,
        sandbox: &SandboxId,
        placeholder: &str,
    ) -> Result<Option<(SecretString, SecretRules)>, BoxError>;
    /// Records that a request with a placeholder was refused.
    fn refused(&self, sandbox: &SandboxId, reason: &str);
    /// From which the key of the sandbox's certificate authority is derived.
    fn authority_seed(&self, sandbox: &SandboxId) -> SecretString;
}

/// What the proxy needs to send secrets.
#[derive(Debug)]
pub(super) struct SecretSender {
    secrets: Arc<dyn SandboxSecrets>,
    client_config: Arc<ClientConfig>,
    configs: Cache<(SandboxId, String), Arc<ServerConfig>>,
}

type HostTls = TlsStream<TcpStream>;
type HostConnection = SendRequest<SearchedBody>;

impl SecretSender {
    pub(super) fn new(
        secrets: Arc<dyn SandboxSecrets>,
        trusted: CaCertificates,
    ) -> Result<Self, rustls::Error> {
        let mut config = trusted.into_client_config()?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            secrets,
            client_config: Arc::new(config),
            configs: Cache::builder()
                .max_capacity(MAX_CACHED_CONFIGS)
                .time_to_live(CONFIG_LIFETIME)
                .build(),
        })
    }

    /// Whether secrets may go to this host.
    pub(super) async fn are_for(
        &self,
        sandbox: &SandboxId,
        destination: &Destination,
    ) -> Result<bool, EgressError> {
        let hosts = self.secrets.hosts(sandbox).await;
        let hosts = hosts.map_err(EgressError::Secrets)?;
        Ok(hosts.match_host(&destination.host, destination.port, TLS_PORT))
    }

    /// Names, counts and records the refusal of a request with a placeholder.
    pub(super) fn refuse(
        &self,
        sandbox: &SandboxId,
        error: &EgressError,
        outcomes: &EgressOutcomes,
    ) {
        let reason = error.to_string();
        outcomes.refused(sandbox, &reason);
        self.secrets.refused(sandbox, &reason);
    }

    /// The certificate that the sandbox must trust.
    pub(super) fn certificate(&self, sandbox: &SandboxId) -> Result<String, AuthorityError> {
        self.authority(sandbox)?.certificate()
    }

    fn authority(&self, sandbox: &SandboxId) -> Result<SandboxAuthority, AuthorityError> {
        SandboxAuthority::derive(&self.secrets.authority_seed(sandbox))
    }

    fn server_config(
        &self,
        sandbox: &SandboxId,
        host: &Host,
    ) -> Result<Arc<ServerConfig>, Arc<AuthorityError>> {
        let key = (sandbox.clone(), host.to_string());
        let made = || self.authority(sandbox)?.server_config(host);
        self.configs.try_get_with(key, made)
    }

    /// TLS with the host over a connection.
    pub(super) async fn host_tls(
        &self,
        destination: &Destination,
        stream: TcpStream,
    ) -> Result<HostTls, EgressError> {
        let name = match &destination.host {
            Host::Domain(name) => ServerName::try_from(name.clone()).ok(),
            Host::Ipv4(address) => Some(ServerName::from(std::net::IpAddr::V4(*address))),
            Host::Ipv6(address) => Some(ServerName::from(std::net::IpAddr::V6(*address))),
        };
        let name = name.ok_or(EgressError::Invalid("its host is not valid"))?;
        let connector = TlsConnector::from(Arc::clone(&self.client_config));
        let connected = timeout(TLS_TIMEOUT, connector.connect(name, stream)).await;
        let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        connected.map_err(|error| EgressError::NotTrusted(destination.host.to_string(), error))
    }
}

/// Between which sandbox and which host secrets are sent.
#[derive(Clone, Copy)]
pub(super) struct SecretRoute<'a> {
    pub(super) sender: &'a SecretSender,
    pub(super) sandbox: &'a SandboxId,
    pub(super) destination: &'a Destination,
    pub(super) outcomes: &'a EgressOutcomes,
}

/// A client's connection to a host that gets secrets.
pub(super) struct SecretConnection<'a> {
    route: SecretRoute<'a>,
    /// Connected before the client had its tunnel; for the first request.
    first: Mutex<Option<TcpStream>>,
    /// The connection to the host, between two requests.
    host: Mutex<Option<HostConnection>>,
    /// What both connections become after the last request.
    socket: Mutex<Option<WebSocket>>,
}

impl<'a> SecretConnection<'a> {
    pub(super) fn new(route: SecretRoute<'a>, host: TcpStream) -> Self {
        Self {
            route,
            first: Mutex::new(Some(host)),
            host: Mutex::default(),
            socket: Mutex::default(),
        }
    }

    /// Serves until the client ends it.
    pub(super) async fn serve(self, client: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let Ok(config) = self
            .route
            .sender
            .server_config(self.route.sandbox, &self.route.destination.host)
            .inspect_err(|error| tracing::warn!(sandbox.id = %self.route.sandbox, error = %chain(error), "cannot stand for a host of a sandbox's secrets"))
        else {
            return;
        };
        let acceptor = TlsAcceptor::from(config);
        let accepted = timeout(TLS_TIMEOUT, acceptor.accept(client)).await;
        let Ok(Ok(client)) = accepted else {
            let host = &self.route.destination.host;
            let reason = format!(
                "{host}: its client does not trust the certificate authority of the sandbox"
            );
            self.route.outcomes.log(self.route.sandbox, &reason);
            return;
        };
        let service = service_fn(|request| async {
            Ok::<_, Infallible>(match self.send(request).await {
                Ok(response) => response,
                Err(error) => self.failed(&error),
            })
        });
        // An error is one of the connection: the client has got its response, or is gone.
        let _ = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(client), service)
            .with_upgrades()
            .await;
        if let Some(socket) = self.socket.into_inner() {
            socket.run().await;
        }
    }

    fn failed(&self, error: &EgressError) -> Response<ProxyBody> {
        if let EgressError::Placeholder(_) = error {
            let SecretRoute {
                sandbox, outcomes, ..
            } = self.route;
            self.route.sender.refuse(sandbox, error, outcomes);
        }
        error_response(error)
    }

    async fn send(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<ProxyBody>, EgressError> {
        if [Method::TRACE, Method::CONNECT].contains(request.method()) {
            return Err(EgressError::Placeholder(PlaceholderRefusal::Method));
        }
        let client = upgrade::asked(&mut request);
        let mut request = outgoing(request, self.route.destination, TLS_PORT)?;
        if client.is_some() {
            upgrade::mark(request.headers_mut());
        }
        let target = request.uri().to_string();
        if find(target.as_bytes()).is_some() {
            return Err(EgressError::Placeholder(PlaceholderRefusal::InUrl));
        }
        let path = request.uri().path().to_owned();
        for value in request.headers_mut().values_mut() {
            if let Some(replaced) = self.replaced(value, &path).await? {
                *value = replaced;
            }
        }
        let (parts, body) = request.into_parts();
        let (body, is_found) = SearchedBody::new(body);
        let sent = self.exchange(Request::from_parts(parts, body));
        let response = timeout(RESPONSE_TIMEOUT, sent).await;
        let response = response.unwrap_or_else(|_| Err(self.no_response()));
        if is_found.load(Ordering::SeqCst) {
            return Err(EgressError::Placeholder(PlaceholderRefusal::InBody));
        }
        let mut response = response?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(returned(response));
        }
        // A host must not change what was not asked for.
        let client = client.ok_or_else(|| self.no_response())?;
        let host = hyper::upgrade::on(&mut response);
        *self.socket.lock().await = Some(WebSocket { client, host });
        let mut response = returned(response);
        upgrade::mark(response.headers_mut());
        Ok(response)
    }

    /// The header with values in place of its placeholders; `None` if it has none.
    async fn replaced(
        &self,
        value: &HeaderValue,
        path: &str,
    ) -> Result<Option<HeaderValue>, EgressError> {
        let mut searched = SearchedValue::new(value.as_bytes());
        let text = searched.text();
        let (mut begin, mut count) = (0, 0);
        while let Some(found) = find(&text[begin..]) {
            let range = begin + found.start..begin + found.end;
            count += 1;
            if count > MAX_PLACEHOLDERS {
                return Err(EgressError::Placeholder(PlaceholderRefusal::TooMany));
            }
            let placeholder = String::from_utf8_lossy(&text[range.clone()]).into_owned();
            let value = self.value(&placeholder, path).await?;
            let value = value.expose_secret().as_bytes();
            begin = range.start + value.len();
            text.splice(range, value.iter().copied());
        }
        if count == 0 {
            return Ok(None);
        }
        let mut header = HeaderValue::from_maybe_shared(searched.into_header())
            .map_err(|_| EgressError::Placeholder(PlaceholderRefusal::NoHeader))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }

    async fn value(&self, placeholder: &str, path: &str) -> Result<SecretString, EgressError> {
        let revealed = self
            .route
            .sender
            .secrets
            .reveal(self.route.sandbox, placeholder)
            .await;
        let revealed = revealed.map_err(EgressError::Secrets)?;
        let (value, rules) =
            revealed.ok_or(EgressError::Placeholder(PlaceholderRefusal::Unknown))?;
        let Destination { host, port, .. } = self.route.destination;
        let allowed = rules.match_request((host, *port, TLS_PORT), path);
        allowed.map(|()| value).map_err(|refusal| {
            let host = host.to_string();
            EgressError::Placeholder(match refusal {
                SecretRefusal::OtherHost => PlaceholderRefusal::OtherHost(host),
                SecretRefusal::OtherPath => PlaceholderRefusal::OtherPath(host),
            })
        })
    }

    /// Sends a request over the open connection, or over a new one if the host has closed it.
    async fn exchange(
        &self,
        mut request: Request<SearchedBody>,
    ) -> Result<Response<Incoming>, EgressError> {
        let mut slot = self.host.lock().await;
        if let Some(mut open) = slot.take().filter(|open| !open.is_closed()) {
            match open.try_send_request(request).await {
                Ok(response) => {
                    *slot = Some(open);
                    return Ok(response);
                }
                // The host closed the connection before it got anything.
                Err(mut error) => {
                    request = error.take_message().ok_or_else(|| self.no_response())?;
                }
            }
        }
        let stream = match self.first.lock().await.take() {
            Some(connected) => connected,
            None => self.route.destination.connect().await?,
        };
        let tls = self
            .route
            .sender
            .host_tls(self.route.destination, stream)
            .await?;
        let mut open = self.open(tls).await?;
        let response = open.send_request(request).await;
        let response = response.map_err(|_| self.no_response())?;
        *slot = Some(open);
        Ok(response)
    }

    async fn open(&self, tls: HostTls) -> Result<HostConnection, EgressError> {
        let opened = handshake(TokioIo::new(tls)).await;
        let (sender, connection) = opened.map_err(|_| self.no_response())?;
        // It ends with the sender, or with the response of the last request.
        TokioExecutor::new().execute(async {
            let _ = connection.with_upgrades().await;
        });
        Ok(sender)
    }

    fn no_response(&self) -> EgressError {
        EgressError::NoResponse(self.route.destination.host.to_string())
    }
}
