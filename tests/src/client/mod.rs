//! A client of the service for one user. Usual actions use the typed client (crate `client`); other requests, also invalid ones,
//! are raw.

mod actions;
mod model;
mod record;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::client::ClientTimeouts;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;

use crate::proxy::authority::Authority;
use crate::proxy::relay::client_builder_for;

pub use actions::text;
pub use model::{Conversation, Sandbox, Task};
pub use record::{Record, RecordedResponse};

/// Calls that wait for a state use [`Client::with_long_timeout`].
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Calls the service with one key.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    /// Requested in place of `url`.
    base_url: String,
    key: String,
    /// Records every response.
    record: Option<Record>,
    deadline: Duration,
    /// Created at the first use, because the typed client refuses some keys of tests.
    typed: Arc<OnceLock<::client::Client>>,
}

/// A complete response.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
    /// The body as JSON; `null` if it is not JSON.
    pub body: Value,
}

impl Reply {
    /// The body of a successful response.
    ///
    /// # Panics
    /// When the status is not 2xx.
    #[must_use]
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!(
            (200..300).contains(&self.status),
            "{}: {}",
            self.status,
            self.text
        );
        self.body
    }
}

/// The service did not respond.
#[derive(Debug)]
pub enum Unanswered {
    /// The connection failed.
    Cut(reqwest::Error),
    /// The proxy in front got no response, and sent this status.
    Proxy(u16),
}

impl Unanswered {
    /// Whether the connection was refused, so that nothing was sent. Behind a proxy this is unknown.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Cut(error) if error.is_connect())
    }
}

impl From<reqwest::Error> for Unanswered {
    fn from(error: reqwest::Error) -> Self {
        Self::Cut(error)
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut(error) => error.fmt(f),
            Self::Proxy(status) => write!(f, "the proxy got no answer ({status})"),
        }
    }
}

impl std::error::Error for Unanswered {}

/// Whether a response is a proxy's error page: the service's own errors are JSON.
#[must_use]
pub fn is_proxy_error(status: u16, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    matches!(status, 502..=504) && kind.is_some_and(|it| it.starts_with("text/html"))
}

/// An HTTP client with a timeout that uses no proxy of the environment.
pub(crate) fn http() -> reqwest::Client {
    http_client("", REQUEST_TIMEOUT).0
}

fn http_client(url: &str, deadline: Duration) -> (reqwest::Client, String) {
    let (client, base_url) = client_builder_for(url);
    let client = client.timeout(deadline).build();
    (client.expect("cannot build an HTTP client"), base_url)
}

impl Client {
    /// A client of the service at `url` with this key.
    #[must_use]
    pub fn new(url: String, key: &str) -> Self {
        let (http, base_url) = http_client(&url, REQUEST_TIMEOUT);
        Self {
            http,
            url,
            base_url,
            key: key.to_owned(),
            record: None,
            deadline: REQUEST_TIMEOUT,
            typed: Arc::default(),
        }
    }

    /// The typed client of the same service, with the same key, deadline and record.
    pub(crate) fn api(&self) -> &::client::Client {
        self.typed.get_or_init(|| {
            let limits = ClientTimeouts {
                request: self.deadline,
                ..ClientTimeouts::default()
            };
            let key = Some(self.key.clone().into());
            let authority = &Authority::of_this_process().certificate;
            let client = ::client::Client::trusting(authority, &self.url, key, limits)
                .unwrap_or_else(|error| panic!("{}: {error}", self.url));
            match &self.record {
                None => client,
                Some(record) => client.observed(Arc::new(record::ResponseRecorder {
                    key: self.key.clone(),
                    record: record.clone(),
                })),
            }
        })
    }

    /// The API key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A client of the same service with another key, for example that of a sandbox.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        let key = key.to_owned();
        Self {
            key,
            typed: Arc::default(),
            ..self.clone()
        }
    }

    /// A client that adds every response to `record`, like all clients derived from it.
    #[must_use]
    pub fn with_record(&self, record: &Record) -> Self {
        Self {
            record: Some(record.clone()),
            typed: Arc::default(),
            ..self.clone()
        }
    }

    /// A client for calls that wait for a state, for example for a sandbox to start.
    #[must_use]
    pub fn with_long_timeout(&self) -> Self {
        let (http, _) = http_client(&self.url, actions::START_TIMEOUT);
        Self {
            http,
            deadline: actions::START_TIMEOUT,
            typed: Arc::default(),
            ..self.clone()
        }
    }

    /// Sends a request. `path` begins with `/` and may have a query.
    ///
    /// # Panics
    /// When there is no response; see [`Self::try_call`].
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Reply {
        let answer = self.try_call(method.clone(), path, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))
    }

    /// Sends a request that may fail, for example because the service is being killed.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Unanswered> {
        self.try_repeatable(method, path, body, None).await
    }

    /// Sends a request with an `Idempotency-Key`.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn try_repeatable(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Reply, Unanswered> {
        let request_line = format!("{method} {path}");
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base_url))
            .header("X-Session-API-Key", &self.key);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await?;
        if is_proxy_error(status, &headers) {
            return Err(Unanswered::Proxy(status));
        }
        if let Some(record) = &self.record {
            record.add(&self.key, request_line, format!("{headers:?}\n{text}"));
        }
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Reply {
            status,
            headers,
            text,
            body,
        })
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, None).await
    }

    /// Sends a POST request.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Sends a PATCH request.
    pub async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.call(Method::PATCH, path, Some(body)).await
    }

    /// Sends a DELETE request.
    pub async fn delete(&self, path: &str) -> Reply {
        self.call(Method::DELETE, path, None).await
    }

    /// All items of a paged list.
    ///
    /// # Panics
    /// When a page is refused, or pages never end.
    pub async fn get_all_pages(&self, path: &str) -> Vec<Value> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut items = Vec::new();
        let mut next = String::new();
        for _ in 0..1000 {
            let page = self
                .get(&format!("{path}{separator}limit=100{next}"))
                .await
                .ok();
            items.extend(page["items"].as_array().cloned().unwrap_or_default());
            match page["next_page_id"].as_str() {
                Some(id) => next = format!("&page_id={id}"),
                None => return items,
            }
        }
        panic!("{path} has no last page");
    }
}
