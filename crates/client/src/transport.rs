//! HTTP and TLS: connections, time-outs and limits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Response};
use outbound_http::{BodyError, CaCertificates, ClientOptions, HttpClient, SendError, read_body};
use url::Url;

use crate::call::{Call, IdempotencyKey};
use crate::error::Error;

const CLIENT_USER_AGENT: &str = concat!("agent-workspace-client/", env!("CARGO_PKG_VERSION"));
/// The header of API keys.
const KEY_HEADER: &str = "x-session-api-key";
/// Maximum number of idle connections in the pool.
const MAX_IDLE_CONNECTIONS: usize = 8;
/// Shorter than servers keep idle connections.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum size of a response that is read as a whole, in bytes. A page has up to 100 events.
pub(crate) const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Connections to one service. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: HttpClient,
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
        let client = HttpClient::new(ClientOptions {
            authorities: authorities(roots, &base)?,
            guard: None,
            connect_timeout: connect,
            idle_timeout: POOL_IDLE_TIMEOUT,
            max_idle_per_host: MAX_IDLE_CONNECTIONS,
        });
        let client = client.map_err(|_| Error::Unusable("TLS is not available".into()))?;
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
            let frame = frame.map_err(|error| self.interrupted(error))?;
            // Trailers are ignored.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    /// Repeats a read once if its connection breaks before the response starts: a pooled connection may be closed by
    /// the other side at the moment of its reuse.
    async fn send(&self, call: &Call, accept: &'static str) -> Result<Response<Incoming>, Error> {
        let mut sent = self.attempt(call, accept).await?;
        if matches!(sent, Err(SendError::Broken(_))) && call.operation.method == "GET" {
            sent = self.attempt(call, accept).await?;
        }
        sent.map_err(|error| match error {
            SendError::NotConnected(error) => Error::Unreachable {
                origin: self.origin.to_string(),
                // hyper's own message is only "Connect".
                source: match error.source() {
                    Some(cause) => cause_of(cause).into(),
                    None => error,
                },
            },
            SendError::Broken(error) => self.interrupted(error),
            SendError::Forbidden(_) | SendError::InvalidUrl(_) => invalid_arguments(),
        })
    }

    async fn attempt(
        &self,
        call: &Call,
        accept: &'static str,
    ) -> Result<Result<Response<Incoming>, SendError>, Error> {
        let url = call.url(&self.base)?;
        let method = Method::from_bytes(call.operation.method.as_bytes());
        let method = method.map_err(|_| invalid_arguments())?;
        let mut headers = HeaderMap::from_iter([
            (USER_AGENT, HeaderValue::from_static(CLIENT_USER_AGENT)),
            (ACCEPT, HeaderValue::from_static(accept)),
        ]);
        if let Some(key) = &self.key {
            headers.insert(KEY_HEADER, key.clone());
        }
        for (name, value) in [
            (
                "idempotency-key",
                call.key.as_ref().map(IdempotencyKey::as_str),
            ),
            ("last-event-id", call.last_event.as_deref()),
        ] {
            if let Some(value) = value {
                let value = HeaderValue::from_str(value).map_err(|_| invalid_arguments())?;
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        if call.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        }
        let body = call.body.clone().unwrap_or_default();
        Ok(self.client.send(method, &url, headers, body).await)
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Reply, Error> {
        let (parts, body) = response.into_parts();
        let body = read_body(body, MAX_RESPONSE_BYTES).await;
        let body = body.map_err(|error| match error {
            BodyError::TooLarge(max) => Error::TooLarge(max),
            BodyError::Broken(error) => self.interrupted(error),
        })?;
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Result<T, Error> {
        let done = tokio::time::timeout(limit, work).await;
        done.map_err(|_| Error::TimedOut {
            origin: self.origin.to_string(),
            after: limit,
        })
    }

    pub(crate) fn interrupted(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::Interrupted {
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

fn invalid_arguments() -> Error {
    Error::Unusable("the arguments do not form a valid request".into())
}

/// The certificate authorities that connections to this URL need.
fn authorities(trusted: RootCertificates<'_>, base: &Url) -> Result<CaCertificates, Error> {
    if base.scheme() != "https" {
        return Ok(CaCertificates::default());
    }
    let (authorities, without) = match trusted {
        RootCertificates::System => (
            CaCertificates::of_system(),
            "this machine has no certificate authorities, so no https address can be trusted (on Debian, install \
             ca-certificates)",
        ),
        RootCertificates::Given(text) => (
            CaCertificates::usable_in_pem(text.as_bytes()),
            "the given certificate authorities contain no certificate",
        ),
    };
    if authorities.is_empty() {
        return Err(Error::Unusable(without.to_owned()));
    }
    Ok(authorities)
}
