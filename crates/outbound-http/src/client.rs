//! The client.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;
use url::Url;

use crate::host_guard::{ForbiddenHost, HostError, HostGuard};
use crate::tls::CaCertificates;

type BoxedError = Box<dyn Error + Send + Sync>;
/// A body that is sent as it comes.
type OutgoingBody = UnsyncBoxBody<Bytes, BoxedError>;

/// How a client connects, and to which hosts.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Trusted for https.
    pub authorities: CaCertificates,
    /// Which hosts may be called; `None` for URLs of the operator, which may name any host.
    pub guard: Option<HostGuard>,
    /// Timeout of establishing a connection.
    pub connect_timeout: Duration,
    /// Time after which an idle connection is closed.
    pub idle_timeout: Duration,
    /// Maximum number of idle connections per host.
    pub max_idle_per_host: usize,
}

type PooledConnector = HttpsConnector<HttpConnector<GuardedResolver>>;

/// Sends requests over pooled connections. Clones share the connections.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client<PooledConnector, OutgoingBody>,
    connector: PooledConnector,
    idle_timeout: Duration,
    max_idle_per_host: usize,
    guard: Option<HostGuard>,
}

/// A request without a response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The host must not be called. Nothing was sent.
    #[error(transparent)]
    Forbidden(#[from] ForbiddenHost),
    /// The URL is not valid in an HTTP request.
    #[error("the URL is not valid in an HTTP request")]
    InvalidUrl(#[from] hyper::http::uri::InvalidUri),
    /// No connection was made.
    #[error("cannot connect")]
    NotConnected(#[source] BoxedError),
    /// The connection broke before the response.
    #[error("the connection closed before the response")]
    Broken(#[source] BoxedError),
}

/// A response without a usable body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is larger than this number of bytes.
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    /// The connection broke within the body.
    #[error("the connection closed within the response")]
    Broken(#[source] BoxedError),
}

impl HttpClient {
    /// Builds a client. Sends nothing.
    ///
    /// # Errors
    /// TLS is not available.
    pub fn new(options: ClientOptions) -> Result<Self, rustls::Error> {
        let mut http = HttpConnector::new_with_resolver(GuardedResolver(options.guard.clone()));
        http.enforce_http(false);
        http.set_connect_timeout(Some(options.connect_timeout));
        http.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(options.authorities.into_client_config()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let (idle_timeout, max_idle_per_host) = (options.idle_timeout, options.max_idle_per_host);
        Ok(Self {
            client: pool(connector.clone(), idle_timeout, max_idle_per_host),
            connector,
            idle_timeout,
            max_idle_per_host,
            guard: options.guard,
        })
    }

    /// A client of the same kind with connections of its own. The task of a connection runs on the runtime that opened it, so
    /// a thread with a runtime of its own should have such a client: otherwise parts of an answer cross threads.
    #[must_use]
    pub fn with_own_connections(&self) -> Self {
        Self {
            client: pool(
                self.connector.clone(),
                self.idle_timeout,
                self.max_idle_per_host,
            ),
            ..self.clone()
        }
    }

    /// Sends one request and returns at the head of its response. Follows no redirect. The caller sets the deadline.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, SendError> {
        let body = Full::new(body.into());
        self.send_streaming(method, url, headers, body).await
    }

    /// The same with a body that is sent as it comes. A body without an exact size is sent in chunks.
    ///
    /// # Errors
    /// As for [`HttpClient::send`]; also if the body ends with an error.
    pub async fn send_streaming<B>(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: B,
    ) -> Result<Response<Incoming>, SendError>
    where
        B: Body<Data = Bytes, Error: Into<BoxedError>> + Send + 'static,
    {
        if let Some(guard) = &self.guard {
            guard.check(url)?;
        }
        let mut request = Request::new(body.map_err(Into::into).boxed_unsync());
        *request.method_mut() = method;
        *request.uri_mut() = url.as_str().parse::<Uri>()?;
        *request.headers_mut() = headers;
        self.client.request(request).await.map_err(send_error)
    }
}

fn pool(
    connector: PooledConnector,
    idle_timeout: Duration,
    max_idle_per_host: usize,
) -> Client<PooledConnector, OutgoingBody> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle_timeout)
        .pool_max_idle_per_host(max_idle_per_host)
        .build(connector)
}

/// Reads a body of at most `max` bytes.
///
/// # Errors
/// See [`BodyError`].
pub async fn read_body(body: Incoming, max: usize) -> Result<Bytes, BodyError> {
    // The announced length.
    if body.size_hint().lower() > max as u64 {
        return Err(BodyError::TooLarge(max));
    }
    let body = Limited::new(body, max).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            BodyError::TooLarge(max)
        } else {
            BodyError::Broken(error)
        }
    })?;
    Ok(body.to_bytes())
}

/// Reads the next part of a body; `None` at its end. The caller limits the size of the whole and sets the deadline.
///
/// # Errors
/// The connection broke.
pub async fn next_chunk(body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.into()))?;
        // The other kind are trailers.
        if let Ok(chunk) = frame.into_data() {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

/// Finds the error of [`GuardedResolver`] in the chain of causes.
fn send_error(error: hyper_util::client::legacy::Error) -> SendError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(forbidden) = error.downcast_ref::<ForbiddenHost>() {
            return forbidden.clone().into();
        }
        cause = error.source();
    }
    if error.is_connect() {
        SendError::NotConnected(error.into())
    } else {
        SendError::Broken(error.into())
    }
}

/// Resolves names to checked addresses, so that the client connects to no other ones.
#[derive(Debug, Clone)]
struct GuardedResolver(Option<HostGuard>);

impl Service<Name> for GuardedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxedError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.0.clone();
        Box::pin(async move {
            let Some(guard) = guard else {
                let addresses: Vec<_> = GaiResolver::new().call(name).await?.collect();
                return Ok(addresses.into_iter());
            };
            // The connector replaces the port by that of the URL.
            match guard.resolve(name.as_str(), 0).await {
                Ok(addresses) => Ok(addresses.into_iter()),
                Err(HostError::ForbiddenHost(forbidden)) => Err(forbidden.into()),
                Err(HostError::NotResolved(error)) => Err(error.into()),
            }
        })
    }
}
