//! Event streams: every event once, whichever process stored it, until the stream ends.

use std::time::Duration;

use application::event_streams::{
    EventStream, KEEP_ALIVE_INTERVAL, StreamEndReason, StreamItem, StreamPosition,
};
use domain::conversation::ConversationReport;
use domain::error::{Classify, ErrorClass};
use domain::event::{Event, EventStore as _};
use domain::id::{ConversationId, EventId, HostId, OwnerId};
use domain::sandbox::Sandbox;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::fixture::{Fixture, alice, alice_scope, clock, start_input};

/// Shorter than the poll interval of a stream.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(1);

async fn start_ready_conversation(fixture: &Fixture) -> (ConversationId, Sandbox) {
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let sandbox = fixture.sandbox(&task.sandbox_id).await.expect("it runs");
    (task.conversation_id, sandbox)
}

fn event(id: &str, kind: &str) -> Value {
    json!({"id": id, "kind": kind, "timestamp": "2026-01-01T00:00:00.5", "source": "agent"})
}

async fn report(fixture: &Fixture, at: &(ConversationId, Sandbox), ids: &[&str]) {
    let batch = ids.iter().map(|id| event(id, "MessageEvent")).collect();
    let taken = fixture.app.webhooks.events(&at.1, at.0, batch);
    taken.await.expect("taken in");
}

async fn follow(fixture: &Fixture, id: ConversationId, begin: StreamPosition) -> EventStream {
    let opened = fixture
        .app
        .event_streams
        .open(&alice(), id, begin, None)
        .await;
    opened.expect("alice's conversation")
}

/// The ids of the next events within a time.
async fn next(following: &mut EventStream, within: Duration) -> Vec<String> {
    match timeout(within, following.next()).await {
        Ok(StreamItem::Events(events)) => {
            let ids = events.iter().map(|it| it.event.id.to_string());
            ids.collect()
        }
        other => panic!("{other:?}"),
    }
}

async fn ends(following: &mut EventStream, within: Duration) -> StreamEndReason {
    match timeout(within, following.next()).await {
        Ok(StreamItem::End(end)) => end,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn existing_events_come_first_and_new_ones_at_once() {
    let fixture = Fixture::new().await;
    let at = start_ready_conversation(&fixture).await;
    report(&fixture, &at, &["b", "a"]).await;
    let mut from_the_first = follow(&fixture, at.0, StreamPosition::First).await;
    let mut from_now = follow(&fixture, at.0, StreamPosition::Now).await;
    assert_eq!(from_now.last_sequence(), 2);
    let mut from_one = follow(&fixture, at.0, StreamPosition::After(1)).await;
    assert_eq!(
        next(&mut from_the_first, DELIVERY_TIMEOUT).await,
        ["b", "a"]
    );
    assert_eq!(next(&mut from_one, DELIVERY_TIMEOUT).await, ["a"]);
    for follower in [&mut from_the_first, &mut from_now, &mut from_one] {
        let nothing = timeout(Duration::from_millis(100), follower.next()).await;
        assert!(nothing.is_err(), "{nothing:?}");
    }
    report(&fixture, &at, &["a", "c"]).await;
    report(&fixture, &at, &["d"]).await;
    for follower in [&mut from_the_first, &mut from_now, &mut from_one] {
        assert_eq!(next(follower, DELIVERY_TIMEOUT).await, ["c", "d"]);
        assert_eq!(follower.last_sequence(), 4);
    }
}

/// The wait is dropped and repeated, as by a reader that also waits for other things.
#[tokio::test(start_paused = true)]
async fn dropping_a_wait_loses_no_event() {
    let fixture = Fixture::new().await;
    let at = start_ready_conversation(&fixture).await;
    let mut following = follow(&fixture, at.0, StreamPosition::First).await;
    for n in 0..50 {
        let id = n.to_string();
        let ids = [id.as_str()];
        let ((), gave_up) = tokio::join!(
            report(&fixture, &at, &ids),
            timeout(Duration::from_millis(n % 30), following.next())
        );
        let began = Instant::now();
        match gave_up {
            Ok(StreamItem::Events(events)) => assert_eq!(events[0].event.id.as_str(), id),
            Ok(other) => panic!("{other:?}"),
            Err(_) => assert_eq!(next(&mut following, DELIVERY_TIMEOUT).await, [id]),
        }
        assert!(began.elapsed() < DELIVERY_TIMEOUT);
    }
}

/// The other process sends no notification: notifications may be lost.
#[tokio::test(start_paused = true)]
async fn events_of_other_processes_are_found_without_a_notification() {
    let fixture = Fixture::new().await;
    let at = start_ready_conversation(&fixture).await;
    let mut following = follow(&fixture, at.0, StreamPosition::Now).await;
    let nothing = timeout(Duration::from_secs(5), following.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    let other = fixture.replica(|policy| policy.host = HostId::parse("other").expect("an id"));
    report(&other, &at, &["x"]).await;
    assert_eq!(next(&mut following, Duration::from_secs(3)).await, ["x"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_one_kind_skips_other_kinds() {
    let fixture = Fixture::new().await;
    let at = start_ready_conversation(&fixture).await;
    let events: Vec<Event> = (0..1_000)
        .map(|n| Event {
            id: EventId::parse(n.to_string()).expect("an id"),
            kind: if n % 400 == 399 { "B" } else { "A" }.to_owned(),
            timestamp: clock().now(),
            body: json!({}),
        })
        .collect();
    let nothing = ConversationReport::default();
    let store = &fixture.store;
    let stored = store.append(&at.1.id, at.0, &events, &nothing, clock().now());
    stored.await.expect("stored");
    let kind = Some("B".to_owned());
    let alice = alice();
    let opened = fixture
        .app
        .event_streams
        .open(&alice, at.0, StreamPosition::First, kind);
    let mut following = opened.await.expect("opened");
    assert_eq!(next(&mut following, DELIVERY_TIMEOUT).await, ["399"]);
    assert_eq!(next(&mut following, DELIVERY_TIMEOUT).await, ["799"]);
    let began = Instant::now();
    assert!(matches!(following.next().await, StreamItem::Idle));
    assert_eq!(following.last_sequence(), 1_000);
    assert!(
        began.elapsed() >= KEEP_ALIVE_INTERVAL
            && began.elapsed() < KEEP_ALIVE_INTERVAL + DELIVERY_TIMEOUT
    );
}

#[tokio::test(start_paused = true)]
async fn deleting_a_conversation_ends_its_streams() {
    let fixture = Fixture::new().await;
    let at = start_ready_conversation(&fixture).await;
    let mut following = follow(&fixture, at.0, StreamPosition::First).await;
    report(&fixture, &at, &["x"]).await;
    assert_eq!(next(&mut following, DELIVERY_TIMEOUT).await, ["x"]);
    let deleted = fixture.app.conversations.delete(&alice_scope(), at.0).await;
    deleted.expect("deleted");
    let within = Duration::from_secs(3);
    assert_eq!(ends(&mut following, within).await, StreamEndReason::Deleted);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_service_ends_all_streams_even_new_ones() {
    let fixture = Fixture::new().await;
    let at = start_ready_conversation(&fixture).await;
    let mut following = follow(&fixture, at.0, StreamPosition::First).await;
    let ending = async {
        tokio::task::yield_now().await;
        fixture.app.event_streams.end_all();
    };
    let (end, ()) = tokio::join!(ends(&mut following, DELIVERY_TIMEOUT), ending);
    assert_eq!(end, StreamEndReason::Shutdown);
    let mut late = follow(&fixture, at.0, StreamPosition::First).await;
    assert_eq!(
        ends(&mut late, DELIVERY_TIMEOUT).await,
        StreamEndReason::Shutdown
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_streams_are_refused() {
    let fixture = Fixture::new().await;
    let at = start_ready_conversation(&fixture).await;
    report(&fixture, &at, &["x"]).await;
    let bob = OwnerId::parse("bob").expect("a name");
    let nobodys = ConversationId::new(uuid::Uuid::from_u128(7));
    let refusal = async |user: &OwnerId, id, begin| {
        let opened = fixture.app.event_streams.open(user, id, begin, None).await;
        opened.err().map(|error| error.class())
    };
    let not_found = Some(ErrorClass::NotFound);
    assert_eq!(refusal(&bob, at.0, StreamPosition::First).await, not_found);
    assert_eq!(
        refusal(&alice(), nobodys, StreamPosition::Now).await,
        not_found
    );
    let beyond = refusal(&alice(), at.0, StreamPosition::After(2)).await;
    assert_eq!(beyond, Some(ErrorClass::Unprocessable));
    assert_eq!(
        refusal(&alice(), at.0, StreamPosition::After(1)).await,
        None
    );
    let mut open = Vec::new();
    while open.len() < 100 {
        open.push(follow(&fixture, at.0, StreamPosition::First).await);
    }
    let too_many = refusal(&alice(), at.0, StreamPosition::First).await;
    assert_eq!(too_many, Some(ErrorClass::RateLimited));
    open.pop();
    assert_eq!(refusal(&alice(), at.0, StreamPosition::First).await, None);
}
