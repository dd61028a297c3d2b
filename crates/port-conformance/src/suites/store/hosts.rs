//! Conformance tests of `HostRepository`.

use domain::coordination::host::Host;
use domain::error::StoreError;
use domain::id::HostId;
use domain::sandbox::{DesiredState, SandboxFacts, SandboxStatus};
use domain::start_task::{ClaimLimit, StartStatus};

use crate::StorePorts;
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, endpoints, host, sandbox_id, scope, start, start_in,
    status_update, task_id,
};

const LIMIT: ClaimLimit = ClaimLimit {
    tasks: 10,
    per_owner: 10,
};

fn other_host() -> HostId {
    HostId::parse("another-host").unwrap()
}

async fn insert(ports: &StorePorts, new: &domain::start_task::NewStartTask) {
    let stored = ports.tasks.insert(new, &AMPLE_CAPS).await;
    let _ = stored.expect("the start is stored");
}

/// The host, registered, as it is listed.
async fn seen(ports: &StorePorts, when: i64) -> Host {
    ports.hosts.register(&host(), at(0)).await.unwrap();
    ports.hosts.note_alive(&host(), at(when)).await.unwrap();
    let listed = ports.hosts.list().await.unwrap();
    listed.into_iter().find(|it| it.id == host()).unwrap()
}

/// A host is known once it is registered; the registration can be repeated.
pub async fn a_host_is_known_once_registered(ports: &StorePorts) {
    let hosts = &ports.hosts;
    assert!(!hosts.is_known(&host()).await.unwrap());
    hosts.register(&host(), at(0)).await.unwrap();
    hosts.register(&host(), at(1)).await.unwrap();
    assert!(hosts.is_known(&host()).await.unwrap());
    assert!(!hosts.is_known(&other_host()).await.unwrap());
}

/// A list has all registered hosts with their state, and counts what runs on them.
pub async fn hosts_are_listed_with_their_state(ports: &StorePorts) {
    let hosts = &ports.hosts;
    assert!(!hosts.set_draining(&host(), true).await.unwrap());
    assert_eq!(hosts.note_alive(&host(), at(1)).await.unwrap(), 0);
    assert_eq!(hosts.list().await.unwrap(), []);
    hosts.register(&host(), at(0)).await.unwrap();
    hosts.register(&other_host(), at(1)).await.unwrap();
    insert(ports, &start(1, "alice", "s1", at(2))).await;
    ports.insert_sandbox("s2", "alice").await;
    ports.insert_sandbox("s3", "bob").await;
    let (bob, s3) = (scope("bob"), sandbox_id("s3"));
    let sandboxes = &ports.sandboxes;
    let pause = sandboxes.set_desired(&bob, &s3, DesiredState::Paused, &AMPLE_CAPS, at(3));
    let _ = pause.await.unwrap();
    let unused = Host {
        id: other_host(),
        registered_at: at(1),
        seen_at: Some(at(1)),
        is_draining: false,
        sandboxes: 0,
        open_starts: 0,
    };
    let used = Host {
        id: host(),
        registered_at: at(0),
        seen_at: Some(at(0)),
        sandboxes: 2,
        open_starts: 1,
        ..unused.clone()
    };
    let listed = hosts.list().await.unwrap();
    assert_eq!(listed, [unused.clone(), used.clone()]);

    hosts.note_alive(&host(), at(4)).await.unwrap();
    hosts.note_alive(&host(), at(5)).await.unwrap();
    assert!(hosts.set_draining(&other_host(), true).await.unwrap());
    let draining = Host {
        is_draining: true,
        ..unused.clone()
    };
    let used = Host {
        seen_at: Some(at(5)),
        ..used
    };
    let listed = hosts.list().await.unwrap();
    assert_eq!(listed, [draining, used.clone()]);
    assert!(hosts.set_draining(&other_host(), false).await.unwrap());
    assert_eq!(hosts.list().await.unwrap(), [unused, used]);
}

/// Starts that made their sandbox and have no conversation move with it once no worker has a lease on them. Starts in other
/// sandboxes, begun conversations and unwanted sandboxes stay.
pub async fn starts_of_a_lost_host_move(ports: &StorePorts) {
    let lost = seen(ports, 1).await;
    let queue = &ports.start_queue;
    insert(ports, &start(1, "alice", "begun", at(1))).await;
    let fence = queue.claim(&host(), at(2), at(3), LIMIT).await.unwrap()[0].fence;
    let (row, begins) = (
        conversation(1, "alice", "begun", at(2)),
        status_update(StartStatus::StartingConversation),
    );
    let begun = queue.begin_conversation(task_id(1), fence, &row, &begins, at(2));
    let _ = begun.await.expect("it begins");
    insert(ports, &start(2, "alice", "leased", at(2))).await;
    let leased = queue.claim(&host(), at(2), at(100), LIMIT).await.unwrap();
    assert_eq!(leased.len(), 1);
    insert(ports, &start(3, "alice", "waits", at(3))).await;
    insert(ports, &start_in(4, "alice", "waits", at(4))).await;
    insert(ports, &start(5, "bob", "unwanted", at(5))).await;
    let (bob, unwanted) = (scope("bob"), sandbox_id("unwanted"));
    let sandboxes = &ports.sandboxes;
    let deletion =
        sandboxes.set_desired(&bob, &unwanted, DesiredState::Deleted, &AMPLE_CAPS, at(6));
    let _ = deletion.await.unwrap();
    insert(ports, &start(6, "bob", "later", at(7))).await;

    let adopt = async |now: i64, limit: usize| {
        let adopted = ports
            .hosts
            .adopt_starts(&lost, &other_host(), at(now), limit)
            .await;
        adopted.unwrap()
    };
    assert_eq!(adopt(10, 1).await, 1, "the oldest");
    assert_eq!(adopt(10, 10).await, 1);
    assert_eq!(adopt(10, 10).await, 0);
    let moved = queue.claim(&other_host(), at(11), at(20), LIMIT).await;
    let moved: Vec<_> = moved.unwrap().into_iter().map(|it| it.task.id).collect();
    assert_eq!(moved, [task_id(3), task_id(6)]);
    let sandbox = ports.sandbox_row(&sandbox_id("waits")).await.unwrap();
    assert_eq!(sandbox.host, other_host());
    assert_eq!(sandbox.status, SandboxStatus::Starting);
    let stays = ports.sandbox_row(&sandbox_id("leased")).await.unwrap();
    assert_eq!(stays.host, host());

    // A worker of the lost host that is only slow cannot write any more.
    assert_eq!(adopt(101, 10).await, 1);
    let late = queue.renew(task_id(2), leased[0].fence, at(200)).await;
    assert!(matches!(late, Err(StoreError::Stale { .. })), "{late:?}");
}

/// A sandbox that was ready before its host was lost starts anew with its start.
pub async fn a_moved_sandbox_starts_anew(ports: &StorePorts) {
    let lost = seen(ports, 1).await;
    insert(ports, &start(1, "alice", "s1", at(1))).await;
    let facts = SandboxFacts::Running {
        endpoints: endpoints(8000),
    };
    let id = sandbox_id("s1");
    let host_sandboxes = &ports.host_sandboxes;
    let recorded = host_sandboxes.record_facts(&id, DesiredState::Running, &facts, at(2));
    assert!(recorded.await.unwrap());
    assert_eq!(ports.hosts.mark_lost(&lost, "gone").await.unwrap(), 1);
    let adopted = ports
        .hosts
        .adopt_starts(&lost, &other_host(), at(9), 10)
        .await;
    assert_eq!(adopted.unwrap(), 1);
    let row = ports.sandbox_row(&id).await.unwrap();
    let facts = (row.status, row.status_detail, row.agent_url, row.workspace);
    assert_eq!(facts, (SandboxStatus::Starting, None, None, None));
    assert!(row.exposed_urls.is_empty() && row.updated_at == at(9));
    assert_eq!(ports.hosts.note_alive(&host(), at(10)).await.unwrap(), 0);
}

/// Running sandboxes of a lost host are MISSING until it gives a sign of life. What their owners did meanwhile stays.
pub async fn sandboxes_of_a_lost_host_are_missing_until_it_returns(ports: &StorePorts) {
    let lost = seen(ports, 1).await;
    let running = SandboxFacts::Running {
        endpoints: endpoints(8000),
    };
    for (name, desired, facts) in [
        ("running", DesiredState::Running, &running),
        ("deleted", DesiredState::Running, &running),
        ("paused", DesiredState::Paused, &SandboxFacts::Paused),
    ] {
        let row = ports.insert_sandbox(name, "alice").await;
        let (alice, sandboxes) = (scope("alice"), &ports.sandboxes);
        let intent = sandboxes.set_desired(&alice, &row.id, desired, &AMPLE_CAPS, at(1));
        let _ = intent.await.unwrap();
        let host_sandboxes = &ports.host_sandboxes;
        let recorded = host_sandboxes.record_facts(&row.id, desired, facts, at(2));
        assert!(recorded.await.unwrap());
    }
    let row = async |name: &str| ports.sandbox_row(&sandbox_id(name)).await.unwrap();
    let before = row("running").await;
    assert_eq!(ports.hosts.mark_lost(&lost, "gone").await.unwrap(), 2);
    assert_eq!(ports.hosts.mark_lost(&lost, "gone").await.unwrap(), 0);
    let missing = row("running").await;
    assert_eq!(missing.status, SandboxStatus::Missing);
    assert_eq!(missing.status_detail.as_deref(), Some("gone"));
    assert_eq!(row("paused").await.status, SandboxStatus::Paused);
    let (alice, deleted) = (scope("alice"), sandbox_id("deleted"));
    let sandboxes = &ports.sandboxes;
    let deletion =
        sandboxes.set_desired(&alice, &deleted, DesiredState::Deleted, &AMPLE_CAPS, at(3));
    let _ = deletion.await.unwrap();

    assert_eq!(ports.hosts.note_alive(&host(), at(40)).await.unwrap(), 1);
    assert_eq!(row("running").await, before);
    assert_eq!(row("deleted").await.desired, DesiredState::Deleted);
    // It is no longer lost, whatever an earlier list says.
    assert_eq!(ports.hosts.mark_lost(&lost, "gone").await.unwrap(), 0);
    insert(ports, &start(1, "alice", "s1", at(41))).await;
    let adopted = ports
        .hosts
        .adopt_starts(&lost, &other_host(), at(42), 10)
        .await;
    assert_eq!(adopted.unwrap(), 0);
}

/// A removed host leaves no sandbox. Its unfinished starts go to its heir, and its former workers cannot write.
pub async fn a_removed_host_leaves_its_starts_to_another(ports: &StorePorts) {
    let lost = seen(ports, 1).await;
    ports.hosts.register(&other_host(), at(1)).await.unwrap();
    insert(ports, &start(1, "alice", "s1", at(1))).await;
    let queue = &ports.start_queue;
    let leased = queue.claim(&host(), at(2), at(100), LIMIT).await.unwrap();
    let mut elsewhere = ports.insert_sandbox("s2", "alice").await;
    elsewhere.id = sandbox_id("s3");
    elsewhere.host = other_host();
    elsewhere.key_hash = domain::user::identity::KeyHash::of("s3");
    let stored = ports.sandboxes.insert(&elsewhere, &AMPLE_CAPS).await;
    stored.expect("the sandbox is stored");

    assert!(ports.hosts.remove(&lost, &other_host()).await.unwrap());
    assert!(!ports.hosts.remove(&lost, &other_host()).await.unwrap());
    assert!(!ports.hosts.is_known(&host()).await.unwrap());
    for (name, remains) in [("s1", false), ("s2", false), ("s3", true)] {
        let row = ports.sandbox_row(&sandbox_id(name)).await;
        assert_eq!(row.is_some(), remains, "{name}");
    }
    let late = queue.renew(task_id(1), leased[0].fence, at(200)).await;
    assert!(matches!(late, Err(StoreError::Stale { .. })), "{late:?}");
    let moved = queue.claim(&other_host(), at(3), at(100), LIMIT).await;
    assert_eq!(moved.unwrap().len(), 1);

    let lost = seen(ports, 4).await;
    assert_eq!(ports.hosts.note_alive(&host(), at(5)).await.unwrap(), 0);
    assert!(!ports.hosts.remove(&lost, &other_host()).await.unwrap());
    assert!(ports.hosts.is_known(&host()).await.unwrap());
}

/// Generates the conformance tests of `HostRepository`.
#[macro_export]
macro_rules! host_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (store::hosts),
            $fresh,
            [
                a_host_is_known_once_registered,
                hosts_are_listed_with_their_state,
                starts_of_a_lost_host_move,
                a_moved_sandbox_starts_anew,
                sandboxes_of_a_lost_host_are_missing_until_it_returns,
                a_removed_host_leaves_its_starts_to_another,
            ]
        );
    };
}
