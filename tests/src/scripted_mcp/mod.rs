//! An MCP server with one tool, `lookup`, that answers with the word it was asked for and how it was reached: streamable
//! HTTP at `/mcp`, server-sent events at `/sse`, and standard streams as a program for sandboxes.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// The program. It needs nothing but Python.
const STDIO: &str = include_str!("stdio.py");

/// Program and arguments of the server over standard streams.
#[must_use]
pub fn stdio() -> (&'static str, [&'static str; 2]) {
    ("python3", ["-c", STDIO])
}

/// A call of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// `/mcp` or `/sse`.
    pub over: &'static str,
    /// What was asked for.
    pub word: String,
    /// The bearer key that came with it.
    pub key: Option<String>,
}

#[derive(Default)]
struct State {
    calls: Mutex<Vec<ToolCall>>,
    /// The open streams of `/sse`, by session.
    streams: Mutex<BTreeMap<String, mpsc::UnboundedSender<Value>>>,
    serial: AtomicU64,
}

/// A running server on a free port. Dropping it closes every connection.
pub struct ScriptedMcp {
    authority: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Drop for ScriptedMcp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptedMcp {
    /// Listens on a port that the system picks, for processes of this machine or for containers too.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(for_containers: bool) -> io::Result<Self> {
        let (ip, name) = if for_containers {
            ([0, 0, 0, 0], "host.docker.internal")
        } else {
            ([127, 0, 0, 1], "127.0.0.1")
        };
        let listener = TcpListener::bind(SocketAddr::from((ip, 0))).await?;
        let authority = format!("{name}:{}", listener.local_addr()?.port());
        let state = Arc::new(State::default());
        let serving = serve(listener, Arc::clone(&state));
        #[expect(
            clippy::disallowed_methods,
            reason = "test equipment; the handle owns the task"
        )]
        let task = tokio::spawn(serving);
        Ok(Self {
            authority,
            state,
            task,
        })
    }

    /// Where it is reached over streamable HTTP.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}/mcp", self.authority)
    }

    /// Where it is reached over server-sent events.
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

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(converse(stream, Arc::clone(&state)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

struct Request {
    method: String,
    path: String,
    key: Option<String>,
    body: Value,
}

/// One request per connection; `None` for anything that is no whole request.
async fn read(from: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Request> {
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
    Some(Request {
        method,
        path,
        key,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

async fn converse(stream: TcpStream, state: Arc<State>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let Some(request) = read(&mut reader).await else {
        return;
    };
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    match (request.method.as_str(), path) {
        ("GET", "/sse") => stream_events(&mut writer, &state).await,
        ("POST", "/messages") => {
            let reply = state.answer("/sse", &request);
            let session = query.trim_start_matches("session=");
            if let (Some(reply), Some(stream)) = (reply, lock(&state.streams).get(session)) {
                // A client that has gone away needs no answer.
                let _ = stream.send(reply);
            }
            write(&mut writer, "202 Accepted", None).await;
        }
        ("POST", "/mcp") => match state.answer("/mcp", &request) {
            Some(reply) => write(&mut writer, "200 OK", Some(&reply)).await,
            None => write(&mut writer, "202 Accepted", None).await,
        },
        ("DELETE", "/mcp") => write(&mut writer, "200 OK", None).await,
        (_, "/mcp") => write(&mut writer, "405 Method Not Allowed", None).await,
        _ => write(&mut writer, "404 Not Found", None).await,
    }
}

/// A client that has gone away is no concern of the script's.
async fn write(to: &mut OwnedWriteHalf, status: &str, body: Option<&Value>) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = to.write_all((head + &body).as_bytes()).await;
}

async fn stream_events(to: &mut OwnedWriteHalf, state: &State) {
    let session = state.serial.fetch_add(1, Ordering::SeqCst).to_string();
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

impl State {
    /// The reply to a JSON-RPC request; `None` for a notification.
    fn answer(&self, over: &'static str, request: &Request) -> Option<Value> {
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
