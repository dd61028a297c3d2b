//! Conformance tests of `EventStore`.

use domain::conversation::{ConversationReport, ExecutionStatus};
use domain::error::StoreError;
use domain::event::{AppendOutcome, Event, EventFilter, EventOrder};
use domain::id::{ConversationId, EventId};
use domain::page::{MAX_PAGE_BYTES, Page, PageRequest};
use domain::user::scope::Scope;
use futures::future::join_all;
use serde_json::json;

use crate::fixtures::{
    after, at, conversation, conversation_id, event, foreign_tokens, page, read_all_pages, report,
    sandbox_id, scope,
};
use crate::{StorePorts, assert_is};

async fn append(ports: &StorePorts, id: ConversationId, events: &[Event]) -> AppendOutcome {
    let nothing = ConversationReport::default();
    let stored = ports
        .events
        .append(&sandbox_id("s"), id, events, &nothing, at(1))
        .await;
    stored.expect("append")
}

async fn search(
    ports: &StorePorts,
    id: ConversationId,
    order: EventOrder,
    page: &PageRequest,
) -> Page<Event> {
    let filter = EventFilter::default();
    let found = ports
        .events
        .search(&scope("alice"), id, &filter, order, page)
        .await;
    found.expect("search")
}

fn ids(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.id.as_str()).collect()
}

/// A stored id is left as it is: within a batch, in a later batch, and concurrently. The result counts the new events.
pub async fn append_is_idempotent(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let (one, two) = (event("1", "A", at(1)), event("2", "A", at(2)));
    let changed = Event {
        kind: "B".to_owned(),
        body: json!({"changed": true}),
        ..one.clone()
    };
    let batch = [one.clone(), two.clone(), changed.clone()];
    assert_eq!(
        append(ports, id, &batch).await,
        AppendOutcome::Stored { new: 2 }
    );
    let three = event("3", "A", at(3));
    let batch = [changed, three.clone()];
    assert_eq!(
        append(ports, id, &batch).await,
        AppendOutcome::Stored { new: 1 }
    );
    assert_eq!(
        append(ports, id, &[]).await,
        AppendOutcome::Stored { new: 0 }
    );
    let found = search(ports, id, EventOrder::Timestamp, &page(9)).await;
    assert_eq!(found.items, [one, two, three]);

    let many: Vec<Event> = (0..40)
        .map(|n| event(&format!("m{n}"), "M", at(9)))
        .collect();
    let answers = join_all((0..10).map(|_| append(ports, id, &many))).await;
    let new: usize = answers
        .into_iter()
        .map(|answer| match answer {
            AppendOutcome::Stored { new } => new,
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(new, 40);
}

/// Events are ordered by time in both directions, ties by sequence.
pub async fn events_are_ordered(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let batch = [
        event("late", "A", at(9)),
        event("z", "A", at(5)),
        event("a", "A", at(5)),
    ];
    append(ports, id, &batch).await;
    append(
        ports,
        id,
        &[event("early", "A", at(1)), event("m", "A", at(5))],
    )
    .await;
    let expected = ["early", "z", "a", "m", "late"];
    let up = search(ports, id, EventOrder::Timestamp, &page(9)).await;
    assert_eq!(ids(&up.items), expected);
    let down = search(ports, id, EventOrder::TimestampDesc, &page(9)).await;
    assert!(ids(&down.items).into_iter().eq(expected.into_iter().rev()));
    for order in [EventOrder::Timestamp, EventOrder::TimestampDesc] {
        let whole = search(ports, id, order, &page(9)).await;
        let walked = read_all_pages(9, async |token| {
            search(ports, id, order, &after(1, token)).await
        });
        assert_eq!(walked.await, whole.items);
    }
}

/// A page continues after the previous one, also when events are added in between, before and after it.
pub async fn paging_is_stable(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let batch: Vec<Event> = (1..=4).map(|n| event(&n.to_string(), "A", at(n))).collect();
    append(ports, id, &batch).await;
    let first = search(ports, id, EventOrder::Timestamp, &page(2)).await;
    assert_eq!(ids(&first.items), ["1", "2"]);
    append(
        ports,
        id,
        &[
            event("0", "A", at(0)),
            event("2b", "A", at(2)),
            event("5", "A", at(5)),
        ],
    )
    .await;
    let rest = search(ports, id, EventOrder::Timestamp, &after(9, first.next)).await;
    assert_eq!(ids(&rest.items), ["2b", "3", "4", "5"]);
    assert_eq!(rest.next, None);
}

/// A foreign token, or one of another order or conversation, is refused.
pub async fn foreign_page_tokens_are_refused(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let other = ports
        .insert_conversation(&conversation(2, "alice", "s", at(0)))
        .await;
    for id in [id, other] {
        append(ports, id, &[event("1", "A", at(1)), event("2", "A", at(2))]).await;
    }
    let mut tokens = foreign_tokens();
    for (id, order) in [
        (id, EventOrder::TimestampDesc),
        (other, EventOrder::Timestamp),
    ] {
        tokens.extend(search(ports, id, order, &page(1)).await.next);
    }
    assert_eq!(tokens.len(), foreign_tokens().len() + 2);
    for token in tokens {
        let answer = ports
            .events
            .search(
                &scope("alice"),
                id,
                &EventFilter::default(),
                EventOrder::Timestamp,
                &after(5, Some(token)),
            )
            .await;
        assert_is!(answer, Err(StoreError::InvalidPageToken));
    }
}

/// Kind and time filter search and count alike.
pub async fn filters_narrow(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    for (n, kind) in [(1, "A"), (2, "B"), (3, "A"), (4, "%")] {
        append(ports, id, &[event(&n.to_string(), kind, at(n))]).await;
    }
    let kind = |kind: &str| EventFilter {
        kind: Some(kind.to_owned()),
        ..EventFilter::default()
    };
    let cases = [
        (EventFilter::default(), vec!["1", "2", "3", "4"]),
        (kind("A"), vec!["1", "3"]),
        (kind("%"), vec!["4"]),
        (kind("a"), vec![]),
        (
            EventFilter {
                from: Some(at(2)),
                before: Some(at(4)),
                ..EventFilter::default()
            },
            vec!["2", "3"],
        ),
        (
            EventFilter {
                from: Some(at(2)),
                ..kind("A")
            },
            vec!["3"],
        ),
    ];
    for (filter, expected) in cases {
        let alice = scope("alice");
        let found = ports
            .events
            .search(&alice, id, &filter, EventOrder::Timestamp, &page(9))
            .await
            .unwrap();
        assert_eq!(ids(&found.items), expected, "{filter:?}");
        let count = ports.events.count(&alice, id, &filter).await.unwrap();
        assert_eq!(count, u64::try_from(expected.len()).unwrap());
    }
}

/// `find_many` keeps order, length and repetition.
pub async fn find_many_keeps_order(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    append(ports, id, &[event("1", "A", at(1)), event("2", "A", at(2))]).await;
    let ids = ["2", "x", "1", "2"].map(|it| EventId::parse(it).unwrap());
    let found = ports.events.find_many(&scope("alice"), id, &ids).await;
    let found: Vec<_> = found
        .unwrap()
        .into_iter()
        .map(|event| event.map(|event| event.id.to_string()))
        .collect();
    let expected = [Some("2"), None, Some("1"), Some("2")].map(|it| it.map(str::to_owned));
    assert_eq!(found, expected);
}

/// Events of another user's conversation are not found. The same id in two conversations is two events.
pub async fn scopes_are_isolated(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let other = ports
        .insert_conversation(&conversation(2, "alice", "s", at(0)))
        .await;
    let one = event("1", "A", at(1));
    append(ports, id, std::slice::from_ref(&one)).await;
    let elsewhere = Event {
        body: json!({"other": 1}),
        ..one.clone()
    };
    assert_eq!(
        append(ports, other, std::slice::from_ref(&elsewhere)).await,
        AppendOutcome::Stored { new: 1 }
    );
    for (who, expected) in [
        (scope("bob"), None),
        (scope("alice"), Some(&one)),
        (Scope::System, Some(&one)),
    ] {
        let filter = EventFilter::default();
        let found = ports
            .events
            .find_many(&who, id, std::slice::from_ref(&one.id))
            .await;
        assert_eq!(found.unwrap(), [expected.cloned()]);
        let count = ports.events.count(&who, id, &filter).await.unwrap();
        assert_eq!(count, u64::from(expected.is_some()));
        let page = ports
            .events
            .search(&who, id, &filter, EventOrder::Timestamp, &page(9))
            .await;
        assert_eq!(page.unwrap().items.first(), expected);
    }
    let unknown = search(ports, conversation_id(9), EventOrder::Timestamp, &page(9)).await;
    assert_eq!(unknown.items, []);
}

/// Only the conversation's sandbox may append; otherwise nothing is written.
pub async fn only_the_own_sandbox_appends(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    ports.insert_sandbox("t", "alice").await;
    let events = [event("1", "A", at(1))];
    let report = report(ExecutionStatus::Error, at(1));
    let foreign = ports
        .events
        .append(&sandbox_id("t"), id, &events, &report, at(1))
        .await;
    assert_eq!(foreign.unwrap(), AppendOutcome::Foreign);
    let unknown = ports
        .events
        .append(
            &sandbox_id("s"),
            conversation_id(9),
            &events,
            &report,
            at(1),
        )
        .await;
    assert_eq!(unknown.unwrap(), AppendOutcome::Unknown);
    let count = ports
        .events
        .count(&Scope::System, id, &EventFilter::default())
        .await;
    assert_eq!(count.unwrap(), 0);
    let row = ports.view(id).await.unwrap().conversation;
    assert_eq!(row.execution_status, None);
}

/// The report of a batch is applied with it, also if no event is new.
pub async fn the_report_is_applied_with_the_batch(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    for (status, when) in [
        (ExecutionStatus::Running, 3),
        (ExecutionStatus::Finished, 4),
    ] {
        let stored = ports
            .events
            .append(
                &sandbox_id("s"),
                id,
                &[event("1", "A", at(1))],
                &report(status, at(when)),
                at(when),
            )
            .await;
        assert_is!(stored, Ok(AppendOutcome::Stored { .. }));
        let row = ports.view(id).await.unwrap().conversation;
        assert_eq!(
            (row.execution_status, row.updated_at),
            (Some(status), at(when))
        );
    }
}

/// Ids and documents are returned exactly as the agent server sent them, including the order of keys.
pub async fn documents_come_back_verbatim(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let odd = [
        "../../etc/passwd",
        "a|b",
        "0123",
        "é 🦀",
        "' OR 1=1 --",
        "%",
    ];
    let batch: Vec<Event> = odd
        .iter()
        .zip(1..)
        .map(|(name, n)| Event {
            body: serde_json::from_str(
                r#"{"z": 1, "a": [null, true, 1.5, -9007199254740993, "\u0000 \ud83e\udd80"], "": {}}"#,
            )
            .unwrap(),
            ..event(name, "Odd Kind é", at(n))
        })
        .collect();
    append(ports, id, &batch).await;
    let found = search(ports, id, EventOrder::Timestamp, &page(9)).await;
    assert_eq!(found.items, batch);
    let keys: Vec<_> = found.items[0].body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["z", "a", ""]);
}

/// A large batch is stored completely and in order.
pub async fn a_large_batch_is_stored_whole(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let batch: Vec<Event> = (0..5_000)
        .map(|n| event(&n.to_string(), "A", at(n)))
        .collect();
    assert_eq!(
        append(ports, id, &batch).await,
        AppendOutcome::Stored { new: 5_000 }
    );
    let last = search(ports, id, EventOrder::TimestampDesc, &page(1)).await;
    assert_eq!(ids(&last.items), ["4999"]);
}

/// A page of large documents ends early, and all pages together contain every event once and in order.
pub async fn pages_of_large_documents_end_early(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let sizes = [
        MAX_PAGE_BYTES / 2,
        1,
        MAX_PAGE_BYTES / 2,
        MAX_PAGE_BYTES + 1,
        1,
        1,
    ];
    let batch: Vec<Event> = sizes
        .into_iter()
        .zip(1..)
        .map(|(size, n)| Event {
            body: json!("x".repeat(size)),
            ..event(&n.to_string(), "A", at(n))
        })
        .collect();
    append(ports, id, &batch).await;
    for (order, expected) in [
        (EventOrder::Timestamp, vec![2, 1, 1, 2]),
        (EventOrder::TimestampDesc, vec![2, 1, 2, 1]),
    ] {
        let (mut token, mut lengths, mut found) = (None, Vec::new(), Vec::new());
        loop {
            let page = search(ports, id, order, &after(9, token)).await;
            lengths.push(page.items.len());
            found.extend(page.items.into_iter().map(|event| event.id.to_string()));
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(lengths, expected, "{order:?}");
        if order == EventOrder::TimestampDesc {
            found.reverse();
        }
        assert_eq!(found, ["1", "2", "3", "4", "5", "6"]);
    }
}

/// Generates the conformance tests of `EventStore`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! event_store_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (events::store),
            $fresh,
            [
                append_is_idempotent,
                events_are_ordered,
                paging_is_stable,
                foreign_page_tokens_are_refused,
                filters_narrow,
                find_many_keeps_order,
                scopes_are_isolated,
                only_the_own_sandbox_appends,
                the_report_is_applied_with_the_batch,
                documents_come_back_verbatim,
                a_large_batch_is_stored_whole,
                pages_of_large_documents_end_early,
            ]
        );
    };
}
