//! Exchanges over the shared connection pool, each with a deadline and a size limit.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::AgentEndpoint;
use domain::id::SandboxId;
use domain::json::estimate_memory_bytes;
use endpoint_guard::{Connector, EndpointGuard};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::{Position, Url};

use crate::config::{Config, TraceHeaderSource};
use crate::errors::CallError;

const KEY_HEADER: &str = "x-session-api-key";
/// A dormant agent server has no session key yet. It accepts its encryption key in this header.
const WAKE_HEADER: &str = "x-init-api-key";

/// Idle time before TCP keep-alive probes.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// An agent server: its base URL, and the sandbox that must listen there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentAddress<'a> {
    pub(crate) sandbox: &'a SandboxId,
    pub(crate) url: &'a Url,
}

impl<'a> From<&'a AgentEndpoint> for AgentAddress<'a> {
    fn from(at: &'a AgentEndpoint) -> Self {
        Self {
            sandbox: &at.sandbox,
            url: &at.url,
        }
    }
}

/// A request. Its body is serialised once, so that it can be sent again.
pub(crate) struct AgentCall {
    method: Method,
    sandbox: SandboxId,
    url: Url,
    /// The key, and the header that carries it.
    key: Option<(&'static str, HeaderValue)>,
    body: Option<Vec<u8>>,
    content_type: &'static str,
    deadline: Duration,
    idempotent: bool,
    /// Size limit of the response in bytes; `None`: the configured `max_body`.
    at_most: Option<usize>,
}

/// Parsed JSON may take this multiple of the response's bytes. A page of events takes much less.
const JSON_MEMORY_FACTOR: usize = 8;
/// Lower and upper bound of the memory for parsed JSON, in bytes.
const JSON_MEMORY_BYTES_RANGE: (usize, usize) = (1 << 20, 64 << 20);

/// Boundary of form parts. It does not occur in files by chance.
const BOUNDARY: &str = "agent-workspace-5f1c9f0e8d2b4a7c-part";
const FORM: &str = "multipart/form-data; boundary=agent-workspace-5f1c9f0e8d2b4a7c-part";

/// A whole response within the size limit.
pub(crate) struct AgentReply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl AgentReply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl AgentCall {
    /// A request to `segments` below the endpoint's URL, with the session key.
    pub(crate) fn new(
        method: Method,
        at: &AgentEndpoint,
        segments: &[&str],
        deadline: Duration,
    ) -> Result<Self, CallError> {
        Self::open(method, at.into(), segments, deadline)?.with_key(KEY_HEADER, &at.key)
    }

    /// A request to a dormant agent server, with its encryption key.
    pub(crate) fn waking(
        at: AgentAddress<'_>,
        secret_key: &SecretString,
        segments: &[&str],
        deadline: Duration,
    ) -> Result<Self, CallError> {
        Self::open(Method::POST, at, segments, deadline)?.with_key(WAKE_HEADER, secret_key)
    }

    fn with_key(mut self, header: &'static str, key: &SecretString) -> Result<Self, CallError> {
        let mut key = HeaderValue::from_str(key.expose_secret()).map_err(|_| {
            CallError::InvalidRequest("the key contains a character that a header cannot carry")
        })?;
        key.set_sensitive(true);
        self.key = Some((header, key));
        Ok(self)
    }

    /// A request without a key.
    pub(crate) fn open(
        method: Method,
        at: AgentAddress<'_>,
        segments: &[&str],
        deadline: Duration,
    ) -> Result<Self, CallError> {
        let mut url = at.url.clone();
        url.path_segments_mut()
            .map_err(|()| CallError::InvalidRequest("the agent server's URL cannot have a path"))?
            .pop_if_empty()
            .extend(segments);
        // All other methods that this crate uses are idempotent. The caller marks an idempotent POST by `idempotent`.
        let idempotent = method != Method::POST;
        Ok(Self {
            method,
            sandbox: at.sandbox.clone(),
            url,
            key: None,
            body: None,
            content_type: "application/json",
            deadline,
            idempotent,
            at_most: None,
        })
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.url.query_pairs_mut().append_pair(name, value);
        self
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self
    }

    /// A form with one file in its field `file`.
    pub(crate) fn form_file(mut self, content: &[u8]) -> Self {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let tail = format!("\r\n--{BOUNDARY}--\r\n");
        self.body = Some([head.as_bytes(), content, tail.as_bytes()].concat());
        self.content_type = FORM;
        self
    }

    /// Limits the bytes read of the response.
    pub(crate) fn at_most(mut self, bytes: usize) -> Self {
        self.at_most = Some(bytes);
        self
    }

    /// Marks this POST as safe to repeat.
    pub(crate) fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }
}

/// The connection pool.
#[derive(Clone)]
pub(crate) struct Transport {
    client: Client<Connector, Full<Bytes>>,
    max_body: usize,
    trace: Option<TraceHeaderSource>,
}

impl Transport {
    /// Follows no redirects: a sandbox must not direct requests to other hosts.
    pub(crate) fn new(config: &Config, guard: Arc<dyn EndpointGuard>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEP_ALIVE));
        let connector = Connector::new(tcp, config.connect, guard);
        let client = Client::builder(TokioExecutor::new())
            // Shorter than the 5 s after which agent servers close idle connections (uvicorn's keep-alive).
            .pool_idle_timeout(Duration::from_secs(4))
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(8)
            .build(connector);
        Self {
            client,
            max_body: config.max_body,
            trace: config.trace,
        }
    }

    /// Sends the request and reads the response within the call's deadline. Repeats an idempotent request once if the
    /// connection broke: the agent server closes connections after a 500, and a pooled connection may have died
    /// unnoticed.
    pub(crate) async fn exchange(&self, call: &AgentCall) -> Result<AgentReply, CallError> {
        let attempts = async {
            match self.attempt(call).await {
                Err(CallError::Broken(_)) if call.idempotent => self.attempt(call).await,
                other => other,
            }
        };
        tokio::time::timeout(call.deadline, attempts)
            .await
            .unwrap_or(Err(CallError::TimedOut(call.deadline)))
    }

    async fn attempt(&self, call: &AgentCall) -> Result<AgentReply, CallError> {
        let request = self.request(call)?;
        let mut response = self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                CallError::NoConnection(error.into())
            } else {
                CallError::Broken(error.into())
            }
        })?;
        let status = response.status().as_u16();
        let limit = call.at_most.unwrap_or(self.max_body);
        let announced = response.headers().get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit as u64) {
            return Err(CallError::TooLarge(limit));
        }
        let mut body = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| CallError::Broken(error.into()))?;
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            if body.len() + chunk.len() > limit {
                return Err(CallError::TooLarge(limit));
            }
            body.extend_from_slice(&chunk);
        }
        // A sandbox is not trusted, and almost every response is parsed as JSON.
        let max_memory = limit
            .saturating_mul(JSON_MEMORY_FACTOR)
            .clamp(JSON_MEMORY_BYTES_RANGE.0, JSON_MEMORY_BYTES_RANGE.1);
        if estimate_memory_bytes(&body) > max_memory {
            return Err(CallError::TooLarge(max_memory));
        }
        Ok(AgentReply { status, body })
    }

    fn request(&self, call: &AgentCall) -> Result<Request<Full<Bytes>>, CallError> {
        let invalid_url =
            || CallError::InvalidRequest("the agent server's URL is not a valid http URL");
        if call.url.scheme() != "http" {
            return Err(invalid_url());
        }
        // The user part of the URI tells the connector the sandbox. It is not sent.
        let server = &call.url[Position::BeforeHost..Position::AfterPort];
        let path = &call.url[Position::BeforePath..Position::AfterQuery];
        let uri = format!("http://{}@{server}{path}", call.sandbox);
        let uri: Uri = uri.parse().map_err(|_| invalid_url())?;
        let body = call.body.clone().unwrap_or_default();
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if call.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        }
        if let Some((header, key)) = &call.key {
            headers.insert(*header, key.clone());
        }
        for (name, value) in self.trace.map(|headers| headers()).unwrap_or_default() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        Ok(request)
    }
}
