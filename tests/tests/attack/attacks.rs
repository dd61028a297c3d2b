//! The attacks of hostile users. Each attack continues until its time is over, whatever the service responds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use acceptance::figures::wire::{self, Connection};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::fixture::{UserFixture, small_event};
use crate::kills::KillClock;
use crate::options::Scale;
use crate::samples::Tally;

/// Pause before a closed connection is opened again.
const RECONNECT_BACKOFF: Duration = Duration::from_millis(100);
/// Connections that are opened at the same time.
const CONNECT_BATCH: usize = 200;
/// Size of a chunk of an upload.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    Counts,
    UnreadLists,
    EventFlood,
    Streams,
    TinyConversations,
    EndlessUploads,
    SlowSockets,
}

impl Attack {
    pub(crate) const ALL: [Self; 7] = [
        Self::Counts,
        Self::UnreadLists,
        Self::EventFlood,
        Self::Streams,
        Self::TinyConversations,
        Self::EndlessUploads,
        Self::SlowSockets,
    ];

    /// The name in `ATTACK_ONLY`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::UnreadLists => "unread-lists",
            Self::EventFlood => "event-flood",
            Self::Streams => "streams",
            Self::TinyConversations => "conversations",
            Self::EndlessUploads => "uploads",
            Self::SlowSockets => "slow-sockets",
        }
    }

    pub(crate) fn title(self, scale: Scale) -> String {
        match self {
            Self::Counts => format!("{} concurrent counts", scale.counts),
            Self::UnreadLists => format!("{} unread lists", scale.unread_lists),
            Self::EventFlood => format!("event flood, {} MiB", scale.flood_bytes >> 20),
            Self::Streams => format!("{} event streams", scale.streams),
            Self::TinyConversations => format!("{} conversations", scale.conversations),
            Self::EndlessUploads => format!("uploads, {} MiB", scale.upload_bytes >> 20),
            Self::SlowSockets => format!("{} slow sockets", scale.slow_sockets),
        }
    }

    /// The index of the attacker. The first one has a long conversation, the second one large starts.
    pub(crate) fn attacker(self) -> usize {
        match self {
            Self::Counts | Self::Streams => 0,
            Self::UnreadLists | Self::TinyConversations => 1,
            Self::EventFlood | Self::EndlessUploads | Self::SlowSockets => 2,
        }
    }
}

/// State that all attackers share.
#[derive(Debug)]
pub(crate) struct AttackContext {
    pub(crate) scale: Scale,
    pub(crate) clock: Arc<KillClock>,
    pub(crate) tally: Tally,
    /// Texts of the normal users. No response to an attacker may contain one.
    pub(crate) marks: Vec<String>,
}

impl AttackContext {
    fn check_for_leaks(&self, answer: &[u8]) {
        let answer = &answer[..answer.len().min(self.scale.searched_bytes)];
        let holds = |mark: &&String| answer.windows(mark.len()).any(|it| it == mark.as_bytes());
        if let Some(mark) = self.marks.iter().find(holds) {
            self.tally
                .record_leak(format!("an attacker was answered {mark}"));
        }
    }
}

/// Runs an attack until this time.
pub(crate) async fn run(
    attack: Attack,
    attacker: UserFixture,
    context: Arc<AttackContext>,
    until: Instant,
) {
    let connections = AttackerConnections { attacker, context };
    let work = async {
        match attack {
            Attack::Counts => connections.counts().await,
            Attack::UnreadLists => connections.unread_lists().await,
            Attack::EventFlood => connections.event_flood().await,
            Attack::Streams => connections.streams().await,
            Attack::TinyConversations => connections.tiny_conversations().await,
            Attack::EndlessUploads => connections.endless_uploads().await,
            Attack::SlowSockets => connections.slow_sockets().await,
        }
        // An attack without further requests also lasts until the end.
        sleep_until(until).await;
    };
    // Dropping the work closes its connections.
    let _ = tokio::time::timeout_at(until, work).await;
}

#[derive(Debug, Clone)]
struct AttackerConnections {
    attacker: UserFixture,
    context: Arc<AttackContext>,
}

/// The requests of one connection; `None` after the last one.
type Requests = Box<dyn FnMut() -> Option<Vec<u8>> + Send>;

impl AttackerConnections {
    fn get(&self, path: &str) -> Vec<u8> {
        wire::request("GET", path, &[wire::key_header(&self.attacker.key)], "")
    }

    fn conversation_path(&self, rest: &str) -> String {
        format!("/api/v1/conversation/{}/{rest}", self.attacker.conversation)
    }

    /// Sends a request. Counts its status unless the service was killed meanwhile.
    async fn exchange(&self, connection: &mut Connection, request: &[u8]) -> std::io::Result<()> {
        let stamp = self.context.clock.stamp();
        let answer = connection.exchange(request).await;
        if self.context.clock.up_since(stamp) {
            self.context
                .tally
                .add(answer.as_ref().map_or(0, |it| it.status));
        }
        self.context.check_for_leaks(connection.received());
        answer.map(|_| ())
    }

    /// Sends one request after the other, each as soon as the previous one is answered.
    async fn ask_all(self, mut requests: Requests) {
        let mut connection = None;
        while let Some(request) = requests() {
            let open = match connection.take() {
                Some(open) => Ok(open),
                None => Connection::open(self.attacker.address).await,
            };
            match open {
                Ok(mut open) => {
                    if self.exchange(&mut open, &request).await.is_ok() {
                        connection = Some(open);
                        continue;
                    }
                }
                Err(_) => self.context.tally.add(0),
            }
            sleep(RECONNECT_BACKOFF).await;
        }
    }

    async fn ask_by(&self, connections: usize, requests: impl Fn() -> Requests) {
        let mut tasks = JoinSet::new();
        for _ in 0..connections {
            tasks.spawn(self.clone().ask_all(requests()));
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn counts(&self) {
        // The first count is a stored counter. For the second one, the service reads all entries of an index.
        let queries = ["", "?kind__eq=ObservationEvent"];
        let requests =
            queries.map(|query| self.get(&self.conversation_path(&format!("events/count{query}"))));
        self.ask_by(self.context.scale.counts, || {
            let mut requests = requests.clone().into_iter().cycle();
            Box::new(move || requests.next())
        })
        .await;
    }

    async fn event_flood(&self) {
        let (sent, limit) = (Arc::new(AtomicU64::new(0)), self.context.scale.flood_bytes);
        let text = "f".repeat(250_000);
        self.ask_by(4, || {
            let (sent, text, attacker) = (Arc::clone(&sent), text.clone(), self.attacker.clone());
            Box::new(move || {
                let before = sent.fetch_add(4 * 250_000, Ordering::Relaxed);
                let event = |part: u64| {
                    let mut event = small_event(&format!("flood-{before}-{part}-{}", attacker.mark));
                    event["observation"] = json!({"kind": "TerminalObservation", "content": [{"type": "text", "text": text}]});
                    event
                };
                let events: Value = (0..4).map(event).collect();
                (before < limit).then(|| attacker.report(&events))
            })
        })
        .await;
    }

    async fn tiny_conversations(&self) {
        let (sent, limit) = (
            Arc::new(AtomicU64::new(0)),
            self.context.scale.conversations as u64,
        );
        let body = self.attacker.start_request("t", "t").to_string();
        let key = wire::key_header(&self.attacker.key);
        let request = wire::request("POST", "/api/v1/app-conversations", &[key], &body);
        self.ask_by(32, || {
            let (sent, request) = (Arc::clone(&sent), request.clone());
            Box::new(move || {
                let is_left = sent.fetch_add(1, Ordering::Relaxed) < limit;
                is_left.then(|| request.clone())
            })
        })
        .await;
    }

    async fn unread_lists(&self) {
        let paths = [
            "/api/v1/app-conversations/start-tasks/search?limit=100",
            "/api/v1/app-conversations/search?limit=100",
        ];
        let use_of = |number: usize| SocketUse::Unread(self.get(paths[number % paths.len()]));
        self.hold(self.context.scale.unread_lists, use_of).await;
    }

    /// Every tenth stream begins with the first event of the conversation. Reports wake all of them ten times a second.
    async fn streams(&self) {
        let use_of = |number: usize| {
            let from = if number.is_multiple_of(10) {
                "last_event_id=0"
            } else {
                "from=now"
            };
            SocketUse::Read(self.get(&self.conversation_path(&format!("events/stream?{from}"))))
        };
        let wake = async {
            let mut connection = None;
            for number in 0_u64.. {
                sleep(Duration::from_millis(100)).await;
                let event = json!([small_event(&format!("wake-{number}-{:?}", Instant::now()))]);
                if connection.is_none() {
                    connection = Connection::open(self.attacker.address).await.ok();
                }
                let Some(open) = &mut connection else {
                    continue;
                };
                if self
                    .exchange(open, &self.attacker.report(&event))
                    .await
                    .is_err()
                {
                    connection = None;
                }
            }
        };
        tokio::join!(self.hold(self.context.scale.streams, use_of), wake);
    }

    /// Half of the uploads go to the sandbox, the others to routes whose bodies the service reads itself.
    async fn endless_uploads(&self) {
        let sent = Arc::new(AtomicU64::new(0));
        let report = format!("/api/v1/webhooks/events/{}", self.attacker.conversation);
        let (user, sandbox) = (&self.attacker.key, &self.attacker.sandbox_key);
        let targets = [
            ("/api/file/upload?path=endless", sandbox),
            ("/api/v1/app-conversations", user),
            ("/api/file/upload?path=endless", sandbox),
            (report.as_str(), sandbox),
        ];
        let use_of = |number: usize| {
            let (path, key) = targets[number % targets.len()];
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Session-API-Key: {key}\r\n\
                 Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            SocketUse::Upload {
                head: head.into_bytes(),
                sent: Arc::clone(&sent),
                limit: self.context.scale.upload_bytes,
            }
        };
        self.hold(8, use_of).await;
    }

    /// A third of the connections sends a byte a second, a third sends nothing, and a third opens web sockets and never sends a
    /// key.
    async fn slow_sockets(&self) {
        let socket = format!(
            "GET /sockets/events/{} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n\r\n",
            self.attacker.conversation,
            acceptance::stub::traffic::SOCKET_KEY
        );
        let use_of = |number: usize| match number % 3 {
            0 => SocketUse::Dribble(b"GET /alive HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".to_vec()),
            1 => SocketUse::Read(Vec::new()),
            _ => SocketUse::Read(socket.clone().into_bytes()),
        };
        self.hold(self.context.scale.slow_sockets, use_of).await;
    }

    /// Keeps `count` connections open. Each is used until it ends, and then opened again.
    async fn hold(&self, count: usize, use_of: impl Fn(usize) -> SocketUse) {
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (held, connections) = (use_of(number), self.clone());
            tasks.spawn(async move {
                // In batches, because the backlog of a listener is short.
                let turn = u32::try_from(number / CONNECT_BATCH).unwrap_or_default();
                sleep(RECONNECT_BACKOFF * turn).await;
                loop {
                    let stamp = connections.context.clock.stamp();
                    let status = connections.hold_one(&held).await.unwrap_or_default();
                    if connections.context.clock.up_since(stamp) {
                        connections.context.tally.add(status);
                    }
                    sleep(RECONNECT_BACKOFF).await;
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Uses a connection until it ends. Returns the status of its first response, or 0.
    async fn hold_one(&self, held: &SocketUse) -> std::io::Result<u16> {
        let socket = TcpSocket::new_v4()?;
        if matches!(held, SocketUse::Unread(_)) {
            socket.set_recv_buffer_size(16 * 1024)?;
        }
        let mut stream = socket.connect(self.attacker.address).await?;
        match held {
            SocketUse::Unread(request) => {
                stream.write_all(request).await?;
                // Nothing is read, so only an error shows that the peer is gone.
                while stream.take_error()?.is_none() {
                    sleep(Duration::from_millis(500)).await;
                }
                Ok(0)
            }
            SocketUse::Read(request) => {
                stream.write_all(request).await?;
                self.read(&mut stream).await
            }
            SocketUse::Dribble(first) => {
                stream.write_all(first).await?;
                loop {
                    let read = timeout(Duration::from_secs(1), self.read(&mut stream));
                    if let Ok(status) = read.await {
                        return status;
                    }
                    stream.write_all(b"a").await?;
                }
            }
            SocketUse::Upload { head, sent, limit } => {
                stream.write_all(head).await?;
                let (mut answer, mut body) = stream.split();
                tokio::select! {
                    status = self.read(&mut answer) => status,
                    failed = send_endless(&mut body, sent, *limit) => failed.map(|()| 0),
                }
            }
        }
    }

    /// Reads to the end. Returns the status of the first response.
    async fn read(&self, stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<u16> {
        let (mut status, mut piece) = (0, vec![0; 64 * 1024]);
        loop {
            let read = stream.read(&mut piece).await;
            let Ok(read @ 1..) = read else {
                return Ok(status);
            };
            if status == 0 {
                let line = String::from_utf8_lossy(piece.get(9..12).unwrap_or_default());
                status = line.parse().unwrap_or_default();
            }
            self.context.check_for_leaks(&piece[..read]);
        }
    }
}

/// The use of a connection.
#[derive(Debug)]
enum SocketUse {
    /// Sends a request and reads nothing of the response.
    Unread(Vec<u8>),
    /// Sends these bytes, if any, and reads until the connection ends.
    Read(Vec<u8>),
    /// Sends these bytes, and then a byte a second.
    Dribble(Vec<u8>),
    /// Sends an endless body, until all uploads together have sent `limit` bytes.
    Upload {
        head: Vec<u8>,
        sent: Arc<AtomicU64>,
        limit: u64,
    },
}

/// Sends chunks until the limit is reached, and then waits forever.
async fn send_endless(
    body: &mut (impl AsyncWrite + Unpin),
    sent: &AtomicU64,
    limit: u64,
) -> std::io::Result<()> {
    let mut chunk = format!("{PIECE_BYTES:x}\r\n").into_bytes();
    chunk.extend(std::iter::repeat_n(b'u', PIECE_BYTES));
    chunk.extend(b"\r\n");
    while sent.fetch_add(PIECE_BYTES as u64, Ordering::Relaxed) < limit {
        body.write_all(&chunk).await?;
    }
    std::future::pending().await
}
