//! The HTTP client for all providers: bounded responses, and no redirects to another host.

use domain::conversation::GitProvider;
use domain::git::GitError;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT,
};
use outbound_http::{
    CaCertificates, ClientOptions, HostError, HostGuard, HttpClient, SendError, read_body,
};
use url::Url;

use crate::config::Config;
use crate::http::session::unavailable;

const AGENT_NAME: &str = concat!("agent-workspace/", env!("CARGO_PKG_VERSION"));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Redirects within one host, such as those after a repository was renamed.
const MAX_REDIRECTS: usize = 3;
const MAX_IDLE_CONNECTIONS_PER_HOST: usize = 4;

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
        HostError::NotResolved(error) => GitError::Unavailable {
            provider,
            source: error.into(),
        },
    }
}

fn send_error(provider: GitProvider, error: SendError) -> GitError {
    match error {
        SendError::Forbidden(forbidden) => host_error(provider, forbidden.into()),
        other => GitError::Unavailable {
            provider,
            source: other.into(),
        },
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: HttpClient,
    max_body: usize,
}

impl Http {
    pub(crate) fn new(
        config: &Config,
        guard: HostGuard,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
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

    /// Sends a request and follows redirects of GET requests. The credentials go only to the host of the call's URL.
    pub(crate) async fn exchange(
        &self,
        provider: GitProvider,
        call: &HttpCall,
        credentials: &HeaderValue,
    ) -> Result<HttpReply, GitError> {
        let redirected = || {
            let what = format!(
                "the provider redirects to another host, or more than {MAX_REDIRECTS} times"
            );
            unavailable(provider, what)
        };
        let mut url = call.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut reply = self.attempt(provider, call, &url, credentials).await?;
            if !matches!(reply.status, 301 | 302 | 307 | 308) || call.method != Method::GET {
                reply.headers.remove(LOCATION);
                return Ok(reply);
            }
            let to = reply.header("location").and_then(|to| url.join(to).ok());
            let to = to.filter(|to| to.origin() == url.origin());
            url = to.ok_or_else(redirected)?;
        }
        Err(redirected())
    }

    async fn attempt(
        &self,
        provider: GitProvider,
        call: &HttpCall,
        url: &Url,
        credentials: &HeaderValue,
    ) -> Result<HttpReply, GitError> {
        let mut headers = HeaderMap::from_iter([
            (USER_AGENT, HeaderValue::from_static(AGENT_NAME)),
            (ACCEPT, JSON),
            (AUTHORIZATION, credentials.clone()),
        ]);
        if call.body.is_some() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        let body = call.body.clone().unwrap_or_default();
        let response = self.client.send(call.method.clone(), url, headers, body);
        let response = response
            .await
            .map_err(|error| send_error(provider, error))?;
        let (parts, body) = response.into_parts();
        let body = read_body(body, self.max_body).await;
        let body = body.map_err(|error| GitError::Unavailable {
            provider,
            source: error.into(),
        })?;
        Ok(HttpReply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }
}
