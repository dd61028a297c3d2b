//! Conformance tests of concurrency: independent operations do not disturb each other under load, and none is refused
//! because others run.

use domain::conversation::ConversationReport;
use domain::event::AppendOutcome;
use domain::id::SandboxId;
use domain::sandbox::{DesiredState, SandboxFacts};
use domain::start_task::{ClaimLimit, StartStatus, StartTaskInsertOutcome};
use futures::future::join_all;

use crate::StorePorts;
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, endpoints, event, host, sandbox, sandbox_id,
    start, status_update,
};

const MANY: u64 = 50;
const ROUNDS: i64 = 5;

/// Many sandboxes send events of their own conversations.
pub async fn many_sandboxes_send_events(ports: &StorePorts) {
    for n in 0..MANY {
        let id = format!("s{n}");
        ports.insert_sandbox(&id, "alice").await;
        ports
            .insert_conversation(&conversation(n, "alice", &id, at(0)))
            .await;
    }
    join_all((0..MANY).map(|n| async move {
        let (origin, id) = (sandbox_id(&format!("s{n}")), conversation_id(n));
        for round in 0..2 * ROUNDS {
            let batch: Vec<_> = (0..10)
                .map(|n| event(&format!("{round}-{n}"), "A", at(round)))
                .collect();
            let nothing = ConversationReport::default();
            let stored = ports
                .events
                .append(&origin, id, &batch, &nothing, at(round));
            assert_eq!(stored.await.unwrap(), AppendOutcome::Stored { new: 10 });
        }
    }))
    .await;
}

/// Many sandboxes change their state, while owners change the intent of further sandboxes.
pub async fn many_sandboxes_change_state(ports: &StorePorts) {
    for n in 0..MANY {
        ports
            .insert_sandbox(&format!("s{n}"), &format!("user-{n}"))
            .await;
    }
    join_all((0..MANY).map(|n| async move {
        let id = sandbox_id(&format!("s{n}"));
        for round in 0..ROUNDS {
            let facts = facts_of_round(round);
            let known =
                ports
                    .host_sandboxes
                    .record_facts(&id, DesiredState::Running, &facts, at(round));
            assert!(known.await.unwrap());
            let more = sandbox(&format!("s{n}-{round}"), &format!("user-{n}"), at(round));
            ports.sandboxes.insert(&more, &AMPLE_CAPS).await.unwrap();
            pause(ports, &more.id, round).await;
        }
    }))
    .await;
}

fn facts_of_round(round: i64) -> SandboxFacts {
    if round % 2 == 0 {
        SandboxFacts::Running {
            endpoints: endpoints(8000),
        }
    } else {
        SandboxFacts::Error {
            detail: format!("error {round}"),
        }
    }
}

async fn pause(ports: &StorePorts, id: &SandboxId, round: i64) {
    let system = domain::user::scope::Scope::System;
    let paused = ports
        .sandboxes
        .set_desired(&system, id, DesiredState::Paused, &AMPLE_CAPS, at(round))
        .await;
    assert!(paused.unwrap().is_some());
}

/// Many users start conversations concurrently, and as many workers process them.
pub async fn many_starts_are_processed(ports: &StorePorts) {
    let starts: Vec<_> = (0..MANY)
        .map(|n| start(n, &format!("user-{n}"), &format!("s{n}"), at(0)))
        .collect();
    let inserted = join_all(starts.iter().map(|it| ports.tasks.insert(it, &AMPLE_CAPS))).await;
    for outcome in inserted {
        assert_eq!(outcome.unwrap(), StartTaskInsertOutcome::New);
    }
    let host = host();
    let claims = join_all((0..MANY).map(|_| {
        ports
            .start_queue
            .claim(&host, at(1), at(60), ClaimLimit::tasks(1))
    }))
    .await;
    let claimed: Vec<_> = claims.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(claimed.len() as u64, MANY);
    join_all(claimed.iter().map(|it| async move {
        let (task, fence) = (&it.task, it.fence);
        let begun = status_update(StartStatus::StartingConversation);
        let mut stored = conversation(0, task.owner.as_str(), task.sandbox_id.as_str(), at(2));
        stored.id = task.conversation_id;
        let begun = ports
            .start_queue
            .begin_conversation(task.id, fence, &stored, &begun, at(2));
        begun.await.unwrap();
        let ready = status_update(StartStatus::Ready);
        let ready = ports.start_queue.advance(task.id, fence, &ready, at(3));
        ready.await.unwrap();
    }))
    .await;
}

/// Generates the conformance tests of concurrency. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! concurrency_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (store::concurrency),
            $fresh,
            [
                many_sandboxes_send_events,
                many_sandboxes_change_state,
                many_starts_are_processed,
            ]
        );
    };
}
