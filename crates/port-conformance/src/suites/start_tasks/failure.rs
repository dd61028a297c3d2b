//! Conformance tests of `StartTaskQueue`: what a failed start releases and keeps.

use domain::error::{Entity, StoreError};
use domain::event::AppendOutcome;
use domain::id::HostId;
use domain::sandbox::DesiredState;
use domain::start_task::{StartStatus, StartTaskUpdate};

use super::lifecycle::{begin, claim, task};
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, sandbox_id, scope, start, start_in,
    status_update, task_id,
};
use crate::{StorePorts, assert_is};

/// A failure deletes the conversation that was begun (without a record of the deletion), the secrets, the lease, and
/// the sandbox that was created for the task.
pub async fn a_failure_releases_what_the_task_held(ports: &StorePorts) {
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    begin(ports, 1, fence, "s").await.unwrap();
    let update = StartTaskUpdate {
        detail: Some("it died".to_owned()),
        ..status_update(StartStatus::Error)
    };
    let failed = ports
        .start_queue
        .fail(task_id(1), fence, &update, at(7))
        .await
        .unwrap();
    assert_eq!(
        (failed.status, failed.updated_at),
        (StartStatus::Error, at(7))
    );
    assert_eq!(failed.detail.as_deref(), Some("it died"));
    assert_eq!(failed.sealed_secrets, None);
    assert_eq!(task(ports, 1).await, failed);
    assert_eq!(ports.view(conversation_id(1)).await, None);
    let sandbox = ports.sandbox_row(&sandbox_id("s")).await.unwrap();
    assert_eq!(
        (sandbox.desired, sandbox.updated_at),
        (DesiredState::Deleted, at(7))
    );
    assert_eq!(claim(ports, 999, 1000).await, []);
    assert_eq!(
        ports
            .conversation_deletions
            .list_pending_agent_deletions(9)
            .await
            .unwrap(),
        []
    );
    // There is no record of a deletion: the id can be used again.
    let mut again = start(2, "alice", "t", at(8));
    again.task.conversation_id = conversation_id(1);
    ports.insert_start(&again).await;
}

/// A sandbox that its owner paused during the start takes no conversation, and stays when the start fails.
pub async fn a_paused_sandbox_is_left_alone(ports: &StorePorts) {
    let fence = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await
        .fence;
    let (id, alice) = (sandbox_id("s"), scope("alice"));
    ports
        .sandboxes
        .set_desired(&alice, &id, DesiredState::Paused, &AMPLE_CAPS, at(2))
        .await
        .unwrap();
    let answer = begin(ports, 1, fence, "s").await;
    assert_is!(
        answer,
        Err(StoreError::NotFound {
            entity: Entity::Sandbox
        })
    );
    ports
        .start_queue
        .fail(task_id(1), fence, &status_update(StartStatus::Error), at(7))
        .await
        .unwrap();
    let sandbox = ports.sandbox_row(&id).await.unwrap();
    assert_eq!(sandbox.desired, DesiredState::Paused);
}

/// A conversation of a failed start is not adopted: its agent server may continue a request that the service gave up.
pub async fn a_failed_start_is_not_adopted(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let fence = ports
        .insert_and_claim_start(&start_in(1, "alice", "s", at(0)))
        .await
        .fence;
    begin(ports, 1, fence, "s").await.unwrap();
    ports
        .start_queue
        .fail(task_id(1), fence, &status_update(StartStatus::Error), at(7))
        .await
        .unwrap();
    let made = conversation(1, "alice", "s", at(8));
    let answer = ports.conversation_reports.adopt(&made).await.unwrap();
    assert_eq!(answer, AppendOutcome::Deleted);
    assert_eq!(ports.view(conversation_id(1)).await, None);
}

/// A failure keeps a sandbox that was not created for the task, or that another conversation or unfinished start needs.
pub async fn a_failure_keeps_what_others_need(ports: &StorePorts) {
    for (n, guest) in [(1, "conversation"), (2, "start"), (3, "named")] {
        let name = format!("s{n}");
        let new = if guest == "named" {
            ports.insert_sandbox(&name, "alice").await;
            start_in(n, "alice", &name, at(0))
        } else {
            start(n, "alice", &name, at(0))
        };
        let fence = ports.insert_and_claim_start(&new).await.fence;
        match guest {
            "conversation" => {
                let other = conversation(100 + n, "alice", &name, at(0));
                ports.insert_conversation(&other).await;
            }
            "start" => {
                let mut other = start_in(100 + n, "alice", &name, at(0));
                other.task.host = HostId::parse("host-2").unwrap();
                ports.insert_start(&other).await;
            }
            _ => {}
        }
        ports
            .start_queue
            .fail(task_id(n), fence, &status_update(StartStatus::Error), at(7))
            .await
            .unwrap();
        let sandbox = ports.sandbox_row(&sandbox_id(&name)).await.unwrap();
        assert_eq!(sandbox.desired, DesiredState::Running, "{guest}");
    }
}
