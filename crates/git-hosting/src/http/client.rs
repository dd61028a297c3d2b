//! The HTTP client for all providers: guarded hosts, deadlines, bounded responses, no redirects to another host.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use domain::conversation::GitProvider;
use domain::git::GitError;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT,
};
use hyper::{Method, Request};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;
use url::Url;

use crate::config::{CaCertificates, Config};
use crate::hosts::guard::{ForbiddenHost, HostError, HostGuard};

const AGENT_NAME: &str = concat!("agent-workspace/", env!("CARGO_PKG_VERSION"));
/// Redirects within one host, such as those after a repository was renamed.
const MAX_REDIRECTS: usize = 3;
const MAX_IDLE_CONNECTIONS_PER_HOST: usize = 4;

type ProviderConnector = HttpsConnector<HttpConnector<GuardedResolver>>;

/// Resolves names to checked addresses, so that the client connects to no other ones.
#[derive(Debug, Clone)]
struct GuardedResolver(HostGuard);

impl Service<Name> for GuardedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.0.clone();
        Box::pin(async move {
            // The connector replaces the port by that of the URL.
            match guard.resolve(name.as_str(), 0).await {
                Ok(addresses) => Ok(addresses.into_iter()),
                Err(HostError::ForbiddenHost(forbidden)) => Err(forbidden.into()),
                Err(HostError::NotResolved(error)) => Err(error.into()),
            }
        })
    }
}

/// A request, without its credentials.
#[derive(Debug, Clone)]
pub(crate) struct HttpCall {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) body: Option<Vec<u8>>,
}

/// A response of any status.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl HttpReply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether a 403 response means that the rate limit is exceeded.
    pub(crate) fn is_rate_limited(&self) -> bool {
        self.header("x-ratelimit-remaining") == Some("0") || self.header("retry-after").is_some()
    }
}

/// A request that got no usable response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0}")]
    ForbiddenHost(#[from] ForbiddenHost),
    #[error("the connection failed")]
    Connection(#[source] Box<dyn Error + Send + Sync>),
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    #[error("the provider redirects to another host, or more than {max} times", max = MAX_REDIRECTS)]
    Redirected,
    #[error("the URL or the token is not valid in an HTTP request")]
    InvalidRequest(#[source] hyper::http::Error),
}

impl HttpError {
    pub(crate) fn into_error(self, provider: GitProvider) -> GitError {
        match self {
            Self::ForbiddenHost(forbidden) => forbidden.into_error(provider),
            other => GitError::Unavailable {
                provider,
                source: other.into(),
            },
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client<ProviderConnector, Full<Bytes>>,
    guard: HostGuard,
    max_body: usize,
}

impl Http {
    pub(crate) fn new(config: &Config, guard: HostGuard) -> Result<Self, rustls::Error> {
        let mut http = HttpConnector::new_with_resolver(GuardedResolver(guard.clone()));
        http.enforce_http(false);
        http.set_connect_timeout(Some(config.connect));
        http.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(&config.authorities)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(config.timeout)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS_PER_HOST)
            .build(connector);
        Ok(Self {
            client,
            guard,
            max_body: config.max_body,
        })
    }

    /// Sends a request and follows redirects of GET requests. The credentials go only to the host of the call's URL.
    pub(crate) async fn exchange(
        &self,
        call: &HttpCall,
        credentials: &HeaderValue,
        accept: &'static str,
    ) -> Result<HttpReply, HttpError> {
        let mut url = call.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            self.guard.check(&url)?;
            let mut reply = self.attempt(call, &url, credentials, accept).await?;
            if !matches!(reply.status, 301 | 302 | 307 | 308) || call.method != Method::GET {
                reply.headers.remove(LOCATION);
                return Ok(reply);
            }
            let to = reply.header("location").and_then(|to| url.join(to).ok());
            let to = to.filter(|to| to.origin() == url.origin());
            url = to.ok_or(HttpError::Redirected)?;
        }
        Err(HttpError::Redirected)
    }

    async fn attempt(
        &self,
        call: &HttpCall,
        url: &Url,
        credentials: &HeaderValue,
        accept: &'static str,
    ) -> Result<HttpReply, HttpError> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(url.as_str())
            .header(USER_AGENT, AGENT_NAME)
            .header(ACCEPT, accept)
            .header(AUTHORIZATION, credentials);
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::from(call.body.clone().unwrap_or_default());
        let request = request.body(body).map_err(HttpError::InvalidRequest)?;
        let response = self
            .client
            .request(request)
            .await
            .map_err(connection_error)?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, self.max_body).collect().await;
        let body = body.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                HttpError::TooLarge(self.max_body)
            } else {
                HttpError::Connection(error)
            }
        })?;
        Ok(HttpReply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.to_bytes().to_vec(),
        })
    }
}

/// Converts an error of the client. Finds the error of [`GuardedResolver`] in the chain of causes.
fn connection_error(error: hyper_util::client::legacy::Error) -> HttpError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(forbidden) = error.downcast_ref::<ForbiddenHost>() {
            return forbidden.clone().into();
        }
        cause = error.source();
    }
    HttpError::Connection(error.into())
}

fn tls(authorities: &CaCertificates) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(system.certs);
    if added == 0 {
        let errors = system.errors.len();
        tracing::warn!(
            errors,
            "this machine has no certificate authorities, so https connections to git providers fail: install them (on \
             Debian, the package ca-certificates) or set git.ca_file"
        );
    }
    for certificate in &authorities.0 {
        roots.add(certificate.clone())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
