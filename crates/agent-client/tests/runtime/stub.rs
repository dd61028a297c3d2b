//! An agent server of a few lines: answers one request per connection, from a list, and remembers what it was asked.
//! What is only tried (MCP servers and plugins, in any order) has answers of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

/// What to do with the next request.
pub(crate) enum Act {
    /// Answer with this status and document.
    Json(u16, Value),
    /// Answer with these bytes.
    Raw(Vec<u8>),
    /// Read the request and close the connection.
    Drop,
    /// Read the request and never answer.
    Hang,
}

#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Method and path with query.
    pub(crate) line: String,
    pub(crate) key: Option<String>,
    /// What a dormant one knows us by.
    pub(crate) wake_key: Option<String>,
    pub(crate) body: Value,
    /// The body as it came.
    pub(crate) text: String,
}

/// How a trial goes.
pub(crate) type Trial = fn(&Seen) -> Act;

struct State {
    acts: VecDeque<Act>,
    seen: Vec<Seen>,
    trial: Trial,
    tried: Vec<Seen>,
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
    /// With this list, and everything that is tried works.
    pub(crate) async fn start(acts: impl IntoIterator<Item = Act>) -> Self {
        Self::with_trials(acts, |_| Act::Json(200, json!({"ok": true, "name": "p"}))).await
    }

    pub(crate) async fn with_trials(acts: impl IntoIterator<Item = Act>, trial: Trial) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let state = Arc::new(Mutex::new(State {
            acts: acts.into_iter().collect(),
            seen: vec![],
            trial,
            tried: vec![],
        }));
        let serving = serve(listener, Arc::clone(&state));
        #[expect(
            clippy::disallowed_methods,
            reason = "test equipment; the stub owns the task"
        )]
        let task = tokio::spawn(serving);
        Self { url, state, task }
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.lock().unwrap().seen.clone()
    }

    /// What was tried so far.
    pub(crate) fn tried(&self) -> Vec<Seen> {
        self.state.lock().unwrap().tried.clone()
    }

    /// Their first lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut open = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        open.spawn(answer(stream, Arc::clone(&state)));
    }
}

async fn answer(stream: TcpStream, state: Arc<Mutex<State>>) {
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
    let act = {
        let mut state = state.lock().unwrap();
        let seen = Seen {
            line,
            key,
            wake_key,
            body,
            text,
        };
        if seen.line.contains("/api/mcp/test") || seen.line.contains("/api/plugins") {
            let act = (state.trial)(&seen);
            state.tried.push(seen);
            Some(act)
        } else {
            state.seen.push(seen);
            state.acts.pop_front()
        }
    };
    match act {
        Some(Act::Json(status, document)) => {
            let body = document.to_string();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
            let whole = format!("{head}connection: close\r\n\r\n{body}");
            let _ = writer.write_all(whole.as_bytes()).await;
        }
        Some(Act::Raw(bytes)) => {
            let _ = writer.write_all(&bytes).await;
        }
        Some(Act::Drop) | None => {}
        Some(Act::Hang) => std::future::pending().await,
    }
}
