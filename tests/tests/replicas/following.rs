//! Following a conversation's events over replicas, kills and restarts: every event once, in one order.

use std::time::Duration;

use acceptance::proxy::relay::client_builder_for;
use acceptance::world::World;
use acceptance::{Builder, Client, Sandboxing};
use reqwest::Response;
use serde_json::{Value, json};

use crate::replica_pair::ReplicaPair;

/// Longer than the keep-alives of a stream are apart.
const SILENCE: Duration = Duration::from_secs(60);

/// What a stream said until it ended.
struct Follower {
    path: String,
    key: String,
    /// Numbers and ids, in the order in which they came.
    seen: Vec<(u64, String)>,
    /// Why the last stream has ended, if it said so.
    ended: Option<String>,
}

impl Follower {
    fn of(client: &Client, conversation: &str) -> Self {
        Self {
            path: format!("/api/v1/conversation/{conversation}/events/stream"),
            key: client.key().to_owned(),
            seen: Vec::new(),
            ended: None,
        }
    }

    /// Begins a stream of this service, on from what was seen.
    async fn begin(&self, service: &str) -> Response {
        let (http, way) = client_builder_for(service);
        let http = http.build().expect("a client");
        let mut request = http.get(format!("{way}{}", self.path));
        request = request.header("X-Session-API-Key", &self.key);
        if let Some((last, _)) = self.seen.last() {
            request = request.header("Last-Event-ID", *last);
        }
        let answer = request.send().await.expect("the stream begins");
        assert_eq!(answer.status(), 200);
        answer
    }

    /// Reads one stream of this service, on from what was seen, until this event, or its end.
    async fn read(&mut self, service: &str, until: Option<usize>) {
        let begun = self.begin(service).await;
        self.go_on(begun, until).await;
    }

    /// The same with a stream that has begun.
    async fn go_on(&mut self, mut answer: Response, until: Option<usize>) {
        let until = until.map(name);
        let mut text = Vec::new();
        let is_seen = |it: &Self| it.seen.iter().any(|(_, id)| Some(id) == until.as_ref());
        while !is_seen(self) {
            let next = tokio::time::timeout(SILENCE, answer.chunk()).await;
            // Cut off, as by a kill, is an end, too.
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
        let data: Option<Value> = field("data: ").map(|it| serde_json::from_str(it).expect("JSON"));
        match (field("event: "), field("id: "), data) {
            (None, Some(id), Some(event)) => {
                let seq = id.parse().expect("a number");
                let id = event["id"].as_str().expect("an id");
                self.seen.push((seq, id.to_owned()));
            }
            (Some("end"), None, Some(why)) => {
                self.ended = why["reason"].as_str().map(str::to_owned);
            }
            (None, None, None) => {}
            _ => panic!("what is {block:?}?"),
        }
    }

    /// Each of the events that were reported once, in their order, and with numbers that grow. (The run has others.)
    fn assert_saw(&self, reported: usize) {
        assert!(self.seen.is_sorted_by(|one, two| one.0 < two.0));
        let ids = self.seen.iter().map(|(_, id)| id.clone());
        let ids: Vec<String> = ids.filter(|id| id.starts_with("f-")).collect();
        assert_eq!(ids, (0..reported).map(name).collect::<Vec<_>>());
    }
}

fn name(n: usize) -> String {
    format!("f-{n}")
}

/// Reports events as the conversation's sandbox does.
async fn report(sandbox: &Client, conversation: &str, ids: std::ops::Range<usize>) {
    for n in ids {
        let event =
            json!({"id": name(n), "kind": "MessageEvent", "timestamp": "2026-11-21T10:00:00"});
        let path = format!("/api/v1/webhooks/events/{conversation}");
        let _ = sandbox.post(&path, &json!([event])).await.ok();
    }
}

/// A conversation, and a client that is its sandbox.
async fn begun(user: &Client) -> (String, Client) {
    let id = user.converse("hello").await.id;
    let path = format!("/api/v1/app-conversations?ids={id}");
    let read = user.get(&path).await.ok();
    let key = read[0]["session_api_key"].as_str().expect("a key");
    (id, user.with_key(key))
}

/// What is reported at one replica is followed at the other; when that one is killed, its follower goes on at the first.
#[tokio::test]
async fn events_are_followed_at_another_replica_and_past_its_death() {
    let mut pair = ReplicaPair::start(&Sandboxing::Process, "").await;
    let user = pair.user("ada").await;
    let (id, sandbox) = begun(user.on(0)).await;
    let urls = [pair.replicas[0].url(), pair.replicas[1].url()];
    let mut follower = Follower::of(user.on(1), &id);
    let first = report(&sandbox, &id, 0..30);
    tokio::join!(follower.read(&urls[1], Some(29)), first);
    follower.assert_saw(30);
    // It dies while events come in.
    let dies = async {
        report(&sandbox, &id, 30..40).await;
        pair.kill(1);
        report(&sandbox, &id, 40..60).await;
    };
    let begun = follower.begin(&urls[1]).await;
    tokio::join!(follower.go_on(begun, None), dies);
    assert_eq!(follower.ended, None, "it could not say so");
    follower.read(&urls[0], Some(59)).await;
    follower.assert_saw(60);
}

/// A service that stops says so, waits for no stream, and goes on with it when it is back.
#[tokio::test]
async fn events_are_followed_past_a_restart_with_sqlite() {
    // Longer than a stop may take here: whatever has to be waited for is noticed.
    let slow = |builder: Builder| builder.env("WORKSPACE_HTTP__DRAIN", "120s");
    let mut world = World::configured("", slow).await;
    let (id, sandbox) = begun(&world.user).await;
    let url = world.service.url();
    let mut follower = Follower::of(&world.user, &id);
    report(&sandbox, &id, 0..5).await;
    let begun = follower.begin(&url).await;
    tokio::join!(follower.go_on(begun, None), async {
        report(&sandbox, &id, 5..10).await;
        world.service.stop().await;
    });
    assert_eq!(follower.ended.as_deref(), Some("shutdown"));
    world.service.restart().await;
    let more = report(&sandbox, &id, 10..20);
    tokio::join!(follower.read(&url, Some(19)), more);
    follower.assert_saw(20);
}
