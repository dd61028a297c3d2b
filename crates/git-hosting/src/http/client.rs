//! The HTTP client for all providers, with bounded responses.

use domain::error::BoxError;
use domain::git::{GitError, GitProvider};
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use outbound_http::{
    CaCertificates, ClientOptions, HostError, HostGuard, HttpClient, SendError, read_body,
};
use url::Url;

use crate::config::Config;

const AGENT_NAME: &str = concat!("agent-workspace/", env!("CARGO_PKG_VERSION"));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const MAX_IDLE_CONNECTIONS_PER_HOST: usize = 4;

/// A response of any status.
#[derive(Debug, Default)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
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

/// Converts the error of a host that was checked before git calls it.
pub(crate) fn host_error(provider: GitProvider, error: HostError) -> GitError {
    match error {
        HostError::ForbiddenHost(forbidden) => GitError::Forbidden {
            provider,
            reason: forbidden.to_string(),
        },
        HostError::NotResolved(error) => unavailable(provider, error),
    }
}

/// A provider that cannot be used at present: it does not respond, or not as its documentation says.
pub(crate) fn unavailable(provider: GitProvider, source: impl Into<BoxError>) -> GitError {
    GitError::Unavailable {
        provider,
        source: source.into(),
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: HttpClient,
    max_body: usize,
}

impl Http {
    pub(crate) fn new(config: &Config, guard: HostGuard) -> Result<Self, BoxError> {
        let system = CaCertificates::of_system();
        if system.is_empty() {
            tracing::warn!(
                "this machine has no certificate authorities, so https connections to git providers fail: install them (on \
                 Debian, the package ca-certificates) or set git.ca_file"
            );
        }
        let client = HttpClient::new(ClientOptions {
            authorities: system.and(&config.authorities),
            guard: Some(guard),
            connect_timeout: config.connect,
            idle_timeout: config.timeout,
            max_idle_per_host: MAX_IDLE_CONNECTIONS_PER_HOST,
        })?;
        Ok(Self {
            client,
            max_body: config.max_body,
        })
    }

    /// Sends one request and follows no redirect.
    pub(crate) async fn send(
        &self,
        provider: GitProvider,
        (method, url, body): (&Method, &Url, Option<&Bytes>),
        credentials: &HeaderValue,
    ) -> Result<HttpReply, GitError> {
        let mut headers = HeaderMap::from_iter([
            (USER_AGENT, HeaderValue::from_static(AGENT_NAME)),
            (ACCEPT, JSON),
            (AUTHORIZATION, credentials.clone()),
        ]);
        if body.is_some() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        let body = body.cloned().unwrap_or_default();
        let response = self.client.send(method.clone(), url, headers, body).await;
        let response = response.map_err(|error| match error {
            SendError::Forbidden(forbidden) => host_error(provider, forbidden.into()),
            other => unavailable(provider, other),
        })?;
        let (parts, body) = response.into_parts();
        let body = read_body(body, self.max_body).await;
        Ok(HttpReply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.map_err(|error| unavailable(provider, error))?,
        })
    }
}
