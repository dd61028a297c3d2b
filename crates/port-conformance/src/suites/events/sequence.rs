//! Conformance tests of `EventStore` for followers: every event once, in sequence.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::conversation::ConversationReport;
use domain::event::{AppendOutcome, Event, MAX_EVENT_BATCH_BYTES, SequencedEvent};
use domain::id::ConversationId;
use domain::user::scope::Scope;
use futures::future::join_all;
use serde_json::json;

use crate::StorePorts;
use crate::fixtures::{at, conversation_id, event, sandbox_id, scope};

/// More than there are, in most tests.
const MANY: usize = 1_000;
const WRITERS: usize = 8;
const BATCHES: usize = 25;

async fn append(ports: &StorePorts, id: ConversationId, events: &[Event]) {
    let (origin, nothing) = (sandbox_id("s"), ConversationReport::default());
    let stored = ports.events.append(&origin, id, events, &nothing, at(1));
    let stored = stored.await.expect("append");
    assert!(matches!(stored, AppendOutcome::Stored { .. }), "{stored:?}");
}

async fn list_after(
    ports: &StorePorts,
    id: ConversationId,
    after: u64,
    limit: usize,
) -> Vec<SequencedEvent> {
    let alice = scope("alice");
    let found = ports.events.list_after(&alice, id, after, limit).await;
    found
        .expect("list the events")
        .expect("alice's conversation")
}

async fn last(ports: &StorePorts, id: ConversationId) -> u64 {
    let last = ports.events.last_sequence(&scope("alice"), id).await;
    last.expect("read the last number")
        .expect("alice's conversation")
}

fn ids(events: &[SequencedEvent]) -> Vec<&str> {
    events.iter().map(|it| it.event.id.as_str()).collect()
}

/// Sequence numbers grow in the order of commits, regardless of time stamps, and reading continues after any of them.
pub async fn sequence_numbers_follow_the_order_of_commits(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    assert_eq!(last(ports, id).await, 0);
    assert_eq!(list_after(ports, id, 0, MANY).await, []);
    append(ports, id, &[event("b", "A", at(9)), event("a", "A", at(9))]).await;
    append(
        ports,
        id,
        &[
            event("a", "A", at(0)),
            event("old", "B", at(0)),
            event("c", "A", at(5)),
        ],
    )
    .await;
    let all = list_after(ports, id, 0, MANY).await;
    assert_eq!(ids(&all), ["b", "a", "old", "c"]);
    assert_eq!(
        all[2].event,
        event("old", "B", at(0)),
        "the event as first stored, once"
    );
    assert!(all.is_sorted_by(|one, two| one.seq < two.seq) && all[0].seq > 0);
    assert_eq!(last(ports, id).await, all[3].seq);
    for (n, from) in all.iter().enumerate() {
        assert_eq!(list_after(ports, id, from.seq, MANY).await, all[n + 1..]);
        assert_eq!(list_after(ports, id, from.seq - 1, 1).await, all[n..=n]);
    }
    for beyond in [all[3].seq + 1, u64::MAX] {
        assert_eq!(list_after(ports, id, beyond, MANY).await, []);
    }
}

/// A batch ends before its documents are too large, but contains at least one event.
pub async fn batches_of_large_documents_end_early(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    for n in 0..5 {
        let mut large = event(&n.to_string(), "A", at(n));
        let bytes = if n == 2 {
            2 * MAX_EVENT_BATCH_BYTES
        } else {
            MAX_EVENT_BATCH_BYTES * 2 / 5
        };
        large.body = json!({"text": "x".repeat(bytes)});
        append(ports, id, &[large]).await;
    }
    let (mut after, mut texts) = (0, Vec::new());
    loop {
        let part = list_after(ports, id, after, MANY).await;
        let Some(end) = part.last() else { break };
        after = end.seq;
        texts.push(ids(&part).join(" "));
    }
    assert_eq!(texts, ["0 1", "2", "3 4"]);
}

/// Other users, and all after the deletion, get `None`, which differs from a conversation without events.
pub async fn invisible_conversations_have_no_sequence(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    append(ports, id, &[event("1", "A", at(1))]).await;
    let sees = async |scope: Scope, id| {
        let events = ports.events.list_after(&scope, id, 0, 9).await.unwrap();
        let last = ports.events.last_sequence(&scope, id).await.unwrap();
        assert_eq!(events.is_some(), last.is_some());
        events.map(|events| events.len())
    };
    assert_eq!(sees(scope("alice"), id).await, Some(1));
    assert_eq!(sees(Scope::System, id).await, Some(1));
    assert_eq!(sees(scope("bob"), id).await, None);
    assert_eq!(sees(scope("alice"), conversation_id(2)).await, None);
    let deleted = ports.conversations.delete(&scope("alice"), id, at(2)).await;
    deleted.expect("deleted");
    assert_eq!(sees(scope("alice"), id).await, None);
    assert_eq!(sees(Scope::System, id).await, None);
}

/// Writers append concurrently and with repetitions while followers read. No number appears below one that was read
/// before, so each follower sees every event once, in the same order.
pub async fn followers_see_every_event_once(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let writing = AtomicUsize::new(WRITERS);
    let write = async |writer: usize| {
        for batch in 0..BATCHES {
            let named = |n: usize| event(&format!("{writer}-{batch}-{n}"), "A", at(1));
            let mut batch: Vec<Event> = (0..=batch % 4).map(named).collect();
            // An event that all of them send.
            batch.insert(0, event(&format!("all-{}", batch.len()), "A", at(1)));
            append(ports, id, &batch).await;
        }
        writing.fetch_sub(1, Ordering::SeqCst);
    };
    let follow = async || {
        let mut seen: Vec<SequencedEvent> = Vec::new();
        loop {
            let are_done = writing.load(Ordering::SeqCst) == 0;
            let after = seen.last().map_or(0, |it| it.seq);
            let part = list_after(ports, id, after, 7).await;
            if part.is_empty() && are_done {
                return seen;
            }
            if part.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            seen.extend(part);
        }
    };
    let writers = join_all((0..WRITERS).map(write));
    let (_, one, two) = tokio::join!(writers, follow(), follow());
    let all = list_after(ports, id, 0, usize::MAX).await;
    let own: usize = (0..BATCHES).map(|batch| batch % 4 + 1).sum();
    assert_eq!(all.len(), WRITERS * own + 4);
    assert!(
        one == all && two == all,
        "a follower missed or reordered events"
    );
}

/// Generates the conformance tests of followers of events. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! event_sequence_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (events::sequence),
            $fresh,
            [
                sequence_numbers_follow_the_order_of_commits,
                batches_of_large_documents_end_early,
                invisible_conversations_have_no_sequence,
                followers_see_every_event_once,
            ]
        );
    };
}
