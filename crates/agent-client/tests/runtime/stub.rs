//! A small agent server. It serves one request per connection with the next action of a list, and records the requests. Tests
//! of MCP servers and plugins come in any order, so a function responds to them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

/// The reaction to the next request.
pub(crate) enum StubAction {
    /// Respond with this status and document.
    Json(u16, Value),
    /// Respond with these bytes.
    Raw(Vec<u8>),
    /// Read the request and close the connection.
    Drop,
    /// Read the request and never respond.
    Hang,
}

#[derive(Debug, Clone)]
pub(crate) struct SeenRequest {
    /// Method and path with query.
    pub(crate) line: String,
    pub(crate) key: Option<String>,
    /// The header `x-init-api-key`.
    pub(crate) wake_key: Option<String>,
    pub(crate) body: Value,
    /// The body as text.
    pub(crate) text: String,
}

/// Responds to tests of MCP servers and plugins.
pub(crate) type TestHandler = fn(&SeenRequest) -> StubAction;

struct State {
    actions: VecDeque<StubAction>,
    seen: Vec<SeenRequest>,
    test_handler: TestHandler,
    seen_tests: Vec<SeenRequest>,
}

pub(crate) struct Stub {
    pub(crate) url: Url,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    /// With this list of actions. All tests of MCP servers and plugins succeed.
    pub(crate) async fn start(actions: impl IntoIterator<Item = StubAction>) -> Self {
        Self::with_test_handler(actions, |_| {
            StubAction::Json(200, json!({"ok": true, "name": "p"}))
        })
        .await
    }

    pub(crate) async fn with_test_handler(
        actions: impl IntoIterator<Item = StubAction>,
        test_handler: TestHandler,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let state = Arc::new(Mutex::new(State {
            actions: actions.into_iter().collect(),
            seen: vec![],
            test_handler,
            seen_tests: vec![],
        }));
        let serving = serve(listener, Arc::clone(&state));
        #[expect(
            clippy::disallowed_methods,
            reason = "test equipment; the stub owns the task"
        )]
        let task = tokio::spawn(serving);
        Self { url, state, task }
    }

    /// The requests so far, without the tests.
    pub(crate) fn requests(&self) -> Vec<SeenRequest> {
        self.state.lock().unwrap().seen.clone()
    }

    /// The tests of MCP servers and plugins so far.
    pub(crate) fn test_requests(&self) -> Vec<SeenRequest> {
        self.state.lock().unwrap().seen_tests.clone()
    }

    /// The first lines of the requests.
    pub(crate) fn request_lines(&self) -> Vec<String> {
        self.requests().into_iter().map(|seen| seen.line).collect()
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut open = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        open.spawn(serve_connection(stream, Arc::clone(&state)));
    }
}

async fn serve_connection(stream: TcpStream, state: Arc<Mutex<State>>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut first = String::new();
    reader.read_line(&mut first).await.unwrap();
    let (mut length, mut key, mut wake_key) = (0, None, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        match line.trim_end().split_once(": ") {
            Some(("content-length", n)) => length = n.parse().unwrap(),
            Some(("x-session-api-key", k)) => key = Some(k.to_owned()),
            Some(("x-init-api-key", k)) => wake_key = Some(k.to_owned()),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    let line = first.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let text = String::from_utf8_lossy(&body).into_owned();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let action = {
        let mut state = state.lock().unwrap();
        let seen = SeenRequest {
            line,
            key,
            wake_key,
            body,
            text,
        };
        if seen.line.contains("/api/mcp/test") || seen.line.contains("/api/plugins") {
            let action = (state.test_handler)(&seen);
            state.seen_tests.push(seen);
            Some(action)
        } else {
            state.seen.push(seen);
            state.actions.pop_front()
        }
    };
    match action {
        Some(StubAction::Json(status, document)) => {
            let body = document.to_string();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
            let whole = format!("{head}connection: close\r\n\r\n{body}");
            let _ = writer.write_all(whole.as_bytes()).await;
        }
        Some(StubAction::Raw(bytes)) => {
            let _ = writer.write_all(&bytes).await;
        }
        Some(StubAction::Drop) | None => {}
        Some(StubAction::Hang) => std::future::pending().await,
    }
}
