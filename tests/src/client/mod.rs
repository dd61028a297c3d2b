//! A client of the service, one per user: what users do goes over the typed client (crate `client`), and everything else,
//! also what no client should send, in raw requests.

mod model;
mod record;
mod stories;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::client::ClientTimeouts;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;

use crate::proxy::relay::way_to;
use crate::proxy::wire::Authority;

pub use model::{Conversation, Sandbox, Task};
pub use record::{Answer, Record};
pub use stories::text;

/// No call of a suite takes longer, unless it waits for something to happen.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Calls the service with one key.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    /// What is asked for in its place.
    way: String,
    key: String,
    /// Keeps every answer.
    record: Option<Record>,
    deadline: Duration,
    /// Made when it is wanted first: some keys of tests are none that a client takes.
    typed: Arc<OnceLock<::client::Client>>,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body as it came.
    pub text: String,
    /// The body as JSON; `null` if it is none.
    pub body: Value,
}

impl Reply {
    /// The body of a successful answer.
    ///
    /// # Panics
    /// When it is no success.
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

/// Why there is no answer of the service.
#[derive(Debug)]
pub enum Unanswered {
    /// There is none at all.
    Cut(reqwest::Error),
    /// The proxy in front got none, and says so with this status.
    Proxy(u16),
}

impl Unanswered {
    /// Whether nobody listens, so that nothing was sent. A proxy does not tell that apart.
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

/// Whether a proxy says this because the service did not answer: the service's own errors are JSON.
#[must_use]
pub fn is_of_a_proxy(status: u16, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    matches!(status, 502..=504) && kind.is_some_and(|it| it.starts_with("text/html"))
}

/// An HTTP client with deadlines that never goes through a proxy.
pub(crate) fn http() -> reqwest::Client {
    with_deadline("", REQUEST_TIMEOUT).0
}

fn with_deadline(url: &str, deadline: Duration) -> (reqwest::Client, String) {
    let (client, way) = way_to(url);
    let client = client.timeout(deadline).build();
    (client.expect("a client without TLS can be built"), way)
}

impl Client {
    /// Calls `url` with this key.
    #[must_use]
    pub fn new(url: String, key: &str) -> Self {
        let (http, way) = with_deadline(&url, REQUEST_TIMEOUT);
        Self {
            http,
            url,
            way,
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
                Some(record) => client.observed(Arc::new(record::Recorder {
                    key: self.key.clone(),
                    record: record.clone(),
                })),
            }
        })
    }

    /// The key that is sent.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The same service with another key, e.g. that of a sandbox.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        let key = key.to_owned();
        Self {
            key,
            typed: Arc::default(),
            ..self.clone()
        }
    }

    /// The same, keeping every answer in `record`; so does what is made of it.
    #[must_use]
    pub fn recorded(&self, record: &Record) -> Self {
        Self {
            record: Some(record.clone()),
            typed: Arc::default(),
            ..self.clone()
        }
    }

    /// For calls that wait for something to happen, e.g. for a sandbox to come up.
    #[must_use]
    pub fn patient(&self) -> Self {
        let (http, _) = with_deadline(&self.url, stories::READY);
        Self {
            http,
            deadline: stories::READY,
            typed: Arc::default(),
            ..self.clone()
        }
    }

    /// One exchange. `path` begins with `/` and may have a query.
    ///
    /// # Panics
    /// When there is no answer at all; see [`Self::try_call`].
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Reply {
        let answer = self.try_call(method.clone(), path, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))
    }

    /// One exchange that may fail, e.g. because the service is being killed.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Unanswered> {
        self.try_repeatable(method, path, body, None).await
    }

    /// The same with an `Idempotency-Key`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn try_repeatable(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Reply, Unanswered> {
        let asked = format!("{method} {path}");
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.way))
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
        if is_of_a_proxy(status, &headers) {
            return Err(Unanswered::Proxy(status));
        }
        if let Some(record) = &self.record {
            record.keep(&self.key, asked, format!("{headers:?}\n{text}"));
        }
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Reply {
            status,
            headers,
            text,
            body,
        })
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, None).await
    }

    /// POST.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call(Method::POST, path, Some(body)).await
    }

    /// PATCH.
    pub async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.call(Method::PATCH, path, Some(body)).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> Reply {
        self.call(Method::DELETE, path, None).await
    }

    /// All items of a paged list, page by page.
    ///
    /// # Panics
    /// When a page is refused, or pages never end.
    pub async fn all(&self, path: &str) -> Vec<Value> {
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
