//! Followed events across replicas, kills and restarts: each event arrives once, in one order.

use std::time::Duration;

use acceptance::proxy::relay::client_builder_for;
use acceptance::world::World;
use acceptance::{Builder, Client, Sandboxing};
use reqwest::Response;
use serde_json::{Value, json};

use crate::replica_pair::ReplicaPair;

/// Longer than the interval of keep-alives.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The events of a stream until its end.
struct Follower {
    path: String,
    key: String,
    /// Numbers and ids in the order of arrival.
    received: Vec<(u64, String)>,
    /// The reported reason for the end of the last stream.
    ended: Option<String>,
}

impl Follower {
    fn of(client: &Client, conversation: &str) -> Self {
        Self {
            path: format!("/api/v1/conversation/{conversation}/events/stream"),
            key: client.key().to_owned(),
            received: Vec::new(),
            ended: None,
        }
    }

    /// Opens a stream at this service, after the last received event.
    async fn open(&self, service: &str) -> Response {
        let (http, way) = client_builder_for(service);
        let http = http.build().expect("a client");
        let mut request = http.get(format!("{way}{}", self.path));
        request = request.header("X-Session-API-Key", &self.key);
        if let Some((last, _)) = self.received.last() {
            request = request.header("Last-Event-ID", *last);
        }
        let answer = request.send().await.expect("the stream begins");
        assert_eq!(answer.status(), 200);
        answer
    }

    /// Opens a stream and reads it until this event, or its end.
    async fn read(&mut self, service: &str, until: Option<usize>) {
        let stream = self.open(service).await;
        self.read_stream(stream, until).await;
    }

    /// Reads an open stream until this event, or its end.
    async fn read_stream(&mut self, mut answer: Response, until: Option<usize>) {
        let until = until.map(name);
        let mut text = Vec::new();
        let has_arrived = |follower: &Self| {
            follower
                .received
                .iter()
                .any(|(_, id)| Some(id) == until.as_ref())
        };
        while !has_arrived(self) {
            let next = tokio::time::timeout(SILENCE_TIMEOUT, answer.chunk()).await;
            // A broken connection ends the stream, too.
            let Ok(Some(chunk)) = next.expect("keep-alives") else {
                return;
            };
            text.extend_from_slice(&chunk);
            while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = text.drain(..end + 2).collect();
                self.note(&String::from_utf8(block).expect("UTF-8"));
            }
        }
    }

    fn note(&mut self, block: &str) {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let data: Option<Value> =
            field("data: ").map(|data| serde_json::from_str(data).expect("JSON"));
        match (field("event: "), field("id: "), data) {
            (None, Some(id), Some(event)) => {
                let seq = id.parse().expect("a number");
                let id = event["id"].as_str().expect("an id");
                self.received.push((seq, id.to_owned()));
            }
            (Some("end"), None, Some(why)) => {
                self.ended = why["reason"].as_str().map(str::to_owned);
            }
            (None, None, None) => {}
            _ => panic!("unexpected block {block:?}"),
        }
    }

    /// Checks that each reported event arrived once, in order, with increasing numbers. (The run has other events.)
    fn assert_received(&self, reported: usize) {
        assert!(self.received.is_sorted_by(|one, two| one.0 < two.0));
        let ids = self.received.iter().map(|(_, id)| id.clone());
        let ids: Vec<String> = ids.filter(|id| id.starts_with("f-")).collect();
        assert_eq!(ids, (0..reported).map(name).collect::<Vec<_>>());
    }
}

fn name(n: usize) -> String {
    format!("f-{n}")
}

/// Reports events as the conversation's agent server does.
async fn report(sandbox: &Client, conversation: &str, ids: std::ops::Range<usize>) {
    for n in ids {
        let event =
            json!({"id": name(n), "kind": "MessageEvent", "timestamp": "2026-11-21T10:00:00"});
        let path = format!("/api/v1/webhooks/events/{conversation}");
        let _ = sandbox.post(&path, &json!([event])).await.ok();
    }
}

/// A conversation, and a client with the key of its sandbox.
async fn start_conversation(user: &Client) -> (String, Client) {
    let id = user.converse("hello").await.id;
    let path = format!("/api/v1/app-conversations?ids={id}");
    let read = user.get(&path).await.ok();
    let key = read[0]["session_api_key"].as_str().expect("a key");
    (id, user.with_key(key))
}

/// Events reported at one replica are followed at the other. After a kill of that one, the follower continues at the first.
#[tokio::test]
async fn events_are_followed_at_another_replica_and_after_its_kill() {
    let mut pair = ReplicaPair::start(&Sandboxing::UnconfinedProcess, "").await;
    let user = pair.user("ada").await;
    let (id, sandbox) = start_conversation(user.client(0)).await;
    let urls = [pair.replicas[0].url(), pair.replicas[1].url()];
    let mut follower = Follower::of(user.client(1), &id);
    let first = report(&sandbox, &id, 0..30);
    tokio::join!(follower.read(&urls[1], Some(29)), first);
    follower.assert_received(30);
    // Kill the replica while events arrive.
    let kill = async {
        report(&sandbox, &id, 30..40).await;
        pair.kill(1);
        report(&sandbox, &id, 40..60).await;
    };
    let stream = follower.open(&urls[1]).await;
    tokio::join!(follower.read_stream(stream, None), kill);
    assert_eq!(follower.ended, None, "a killed replica reports no reason");
    follower.read(&urls[0], Some(59)).await;
    follower.assert_received(60);
}

/// A stopping service ends its streams with a reason, without waiting; the follower continues after the restart.
#[tokio::test]
async fn events_are_followed_across_a_restart_with_sqlite() {
    // Longer than a stop may take in tests, so waiting for a stream would fail the test.
    let slow = |builder: Builder| builder.env("WORKSPACE_HTTP__DRAIN", "120s");
    let mut world = World::configured("", slow).await;
    let (id, sandbox) = start_conversation(&world.user).await;
    let url = world.service.url();
    let mut follower = Follower::of(&world.user, &id);
    report(&sandbox, &id, 0..5).await;
    let stream = follower.open(&url).await;
    tokio::join!(follower.read_stream(stream, None), async {
        report(&sandbox, &id, 5..10).await;
        world.service.stop().await;
    });
    assert_eq!(follower.ended.as_deref(), Some("shutdown"));
    world.service.restart().await;
    let more = report(&sandbox, &id, 10..20);
    tokio::join!(follower.read(&url, Some(19)), more);
    follower.assert_received(20);
}
