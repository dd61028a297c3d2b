//! Conformance tests of `UsageRepository`: usage always equals a recount.

use std::collections::BTreeSet;

use domain::conversation::pending::{EnqueueOutcome, MessageTarget};
use domain::conversation::{ConversationFilter, ConversationReport, ConversationView};
use domain::event::{AppendOutcome, Event, EventFilter, EventOrder, shorten_document};
use domain::id::ConversationId;
use domain::json::text_bytes;
use domain::start_task::{StartStatus, StartTaskFilter, StartTaskOrder};
use domain::user::scope::Scope;
use domain::user::usage::{ShortenedEvents, Usage};
use futures::future::join_all;
use serde_json::json;

use crate::StorePorts;
use crate::fixtures::{
    after, at, conversation, conversation_id, event, page, read_all_pages, sandbox_id, scope,
    secret, start, status_update, task_id, user,
};
use crate::suites::conversations::pending_messages::message;

async fn usage(ports: &StorePorts, name: &str) -> Usage {
    let found = ports.usage.usage(&scope(name), &user(name)).await;
    found.expect("usage")
}

async fn conversations(ports: &StorePorts, name: &str) -> Vec<ConversationView> {
    let filter = ConversationFilter {
        include_sub_conversations: true,
        ..ConversationFilter::default()
    };
    let (all, scope) = (&filter, &scope(name));
    let found = read_all_pages(100, async |token| {
        let page = after(100, token);
        let found = ports.conversations.search(scope, all, &page).await;
        found.expect("search")
    });
    found.await
}

async fn events(ports: &StorePorts, name: &str, id: ConversationId) -> Vec<Event> {
    let (all, scope) = (&EventFilter::default(), &scope(name));
    let found = read_all_pages(100, async |token| {
        let (order, page) = (EventOrder::Timestamp, after(100, token));
        let found = ports.events.search(scope, id, all, order, &page).await;
        found.expect("search")
    });
    found.await
}

/// Counts the usage by reading everything that is stored.
async fn recount(ports: &StorePorts, name: &str) -> Usage {
    let mut counted = Usage {
        shortened_events: usage(ports, name).await.shortened_events,
        secrets: ports.secrets.all(&user(name)).await.unwrap().len() as u64,
        ..Usage::default()
    };
    let mut ids = BTreeSet::new();
    for view in conversations(ports, name).await {
        let id = view.conversation.id;
        ids.insert(id);
        let log = events(ports, name, id).await;
        let bytes = log.iter().map(|it| text_bytes(&it.body) as u64);
        counted.conversations += 1;
        counted.events += log.len() as u64;
        counted.event_bytes += bytes.sum::<u64>();
        for waiting in ports.pending.list_waiting(id).await.unwrap() {
            let text = serde_json::to_string(&waiting.message).unwrap();
            counted.pending_messages += 1;
            counted.request_bytes += text.len() as u64;
        }
    }
    let (all, order) = (StartTaskFilter::default(), StartTaskOrder::CreatedAt);
    let (scope, page) = (scope(name), page(100));
    let tasks = ports.tasks.search(&scope, &all, order, &page).await;
    for task in tasks.unwrap().items {
        let is_open = !task.status.is_terminal();
        counted.conversations += u64::from(is_open && !ids.contains(&task.conversation_id));
        counted.request_bytes += serde_json::to_string(&task.request).unwrap().len() as u64;
    }
    counted
}

async fn check(ports: &StorePorts, what: &str) {
    for name in ["alice", "bob"] {
        let (stored, counted) = (usage(ports, name).await, recount(ports, name).await);
        assert_eq!(stored, counted, "{name}, {what}");
    }
}

async fn append(ports: &StorePorts, sandbox: &str, n: u64, batch: &[Event]) -> AppendOutcome {
    let nothing = ConversationReport::default();
    let (origin, id) = (sandbox_id(sandbox), conversation_id(n));
    let stored = ports.events.append(&origin, id, batch, &nothing, at(1));
    stored.await.expect("append")
}

fn batch(from: u64, count: u64) -> Vec<Event> {
    let kinds = ["MessageEvent", "ObservationEvent", "é \u{1F980}"];
    let one = |n: u64| {
        let kind = kinds[usize::try_from(n % 3).unwrap()];
        let mut event = event(&format!("e{n}"), kind, at(1));
        event.body["text"] = json!("\u{0}é\"\n🦀".repeat(usize::try_from(n).unwrap()));
        event
    };
    (from..from + count).map(one).collect()
}

/// The usage of a new user is zero, and no user sees the usage of another.
pub async fn usage_is_counted_by_owner(ports: &StorePorts) {
    assert_eq!(usage(ports, "alice").await, Usage::default());
    ports.insert_sandbox("s", "alice").await;
    let row = conversation(1, "alice", "s", at(0));
    ports.insert_conversation(&row).await;
    let (alice, bob) = (user("alice"), scope("bob"));
    let seen = ports.usage.usage(&bob, &alice).await.unwrap();
    assert_eq!(seen, Usage::default());
    assert_eq!(usage(ports, "bob").await, Usage::default());
    let seen = ports.usage.usage(&Scope::System, &alice).await.unwrap();
    assert_eq!(seen.conversations, 1);
}

/// Events, conversations, starts, messages and secrets are stored and deleted; after each step the usage equals a
/// recount.
pub async fn usage_equals_a_recount(ports: &StorePorts) {
    for (id, owner) in [("s", "alice"), ("t", "bob")] {
        ports.insert_sandbox(id, owner).await;
    }
    for n in 1..=3 {
        ports
            .insert_conversation(&conversation(n, "alice", "s", at(0)))
            .await;
    }
    ports
        .insert_conversation(&conversation(4, "bob", "t", at(0)))
        .await;
    check(ports, "empty conversations").await;
    append(ports, "s", 1, &batch(0, 30)).await;
    append(ports, "t", 4, &batch(0, 3)).await;
    check(ports, "new events").await;
    append(ports, "s", 1, &batch(20, 20)).await;
    append(ports, "s", 1, &batch(0, 40)).await;
    append(ports, "s", 1, &[]).await;
    append(ports, "s", 4, &batch(50, 5)).await;
    append(ports, "s", 9, &batch(50, 5)).await;
    check(ports, "known events, and foreign ones").await;
    let overlapping = (0..8).map(async |n| append(ports, "s", 2, &batch(n, 10)).await);
    join_all(overlapping).await;
    check(ports, "overlapping batches at the same time").await;
    assert_eq!(usage(ports, "alice").await.events, 40 + 17);

    for n in [1, 2] {
        let waiting = message(n, "alice", MessageTarget::Conversation(conversation_id(n)));
        let queued = ports.pending.enqueue(&waiting).await;
        assert_eq!(queued.unwrap(), EnqueueOutcome::Queued(1));
    }
    for n in [1, 2] {
        let secret = secret(n, "alice", &format!("S{n}"), at(1));
        ports.secrets.insert(&secret).await.unwrap();
    }
    check(ports, "messages and secrets").await;
    ports
        .pending
        .complete_delivery(crate::fixtures::uuid(1))
        .await
        .unwrap();
    assert!(ports.secrets.delete(&user("alice"), "S1").await.unwrap());
    check(ports, "one less of each").await;

    let alice = scope("alice");
    let deleted = ports
        .conversations
        .delete(&alice, conversation_id(1), at(3));
    assert!(deleted.await.unwrap());
    append(ports, "s", 1, &batch(60, 5)).await;
    check(ports, "a deleted conversation").await;
}

/// A start counts as one conversation from the moment it is accepted.
pub async fn a_start_counts_as_its_conversation(ports: &StorePorts) {
    let mut new = start(5, "alice", "own", at(2));
    new.task.request.title = Some("é".repeat(100));
    let claimed = ports.insert_and_claim_start(&new).await;
    check(ports, "a start under way").await;
    let now = usage(ports, "alice").await;
    assert_eq!(now.conversations, 1);
    assert!(now.request_bytes > 200, "{now:?}");
    let row = conversation(5, "alice", "own", at(2));
    let begun = status_update(StartStatus::StartingConversation);
    let begun =
        ports
            .start_queue
            .begin_conversation(task_id(5), claimed.fence, &row, &begun, at(3));
    begun.await.unwrap();
    check(ports, "its conversation").await;
    let ended = status_update(StartStatus::Ready);
    let ended = ports
        .start_queue
        .advance(task_id(5), claimed.fence, &ended, at(4));
    ended.await.unwrap();
    check(ports, "a start that is ready").await;
    assert_eq!(usage(ports, "alice").await.conversations, 1);
    assert_eq!(ports.start_queue.prune(at(99), 9).await.unwrap(), 1);
    check(ports, "a start that is forgotten").await;
    assert_eq!(usage(ports, "alice").await.request_bytes, 0);
}

/// During a purge the usage equals a recount, and after it the usage is zero.
pub async fn usage_shrinks_with_each_part_of_a_purge(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    ports.insert_sandbox("t", "bob").await;
    for n in 1..=2 {
        ports
            .insert_conversation(&conversation(n, "alice", "s", at(0)))
            .await;
        append(ports, "s", n, &batch(0, 20)).await;
    }
    ports
        .insert_conversation(&conversation(4, "bob", "t", at(0)))
        .await;
    append(ports, "t", 4, &batch(0, 20)).await;
    let bobs = usage(ports, "bob").await;
    for _ in 0..100 {
        let purged = ports.users.purge(&user("alice"), at(5), 7).await.unwrap();
        check(ports, "a part is deleted").await;
        if !purged.unwrap().more {
            break;
        }
    }
    assert_eq!(usage(ports, "alice").await, Usage::default());
    assert_eq!(usage(ports, "bob").await, bobs);
}

/// The same partly bulky log in two conversations of Alice and one of Bob.
async fn bulky_log(ports: &StorePorts) -> [Event; 4] {
    ports.insert_sandbox("s", "alice").await;
    ports.insert_sandbox("t", "bob").await;
    let large = |id: &str, kind: &str| {
        let mut event = event(id, kind, at(1));
        event.body["observation"] =
            json!({"content": [{"type": "text", "text": "é".repeat(20_000)}]});
        event
    };
    let log = [
        large("1", "ObservationEvent"),
        event("2", "ObservationEvent", at(1)),
        large("3", "MessageEvent"),
        large("4", "ObservationEvent"),
    ];
    for (n, sandbox, owner, created) in [
        (1, "s", "alice", 9),
        (2, "s", "alice", 3),
        (4, "t", "bob", 0),
    ] {
        ports
            .insert_conversation(&conversation(n, owner, sandbox, at(created)))
            .await;
        append(ports, sandbox, n, &log).await;
    }
    log
}

/// Calls shorten the oldest bulky observations, until there is none; nothing else changes.
pub async fn bulky_observations_are_shortened(ports: &StorePorts) {
    let log = bulky_log(ports).await;
    let (alice, before) = (user("alice"), usage(ports, "alice").await);
    let first = ports.usage.shorten_events(&alice).await.unwrap();
    assert!(first.events > 0 && first.bytes > 0, "{first:?}");
    check(ports, "some are shortened").await;
    let older = events(ports, "alice", conversation_id(2)).await;
    assert_ne!(older[0].body, log[0].body, "the oldest event comes first");
    assert_eq!(
        events(ports, "alice", conversation_id(1)).await,
        log,
        "the older conversation comes first"
    );
    let mut all = first;
    for _ in 0..10 {
        let more = ports.usage.shorten_events(&alice).await.unwrap();
        if more == ShortenedEvents::default() {
            break;
        }
        all.events += more.events;
        all.bytes += more.bytes;
    }
    let now = usage(ports, "alice").await;
    assert_eq!((all.events, now.shortened_events), (4, 4));
    assert_eq!(before.event_bytes - now.event_bytes, all.bytes);
    check(ports, "all are shortened").await;
    let expected = log.clone().map(|mut event| {
        if event.is_bulky_observation() {
            event.body = shorten_document(event.body);
        }
        event
    });
    for n in [1, 2] {
        assert_eq!(events(ports, "alice", conversation_id(n)).await, expected);
    }
    assert_eq!(
        events(ports, "bob", conversation_id(4)).await,
        log,
        "another user's"
    );
    assert_eq!(
        append(ports, "s", 1, &log).await,
        AppendOutcome::Stored { new: 0 }
    );
    assert_eq!(
        events(ports, "alice", conversation_id(1)).await,
        expected,
        "shortened events stay short"
    );
}

/// Generates the conformance tests of `UsageRepository`. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! usage_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::usage),
            $fresh,
            [
                usage_is_counted_by_owner,
                usage_equals_a_recount,
                a_start_counts_as_its_conversation,
                usage_shrinks_with_each_part_of_a_purge,
                bulky_observations_are_shortened,
            ]
        );
    };
}
