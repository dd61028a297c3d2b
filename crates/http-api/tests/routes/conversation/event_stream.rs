//! Event streams: their exact bytes, and their start positions.

use actix_web::body::BoxBody;
use domain::id::UserId;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, StreamedResponse, UNKNOWN, World};

/// A conversation with a sandbox that reports, and the path of its stream.
struct EventStreamFixture {
    world: World,
    id: String,
    sandbox_key: String,
    path: String,
}

impl EventStreamFixture {
    async fn new() -> Self {
        let world = Box::pin(World::working()).await;
        let id = world.conversation(ADA).await;
        let read = world.read(ADA, &id).await;
        let sandbox_key = read["session_api_key"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/conversation/{id}/events/stream");
        Self {
            world,
            id,
            sandbox_key,
            path,
        }
    }

    async fn report(&self, events: &[Value]) {
        let hook = format!("/api/v1/webhooks/events/{}", self.id);
        let (key, batch) = (&self.sandbox_key, json!(events));
        self.world.post(key, &hook, &batch).await.ok();
    }

    async fn open(&self, query: &str, last: Option<&str>) -> StreamedResponse {
        let path = format!("{}{query}", self.path);
        self.world.open(ADA, &path, last).await
    }

    /// The text of a stream with this query, up to `end`.
    async fn says(&self, query: &str, last: Option<&str>, end: &str) -> String {
        let mut opened = self.open(query, last).await;
        assert_eq!(opened.status, 200);
        until(&mut opened, end).await
    }
}

fn event(id: &str, kind: &str) -> Value {
    json!({"id": id, "timestamp": "2026-11-21T10:00:00", "kind": kind, "text": "two\nlines \r ✓"})
}

/// Reads up to and with a text.
async fn until(opened: &mut StreamedResponse, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let next = opened.next().await;
        text.push_str(&next.unwrap_or_else(|| panic!("ended after {text:?}")));
    }
    text
}

fn said(seq: u32, event: &Value) -> String {
    format!("id: {seq}\ndata: {event}\n\n")
}

#[actix_web::test]
async fn stored_and_new_events_are_server_sent_events() {
    let talk = EventStreamFixture::new().await;
    let (one, two, three) = (event("1", "A"), event("2", "A"), event("3", "A"));
    talk.report(&[one.clone(), two.clone()]).await;
    let mut opened = talk.open("", None).await;
    assert_eq!(opened.status, 200);
    let header = |name: &str| opened.headers.get(name).map(|it| it.to_str().unwrap());
    assert_eq!(
        [
            header("content-type"),
            header("cache-control"),
            header("x-accel-buffering")
        ],
        [
            Some("text/event-stream; charset=utf-8"),
            Some("no-store"),
            Some("no")
        ]
    );
    let end = said(2, &two);
    let text = until(&mut opened, &end).await;
    assert_eq!(text, format!("retry: 1000\n\n{}{end}", said(1, &one)));
    talk.report(&[two, three.clone()]).await;
    assert_eq!(opened.next().await, Some(said(3, &three)));
}

#[actix_web::test]
async fn a_stream_resumes_by_header_or_query() {
    let talk = EventStreamFixture::new().await;
    let (one, two, three) = (
        event("1", "MessageEvent"),
        event("2", "ActionEvent"),
        event("3", "MessageEvent"),
    );
    talk.report(&[one, two.clone(), three.clone()]).await;
    let (second, third) = (said(2, &two), said(3, &three));
    let rest = format!("retry: 1000\n\n{second}{third}");
    assert_eq!(talk.says("", Some("1"), &third).await, rest);
    assert_eq!(talk.says("?last_event_id=1", None, &third).await, rest);
    // A reconnecting browser keeps the URL.
    let header_wins = talk.says("?from=now&last_event_id=3", Some("1"), &third);
    assert_eq!(header_wins.await, rest);
    let only = talk.says("?kind__eq=MessageEvent&last_event_id=1", None, &third);
    assert_eq!(only.await, format!("retry: 1000\n\n{third}"));
    // A client that reconnects before a new event continues at the same position.
    let here = "retry: 1000\nid: 3\n\n";
    assert_eq!(talk.says("?from=now", None, here).await, here);
}

#[actix_web::test]
async fn an_unknown_position_is_an_error_of_its_parameter() {
    let talk = EventStreamFixture::new().await;
    talk.report(&[event("1", "A")]).await;
    let loc = async |query: &str, last| {
        let opened = talk.open(query, last).await;
        assert_eq!(opened.status, 422);
        let item = opened.whole().await["detail"][0].clone();
        (item["loc"].clone(), item["type"].clone())
    };
    let header = |kind: &str| (json!(["header", "Last-Event-ID"]), json!(kind));
    let query = |name: &str, kind: &str| (json!(["query", name]), json!(kind));
    assert_eq!(loc("", Some("2")).await, header("value_error"));
    assert_eq!(loc("", Some("x")).await, header("int_parsing"));
    assert_eq!(loc("", Some("-1")).await, header("greater_than_equal"));
    let place = "last_event_id";
    assert_eq!(
        loc("?last_event_id=2", None).await,
        query(place, "value_error")
    );
    assert_eq!(
        loc("?last_event_id=", None).await,
        query(place, "int_parsing")
    );
    assert_eq!(
        loc("?from=then", None).await,
        query("from", "literal_error")
    );
    assert_eq!(
        loc("?kind__eq=A", None).await,
        query("kind__eq", "literal_error")
    );
    // No event received yet.
    assert_eq!(talk.open("", Some("0")).await.status, 200);
}

#[actix_web::test]
async fn only_the_owner_follows() {
    let talk = EventStreamFixture::new().await;
    let get = async |key: &str, path: &str| {
        let answer = talk.world.get(key, path).await;
        (answer.status, answer.json()["detail"].clone())
    };
    let not_found = (404, json!("Conversation not found"));
    assert_eq!(get(BOB, &talk.path).await, not_found);
    let unknown = format!("/api/v1/conversation/{UNKNOWN}/events/stream");
    assert_eq!(get(ADA, &unknown).await, not_found);
    assert_eq!(get("nope", &talk.path).await.0, 401);
    assert_eq!(get(&talk.sandbox_key, &talk.path).await.0, 401);
    let no_id = "/api/v1/conversation/zz/events/stream";
    assert_eq!(get(ADA, no_id).await.0, 422);
}

#[actix_web::test]
async fn a_stream_says_why_it_ends() {
    let talk = EventStreamFixture::new().await;
    let mut one = talk.open("", None).await;
    let conversation = format!("/api/v1/app-conversations/{}", talk.id);
    talk.world.delete(ADA, &conversation).await.ok();
    let end = "event: end\ndata: {\"reason\":\"deleted\"}\n\n";
    assert_eq!(until(&mut one, end).await, format!("retry: 1000\n\n{end}"));
    assert_eq!(one.next().await, None);

    let talk = EventStreamFixture::new().await;
    let mut one = talk.open("", None).await;
    talk.world.app.event_streams.end_all();
    let end = "event: end\ndata: {\"reason\":\"shutdown\"}\n\n";
    until(&mut one, end).await;
    assert_eq!(one.next().await, None);
}

#[actix_web::test]
async fn a_stream_ends_when_its_key_is_revoked() {
    let talk = EventStreamFixture::new().await;
    let mut one = talk.open("", None).await;
    until(&mut one, "retry: 1000\n\n").await;
    let ada = UserId::parse("ada").unwrap();
    for key in talk.world.keys.list(Some(&ada)).await.unwrap() {
        assert!(talk.world.keys.revoke(key.id).await.unwrap());
    }
    until(
        &mut one,
        "event: end\ndata: {\"reason\":\"unauthorized\"}\n\n",
    )
    .await;
    assert_eq!(one.next().await, None);
    assert_eq!(talk.open("", None).await.status, 401);
}

/// Also without a reader.
#[actix_web::test]
async fn streams_per_user_are_bounded_until_they_close() {
    let talk = EventStreamFixture::new().await;
    talk.report(&[event("1", "A")]).await;
    let mut open = Vec::new();
    while open.len() < 100 {
        open.push(talk.open("", None).await);
    }
    let refused = talk.open("", None).await;
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains_key("retry-after"));
    let closed: Option<BoxBody> = open.pop().map(|it| it.body);
    drop(closed);
    let again = async {
        while talk.open("", None).await.status == 429 {
            tokio::task::yield_now().await;
        }
    };
    let again = tokio::time::timeout(std::time::Duration::from_secs(30), again);
    again.await.expect("its place is free");
}
