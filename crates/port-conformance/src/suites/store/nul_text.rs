//! Conformance tests of NUL, which not every database can hold. Logs, generated titles and search terms may contain it.
//! It is stored as itself or as U+FFFD, and never makes a call fail.

use std::collections::BTreeMap;

use domain::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationReport,
};
use domain::event::{AppendOutcome, Event, EventFilter, EventOrder};
use domain::patch::Patch;
use domain::sandbox::{DesiredState, SandboxFacts};
use domain::start_task::StartStatus;

use crate::StorePorts;
use crate::fixtures::{at, conversation, event, page, sandbox_id, scope, start, status_update};

const TEXT_WITH_NUL: &str = "a\0b";

/// Checks that NUL was stored as itself or replaced.
fn assert_nul_kept_or_replaced(stored: Option<&str>) {
    let stored = stored.map(|text| text.replace('\0', "\u{fffd}"));
    assert_eq!(stored.as_deref(), Some("a\u{fffd}b"));
}

fn text_with_nul() -> String {
    TEXT_WITH_NUL.to_owned()
}

/// The output of a failed sandbox, and the cause of a failed start.
pub async fn a_cause_may_contain_nul(ports: &StorePorts) {
    let id = ports.insert_sandbox("s", "alice").await.id;
    for facts in [
        SandboxFacts::Error {
            detail: text_with_nul(),
        },
        SandboxFacts::Preparing {
            detail: text_with_nul(),
        },
    ] {
        let known = ports
            .host_sandboxes
            .record_facts(&id, DesiredState::Running, &facts, at(1))
            .await;
        assert!(known.unwrap());
        assert_nul_kept_or_replaced(
            ports
                .sandbox_row(&id)
                .await
                .unwrap()
                .status_detail
                .as_deref(),
        );
    }
    let host = crate::fixtures::host();
    ports
        .host_sandboxes
        .annotate(&host, Some(TEXT_WITH_NUL))
        .await
        .unwrap();
    assert_nul_kept_or_replaced(
        ports
            .sandbox_row(&id)
            .await
            .unwrap()
            .status_detail
            .as_deref(),
    );

    let mut new = start(1, "alice", "own", at(0));
    new.task.request.llm_model = Some(text_with_nul());
    let claimed = ports.insert_and_claim_start(&new).await;
    assert_nul_kept_or_replaced(claimed.task.request.llm_model.as_deref());
    let mut failed = status_update(StartStatus::Error);
    (failed.detail, failed.notes) = (Some(text_with_nul()), vec![text_with_nul()]);
    let task = ports
        .start_queue
        .fail(claimed.task.id, claimed.fence, &failed, at(2))
        .await
        .unwrap();
    assert_nul_kept_or_replaced(task.detail.as_deref());
    assert_nul_kept_or_replaced(task.notes.first().map(String::as_str));
}

/// The report of an agent server, and the title and search terms of the owner.
pub async fn a_conversation_may_contain_nul(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let row = Conversation {
        title: Some(text_with_nul()),
        selected_repository: Some(text_with_nul()),
        selected_branch: Some(text_with_nul()),
        llm_model: Some(text_with_nul()),
        tags: BTreeMap::from([("k".to_owned(), text_with_nul())]),
        ..conversation(1, "alice", "s", at(0))
    };
    let id = ports.insert_conversation(&row).await;
    let load = async || ports.view(id).await.unwrap().conversation;
    let row = load().await;
    assert_nul_kept_or_replaced(row.title.as_deref());
    assert_nul_kept_or_replaced(row.selected_branch.as_deref());
    assert_nul_kept_or_replaced(row.tags.get("k").map(String::as_str));
    let report = ConversationReport {
        title: Some(format!("{TEXT_WITH_NUL}{TEXT_WITH_NUL}")),
        llm_model: Some(text_with_nul()),
        ..ConversationReport::default()
    };
    let stored = ports
        .conversation_reports
        .apply_report(&sandbox_id("s"), id, &report, at(1))
        .await;
    assert_eq!(stored.unwrap(), AppendOutcome::Stored { new: 0 });
    assert_nul_kept_or_replaced(load().await.llm_model.as_deref());
    let change = ConversationChange {
        title: Patch::Set(text_with_nul()),
        selected_branch: Patch::Set(text_with_nul()),
        ..ConversationChange::default()
    };
    let alice = scope("alice");
    let updated = ports.conversations.update(&alice, id, &change, at(2)).await;
    assert_nul_kept_or_replaced(updated.unwrap().unwrap().conversation.title.as_deref());
    for (search_term, expected) in [("A\0B", 1), ("\0\0", 0)] {
        let filter = ConversationFilter {
            title_contains: Some(search_term.to_owned()),
            ..ConversationFilter::default()
        };
        let found = ports.conversations.search(&alice, &filter, &page(9)).await;
        assert_eq!(found.unwrap().items.len(), expected, "{search_term:?}");
        let count = ports.conversations.count(&alice, &filter).await.unwrap();
        assert_eq!(count, expected as u64, "{search_term:?}");
    }
}

/// Agent servers choose the kinds of events; their documents are returned unchanged.
pub async fn an_event_may_contain_nul(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let id = ports
        .insert_conversation(&conversation(1, "alice", "s", at(0)))
        .await;
    let body = serde_json::json!({"text": TEXT_WITH_NUL});
    let event_with_nul = Event {
        body: body.clone(),
        ..event("1", TEXT_WITH_NUL, at(1))
    };
    let nothing = ConversationReport::default();
    let stored = ports
        .events
        .append(&sandbox_id("s"), id, &[event_with_nul], &nothing, at(1))
        .await;
    assert_eq!(stored.unwrap(), AppendOutcome::Stored { new: 1 });
    for (kind, expected) in [(TEXT_WITH_NUL, 1), ("\0", 0)] {
        let filter = EventFilter {
            kind: Some(kind.to_owned()),
            ..EventFilter::default()
        };
        let (alice, order) = (scope("alice"), EventOrder::Timestamp);
        let found = ports
            .events
            .search(&alice, id, &filter, order, &page(9))
            .await
            .unwrap();
        assert_eq!(found.items.len(), expected, "{kind:?}");
        for event in found.items {
            assert_nul_kept_or_replaced(Some(&event.kind));
            assert_eq!(event.body, body);
        }
    }
}

/// Generates the conformance tests of unusual texts. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! nul_text_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (store::nul_text),
            $fresh,
            [
                a_cause_may_contain_nul,
                a_conversation_may_contain_nul,
                an_event_may_contain_nul,
            ]
        );
    };
}
