//! Replays the recorded exchanges of a session one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use acceptance::proxy::relay::client_builder_for;
use acceptance::{Service, Stub};
use reqwest::Method;
use serde_json::{Value, json};

use crate::compare::{ReplayedResponse, difference, mentions};
use crate::differences::{MEMBER_DIFFERENCES, NOT_REPLAYED};
use crate::exchange::RecordedExchange;

const STARTS: &str = "/api/v1/app-conversations";
const RESUME: &str = "/api/v1/sandboxes/{sandbox}/resume";
/// Longest time from a resume to RUNNING.
const RESUME_TIMEOUT: Duration = Duration::from_secs(150);

/// The difference of each recorded exchange of a session.
///
/// `seen` collects the added members that responses contained.
pub(crate) async fn session(
    exchanges: &[RecordedExchange],
    name: &str,
    seen: &mut BTreeSet<&'static str>,
) -> BTreeMap<String, Option<String>> {
    let stub = Stub::new();
    let mut builder = Service::builder().stub(&stub);
    // The origins that the reference allowed in this session.
    let origins = match name {
        "auth" => "https://ok.example",
        "keyed" | "legacy" => "http://localhost:*",
        _ => "",
    };
    if !origins.is_empty() {
        builder = builder.env("WORKSPACE_HTTP__CORS_ORIGINS", origins);
    }
    let mut session = ReplaySession::new(builder.start().await, name);
    session.prepare().await;
    let mut found = BTreeMap::new();
    for exchange in exchanges.iter().filter(|exchange| exchange.session == name) {
        let is_left_out = NOT_REPLAYED
            .iter()
            .any(|(_, names)| names.contains(&exchange.name.as_str()));
        if !is_left_out {
            let answer = session.send(exchange).await;
            let body = serde_json::from_str(&answer.text).unwrap_or_default();
            let ours = MEMBER_DIFFERENCES.iter().filter(|member| member.is_ours);
            seen.extend(ours.map(|m| m.name).filter(|name| mentions(&body, name)));
            found.insert(exchange.name.clone(), difference(exchange, &answer));
        }
    }
    found
}

struct ReplaySession {
    service: Service,
    http: reqwest::Client,
    /// Whether the reference accepted requests without a key.
    is_open: bool,
    has_model: bool,
    needs_settings: bool,
    /// Values of placeholders such as `{key}` in the fixtures.
    names: BTreeMap<&'static str, String>,
}

impl ReplaySession {
    fn new(service: Service, name: &str) -> Self {
        let key = service.admin().key().to_owned();
        let mut names = BTreeMap::from([("{KEY}", key.to_uppercase())]);
        names.insert("{key}", key);
        Self {
            http: client_builder_for(&service.url())
                .0
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .expect("a client without TLS can be built"),
            service,
            is_open: name != "auth" && name != "keyed",
            has_model: name == "work",
            needs_settings: name == "settings",
            names,
        }
    }

    /// Creates the state before the first exchange of a session.
    async fn prepare(&self) {
        let user = self.service.admin();
        if self.needs_settings {
            let _ = user.post("/api/v1/settings", &json!({})).await.ok();
        }
        if self.has_model {
            let llm = json!({"model": "anthropic/claude-sonnet-4-5", "api_key": "sk-test-123"});
            let settings = json!({"agent_settings_diff": {"llm": llm}});
            let _ = user.post("/api/v1/settings", &settings).await.ok();
        }
    }

    fn fill(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| {
                text.replace(name, value)
            })
    }

    /// Replaces values by names.
    fn unfill(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| {
                text.replace(value, name)
            })
    }

    /// # Panics
    /// When one of the requests is refused.
    async fn send_preceding(&self, exchange: &RecordedExchange) {
        for request in &exchange.before {
            let method: Method = request.method.parse().expect("a method");
            let path = self.fill(&request.path);
            let user = self.service.admin();
            let _ = user.call(method, &path, request.json.as_ref()).await.ok();
        }
    }

    async fn send(&mut self, exchange: &RecordedExchange) -> ReplayedResponse {
        self.send_preceding(exchange).await;
        let method: Method = exchange.method.parse().expect("a method");
        let (_, base_url) = client_builder_for(&self.service.url());
        let url = format!("{base_url}{}", self.fill(&exchange.path));
        let mut request = self.http.request(method, url);
        for (name, value) in &exchange.headers {
            request = request.header(name, self.fill(value));
        }
        let is_webhook = exchange.path.starts_with("/api/v1/webhooks/");
        let mut names = exchange.headers.keys();
        let has_key = names.any(|name| name.eq_ignore_ascii_case("x-session-api-key"));
        let asks_for_secrets =
            exchange.path.contains("expose_secrets") || exchange.path.contains("/settings/secrets");
        if self.is_open && !is_webhook && !asks_for_secrets && !has_key {
            request = request.header("X-Session-API-Key", &self.names["{key}"]);
        }
        if let Some(body) = exchange.body(|text| self.fill(text)) {
            request = request.body(body);
        }
        let answer = request.send().await.expect("the service answers");
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        let text = answer.text().await.expect("the answer can be read");
        self.follow(exchange, status, &text).await;
        let header =
            |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.to_string(), value.replace(&self.service.url(), ""))
            };
        ReplayedResponse {
            status,
            headers: headers.iter().map(header).collect(),
            text: self.unfill(&text),
        }
    }

    /// Waits until a start has ended, or a resumed sandbox runs. The first start sets the names that later exchanges use.
    async fn follow(&mut self, exchange: &RecordedExchange, status: u16, text: &str) {
        if exchange.path == RESUME && status == 200 {
            let (user, sandbox) = (self.service.admin(), &self.names["{sandbox}"]);
            user.wait_for_sandbox_status(sandbox, "RUNNING", RESUME_TIMEOUT)
                .await;
            return;
        }
        if exchange.method != "POST" || exchange.path != STARTS || status != 200 {
            return;
        }
        let task: Value = serde_json::from_str(text).unwrap_or_default();
        let Some(id) = task["id"].as_str() else {
            return;
        };
        let user = self.service.admin();
        let task = user.task(id).await;
        let ended = user.wait_for_end(&task).await;
        if !self.has_model || self.names.contains_key("{conversation}") {
            return;
        }
        let conversation = ended.app_conversation_id.expect("the first start succeeds");
        let sandbox = ended.sandbox_id.expect("in a sandbox");
        let running = user
            .sandbox(&sandbox)
            .await
            .and_then(|sandbox| sandbox.session_api_key);
        let dashed = uuid::Uuid::parse_str(&conversation)
            .expect("an id")
            .to_string();
        self.names.insert("{conversation-dashed}", dashed);
        self.names.insert("{conversation}", conversation);
        self.names.insert("{sandbox}", sandbox);
        self.names.insert(
            "{sandbox-key}",
            running.expect("a running sandbox has a key"),
        );
        self.names.insert("{task}", id.to_owned());
    }
}
