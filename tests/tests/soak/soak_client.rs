//! Requests to a service that is killed repeatedly.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use acceptance::Service;
use acceptance::client::is_proxy_error;
use acceptance::proxy::relay::client_builder_for;
use reqwest::Method;
use serde_json::{Value, json};

/// Longer than the service's own request deadline.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
/// Deadline for a killed service to answer again.
const RESTART_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SoakOutcome {
    /// A status and a document.
    Responded(u16, Value),
    /// No response: the request may have been executed.
    NoResponse(String),
}

impl fmt::Display for SoakOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Responded(status, body) => write!(f, "{status} {}", brief(body)),
            Self::NoResponse(how) => write!(f, "no response ({how})"),
        }
    }
}

/// The document without keys and addresses.
fn brief(body: &Value) -> String {
    let body = if body[0].is_object() { &body[0] } else { body };
    if body["id"].is_null() {
        return body.to_string();
    }
    format!(
        "{} {} {}",
        body["id"], body["status"], body["status_detail"]
    )
}

/// The client of all users. It sends its requests to each of the services in turn.
pub(crate) struct SoakClient {
    http: reqwest::Client,
    urls: Vec<String>,
    started_at: Instant,
    sent: Cell<u64>,
    cut: Cell<u64>,
    /// Responses with status 503.
    slow: Cell<u64>,
    /// Sandboxes that were RUNNING once.
    ran: Cell<u64>,
}

impl fmt::Display for SoakClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, cut, slow) = (self.sent.get(), self.cut.get(), self.slow.get());
        let ran = self.ran.get();
        write!(
            f,
            "{ran} of them seen RUNNING, {sent} requests ({cut} cut off, {slow} answered 503)"
        )
    }
}

impl SoakClient {
    pub(crate) fn new(services: &[Service]) -> Self {
        let (mut urls, mut builder) = (Vec::new(), None);
        for service in services {
            let (http, url) = client_builder_for(&service.url());
            urls.push(url);
            builder = Some(http);
        }
        let http = builder.expect("a service").timeout(WAIT_TIMEOUT);
        Self {
            http: http.build().expect("a client without TLS can be built"),
            urls,
            started_at: Instant::now(),
            sent: Cell::default(),
            cut: Cell::default(),
            slow: Cell::default(),
            ran: Cell::default(),
        }
    }

    /// Counts a running sandbox.
    pub(crate) fn count_running(&self) {
        self.ran.set(self.ran.get() + 1);
    }

    /// Time since the start of the test.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    fn next_url(&self) -> &str {
        let sent = usize::try_from(self.sent.get()).unwrap_or(0);
        &self.urls[sent % self.urls.len()]
    }

    /// Sends one request.
    pub(crate) async fn send(
        &self,
        key: &str,
        method: &Method,
        path: &str,
        repeatable: Option<&str>,
    ) -> SoakOutcome {
        let url = format!("{}{path}", self.next_url());
        self.sent.set(self.sent.get() + 1);
        let mut request = self.http.request(method.clone(), url);
        request = request.header("X-Session-API-Key", key);
        if let Some(repeatable) = repeatable {
            request = request.header("Idempotency-Key", repeatable);
        }
        if *method == Method::POST {
            request = request.json(&json!({}));
        }
        let answer = async {
            let answer = request.send().await?;
            let status = answer.status().as_u16();
            let is_answer = !is_proxy_error(status, answer.headers());
            let text = answer.text().await?;
            Ok::<_, reqwest::Error>(is_answer.then_some((status, text)))
        };
        match answer.await {
            Ok(None) => {
                self.cut.set(self.cut.get() + 1);
                SoakOutcome::NoResponse("the proxy got no response".to_owned())
            }
            Ok(Some((status, text))) => {
                if status == 503 {
                    self.slow.set(self.slow.get() + 1);
                }
                let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
                SoakOutcome::Responded(status, body)
            }
            Err(error) => {
                self.cut.set(self.cut.get() + 1);
                let error = error.without_url();
                let how = std::error::Error::source(&error)
                    .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
                SoakOutcome::NoResponse(how)
            }
        }
    }

    /// Reads a document, and repeats the request until there is a response.
    pub(crate) async fn read(&self, key: &str, path: &str) -> Result<Value, String> {
        for _ in 0..10 {
            match self.send(key, &Method::GET, path, None).await {
                SoakOutcome::Responded(200, body) => return Ok(body),
                SoakOutcome::NoResponse(_) => self.until_up().await?,
                other @ SoakOutcome::Responded(..) => return Err(format!("GET {path}: {other}")),
            }
        }
        Err(format!("GET {path} got no response in ten attempts"))
    }

    /// Waits until the service of the next request answers, as a proxy does.
    pub(crate) async fn until_up(&self) -> Result<(), String> {
        let waiting = Instant::now();
        let alive = format!("{}/alive", self.next_url());
        while waiting.elapsed() < RESTART_TIMEOUT {
            let alive = self.http.get(&alive).send().await;
            if alive.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err("the service did not answer after its restart".to_owned())
    }
}
