//! HTTP and TLS: connections, time-outs and limits.

use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use url::Url;

use crate::call::Call;
use crate::error::Error;

const CLIENT_USER_AGENT: &str = concat!("agent-workspace-client/", env!("CARGO_PKG_VERSION"));
/// The header of API keys.
const KEY_HEADER: &str = "x-session-api-key";
/// Maximum number of idle connections in the pool.
const MAX_IDLE_CONNECTIONS: usize = 8;
/// Shorter than servers keep idle connections.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest response that is read at once, in bytes. A page has up to 100 events.
pub(crate) const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Connections to one service. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Arc<Url>,
    origin: Arc<str>,
    key: Option<HeaderValue>,
}

/// The trusted certificate authorities.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RootCertificates<'a> {
    /// Those that the system trusts.
    System,
    /// These, as PEM.
    Given(&'a str),
}

/// A complete response.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Http {
    /// Reads certificate authorities for an https URL.
    pub(crate) fn new(
        roots: RootCertificates<'_>,
        base: Url,
        key: Option<HeaderValue>,
        connect: Duration,
    ) -> Result<Self, Error> {
        let is_secure = base.scheme() == "https";
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(connect));
        http.set_nodelay(true);
        let builder =
            HttpsConnectorBuilder::new().with_tls_config(tls(is_secure.then_some(roots))?);
        let connector = if is_secure {
            builder.https_only().enable_http1().wrap_connector(http)
        } else {
            builder.https_or_http().enable_http1().wrap_connector(http)
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self {
            client,
            origin: base.origin().ascii_serialization().into(),
            base: Arc::new(base),
            key,
        })
    }

    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn exchange(&self, call: &Call, limit: Duration) -> Result<Reply, Error> {
        let exchange = async {
            let response = self.send(call, "application/json").await?;
            self.read(response).await
        };
        self.within(limit, exchange).await?
    }

    /// Sends a request, and returns at the start of the response.
    pub(crate) async fn open(
        &self,
        call: &Call,
        accept: &'static str,
        limit: Duration,
    ) -> Result<Response<Incoming>, Error> {
        self.within(limit, self.send(call, accept)).await?
    }

    /// Reads the rest of a response.
    pub(crate) async fn rest(
        &self,
        response: Response<Incoming>,
        limit: Duration,
    ) -> Result<Reply, Error> {
        self.within(limit, self.read(response)).await?
    }

    /// The next chunk of a response; `None` at its end.
    pub(crate) async fn piece(
        &self,
        body: &mut Incoming,
        limit: Duration,
    ) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(frame) = self.within(limit, body.frame()).await? else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| self.cut(error))?;
            // Trailers are ignored.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    /// Repeats a read once if its connection breaks before the response starts: a pooled connection may be closed by
    /// the other side at the moment of its reuse.
    async fn send(&self, call: &Call, accept: &'static str) -> Result<Response<Incoming>, Error> {
        let mut sent = self.client.request(self.request(call, accept)?).await;
        if sent.as_ref().is_err_and(|error| !error.is_connect()) && call.operation.method == "GET" {
            sent = self.client.request(self.request(call, accept)?).await;
        }
        sent.map_err(|error| {
            if error.is_connect() {
                let origin = self.origin.to_string();
                // hyper's own message is only "Connect".
                let source = match error.source() {
                    Some(cause) => cause_of(cause).into(),
                    None => error.into(),
                };
                return Error::Unreachable { origin, source };
            }
            self.cut(error)
        })
    }

    fn request(&self, call: &Call, accept: &'static str) -> Result<Request<Full<Bytes>>, Error> {
        let url = call.url(&self.base)?;
        let mut request = Request::builder()
            .method(call.operation.method)
            .uri(url.as_str())
            .header(USER_AGENT, CLIENT_USER_AGENT)
            .header(ACCEPT, accept);
        if let Some(key) = &self.key {
            request = request.header(KEY_HEADER, key);
        }
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key.as_str());
        }
        if let Some(id) = &call.last_event {
            request = request.header("last-event-id", id);
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::from(call.body.clone().unwrap_or_default());
        request
            .body(body)
            .map_err(|_| Error::Unusable("the arguments do not form a valid request".into()))
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Reply, Error> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                return Error::TooLarge(MAX_RESPONSE_BYTES);
            }
            self.cut(error)
        })?;
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.to_bytes(),
        })
    }

    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Result<T, Error> {
        let done = tokio::time::timeout(limit, work).await;
        done.map_err(|_| Error::TimedOut {
            origin: self.origin.to_string(),
            after: limit,
        })
    }

    pub(crate) fn cut(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Cut {
            origin: self.origin.to_string(),
            source: source.into(),
        }
    }
}

/// The innermost cause, which says what happened: a refused connection, an unknown name.
fn cause_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// `None`: no certificate is trusted, because the client uses no TLS.
fn tls(trusted: Option<RootCertificates<'_>>) -> Result<ClientConfig, Error> {
    let unusable = |text: &str| Error::Unusable(text.to_owned());
    let mut roots = RootCertStore::empty();
    if let Some(trusted) = trusted {
        let (certificates, without) = match trusted {
            RootCertificates::System => (
                rustls_native_certs::load_native_certs().certs,
                "this machine has no certificate authorities, so no https address can be trusted (on Debian, install \
                 ca-certificates)",
            ),
            RootCertificates::Given(text) => (
                CertificateDer::pem_slice_iter(text.as_bytes())
                    .flatten()
                    .collect(),
                "the given certificate authorities contain no certificate",
            ),
        };
        let (known, _) = roots.add_parsable_certificates(certificates);
        if known == 0 {
            return Err(unusable(without));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| unusable("TLS is not available"))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
