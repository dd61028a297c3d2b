//! A small HTTP server whose responses are a function of the request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::git::{GitAccess, GitProvider};
use git_hosting::{Config, HttpGitHosting, PrivateHosts};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    /// Percent-encoded, as sent.
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl ReceivedRequest {
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.query.get(name)?.parse().ok()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ScriptedResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) delay: Duration,
}

impl ScriptedResponse {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: b"{}".to_vec(),
            delay: Duration::ZERO,
        }
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self {
            body: body.to_string().into_bytes(),
            ..Self::status(200)
        }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

type Script = Arc<dyn Fn(&ReceivedRequest) -> ScriptedResponse + Send + Sync>;

/// A running server. Dropping it stops the server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(
        script: impl Fn(&ReceivedRequest) -> ScriptedResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let (log, script): (_, Script) = (Arc::clone(&received), Arc::new(script));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&log), Arc::clone(&script)));
            }
        });
        Self {
            address,
            received,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }
}

/// Serves one connection until the client closes it. Requests and responses have a `content-length`.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
    script: Script,
) {
    let mut read = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") {
                break end;
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let mut received = parse(std::str::from_utf8(&read[..head]).unwrap());
        let length = received.headers.get("content-length");
        let length: usize = length.map_or(0, |text| text.parse().unwrap());
        while read.len() < head + 4 + length {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        received.body =
            serde_json::from_slice(&read[head + 4..head + 4 + length]).unwrap_or_default();
        read.drain(..head + 4 + length);
        let response = script(&received);
        log.lock().unwrap().push(received);
        tokio::time::sleep(response.delay).await;
        let mut text = format!(
            "HTTP/1.1 {} X\r\ncontent-length: {}\r\n",
            response.status,
            response.body.len()
        );
        for (name, value) in &response.headers {
            text.extend([name.as_str(), ": ", value, "\r\n"]);
        }
        text.push_str("\r\n");
        // One write: with two, the second would wait for the acknowledgement of the first.
        let whole = [text.as_bytes(), &response.body].concat();
        if stream.write_all(&whole).await.is_err() {
            return;
        }
    }
}

fn parse(head: &str) -> ReceivedRequest {
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ');
    let (method, target) = (first.next().unwrap(), first.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = lines.filter_map(|line| line.split_once(": "));
    ReceivedRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        query: url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect(),
        headers: headers
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect(),
        body: Value::Null,
    }
}

/// The adapter with permission to call this machine.
pub(crate) fn hosting() -> HttpGitHosting {
    let config = Config {
        private_hosts: PrivateHosts::Allowed,
        ..Config::default()
    };
    HttpGitHosting::new(&config).unwrap()
}

/// Access to a provider at this host.
pub(crate) fn access(provider: GitProvider, host: &str, token: &str) -> GitAccess {
    GitAccess {
        provider,
        host: Some(host.parse().unwrap()),
        token: token.into(),
        user: None,
    }
}
