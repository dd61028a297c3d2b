//! Conformance tests of `StartTaskQueue`: leases, fences and updates. See `failure` for the rest.

use std::collections::BTreeMap;

use domain::error::{Entity, StoreError};
use domain::event::AppendOutcome;
use domain::id::HostId;
use domain::sandbox::DesiredState;
use domain::start_task::{ClaimLimit, LeasedStartTask, StartStatus, StartTask, StartTaskUpdate};
use domain::user::scope::Scope;
use futures::future::join_all;

use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, host, sandbox_id, scope, start, start_in,
    status_update, task_id,
};
use crate::{StorePorts, assert_is};

pub(super) async fn task(ports: &StorePorts, n: u64) -> StartTask {
    let found = ports.tasks.find_many(&Scope::System, &[task_id(n)]).await;
    found.expect("find").remove(0).expect("an existing task")
}

pub(super) async fn claim(ports: &StorePorts, now: i64, until: i64) -> Vec<LeasedStartTask> {
    let claimed = ports
        .start_queue
        .claim(&host(), at(now), at(until), ClaimLimit::tasks(100))
        .await;
    claimed.expect("claim")
}

pub(super) async fn advance(
    ports: &StorePorts,
    n: u64,
    fence: i64,
    status: StartStatus,
) -> Result<StartTask, StoreError> {
    ports
        .start_queue
        .advance(task_id(n), fence, &status_update(status), at(5))
        .await
}

pub(super) async fn begin(
    ports: &StorePorts,
    n: u64,
    fence: i64,
    sandbox: &str,
) -> Result<StartTask, StoreError> {
    let row = conversation(n, "alice", sandbox, at(3));
    let update = status_update(StartStatus::StartingConversation);
    ports
        .start_queue
        .begin_conversation(task_id(n), fence, &row, &update, at(5))
        .await
}

/// 20 concurrent workers: each of 10 tasks goes to exactly one.
pub async fn a_race_for_a_task_has_one_winner(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for n in 0..10 {
        ports.insert_start(&start_in(n, "alice", "s", at(0))).await;
    }
    let claims = join_all((0..20).map(|_| async move {
        ports
            .start_queue
            .claim(&host(), at(1), at(60), ClaimLimit::tasks(3))
            .await
            .expect("claim")
    }))
    .await;
    assert!(claims.iter().all(|claimed| claimed.len() <= 3));
    let mut won: Vec<_> = claims.iter().flatten().map(|it| it.task.id).collect();
    won.sort();
    assert_eq!(won, (0..10).map(task_id).collect::<Vec<_>>());
    for leased in claims.into_iter().flatten() {
        assert_eq!(leased.task.attempts, 1);
    }
}

/// A worker gets the unfinished tasks of its own host, oldest first, up to the limit.
pub async fn claims_go_by_host_and_age(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for (n, created) in [(1, 3), (2, 1), (3, 2)] {
        ports
            .insert_start(&start_in(n, "alice", "s", at(created)))
            .await;
    }
    let mut elsewhere = start_in(4, "alice", "s", at(0));
    elsewhere.task.host = HostId::parse("host-2").unwrap();
    ports.insert_start(&elsewhere).await;
    let first = ports
        .start_queue
        .claim(&host(), at(5), at(60), ClaimLimit::tasks(2))
        .await
        .unwrap();
    let ids: Vec<_> = first.iter().map(|it| it.task.id).collect();
    assert_eq!(ids, [2, 3].map(task_id));
    assert_eq!(
        ports
            .start_queue
            .claim(&host(), at(5), at(60), ClaimLimit::tasks(0))
            .await
            .unwrap(),
        []
    );
    advance(ports, 2, first[0].fence, StartStatus::Ready)
        .await
        .unwrap();
    // The lease of 3 has expired, 2 is finished.
    let ids: Vec<_> = claim(ports, 61, 99)
        .await
        .iter()
        .map(|it| it.task.id)
        .collect();
    assert_eq!(ids, [3, 1].map(task_id));
}

/// The next task is that of the owner with the fewest leased tasks, so that a long queue does not delay other users. No
/// owner exceeds the limit.
pub async fn claims_are_fair_among_users(ports: &StorePorts) {
    for (owner, tasks) in [("alice", 1..=9), ("bob", 11..=12), ("carol", 21..=21)] {
        ports.insert_sandbox(owner, owner).await;
        for n in tasks {
            ports
                .insert_start(&start_in(n, owner, owner, at(n.cast_signed())))
                .await;
        }
    }
    let claim = async |now, tasks, per_owner| {
        let limit = ClaimLimit { tasks, per_owner };
        let claimed = ports
            .start_queue
            .claim(&host(), at(now), at(now + 60), limit)
            .await;
        let claimed = claimed.unwrap();
        let ids = claimed.iter().map(|it| it.task.id.uuid().as_u64_pair().1);
        ids.collect::<Vec<_>>()
    };
    let any = usize::MAX;
    assert_eq!(claim(100, 2, any).await, [1, 11]);
    assert_eq!(
        claim(100, 1, any).await,
        [21],
        "owners without leased tasks come first"
    );
    assert_eq!(
        claim(100, 2, 1).await,
        [0; 0],
        "every owner has one leased task"
    );
    assert_eq!(claim(100, 9, 3).await, [2, 3, 12]);
    assert_eq!(claim(100, 9, 3).await, [0; 0]);
    // Expired leases and ended tasks do not count.
    assert_eq!(claim(200, 3, 1).await, [1, 11, 21]);
    advance(ports, 1, 2, StartStatus::Ready).await.unwrap();
    assert_eq!(claim(200, 9, 1).await, [2]);
    assert_eq!(claim(200, 9, any).await, [3, 4, 5, 6, 7, 8, 9, 12]);
}

/// A lease is valid until its end and can be extended; then another worker gets the task with a higher fence.
pub async fn a_lease_can_be_extended_and_expires(ports: &StorePorts) {
    let first = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await;
    assert_eq!(claim(ports, 59, 99).await, []);
    ports
        .start_queue
        .renew(task_id(1), first.fence, at(80))
        .await
        .unwrap();
    assert_eq!(claim(ports, 61, 99).await, []);
    let second = claim(ports, 81, 120).await.remove(0);
    assert!(second.fence > first.fence);
    assert_eq!(second.task.attempts, 2);
    for (id, fence) in [(1, first.fence), (1, second.fence + 1), (9, second.fence)] {
        let late = ports.start_queue.renew(task_id(id), fence, at(200)).await;
        assert_is!(late, Err(StoreError::Stale { .. }));
    }
    assert_eq!(
        claim(ports, 121, 130).await.len(),
        1,
        "the lease was not extended"
    );
}

/// An update stores its fields and keeps the others; `updated_at` changes with the status.
pub async fn an_update_is_stored(ports: &StorePorts) {
    let claimed = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await;
    let update = StartTaskUpdate {
        status: StartStatus::WaitingForSandbox,
        detail: Some("detail".to_owned()),
        notes: vec!["one".to_owned()],
        agent_server_url: Some("http://127.0.0.1:1".to_owned()),
        timings: BTreeMap::from([("WORKING".to_owned(), 7)]),
    };
    let stored = ports
        .start_queue
        .advance(task_id(1), claimed.fence, &update, at(5))
        .await
        .unwrap();
    let expected = StartTask {
        status: update.status,
        detail: update.detail,
        notes: update.notes,
        agent_server_url: update.agent_server_url,
        timings: update.timings,
        updated_at: at(5),
        ..claimed.task
    };
    assert_eq!(stored, expected);
    let again = ports
        .start_queue
        .advance(
            task_id(1),
            claimed.fence,
            &status_update(StartStatus::WaitingForSandbox),
            at(6),
        )
        .await
        .unwrap();
    let expected = StartTask {
        detail: None,
        notes: Vec::new(),
        timings: BTreeMap::new(),
        ..expected
    };
    assert_eq!(again, expected, "the same status: updated_at stays");
    assert_eq!(task(ports, 1).await, expected);
}

/// A task only moves forward, may skip steps, and ends once.
pub async fn only_forward_and_only_once(ports: &StorePorts) {
    use StartStatus::{Error, PreparingRepository, Ready, StartingConversation, Working};
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    advance(ports, 1, fence, StartingConversation)
        .await
        .unwrap();
    for back in [Working, PreparingRepository] {
        assert_is!(
            advance(ports, 1, fence, back).await,
            Err(StoreError::Stale { .. })
        );
    }
    advance(ports, 1, fence, Ready).await.unwrap();
    for late in [Working, StartingConversation, Ready, Error] {
        assert_is!(
            advance(ports, 1, fence, late).await,
            Err(StoreError::Stale { .. })
        );
    }
    let failed = ports
        .start_queue
        .fail(task_id(1), fence, &status_update(Error), at(6))
        .await;
    assert_is!(failed, Err(StoreError::Stale { .. }));
    let renewed = ports.start_queue.renew(task_id(1), fence, at(99)).await;
    assert_is!(renewed, Err(StoreError::Stale { .. }));
    assert_eq!(task(ports, 1).await.status, Ready);
    assert_eq!(claim(ports, 999, 1000).await, []);
}

/// Once another worker has the lease, the former one can neither advance, begin, fail nor renew.
pub async fn a_stale_worker_changes_nothing(ports: &StorePorts) {
    let stale = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    let fence = claim(ports, 61, 120).await[0].fence;
    let before = task(ports, 1).await;
    assert_is!(
        advance(ports, 1, stale, StartStatus::WaitingForSandbox).await,
        Err(StoreError::Stale { .. })
    );
    assert_is!(
        begin(ports, 1, stale, "s").await,
        Err(StoreError::Stale { .. })
    );
    let failed = ports
        .start_queue
        .fail(task_id(1), stale, &status_update(StartStatus::Error), at(5))
        .await;
    assert_is!(failed, Err(StoreError::Stale { .. }));
    assert_is!(
        advance(ports, 9, fence, StartStatus::Ready).await,
        Err(StoreError::Stale { .. })
    );
    assert_eq!(task(ports, 1).await, before);
    assert_eq!(ports.view(conversation_id(1)).await, None);
    let sandbox = ports.sandbox_row(&sandbox_id("s")).await.unwrap();
    assert_eq!(sandbox.desired, DesiredState::Running);
    advance(ports, 1, fence, StartStatus::WaitingForSandbox)
        .await
        .unwrap();
}

/// READY erases the secrets of the request and ends the lease.
pub async fn ready_erases_the_secrets(ports: &StorePorts) {
    let claimed = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await;
    assert!(claimed.task.sealed_secrets.is_some());
    let waiting = advance(ports, 1, claimed.fence, StartStatus::WaitingForSandbox).await;
    assert!(waiting.unwrap().sealed_secrets.is_some());
    let ready = advance(ports, 1, claimed.fence, StartStatus::Ready).await;
    assert_eq!(ready.unwrap().sealed_secrets, None);
    assert_eq!(task(ports, 1).await.sealed_secrets, None);
}

/// The conversation is stored with the update. Repeating it (after a crash, by another worker) stores nothing twice and
/// overwrites nothing.
pub async fn a_conversation_is_begun_once(ports: &StorePorts) {
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    let begun = begin(ports, 1, fence, "s").await.unwrap();
    assert_eq!(begun.status, StartStatus::StartingConversation);
    let view = ports.view(conversation_id(1)).await.unwrap();
    assert_eq!(view.conversation, conversation(1, "alice", "s", at(3)));
    assert_eq!(view.sandbox.unwrap().id, sandbox_id("s"));

    let report = crate::fixtures::report(domain::conversation::ExecutionStatus::Running, at(4));
    let stored = ports
        .conversation_reports
        .apply_report(&sandbox_id("s"), conversation_id(1), &report, at(4))
        .await;
    assert_eq!(stored.unwrap(), AppendOutcome::Stored { new: 0 });
    let before = ports.view(conversation_id(1)).await;
    let fence = claim(ports, 61, 120).await[0].fence;
    begin(ports, 1, fence, "s").await.unwrap();
    assert_eq!(ports.view(conversation_id(1)).await, before);
}

/// Without its sandbox (removed or marked for deletion) a conversation is not begun, and the task is unchanged.
pub async fn a_conversation_needs_its_sandbox(ports: &StorePorts) {
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    let before = task(ports, 1).await;
    let (id, alice) = (sandbox_id("s"), scope("alice"));
    ports
        .sandboxes
        .set_desired(&alice, &id, DesiredState::Deleted, &AMPLE_CAPS, at(2))
        .await
        .unwrap();
    for _ in 0..2 {
        let answer = begin(ports, 1, fence, "s").await;
        assert_is!(
            answer,
            Err(StoreError::NotFound {
                entity: Entity::Sandbox
            })
        );
        ports.host_sandboxes.remove(&id).await.unwrap();
    }
    assert_eq!(task(ports, 1).await, before);
    assert_eq!(ports.view(conversation_id(1)).await, None);
}

/// An id that was taken or deleted meanwhile is a conflict.
pub async fn a_taken_conversation_is_not_begun(ports: &StorePorts) {
    ports.insert_sandbox("t", "alice").await;
    ports
        .insert_conversation(&conversation(2, "alice", "t", at(0)))
        .await;
    let mut new = start(1, "alice", "s", at(0));
    let fence = ports.insert_and_claim_start(&new).await.fence;
    new.task.conversation_id = conversation_id(2);
    let taken = conversation(2, "alice", "s", at(3));
    let say = status_update(StartStatus::StartingConversation);
    let before = ports.view(taken.id).await;
    for deleted in [false, true] {
        if deleted {
            assert!(
                ports
                    .conversations
                    .delete(&scope("alice"), taken.id, at(4))
                    .await
                    .unwrap()
            );
        }
        let answer = ports
            .start_queue
            .begin_conversation(task_id(1), fence, &taken, &say, at(5))
            .await;
        assert_is!(answer, Err(StoreError::Conflict { .. }));
        let expected = if deleted { None } else { before.clone() };
        assert_eq!(ports.view(taken.id).await, expected);
    }
    assert_eq!(task(ports, 1).await.status, StartStatus::Working);
}
