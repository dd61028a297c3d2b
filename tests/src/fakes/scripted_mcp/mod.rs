//! An MCP server with one tool, `lookup`, whose result names the word and the transport: streamable HTTP at `/mcp`, server-sent
//! events at `/sse`, or standard streams as a program for sandboxes.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// It needs only Python.
const STDIO_PROGRAM: &str = include_str!("stdio.py");

/// Program and arguments of the server over standard streams.
#[must_use]
pub fn stdio() -> (&'static str, [&'static str; 2]) {
    ("python3", ["-c", STDIO_PROGRAM])
}

/// A call of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// `/mcp` or `/sse`.
    pub over: &'static str,
    /// The argument.
    pub word: String,
    /// The bearer token of the request.
    pub key: Option<String>,
}

#[derive(Default)]
struct McpState {
    calls: Mutex<Vec<ToolCall>>,
    /// The open streams of `/sse`, by session.
    streams: Mutex<BTreeMap<String, mpsc::UnboundedSender<Value>>>,
    next_session: AtomicU64,
}

/// A running server on a free port. Dropping it closes every connection.
pub struct ScriptedMcp {
    authority: String,
    state: Arc<McpState>,
    task: JoinHandle<()>,
}

impl Drop for ScriptedMcp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptedMcp {
    /// Listens on a free port of this address, for clients that reach it by the name `host`.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(address: Ipv4Addr, host: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((address, 0))).await?;
        let authority = format!("{host}:{}", listener.local_addr()?.port());
        let state = Arc::new(McpState::default());
        let serving = serve(listener, Arc::clone(&state));
        #[expect(clippy::disallowed_methods, reason = "the handle owns the task")]
        let task = tokio::spawn(serving);
        Ok(Self {
            authority,
            state,
            task,
        })
    }

    /// Its URL for streamable HTTP.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}/mcp", self.authority)
    }

    /// Its URL for server-sent events.
    #[must_use]
    pub fn sse_url(&self) -> String {
        format!("http://{}/sse", self.authority)
    }

    /// The calls of its tool so far.
    #[must_use]
    pub fn calls(&self) -> Vec<ToolCall> {
        lock(&self.state.calls).clone()
    }
}

async fn serve(listener: TcpListener, state: Arc<McpState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve_connection(stream, Arc::clone(&state)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

struct McpRequest {
    method: String,
    path: String,
    key: Option<String>,
    body: Value,
}

/// Reads the one request of a connection; `None` if it is incomplete.
async fn read_request(from: &mut (impl AsyncBufReadExt + Unpin)) -> Option<McpRequest> {
    let mut first = String::new();
    from.read_line(&mut first).await.ok()?;
    let mut parts = first.split_whitespace().map(str::to_owned);
    let (method, path) = (parts.next()?, parts.next()?);
    let (mut length, mut key) = (0_usize, None);
    loop {
        let mut line = String::new();
        from.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok().filter(|n| *n <= 1 << 20)?,
            "authorization" => key = value.trim().strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await.ok()?;
    Some(McpRequest {
        method,
        path,
        key,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

async fn serve_connection(stream: TcpStream, state: Arc<McpState>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let Some(request) = read_request(&mut reader).await else {
        return;
    };
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    match (request.method.as_str(), path) {
        ("GET", "/sse") => stream_events(&mut writer, &state).await,
        ("POST", "/messages") => {
            let reply = state.respond("/sse", &request);
            let session = query.trim_start_matches("session=");
            if let (Some(reply), Some(stream)) = (reply, lock(&state.streams).get(session)) {
                // The client may have disconnected.
                let _ = stream.send(reply);
            }
            write_response(&mut writer, "202 Accepted", None).await;
        }
        ("POST", "/mcp") => match state.respond("/mcp", &request) {
            Some(reply) => write_response(&mut writer, "200 OK", Some(&reply)).await,
            None => write_response(&mut writer, "202 Accepted", None).await,
        },
        ("DELETE", "/mcp") => write_response(&mut writer, "200 OK", None).await,
        (_, "/mcp") => write_response(&mut writer, "405 Method Not Allowed", None).await,
        _ => write_response(&mut writer, "404 Not Found", None).await,
    }
}

/// Ignores a client that has disconnected.
async fn write_response(to: &mut OwnedWriteHalf, status: &str, body: Option<&Value>) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = to.write_all((head + &body).as_bytes()).await;
}

async fn stream_events(to: &mut OwnedWriteHalf, state: &McpState) {
    let session = state
        .next_session
        .fetch_add(1, Ordering::SeqCst)
        .to_string();
    let (sender, mut replies) = mpsc::unbounded_channel();
    lock(&state.streams).insert(session.clone(), sender);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nevent: endpoint\r\ndata: /messages?session={session}\r\n\r\n"
    );
    let mut open = to.write_all(head.as_bytes()).await.is_ok();
    while open && let Some(reply) = replies.recv().await {
        let event = format!("event: message\r\ndata: {reply}\r\n\r\n");
        open = to.write_all(event.as_bytes()).await.is_ok();
    }
    lock(&state.streams).remove(&session);
}

impl McpState {
    /// The reply to a JSON-RPC request; `None` for a notification.
    fn respond(&self, over: &'static str, request: &McpRequest) -> Option<Value> {
        let id = request.body.get("id")?;
        let params = &request.body["params"];
        let result = match request.body["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted-mcp", "version": "1"},
            }),
            "tools/list" => json!({"tools": [{
                "name": "lookup",
                "description": "Looks a word up.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"word": {"type": "string"}},
                    "required": ["word"],
                },
            }]}),
            "tools/call" => {
                let word = params["arguments"]["word"].as_str().unwrap_or_default();
                lock(&self.calls).push(ToolCall {
                    over,
                    word: word.to_owned(),
                    key: request.key.clone(),
                });
                let text = format!("{word} found over {over}");
                json!({"content": [{"type": "text", "text": text}], "isError": false})
            }
            "ping" => json!({}),
            _ => {
                let error = json!({"code": -32601, "message": "Method not found"});
                return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }
}
