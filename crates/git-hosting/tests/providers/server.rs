//! A small HTTP server whose answers are a function of the request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::conversation::GitProvider;
use domain::git::GitAccess;
use git_hosting::{Config, HttpGitHosting, PrivateHosts};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What came in.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// As sent, still encoded.
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl Asked {
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.query.get(name)?.parse().ok()
    }
}

/// What goes out.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// How long it takes.
    pub(crate) delay: Duration,
}

impl Answer {
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

type Script = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

/// The server; it ends with this value.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (log, script): (_, Script) = (Arc::clone(&asked), Arc::new(script));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&log), Arc::clone(&script)));
            }
        });
        Self {
            address,
            asked,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// One connection: requests with a length, answers with a length, until the client leaves.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    log: Arc<Mutex<Vec<Asked>>>,
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
        let mut asked = parse(std::str::from_utf8(&read[..head]).unwrap());
        let length = asked.headers.get("content-length");
        let length: usize = length.map_or(0, |text| text.parse().unwrap());
        while read.len() < head + 4 + length {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        asked.body = serde_json::from_slice(&read[head + 4..head + 4 + length]).unwrap_or_default();
        read.drain(..head + 4 + length);
        let answer = script(&asked);
        log.lock().unwrap().push(asked);
        tokio::time::sleep(answer.delay).await;
        let mut text = format!(
            "HTTP/1.1 {} X\r\ncontent-length: {}\r\n",
            answer.status,
            answer.body.len()
        );
        for (name, value) in &answer.headers {
            text.extend([name.as_str(), ": ", value, "\r\n"]);
        }
        text.push_str("\r\n");
        // In one piece: two would wait for each other's acknowledgement.
        let whole = [text.as_bytes(), &answer.body].concat();
        if stream.write_all(&whole).await.is_err() {
            return;
        }
    }
}

fn parse(head: &str) -> Asked {
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ');
    let (method, target) = (first.next().unwrap(), first.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = lines.filter_map(|line| line.split_once(": "));
    Asked {
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

/// The adapter, which may call this machine.
pub(crate) fn hosting() -> HttpGitHosting {
    let config = Config {
        private_hosts: PrivateHosts::Allowed,
        ..Config::default()
    };
    HttpGitHosting::new(&config).unwrap()
}

/// Access to a provider at this address.
pub(crate) fn access(provider: GitProvider, host: &str, token: &str) -> GitAccess {
    GitAccess {
        provider,
        host: Some(host.parse().unwrap()),
        token: token.into(),
        user: None,
    }
}
