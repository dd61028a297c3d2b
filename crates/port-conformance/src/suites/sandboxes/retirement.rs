//! Conformance tests of `HostSandboxRepository::list_retirable` and `retire`: which sandboxes the service pauses or deletes
//! by itself. A sandbox in use is never among them.

use domain::conversation::{Conversation, ConversationReport, ExecutionStatus};
use domain::event::AppendOutcome;
use domain::id::HostId;
use domain::sandbox::RetirementReason::{self, IdleSince, OlderThan};
use domain::sandbox::{DesiredState, Sandbox, SandboxFacts, SandboxStatus};
use domain::user::scope::Scope;

use crate::StorePorts;
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, endpoints, event, host, report, sandbox,
    sandbox_id, scope, start_in,
};

/// Stores a sandbox that was created at `created` and has been RUNNING since `changed`.
pub(super) async fn running(ports: &StorePorts, id: &str, created: i64, changed: i64) {
    let row = sandbox(id, "alice", at(created));
    ports.sandboxes.insert(&row, &AMPLE_CAPS).await.unwrap();
    let endpoints = endpoints(8000);
    record(ports, id, SandboxFacts::Running { endpoints }, changed).await;
}

async fn record(ports: &StorePorts, id: &str, facts: SandboxFacts, when: i64) {
    let row = ports.sandbox_row(&sandbox_id(id)).await.unwrap();
    let recorded = ports
        .host_sandboxes
        .record_facts(&row.id, row.desired, &facts, at(when))
        .await;
    assert!(recorded.unwrap(), "{id}");
}

async fn set_desired(ports: &StorePorts, id: &str, desired: DesiredState, when: i64) {
    let set = ports
        .sandboxes
        .set_desired(
            &scope("alice"),
            &sandbox_id(id),
            desired,
            &AMPLE_CAPS,
            at(when),
        )
        .await;
    assert!(set.unwrap().is_some(), "{id}");
}

/// Stores conversation `n` of that sandbox, last changed at `changed`.
async fn store_conversation(
    ports: &StorePorts,
    n: u64,
    id: &str,
    status: Option<ExecutionStatus>,
    changed: i64,
) {
    let row = Conversation {
        execution_status: status,
        updated_at: at(changed),
        ..conversation(n, "alice", id, at(0))
    };
    ports.insert_conversation(&row).await;
}

async fn list_retirable(ports: &StorePorts, why: RetirementReason, limit: usize) -> Vec<String> {
    let found = ports
        .host_sandboxes
        .list_retirable(&host(), why, limit)
        .await;
    found.unwrap().iter().map(|it| it.id.to_string()).collect()
}

pub(super) async fn retire(
    ports: &StorePorts,
    id: &str,
    why: RetirementReason,
    when: i64,
) -> Option<Sandbox> {
    let retired = ports
        .host_sandboxes
        .retire(&sandbox_id(id), why, at(when))
        .await;
    retired.unwrap()
}

/// Checks that exactly these sandboxes of the host are listed, in this order, and that exactly these can be retired.
async fn assert_retirable(ports: &StorePorts, why: RetirementReason, expected: &[&str]) {
    assert_eq!(list_retirable(ports, why, 100).await, expected);
    for row in ports
        .host_sandboxes
        .list_on_host(&host(), None, 100)
        .await
        .unwrap()
    {
        let id = row.id.as_str();
        let retired = retire(ports, id, why, 90).await;
        assert_eq!(retired.is_some(), expected.contains(&id), "{id}");
        let now = ports.sandbox_row(&row.id).await.unwrap();
        assert_eq!(now, retired.unwrap_or(row));
    }
    assert_eq!(list_retirable(ports, why, 100).await, [""; 0]);
}

/// Idle means: RUNNING and desired to run, no conversation in it runs or starts, and nothing has changed since.
pub async fn idle_sandboxes_are_paused(ports: &StorePorts) {
    use ExecutionStatus::{Finished, Running};
    let used = [
        "busy", "starting", "spoken", "changed", "edge", "pausing", "paused",
    ];
    for id in used.iter().chain(&["failed", "gone", "deleted", "quiet"]) {
        running(ports, id, 0, 10).await;
    }
    running(ports, "empty", 0, 9).await;
    store_conversation(ports, 1, "busy", Some(Running), 5).await;
    store_conversation(ports, 2, "busy", Some(Finished), 5).await;
    ports
        .insert_start(&start_in(3, "alice", "starting", at(5)))
        .await;
    store_conversation(ports, 4, "spoken", Some(Finished), 5).await;
    store_conversation(ports, 5, "spoken", None, 41).await;
    let facts = SandboxFacts::Preparing {
        detail: "half".to_owned(),
    };
    record(ports, "changed", facts, 20).await;
    let endpoints = endpoints(8000);
    record(ports, "changed", SandboxFacts::Running { endpoints }, 41).await;
    store_conversation(ports, 6, "edge", None, 40).await;
    set_desired(ports, "pausing", DesiredState::Paused, 11).await;
    set_desired(ports, "paused", DesiredState::Paused, 11).await;
    record(ports, "paused", SandboxFacts::Paused, 12).await;
    let detail = "it died".to_owned();
    let failed = SandboxFacts::Error {
        detail: detail.clone(),
    };
    record(ports, "failed", failed, 12).await;
    record(ports, "gone", SandboxFacts::Missing { detail }, 12).await;
    set_desired(ports, "deleted", DesiredState::Deleted, 11).await;
    store_conversation(ports, 7, "quiet", Some(Finished), 39).await;
    ports.insert_sandbox("booting", "alice").await;
    store_on_another_host(ports).await;
    assert_retirable(ports, IdleSince(at(40)), &["empty", "quiet"]).await;
}

/// An idle and old sandbox of another host.
async fn store_on_another_host(ports: &StorePorts) {
    let mut row = sandbox("elsewhere", "alice", at(0));
    row.host = HostId::parse("host-2").unwrap();
    row.status = SandboxStatus::Running;
    ports.sandboxes.insert(&row, &AMPLE_CAPS).await.unwrap();
}

/// An old sandbox is deleted in any state and regardless of its last use, but not while a conversation in it runs or
/// starts.
pub async fn old_sandboxes_are_deleted(ports: &StorePorts) {
    let old = [
        "busy", "starting", "spoken", "paused", "failed", "deleted", "plain",
    ];
    for id in old {
        running(ports, id, 39, 41).await;
    }
    running(ports, "young", 40, 41).await;
    store_conversation(ports, 1, "busy", Some(ExecutionStatus::Running), 5).await;
    ports
        .insert_start(&start_in(2, "alice", "starting", at(5)))
        .await;
    store_conversation(ports, 3, "spoken", Some(ExecutionStatus::Finished), 80).await;
    set_desired(ports, "paused", DesiredState::Paused, 42).await;
    record(ports, "paused", SandboxFacts::Paused, 43).await;
    let detail = "it died".to_owned();
    record(ports, "failed", SandboxFacts::Error { detail }, 44).await;
    set_desired(ports, "deleted", DesiredState::Deleted, 45).await;
    store_on_another_host(ports).await;
    let expected = ["plain", "spoken", "paused", "failed"];
    assert_retirable(ports, OlderThan(at(40)), &expected).await;
}

/// The list is ordered longest unchanged first, ties by id, up to the limit.
pub async fn the_longest_unchanged_come_first(ports: &StorePorts) {
    for (id, changed) in [("c", 12), ("a", 12), ("b", 11), ("d", 13)] {
        running(ports, id, 0, changed).await;
    }
    for why in [IdleSince(at(40)), OlderThan(at(40))] {
        assert_eq!(list_retirable(ports, why, 9).await, ["b", "a", "c", "d"]);
        assert_eq!(list_retirable(ports, why, 2).await, ["b", "a"]);
        assert_eq!(list_retirable(ports, why, 0).await, [""; 0]);
    }
}

/// Retirement commits the intent: paused, with its time, or deleted, which hides the sandbox from its owner. Facts stay
/// unchanged.
pub async fn retiring_commits_an_intent(ports: &StorePorts) {
    running(ports, "a", 0, 10).await;
    let before = ports.sandbox_row(&sandbox_id("a")).await.unwrap();
    let paused = retire(ports, "a", IdleSince(at(40)), 50).await;
    let expected = Sandbox {
        desired: DesiredState::Paused,
        paused_at: Some(at(50)),
        updated_at: at(50),
        ..before
    };
    assert_eq!(paused.as_ref(), Some(&expected));
    assert_eq!(ports.sandbox_row(&expected.id).await, paused);
    let again = retire(ports, "a", IdleSince(at(99)), 99).await;
    assert_eq!(again, None, "the intent is paused already");

    let deleted = retire(ports, "a", OlderThan(at(40)), 60).await;
    let expected = Sandbox {
        desired: DesiredState::Deleted,
        updated_at: at(60),
        ..expected
    };
    assert_eq!(deleted.as_ref(), Some(&expected));
    let found = ports.sandboxes.find(&scope("alice"), &expected.id).await;
    assert_eq!(found.unwrap(), None);
    let found = ports.sandboxes.find(&Scope::System, &expected.id).await;
    assert_eq!(found.unwrap(), deleted);
    for id in ["a", "unknown"] {
        assert_eq!(retire(ports, id, OlderThan(at(99)), 99).await, None);
    }
}

/// Every report about a sandbox's conversations counts as use: an event without a change of the conversation (the user
/// wrote a message), or a change of its status. A repeated report does not.
pub async fn reports_count_as_use(ports: &StorePorts) {
    running(ports, "s", 0, 10).await;
    store_conversation(ports, 1, "s", None, 10).await;
    let (s, id) = (sandbox_id("s"), conversation_id(1));
    let message = [event("1", "MessageEvent", at(1))];
    for (new, when) in [(1, 20), (0, 30)] {
        let nothing = ConversationReport::default();
        let stored = ports.events.append(&s, id, &message, &nothing, at(when));
        assert_eq!(stored.await.unwrap(), AppendOutcome::Stored { new });
    }
    assert_eq!(retire(ports, "s", IdleSince(at(20)), 50).await, None);
    let found = list_retirable(ports, IdleSince(at(21)), 9).await;
    assert_eq!(
        found,
        ["s"],
        "a stored event does not count as use of the sandbox"
    );

    let observe = async |status, when| {
        let report = report(status, at(when));
        let stored = ports
            .conversation_reports
            .apply_report(&s, id, &report, at(when))
            .await;
        assert_eq!(stored.unwrap(), AppendOutcome::Stored { new: 0 });
    };
    observe(ExecutionStatus::Running, 30).await;
    let all = [IdleSince(at(99)), OlderThan(at(99))];
    for why in all {
        assert_eq!(retire(ports, "s", why, 99).await, None, "{why:?}: it runs");
    }
    observe(ExecutionStatus::Finished, 40).await;
    assert_eq!(retire(ports, "s", IdleSince(at(40)), 50).await, None);
    observe(ExecutionStatus::Finished, 60).await;
    for why in all {
        assert_eq!(list_retirable(ports, why, 9).await, ["s"], "{why:?}");
    }
    assert!(retire(ports, "s", IdleSince(at(61)), 70).await.is_some());
}
