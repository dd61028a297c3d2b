//! Exchanges over the shared connection pool, each with a deadline and a size limit.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::{AgentEndpoint, AgentError};
use domain::id::{ConversationId, SandboxId};
use domain::json::estimate_memory_bytes;
use endpoint_guard::{Connector, EndpointGuard};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use outbound_http::{BodyError, read_body};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::{Position, Url};

use crate::config::{Config, TraceHeaderSource};
use crate::errors::{CallError, malformed, refused};

const KEY_HEADER: &str = "x-session-api-key";
/// A dormant agent server has no session key yet. It accepts its encryption key in this header.
const WAKE_HEADER: &str = "x-init-api-key";

/// Idle time before TCP keep-alive probes.
const TCP_KEEP_ALIVE_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

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
pub(crate) struct AgentCall<'a> {
    method: Method,
    at: AgentAddress<'a>,
    /// The path below the agent server's URL.
    segments: Vec<String>,
    query: Vec<(&'static str, String)>,
    /// The header that carries the key, and the key.
    key: Option<(&'static str, &'a SecretString)>,
    body: Option<Vec<u8>>,
    content_type: &'static str,
    timeout: Duration,
    is_idempotent: bool,
    /// Size limit of the response in bytes; `None`: the configured `max_body_bytes`.
    max_response_bytes: Option<usize>,
    /// The secrets of the request, which its errors must not contain.
    secrets: Vec<&'a str>,
}

/// Parsed JSON may take this multiple of the response's bytes. A page of events takes much less.
const JSON_MEMORY_FACTOR: usize = 8;
/// Lower and upper bound of the memory for parsed JSON, in bytes.
const JSON_MEMORY_BYTES_RANGE: (usize, usize) = (1 << 20, 64 << 20);

/// Boundary of form parts. It does not occur in files by chance.
const BOUNDARY: &str = "agent-workspace-5f1c9f0e8d2b4a7c-part";
const MULTIPART_CONTENT_TYPE: &str =
    "multipart/form-data; boundary=agent-workspace-5f1c9f0e8d2b4a7c-part";

/// A whole response within the size limit.
pub(crate) struct AgentResponse {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl AgentResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as JSON, null if it is not JSON.
    pub(crate) fn lenient_document(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl<'a> AgentCall<'a> {
    /// A request to `segments` below the endpoint's URL, with the session key.
    pub(crate) fn new(
        method: Method,
        at: &'a AgentEndpoint,
        segments: &[&str],
        timeout: Duration,
    ) -> Self {
        Self::without_key(method, at.into(), segments, timeout).with_key(KEY_HEADER, &at.key)
    }

    /// A request to `/api/conversations/{id}/…`, with the session key.
    pub(crate) fn of_conversation(
        method: Method,
        at: &'a AgentEndpoint,
        id: ConversationId,
        rest: &[&str],
        timeout: Duration,
    ) -> Self {
        let id = id.dashed();
        let segments = [&["api", "conversations", &id], rest].concat();
        Self::new(method, at, &segments, timeout)
    }

    /// A request to a dormant agent server, with its encryption key.
    pub(crate) fn to_dormant(
        at: AgentAddress<'a>,
        secret_key: &'a SecretString,
        segments: &[&str],
        timeout: Duration,
    ) -> Self {
        Self::without_key(Method::POST, at, segments, timeout).with_key(WAKE_HEADER, secret_key)
    }

    /// A request without a key.
    pub(crate) fn without_key(
        method: Method,
        at: AgentAddress<'a>,
        segments: &[&str],
        timeout: Duration,
    ) -> Self {
        // All other methods that this crate uses are idempotent. The caller marks an idempotent POST by `idempotent`.
        let is_idempotent = method != Method::POST;
        Self {
            method,
            at,
            segments: segments.iter().map(ToString::to_string).collect(),
            query: Vec::new(),
            key: None,
            body: None,
            content_type: "application/json",
            timeout,
            is_idempotent,
            max_response_bytes: None,
            secrets: Vec::new(),
        }
    }

    fn with_key(mut self, header: &'static str, key: &'a SecretString) -> Self {
        self.key = Some((header, key));
        self.secrets.push(key.expose_secret());
        self
    }

    /// Further secrets that errors must not contain.
    pub(crate) fn with_secrets(mut self, secrets: impl IntoIterator<Item = &'a str>) -> Self {
        self.secrets.extend(secrets);
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: &str) -> Self {
        self.query.push((name, value.to_owned()));
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
        self.content_type = MULTIPART_CONTENT_TYPE;
        self
    }

    /// Limits the bytes read of the response.
    pub(crate) fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = Some(bytes);
        self
    }

    /// Marks this POST as safe to repeat.
    pub(crate) fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// The error of a response without success.
    pub(crate) fn rejection(&self, reply: &AgentResponse) -> AgentError {
        refused(reply.status, &reply.body, &self.secrets)
    }

    /// Checks the status of a response whose body carries no information.
    pub(crate) fn check(&self, reply: &AgentResponse) -> Result<(), AgentError> {
        if reply.is_success() {
            Ok(())
        } else {
            Err(self.rejection(reply))
        }
    }

    /// Parses the response.
    pub(crate) fn document(&self, reply: &AgentResponse) -> Result<Value, AgentError> {
        self.check(reply)?;
        // The error omits the parser's message, which could quote the document.
        serde_json::from_slice(&reply.body).map_err(|_| malformed("the response is not valid JSON"))
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, CallError> {
        let invalid = CallError::InvalidRequest;
        let mut url = self.at.url.clone();
        url.path_segments_mut()
            .map_err(|()| invalid("the agent server's URL cannot have a path"))?
            .pop_if_empty()
            .extend(&self.segments);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        let invalid_url = || invalid("the agent server's URL is not a valid http URL");
        if url.scheme() != "http" {
            return Err(invalid_url());
        }
        // The user part of the URI tells the connector the sandbox. It is not sent.
        let server = &url[Position::BeforeHost..Position::AfterPort];
        let path = &url[Position::BeforePath..Position::AfterQuery];
        let uri = format!("http://{}@{server}{path}", self.at.sandbox);
        let body = self.body.clone().unwrap_or_default();
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.parse::<Uri>().map_err(|_| invalid_url())?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if self.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        if let Some((header, key)) = self.key {
            let mut key = HeaderValue::from_str(key.expose_secret())
                .map_err(|_| invalid("the key contains a character that a header cannot carry"))?;
            key.set_sensitive(true);
            headers.insert(header, key);
        }
        Ok(request)
    }
}

/// The connection pool.
#[derive(Clone)]
pub(crate) struct Transport {
    client: Client<Connector, Full<Bytes>>,
    max_body_bytes: usize,
    trace: Option<TraceHeaderSource>,
}

impl Transport {
    /// Follows no redirects: a sandbox must not direct requests to other hosts.
    pub(crate) fn new(config: &Config, guard: Arc<dyn EndpointGuard>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEP_ALIVE_IDLE_TIMEOUT));
        let connector = Connector::new(tcp, config.connect, guard);
        let client = Client::builder(TokioExecutor::new())
            // Shorter than the 5 s after which agent servers close idle connections (uvicorn's keep-alive).
            .pool_idle_timeout(Duration::from_secs(4))
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(8)
            .build(connector);
        Self {
            client,
            max_body_bytes: config.max_body_bytes,
            trace: config.trace,
        }
    }

    /// Sends the request and reads the response within the call's deadline. Repeats an idempotent request once if the
    /// connection broke: the agent server closes connections after a 500, and a pooled connection may have died
    /// unnoticed.
    pub(crate) async fn exchange(&self, call: &AgentCall<'_>) -> Result<AgentResponse, CallError> {
        let attempts = async {
            match self.attempt(call).await {
                Err(CallError::Broken(_)) if call.is_idempotent => self.attempt(call).await,
                other => other,
            }
        };
        tokio::time::timeout(call.timeout, attempts)
            .await
            .unwrap_or(Err(CallError::TimedOut(call.timeout)))
    }

    async fn attempt(&self, call: &AgentCall<'_>) -> Result<AgentResponse, CallError> {
        let mut request = call.request()?;
        for (name, value) in self.trace.map(|headers| headers()).unwrap_or_default() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                request.headers_mut().insert(name, value);
            }
        }
        let response = self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                CallError::NoConnection(error.into())
            } else {
                CallError::Broken(error.into())
            }
        })?;
        let status = response.status().as_u16();
        let max = call.max_response_bytes.unwrap_or(self.max_body_bytes);
        let body = read_body(response.into_body(), max).await;
        let body = body.map_err(|error| match error {
            BodyError::TooLarge(max) => CallError::TooLarge(max),
            BodyError::Broken(error) => CallError::Broken(error),
        })?;
        // A sandbox is not trusted, and almost every response is parsed as JSON.
        let (min_memory, max_memory) = JSON_MEMORY_BYTES_RANGE;
        let max_memory = max
            .saturating_mul(JSON_MEMORY_FACTOR)
            .clamp(min_memory, max_memory);
        if estimate_memory_bytes(&body) > max_memory {
            return Err(CallError::TooLarge(max_memory));
        }
        Ok(AgentResponse { status, body })
    }
}
