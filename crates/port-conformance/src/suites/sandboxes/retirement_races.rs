//! Conformance tests of `HostSandboxRepository::retire` with concurrent changes. Each test runs many rounds in sandboxes of
//! their own, and lets each side begin in turn.

use domain::conversation::{Conversation, ExecutionStatus};
use domain::error::StoreError;
use domain::event::AppendOutcome;
use domain::sandbox::RetirementReason::{self, IdleSince, OlderThan};
use domain::sandbox::{DesiredState, Sandbox, SandboxFacts, SandboxStatus};
use domain::start_task::{StartStatus, StartTaskInsertOutcome};
use futures::future::join_all;
use futures::join;

use super::retirement::{retire, running};
use crate::StorePorts;
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, endpoints, report, sandbox_id, start, start_in,
    status_update, task_id,
};

const ROUNDS: u64 = 30;

/// Runs both futures concurrently and polls `one` first if `one_first` is set.
async fn join_in_order<A, B>(
    one_first: bool,
    one: impl Future<Output = A>,
    two: impl Future<Output = B>,
) -> (A, B) {
    if one_first {
        join!(one, two)
    } else {
        let (b, a) = join!(two, one);
        (a, b)
    }
}

/// The result of `retire` matches the row.
async fn assert_matches_row(
    ports: &StorePorts,
    id: &str,
    why: RetirementReason,
    retired: Option<&Sandbox>,
) {
    let row = ports.sandbox_row(&sandbox_id(id)).await.unwrap();
    match retired {
        Some(retired) => assert_eq!((&row, row.desired), (retired, why.desired())),
        None => assert_eq!(row.desired, DesiredState::Running),
    }
}

/// A start in an old sandbox: either the sandbox is deleted and the start is refused, or it stays.
pub async fn a_start_or_a_deletion_wins(ports: &StorePorts) {
    for n in 0..ROUNDS {
        let (id, why) = (format!("s{n}"), OlderThan(at(40)));
        running(ports, &id, 0, 10).await;
        let new = start_in(n, "alice", &id, at(50));
        let starting = ports.tasks.insert(&new, &AMPLE_CAPS);
        let (retired, started) =
            join_in_order(n % 2 == 0, retire(ports, &id, why, 50), starting).await;
        match (&retired, started) {
            (Some(_), Err(StoreError::NotFound { .. }))
            | (None, Ok(StartTaskInsertOutcome::New)) => {}
            other => panic!("{other:?}"),
        }
        assert_matches_row(ports, &id, why, retired.as_ref()).await;
    }
}

/// A start in an idle sandbox either prevents the pause, or finds the sandbox paused and resumes it.
pub async fn a_start_prevents_or_follows_a_pause(ports: &StorePorts) {
    for n in 0..ROUNDS {
        let (id, why) = (format!("s{n}"), IdleSince(at(40)));
        running(ports, &id, 0, 10).await;
        let new = start_in(n, "alice", &id, at(50));
        let starting = ports.tasks.insert(&new, &AMPLE_CAPS);
        let (retired, started) =
            join_in_order(n % 2 == 0, retire(ports, &id, why, 50), starting).await;
        assert_eq!(started.unwrap(), StartTaskInsertOutcome::New);
        let row = ports.sandbox_row(&sandbox_id(&id)).await.unwrap();
        let status = match retired {
            Some(_) => SandboxStatus::Starting,
            None => SandboxStatus::Running,
        };
        assert_eq!((row.desired, row.status), (DesiredState::Running, status));
        // In both orders the start keeps the sandbox from now on.
        for why in [why, OlderThan(at(99))] {
            assert_eq!(retire(ports, &id, why, 60).await, None);
        }
    }
}

/// A sandbox with an unfinished start stays, and so does the conversation that the start begins. There is no gap
/// between the unfinished start and its conversation.
pub async fn a_starting_conversation_keeps_its_sandbox(ports: &StorePorts) {
    for n in 0..ROUNDS {
        let id = format!("s{n}");
        let claimed = ports
            .insert_and_claim_start(&start(n, "alice", &id, at(0)))
            .await;
        let facts = SandboxFacts::Running {
            endpoints: endpoints(8000),
        };
        let recorded = ports
            .host_sandboxes
            .record_facts(&sandbox_id(&id), DesiredState::Running, &facts, at(10))
            .await;
        assert!(recorded.unwrap());
        let why = [IdleSince(at(40)), OlderThan(at(40))][usize::from(n % 4 < 2)];
        let row = Conversation {
            execution_status: Some(ExecutionStatus::Running),
            ..conversation(n, "alice", &id, at(3))
        };
        let updates = [StartStatus::StartingConversation, StartStatus::Ready].map(status_update);
        let start = async {
            let begun = ports.start_queue.begin_conversation(
                task_id(n),
                claimed.fence,
                &row,
                &updates[0],
                at(5),
            );
            begun.await.unwrap();
            let ready = ports
                .start_queue
                .advance(task_id(n), claimed.fence, &updates[1], at(6));
            ready.await.unwrap();
        };
        let (retired, ()) = join_in_order(n % 2 == 0, retire(ports, &id, why, 50), start).await;
        assert_eq!(retired, None);
        assert_matches_row(ports, &id, why, None).await;
    }
}

/// A running conversation that an agent server adds is either in a sandbox that stays, or not stored.
pub async fn an_adoption_or_a_deletion_wins(ports: &StorePorts) {
    for n in 0..ROUNDS {
        let (id, why) = (format!("s{n}"), OlderThan(at(40)));
        running(ports, &id, 0, 10).await;
        let row = Conversation {
            execution_status: Some(ExecutionStatus::Running),
            ..conversation(n, "alice", &id, at(50))
        };
        let adopting = ports.conversation_reports.adopt(&row);
        let (retired, adopted) =
            join_in_order(n % 2 == 0, retire(ports, &id, why, 50), adopting).await;
        match (&retired, adopted) {
            (Some(_), Ok(AppendOutcome::Unknown))
            | (None, Ok(AppendOutcome::Stored { new: 1 })) => {}
            other => panic!("{other:?}"),
        }
        assert_matches_row(ports, &id, why, retired.as_ref()).await;
    }
}

/// A conversation that starts to run either prevents the retirement, or its report is accepted after it.
pub async fn a_run_prevents_or_follows_a_retirement(ports: &StorePorts) {
    for n in 0..ROUNDS {
        let id = format!("s{n}");
        running(ports, &id, 0, 10).await;
        ports
            .insert_conversation(&conversation(n, "alice", &id, at(0)))
            .await;
        let why = [IdleSince(at(40)), OlderThan(at(40))][usize::from(n % 4 < 2)];
        let report = report(ExecutionStatus::Running, at(50));
        let (origin, conversation) = (sandbox_id(&id), conversation_id(n));
        let observing =
            ports
                .conversation_reports
                .apply_report(&origin, conversation, &report, at(50));
        let (retired, observed) =
            join_in_order(n % 2 == 0, retire(ports, &id, why, 50), observing).await;
        assert_eq!(observed.unwrap(), AppendOutcome::Stored { new: 0 });
        assert_matches_row(ports, &id, why, retired.as_ref()).await;
        let row = ports.view(conversation).await.unwrap().conversation;
        assert_eq!(row.execution_status, Some(ExecutionStatus::Running));
        let later = retire(ports, &id, why, 60).await;
        assert_eq!(later, None, "the sandbox runs, or is retired already");
    }
}

/// Of many concurrent retirements of a sandbox, one succeeds.
pub async fn a_race_to_retire_has_one_winner(ports: &StorePorts) {
    for why in [IdleSince(at(40)), OlderThan(at(40))] {
        let id = format!("{:?}", why.desired());
        running(ports, &id, 0, 10).await;
        let all = join_all((0..10).map(|_| retire(ports, &id, why, 50))).await;
        let won = all.iter().flatten().count();
        assert_eq!(won, 1, "{all:?}");
    }
}
