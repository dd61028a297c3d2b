//! The server and its counters. Everything ends when the handle is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::mode::{Mode, ModelBehavior};
use super::script::{ModelTurn, decide};
use super::{gemini, wire};

/// Requests kept for inspection; older ones are dropped.
const MAX_KEPT_REQUESTS: usize = 64;

/// A received chat-completions request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The API key: a bearer token, or `x-goog-api-key`.
    pub api_key: Option<String>,
    /// The request document.
    pub body: Value,
    /// The response: a tool name, `text`, `refuse`, `fail` or `hang`.
    pub answer: String,
}

#[derive(Default)]
struct LlmState {
    response_number: AtomicU64,
    abandoned: AtomicU64,
    answers: Mutex<BTreeMap<String, u64>>,
    records: Mutex<VecDeque<RecordedRequest>>,
}

/// A running scripted model on a free port. Dropping it closes every connection.
pub struct ScriptedLlm {
    authority: String,
    state: Arc<LlmState>,
    calls: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Drop for ScriptedLlm {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ScriptedLlm {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> io::Result<Self> {
        Self::start_on(0).await
    }

    /// Listens on this loopback port, or on a free one for 0.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start_on(port: u16) -> io::Result<Self> {
        Self::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), "127.0.0.1").await
    }

    /// Listens on a free port of this address, for clients that reach it by the name `host`.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start_at(address: Ipv4Addr, host: &str) -> io::Result<Self> {
        Self::listen(SocketAddr::from((address, 0)), host).await
    }

    async fn listen(address: SocketAddr, host: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(LlmState::default());
        let (count, calls) = watch::channel(0);
        let serving = serve(listener, Arc::clone(&state), count);
        #[expect(clippy::disallowed_methods, reason = "the handle owns the task")]
        let task = tokio::spawn(serving);
        Ok(Self {
            authority: format!("{host}:{}", address.port()),
            state,
            calls,
            task,
        })
    }

    /// The LLM's `base_url`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.authority)
    }

    /// A `base_url` that selects a mode whatever the model's name is, for example `slow-2000`.
    #[must_use]
    pub fn base_url_in(&self, mode: &str) -> String {
        format!("http://{}/{mode}/v1", self.authority)
    }

    /// Chat-completions requests received so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        *self.calls.borrow()
    }

    /// Requests whose client disconnected before the response, for example of an interrupted run.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.state.abandoned.load(Ordering::SeqCst)
    }

    /// The latest requests, oldest first (at most 64).
    #[must_use]
    pub fn records(&self) -> Vec<RecordedRequest> {
        let records = self
            .state
            .records
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        records.iter().cloned().collect()
    }

    /// Waits until at least `n` requests have arrived.
    ///
    /// # Errors
    /// When they have not within `limit`.
    pub async fn wait_for_calls(&self, n: u64, limit: Duration) -> Result<(), String> {
        let mut calls = self.calls.clone();
        match tokio::time::timeout(limit, calls.wait_for(|seen| *seen >= n)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(format!(
                "{} of {n} model calls within {limit:?}",
                self.calls()
            )),
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<LlmState>, count: watch::Sender<u64>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve_connection(stream, Arc::clone(&state), count.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(stream: TcpStream, state: Arc<LlmState>, count: watch::Sender<u64>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let Some(request) = wire::read_request(&mut reader).await else {
        return;
    };
    let answer = async {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/calls") => wire::json_response("200 OK", &state.summary(*count.borrow())),
            ("POST", path) if is_chat(path) || gemini::call_of(path).is_some() => {
                complete(&request, &state, &count).await
            }
            _ => wire::error_response("404 Not Found", "not_found", "no such path"),
        }
    };
    // A client that disconnects before the response has abandoned its request.
    let mut probe = [0_u8; 1];
    tokio::select! {
        bytes = answer => {
            // The client may have disconnected.
            if writer.write_all(&bytes).await.is_ok() {
                let _ = writer.shutdown().await;
            }
        }
        _ = reader.read(&mut probe) => { state.abandoned.fetch_add(1, Ordering::SeqCst); }
    }
}

fn is_chat(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    path.ends_with("/chat/completions")
}

async fn complete(
    request: &wire::LlmRequest,
    state: &LlmState,
    count: &watch::Sender<u64>,
) -> Vec<u8> {
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return wire::error_response("400 Bad Request", "invalid_request_error", "not JSON");
    };
    let gemini = gemini::call_of(&request.path);
    let body = match gemini {
        Some((model, _)) => gemini::chat_request(&body, model),
        None => body,
    };
    let model = body["model"].as_str().unwrap_or("scripted").to_owned();
    let mode = Mode::of(&request.path, &model);
    let response_number = state.response_number.fetch_add(1, Ordering::SeqCst) + 1;
    let turn = decide(&body, mode);
    let is_streamed = body["stream"] == true;
    state.record(request.api_key.clone(), body, answer_label(mode, &turn));
    count.send_modify(|seen| *seen += 1);
    if mode.behavior == ModelBehavior::Hang {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(mode.delay).await;
    match (mode.behavior, gemini) {
        (ModelBehavior::Refuse, _) => {
            let text = "Incorrect API key provided.";
            wire::error_response("401 Unauthorized", "invalid_api_key", text)
        }
        (ModelBehavior::Fail, _) => {
            let text = "The scripted model fails.";
            wire::error_response("500 Internal Server Error", "server_error", text)
        }
        (_, Some((_, is_streamed))) => gemini::answer(&turn, &model, is_streamed),
        _ if is_streamed => wire::completion_stream(&turn, &model, response_number),
        _ => wire::completion(&turn, &model, response_number),
    }
}

fn answer_label(mode: Mode, turn: &ModelTurn) -> String {
    let label = match mode.behavior {
        ModelBehavior::Refuse => "refuse",
        ModelBehavior::Fail => "fail",
        ModelBehavior::Hang => "hang",
        ModelBehavior::FollowScript | ModelBehavior::TextOnly => turn.kind(),
    };
    label.to_owned()
}

impl LlmState {
    fn record(&self, api_key: Option<String>, body: Value, answer: String) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry(answer.clone()).or_default() += 1;
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() == MAX_KEPT_REQUESTS {
            records.pop_front();
        }
        records.push_back(RecordedRequest {
            api_key,
            body,
            answer,
        });
    }

    fn summary(&self, calls: u64) -> Value {
        let answers = self
            .answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let abandoned = self.abandoned.load(Ordering::SeqCst);
        json!({"calls": calls, "abandoned": abandoned, "answers": answers})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_until;

    fn request(model: &str, stream: bool) -> Value {
        let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        let terminal = json!({"name": "terminal", "parameters": parameters});
        json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "RUN: ls"}],
               "tools": [{"type": "function", "function": terminal}]})
    }

    async fn ask(base_url: &str, body: &Value) -> reqwest::Response {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("{base_url}/chat/completions");
        client
            .post(url)
            .bearer_auth("sk-1")
            .json(body)
            .send()
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn requests_are_answered_plain_and_streamed_and_recorded() {
        let llm = ScriptedLlm::start().await.unwrap();
        let plain: Value = ask(&llm.base_url(), &request("m", false))
            .await
            .json()
            .await
            .unwrap();
        let call = &plain["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(
            (&call["name"], &call["arguments"]),
            (&json!("terminal"), &json!(r#"{"command":"ls"}"#))
        );

        let streamed = ask(&llm.base_url(), &request("m", true))
            .await
            .text()
            .await
            .unwrap();
        let mut events = streamed.split("\n\n").filter(|event| !event.is_empty());
        let first = events.next().unwrap().strip_prefix("data: ").unwrap();
        let first: Value = serde_json::from_str(first).unwrap();
        let delta = &first["choices"][0]["delta"]["tool_calls"][0];
        assert_eq!(
            (&delta["index"], &delta["function"]["name"]),
            (&json!(0), &json!("terminal"))
        );
        assert_eq!(events.last(), Some("data: [DONE]"));

        assert_eq!(llm.calls(), 2);
        let records = llm.records();
        assert_eq!(
            (records[1].api_key.as_deref(), records[1].answer.as_str()),
            (Some("sk-1"), "terminal")
        );
        assert_eq!(records[1].body["model"], "m");
    }

    #[tokio::test]
    async fn faults_are_chosen_by_model_or_path() {
        let llm = ScriptedLlm::start().await.unwrap();
        assert_eq!(
            ask(&llm.base_url(), &request("refuse", true))
                .await
                .status(),
            401
        );
        assert_eq!(
            ask(&llm.base_url_in("fail"), &request("m", false))
                .await
                .status(),
            500
        );
    }

    #[tokio::test]
    async fn disconnected_client_is_counted_as_abandoned() {
        let llm = ScriptedLlm::start().await.unwrap();
        let (url, hung) = (llm.base_url(), request("hang", false));
        tokio::select! {
            _ = ask(&url, &hung) => panic!("a model that hangs responded"),
            called = llm.wait_for_calls(1, Duration::from_secs(10)) => called.unwrap(),
        }
        let limit = Duration::from_secs(10);
        wait_until("the abandoned request", limit, || llm.abandoned() == 1).await;
    }
}
