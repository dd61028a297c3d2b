//! Conformance tests of `ConversationReportRepository::apply_report` and `settle_running`.

use std::collections::BTreeMap;

use domain::conversation::{
    Conversation, ConversationChange, ConversationReport, ExecutionStatus, Metrics,
};
use domain::event::AppendOutcome;
use domain::id::ConversationId;
use domain::patch::Patch;

use crate::StorePorts;
use crate::fixtures::{at, conversation, conversation_id, report, sandbox_id, scope};

async fn apply_report(
    ports: &StorePorts,
    id: ConversationId,
    observation: ConversationReport,
    when: i64,
) -> Conversation {
    let stored = ports
        .conversation_reports
        .apply_report(&sandbox_id("s"), id, &observation, at(when))
        .await;
    assert_eq!(stored.unwrap(), AppendOutcome::Stored { new: 0 });
    ports.view(id).await.unwrap().conversation
}

/// Reports arrive in any order; the newest wins. A report as new as the stored one overwrites it.
pub async fn an_older_status_does_not_overwrite_a_newer_one(ports: &StorePorts) {
    use ExecutionStatus::{Finished, Paused, Running};
    let id = ports.insert_sandbox_and_conversation().await;
    let row = apply_report(ports, id, report(Running, at(5)), 10).await;
    assert_eq!(
        (row.execution_status, row.updated_at),
        (Some(Running), at(10))
    );
    let row = apply_report(ports, id, report(Finished, at(4)), 11).await;
    assert_eq!(
        (row.execution_status, row.updated_at),
        (Some(Running), at(10))
    );
    let row = apply_report(ports, id, report(Paused, at(5)), 12).await;
    assert_eq!(row.execution_status, Some(Paused));
    let row = apply_report(ports, id, report(Finished, at(6)), 13).await;
    assert_eq!(
        (row.execution_status, row.updated_at),
        (Some(Finished), at(13))
    );
}

/// A total below the stored one is ignored, field by field.
pub async fn totals_never_decrease(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let metrics = |cost, prompt, completion| ConversationReport {
        metrics: Some(Metrics {
            accumulated_cost: cost,
            prompt_tokens: prompt,
            completion_tokens: completion,
            ..Metrics::default()
        }),
        ..ConversationReport::default()
    };
    let totals = |row: Conversation| {
        (
            row.metrics.accumulated_cost.to_string(),
            row.metrics.prompt_tokens,
            row.metrics.completion_tokens,
        )
    };
    let row = apply_report(ports, id, metrics(1.5, 100, 10), 1).await;
    assert_eq!(totals(row), ("1.5".to_owned(), 100, 10));
    let row = apply_report(ports, id, metrics(1.25, 90, 20), 2).await;
    assert_eq!(totals(row), ("1.5".to_owned(), 100, 20));
    let row = apply_report(ports, id, metrics(f64::NAN, 0, 0), 3).await;
    assert_eq!(totals(row), ("1.5".to_owned(), 100, 20));
    let row = apply_report(ports, id, metrics(2.0, 110, 30), 4).await;
    assert_eq!(totals(row), ("2".to_owned(), 110, 30));
}

/// The agent server's title is stored until a user sets or clears the title.
pub async fn a_chosen_title_stays(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let titled = |title: &str| ConversationReport {
        title: Some(title.to_owned()),
        ..ConversationReport::default()
    };
    let row = apply_report(ports, id, titled("made up"), 1).await;
    assert_eq!(
        (row.title.as_deref(), row.auto_title),
        (Some("made up"), true)
    );
    let row = apply_report(ports, id, titled("made up anew"), 2).await;
    assert_eq!(row.title.as_deref(), Some("made up anew"));
    for (choice, expected) in [
        (Patch::Set("chosen".to_owned()), Some("chosen")),
        (Patch::Clear, None),
    ] {
        let change = ConversationChange {
            title: choice,
            ..ConversationChange::default()
        };
        ports
            .conversations
            .update(&scope("alice"), id, &change, at(3))
            .await
            .unwrap();
        let row = apply_report(ports, id, titled("made up"), 4).await;
        assert_eq!((row.title.as_deref(), row.auto_title), (expected, false));
    }
}

/// Tags are merged (new ones win); the model is replaced.
pub async fn tags_and_model_are_merged(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let tags = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    };
    let report = |model: &str, pairs: &[(&str, &str)]| ConversationReport {
        llm_model: Some(model.to_owned()),
        tags: tags(pairs),
        ..ConversationReport::default()
    };
    apply_report(ports, id, report("one", &[("a", "1"), ("b", "1")]), 1).await;
    let row = apply_report(ports, id, report("two", &[("b", "2"), ("c", "2")]), 2).await;
    assert_eq!(row.llm_model.as_deref(), Some("two"));
    assert_eq!(row.tags, tags(&[("a", "1"), ("b", "2"), ("c", "2")]));
}

/// A report does not change owner, sandbox, time of creation, public flag and the like. A report without news does not
/// even change `updated_at`.
pub async fn a_report_changes_only_its_fields(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    let before = ports.view(id).await.unwrap().conversation;
    let row = apply_report(ports, id, ConversationReport::default(), 1).await;
    assert_eq!(row, before);
    let everything = ConversationReport {
        execution_status: Some((ExecutionStatus::Running, at(1))),
        metrics: Some(Metrics::default()),
        llm_model: Some("model".to_owned()),
        title: Some("title".to_owned()),
        tags: BTreeMap::new(),
    };
    let row = apply_report(ports, id, everything.clone(), 2).await;
    let expected = Conversation {
        execution_status: Some(ExecutionStatus::Running),
        llm_model: Some("model".to_owned()),
        title: Some("title".to_owned()),
        updated_at: at(2),
        ..before
    };
    assert_eq!(row, expected);
    let row = apply_report(ports, id, everything, 3).await;
    assert_eq!(row.updated_at, at(2), "an unchanged row");
}

/// A sandbox reports only about its own conversations.
pub async fn reports_of_others_change_nothing(ports: &StorePorts) {
    let id = ports.insert_sandbox_and_conversation().await;
    ports.insert_sandbox("t", "alice").await;
    let before = ports.view(id).await;
    let observe = async |sandbox: &str, id| {
        let report = report(ExecutionStatus::Error, at(1));
        ports
            .conversation_reports
            .apply_report(&sandbox_id(sandbox), id, &report, at(1))
            .await
            .unwrap()
    };
    assert_eq!(observe("t", id).await, AppendOutcome::Foreign);
    assert_eq!(
        observe("s", conversation_id(9)).await,
        AppendOutcome::Unknown
    );
    assert_eq!(ports.view(id).await, before);
    let deleted = ports.conversations.delete(&scope("alice"), id, at(2)).await;
    assert!(deleted.unwrap());
    assert_eq!(observe("s", id).await, AppendOutcome::Deleted);
    assert_eq!(ports.view(id).await, None);
}

/// When a sandbox stops, its running conversations stop running. A late, older report does not change that.
pub async fn conversations_of_a_stopped_sandbox_are_settled(ports: &StorePorts) {
    use ExecutionStatus::{Finished, Paused, Running};
    for id in ["s", "t"] {
        ports.insert_sandbox(id, "alice").await;
    }
    for (n, sandbox, status) in [(1, "s", Running), (2, "s", Finished), (3, "t", Running)] {
        ports
            .insert_conversation(&Conversation {
                execution_status: Some(status),
                ..conversation(n, "alice", sandbox, at(0))
            })
            .await;
    }
    let settled = ports
        .conversation_reports
        .settle_running(&sandbox_id("s"), Paused, at(5))
        .await;
    assert_eq!(settled.unwrap(), 1);
    for (n, expected) in [(1, Paused), (2, Finished), (3, Running)] {
        let row = ports.view(conversation_id(n)).await.unwrap().conversation;
        assert_eq!(row.execution_status, Some(expected), "{n}");
        assert_eq!(row.updated_at, if n == 1 { at(5) } else { at(0) });
    }
    let row = apply_report(ports, conversation_id(1), report(Running, at(4)), 6).await;
    assert_eq!(row.execution_status, Some(Paused));
    let row = apply_report(ports, conversation_id(1), report(Running, at(7)), 7).await;
    assert_eq!(row.execution_status, Some(Running));
}
