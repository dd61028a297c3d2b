//! Normal users: they read lists, settings and events, send messages to their agents, follow events, and measure the times.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use acceptance::Client;
use acceptance::client::text;
use acceptance::figures::wire::{self, Connection};
use acceptance::hostile::Random;
use acceptance::stub::traffic::SOCKET_KEY;
use reqwest::Method;
use serde_json::{Value, json};

use crate::fixture::UserFixture;
use crate::kills::KillClock;
use crate::samples::Recorder;

/// Pause between two requests of one user.
const THINK_TIME: Duration = Duration::from_millis(20);
/// Time until a start in a running sandbox is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time until the stream has brought the events of the last message.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(120);
/// A stream sends something every 15 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Prefix of an error that counts also when the service was killed meanwhile.
const FOREIGN: &str = "it holds the mark of another user:";

/// State that all normal users share.
#[derive(Debug)]
pub(crate) struct NormalUsersContext {
    pub(crate) recorder: Recorder,
    pub(crate) clock: Arc<KillClock>,
    /// The marks of all users.
    pub(crate) marks: Vec<String>,
    pub(crate) is_over: AtomicBool,
}

impl NormalUsersContext {
    /// The mark of another user in a response.
    fn foreign(&self, own: &str, answer: &str) -> Option<&String> {
        let mut others = self.marks.iter().filter(|mark| *mark != own);
        others.find(|mark| answer.contains(*mark))
    }
}

/// Runs all normal users on a separate thread, so that attackers in this process do not delay them.
pub(crate) fn spawn(
    users: &[UserFixture],
    shared: &Arc<NormalUsersContext>,
    seed: u64,
) -> JoinHandle<()> {
    let (users, shared) = (users.to_vec(), Arc::clone(shared));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be built");
        let all = users.into_iter().zip(0..).map(|(home, number)| {
            let user = NormalUser::new(home, Arc::clone(&shared));
            async move {
                tokio::select! {
                    () = user.work(Random::new(seed, number)) => {}
                    () = user.follow() => {}
                }
            }
        });
        runtime.block_on(futures::future::join_all(all));
    })
}

/// Whether a successful response is correct.
type Check<'a> = &'a dyn Fn(&Value, &str) -> bool;

struct NormalUser {
    home: UserFixture,
    client: Client,
    shared: Arc<NormalUsersContext>,
    /// Number of the last acknowledged message.
    last_sent: Cell<u64>,
    /// Messages that the stream has not brought yet, including the one that is being sent.
    undelivered: RefCell<BTreeSet<u64>>,
}

impl NormalUser {
    fn new(home: UserFixture, shared: Arc<NormalUsersContext>) -> Self {
        Self {
            client: home.client(),
            home,
            shared,
            last_sent: Cell::new(0),
            undelivered: RefCell::default(),
        }
    }

    async fn work(&self, mut random: Random) {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            match random.below(100) {
                0..25 => self.list_conversations().await,
                25..45 => self.list_sandboxes().await,
                45..60 => self.read_settings().await,
                60..85 => self.read_events().await,
                85..87 => self.count_events().await,
                87..89 => self.open_socket().await,
                89..97 => self.send_message().await,
                _ => self.start_and_delete().await,
            }
            tokio::time::sleep(THINK_TIME).await;
        }
        self.wait_for_last_message().await;
    }

    /// Sends a request, whose response must be a success that passes `check`. `None` if it is wrong or the service was killed.
    async fn measure(
        &self,
        name: &'static str,
        method: Method,
        path: &str,
        body: Option<&Value>,
        check: Check<'_>,
    ) -> Option<Value> {
        let (began, stamp) = (Instant::now(), self.shared.clock.stamp());
        let answer = self.client.try_call(method.clone(), path, body).await;
        let took = began.elapsed();
        let wrong = match &answer {
            Err(error) => Some(format!("no answer: {error}")),
            Ok(answer) => self.judge(answer.status, &answer.body, &answer.text, check),
        };
        let Some(wrong) = wrong else {
            if self.shared.clock.up_since(stamp) {
                self.shared.recorder.record_response(name, took);
            }
            return answer.ok().map(|answer| answer.body);
        };
        // Another user's mark is an error even during a kill.
        let is_foreign = wrong.starts_with(FOREIGN);
        if is_foreign || self.shared.clock.up_since(stamp) {
            let path = path.split('?').next().unwrap_or_default();
            let error = format!("{method} {path} after {} ms: {wrong}", took.as_millis());
            self.shared.recorder.record_error(error);
        }
        None
    }

    fn judge(&self, status: u16, body: &Value, answer: &str, check: Check<'_>) -> Option<String> {
        if let Some(mark) = self.shared.foreign(&self.home.mark, answer) {
            return Some(format!("{FOREIGN} {mark}"));
        }
        let is_right = (200..300).contains(&status) && check(body, answer);
        let shown: String = answer.chars().take(200).collect();
        (!is_right).then(|| format!("{status} {shown}"))
    }

    async fn list_conversations(&self) {
        let has_own = |_: &Value, answer: &str| answer.contains(&self.home.mark);
        let path = "/api/v1/app-conversations/search?limit=20";
        self.measure("list conversations", Method::GET, path, None, &has_own)
            .await;
    }

    async fn list_sandboxes(&self) {
        let has_own = |_: &Value, answer: &str| answer.contains(&self.home.sandbox);
        let path = "/api/v1/sandboxes/search";
        self.measure("list sandboxes", Method::GET, path, None, &has_own)
            .await;
    }

    async fn read_settings(&self) {
        let has_model = |_: &Value, answer: &str| answer.contains("openai/stub");
        self.measure(
            "read settings",
            Method::GET,
            "/api/v1/settings",
            None,
            &has_model,
        )
        .await;
    }

    async fn read_events(&self) {
        let has_events = |body: &Value, _: &str| body["items"][0].is_object();
        let path = format!(
            "/api/v1/conversation/{}/events/search?limit=100",
            self.home.conversation
        );
        self.measure("read events", Method::GET, &path, None, &has_events)
            .await;
    }

    async fn count_events(&self) {
        let is_positive = |body: &Value, _: &str| body.as_u64() > Some(0);
        let path = format!(
            "/api/v1/conversation/{}/events/count",
            self.home.conversation
        );
        self.measure("count events", Method::GET, &path, None, &is_positive)
            .await;
    }

    /// Opens a web socket to the agent server, as front ends do, and closes it.
    async fn open_socket(&self) {
        let headers = [
            wire::key_header(&self.home.key),
            "Connection: Upgrade".to_owned(),
            "Upgrade: websocket".to_owned(),
            "Sec-WebSocket-Version: 13".to_owned(),
            format!("Sec-WebSocket-Key: {SOCKET_KEY}"),
        ];
        let path = format!("/sockets/events/{}", self.home.conversation);
        let request = wire::request("GET", &path, &headers, "");
        let (began, stamp) = (Instant::now(), self.shared.clock.stamp());
        let answer = async {
            let mut connection = Connection::open(self.home.address).await?;
            connection.exchange(&request).await
        };
        let answer = tokio::time::timeout(SILENCE_TIMEOUT, answer).await;
        if !self.shared.clock.up_since(stamp) {
            return;
        }
        match answer {
            Ok(Ok(answer)) if answer.status == 101 => {
                self.shared
                    .recorder
                    .record_response("open a web socket", began.elapsed());
            }
            other => self
                .shared
                .recorder
                .record_error(format!("a web socket: {other:?}")),
        }
    }

    /// The text by which the stream is searched for the message with this number.
    fn message(&self, number: u64) -> String {
        format!("{} message {number}.", self.home.mark)
    }

    async fn send_message(&self) {
        let number = self.last_sent.get() + 1;
        self.undelivered.borrow_mut().insert(number);
        let body = json!({"role": "user", "run": true, "content": text(&self.message(number))});
        let path = format!(
            "/api/v1/app-conversations/{}/send-message",
            self.home.conversation
        );
        let is_sent = |body: &Value, _: &str| body["success"] == true;
        if self
            .measure("send a message", Method::POST, &path, Some(&body), &is_sent)
            .await
            .is_some()
        {
            self.last_sent.set(number);
        }
    }

    /// Starts a short conversation in the user's sandbox, and deletes it.
    async fn start_and_delete(&self) {
        let title = format!("{} short", self.home.mark);
        let request = self.home.start_request(&title, &title);
        let has_id = |body: &Value, _: &str| body["id"].is_string();
        let stamp = self.shared.clock.stamp();
        let path = "/api/v1/app-conversations";
        let Some(task) = self
            .measure(
                "start a conversation",
                Method::POST,
                path,
                Some(&request),
                &has_id,
            )
            .await
        else {
            return;
        };
        let path = format!(
            "{path}/start-tasks?ids={}",
            task["id"].as_str().unwrap_or_default()
        );
        let is_task = |body: &Value, _: &str| body[0]["status"].is_string();
        let began = Instant::now();
        let conversation = loop {
            let found = self
                .measure("read a start", Method::GET, &path, None, &is_task)
                .await;
            let found = found.map(|mut list| list[0].take()).unwrap_or_default();
            if found["status"] == "READY" {
                break found["app_conversation_id"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
            }
            if found["status"] == "ERROR" || began.elapsed() > START_TIMEOUT {
                if self.shared.clock.up_since(stamp) {
                    let error = format!(
                        "a start is not ready: {} {}",
                        found["status"], found["detail"]
                    );
                    self.shared.recorder.record_error(error);
                }
                return;
            }
            tokio::time::sleep(THINK_TIME).await;
        };
        let path = format!("/api/v1/app-conversations/{conversation}");
        self.measure(
            "delete a conversation",
            Method::DELETE,
            &path,
            None,
            &|_, _| true,
        )
        .await;
    }

    /// Follows the events of the conversation until it is dropped. Reconnects after the end of a stream.
    async fn follow(&self) {
        let http = reqwest::Client::builder().no_proxy().build();
        let http = http.expect("a client without TLS can be built");
        let path = format!(
            "/api/v1/conversation/{}/events/stream",
            self.home.conversation
        );
        let mut last = String::new();
        loop {
            let stamp = self.shared.clock.stamp();
            let mut request = http
                .get(format!("{}{path}", self.home.url))
                .header("X-Session-API-Key", &self.home.key);
            if !last.is_empty() {
                request = request.header("Last-Event-ID", &last);
            }
            let ended = match request.send().await {
                Ok(answer) if answer.status() == 200 => self.read(answer, &mut last).await,
                Ok(answer) => format!("status {}", answer.status()),
                Err(error) => error.without_url().to_string(),
            };
            if ended.starts_with(FOREIGN) || self.shared.clock.up_since(stamp) {
                self.shared
                    .recorder
                    .record_error(format!("the event stream ended: {ended}"));
            }
            tokio::time::sleep(THINK_TIME).await;
        }
    }

    /// Reads a stream to its end. Returns the cause of the end.
    async fn read(&self, mut answer: reqwest::Response, last: &mut String) -> String {
        let mut unread = Vec::new();
        loop {
            match tokio::time::timeout(SILENCE_TIMEOUT, answer.chunk()).await {
                Err(_) => return "silence".to_owned(),
                Ok(Err(error)) => return error.without_url().to_string(),
                Ok(Ok(None)) => return "it is over".to_owned(),
                Ok(Ok(Some(piece))) => unread.extend_from_slice(&piece),
            }
            // An event is complete with its blank line: the stream may break between its number and its data.
            let Some(end) = unread.windows(2).rposition(|pair| pair == b"\n\n") else {
                continue;
            };
            let lines: Vec<u8> = unread.drain(..end + 2).collect();
            let lines = String::from_utf8_lossy(&lines);
            if let Some(mark) = self.shared.foreign(&self.home.mark, &lines) {
                return format!("{FOREIGN} {mark}");
            }
            let mut ids = lines.lines().filter_map(|line| line.strip_prefix("id: "));
            if let Some(id) = ids.next_back() {
                id.clone_into(last);
            }
            let is_missing = |number: &u64| !lines.contains(&self.message(*number));
            self.undelivered.borrow_mut().retain(is_missing);
        }
    }

    /// Waits until the stream has brought every acknowledged message.
    async fn wait_for_last_message(&self) {
        let began = Instant::now();
        let last_sent = self.last_sent.get();
        while self
            .undelivered
            .borrow()
            .iter()
            .any(|number| *number <= last_sent)
        {
            if began.elapsed() > FOLLOW_TIMEOUT {
                return self.record_missing_messages().await;
            }
            tokio::time::sleep(THINK_TIME).await;
        }
    }

    /// Records which messages the stream has not brought, and which of them are in the service's store.
    async fn record_missing_messages(&self) {
        let missing = self.undelivered.borrow().clone();
        let events = self.client.events(&self.home.conversation).await;
        let events = serde_json::to_string(&events).unwrap_or_default();
        let is_stored = |number: &&u64| events.contains(&self.message(**number));
        let stored: Vec<&u64> = missing.iter().filter(is_stored).collect();
        let error = format!(
            "the stream has not brought the messages {missing:?} of {}; the service has stored {stored:?}",
            self.last_sent.get()
        );
        self.shared.recorder.record_error(error);
    }
}
