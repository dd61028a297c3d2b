//! Conformance tests of `StartTaskRepository`: committing, finding and listing. See `lifecycle` for the work of
//! workers.

use std::cell::RefCell;
use std::collections::BTreeMap;

use domain::conversation::{MessageInput, Trigger};
use domain::error::{Entity, ReachedCap, StoreError};
use domain::git::GitProvider;
use domain::id::StartTaskId;
use domain::page::{MAX_PAGE_BYTES, Page, PageRequest};
use domain::sandbox::{DesiredState, SandboxCaps};
use domain::start_task::{
    AgentType, ClaimLimit, MAX_UNFINISHED_STARTS, SandboxAssignment, StartRequest, StartStatus,
    StartTask, StartTaskFilter, StartTaskInsertOutcome, StartTaskOrder,
};
use domain::user::scope::Scope;
use futures::future::join_all;
use serde_json::json;

use crate::fixtures::{
    AMPLE_CAPS, after, at, conversation, conversation_id, foreign_tokens, host, page,
    read_all_pages, sandbox_id, scope, start, start_in, status_update, task_id,
};
use crate::{StorePorts, assert_is};

async fn find(ports: &StorePorts, id: StartTaskId) -> Option<StartTask> {
    let found = ports.tasks.find_many(&Scope::System, &[id]).await;
    found.expect("find").remove(0)
}

async fn search(ports: &StorePorts, order: StartTaskOrder, page: &PageRequest) -> Page<StartTask> {
    let filter = StartTaskFilter::default();
    let found = ports
        .tasks
        .search(&scope("alice"), &filter, order, page)
        .await;
    found.expect("search")
}

fn numbers(tasks: &[StartTask]) -> Vec<u64> {
    tasks
        .iter()
        .map(|task| task.id.uuid().as_u64_pair().1)
        .collect()
}

/// Every field is stored, together with the sandbox.
pub async fn every_field_is_committed(ports: &StorePorts) {
    let mut new = start(1, "alice", "s", at(0));
    new.task.notes = vec!["a note".to_owned()];
    new.task.timings = BTreeMap::from([("WORKING".to_owned(), 12)]);
    new.task.request = StartRequest {
        sandbox_id: Some(sandbox_id("s")),
        conversation_id: Some(conversation_id(1)),
        initial_message: Some(MessageInput {
            role: "user".to_owned(),
            content: vec![json!({"type": "text", "text": "é 🦀"})],
            run: true,
        }),
        processors: Some(vec![json!({"z": 1, "a": 2})]),
        git_provider: Some(GitProvider::Forgejo),
        trigger: Some(Trigger::Gui),
        pr_number: vec![1, 2],
        agent_type: AgentType::Plan,
        public: Some(true),
        trace: BTreeMap::from([("traceparent".to_owned(), "00-1-2-01".to_owned())]),
        secret_names: Some(vec!["TOKEN".to_owned()]),
        ..StartRequest::default()
    };
    ports.insert_start(&new).await;
    assert_eq!(find(ports, new.task.id).await, Some(new.task));
    let sandbox = ports.sandbox_row(&sandbox_id("s")).await;
    assert_eq!(sandbox.map(SandboxAssignment::New), Some(new.assignment));
}

/// Another user's task is not found; the system sees all.
pub async fn scopes_are_isolated(ports: &StorePorts) {
    ports.insert_start(&start(1, "alice", "s", at(0))).await;
    let bob = scope("bob");
    let filter = StartTaskFilter::default();
    let many = ports.tasks.find_many(&bob, &[task_id(1)]).await;
    assert_eq!(many.unwrap(), [None]);
    let found = ports
        .tasks
        .search(&bob, &filter, StartTaskOrder::default(), &page(9))
        .await;
    assert_eq!(found.unwrap().items, []);
    assert_eq!(ports.tasks.count(&bob, &filter).await.unwrap(), 0);
    ports.insert_start(&start(2, "bob", "t", at(1))).await;
    let all = ports
        .tasks
        .search(&Scope::System, &filter, StartTaskOrder::default(), &page(9))
        .await;
    assert_eq!(numbers(&all.unwrap().items), [2, 1]);
    assert_eq!(ports.tasks.count(&Scope::System, &filter).await.unwrap(), 2);
}

/// A second request of the same owner for a conversation gets the existing task, and nothing is written: no sandbox,
/// and no cap applies.
pub async fn the_same_conversation_is_started_once(ports: &StorePorts) {
    let first = start(1, "alice", "s", at(0));
    ports.insert_start(&first).await;
    let mut again = start(2, "alice", "t", at(1));
    again.task.conversation_id = conversation_id(1);
    let none = SandboxCaps {
        per_user: 0,
        overall: 0,
    };
    let answer = ports.tasks.insert(&again, &none).await.unwrap();
    assert_eq!(answer, StartTaskInsertOutcome::Existing(first.task));
    assert_eq!(find(ports, again.task.id).await, None);
    assert_eq!(ports.sandbox_row(&sandbox_id("t")).await, None);
}

/// 20 concurrent starts of one conversation create one task and one sandbox.
pub async fn a_race_starts_one_conversation(ports: &StorePorts) {
    let starts: Vec<_> = (1..=20)
        .map(|n| {
            let mut new = start(n, "alice", &format!("s{n}"), at(0));
            new.task.conversation_id = conversation_id(1);
            new
        })
        .collect();
    let answers = join_all(
        starts
            .iter()
            .map(|new| ports.tasks.insert(new, &AMPLE_CAPS)),
    )
    .await;
    let new = answers
        .into_iter()
        .filter(|answer| {
            matches!(
                answer.as_ref().expect("insert"),
                StartTaskInsertOutcome::New
            )
        })
        .count();
    assert_eq!(new, 1);
    let alice = scope("alice");
    let count = ports.tasks.count(&alice, &StartTaskFilter::default()).await;
    assert_eq!(count.unwrap(), 1);
    let sandboxes = ports.sandboxes.search(&alice, &page(9)).await.unwrap();
    assert_eq!(sandboxes.items.len(), 1);
}

/// A conversation of another user or without a task, and a taken task id, are conflicts.
pub async fn a_taken_conversation_is_a_conflict(ports: &StorePorts) {
    ports.insert_start(&start(1, "alice", "s", at(0))).await;
    ports
        .insert_conversation(&conversation(2, "alice", "s", at(0)))
        .await;
    let mut same_task = start(1, "alice", "t", at(1));
    same_task.task.conversation_id = conversation_id(3);
    for new in [
        start(1, "bob", "t", at(1)),
        start(2, "alice", "t", at(1)),
        start(2, "bob", "t", at(1)),
        same_task,
    ] {
        let answer = ports.tasks.insert(&new, &AMPLE_CAPS).await;
        assert_is!(answer, Err(StoreError::Conflict { .. }));
        assert_eq!(ports.sandbox_row(&sandbox_id("t")).await, None);
    }
}

/// A named sandbox must exist, not be marked for deletion, and belong to the user.
pub async fn a_named_sandbox_must_be_there(ports: &StorePorts) {
    ports.insert_sandbox("mine", "alice").await;
    ports.insert_sandbox("bobs", "bob").await;
    ports
        .insert_start(&start_in(1, "alice", "mine", at(0)))
        .await;
    let going = sandbox_id("mine");
    ports
        .sandboxes
        .set_desired(
            &scope("alice"),
            &going,
            DesiredState::Deleted,
            &AMPLE_CAPS,
            at(1),
        )
        .await
        .unwrap();
    for (n, sandbox) in [(2, "mine"), (3, "bobs"), (4, "unknown")] {
        let new = start_in(n, "alice", sandbox, at(1));
        let answer = ports.tasks.insert(&new, &AMPLE_CAPS).await;
        assert_is!(
            answer,
            Err(StoreError::NotFound {
                entity: Entity::Sandbox
            })
        );
        assert_eq!(find(ports, new.task.id).await, None);
    }
}

/// 50 concurrent starts under a cap of 6: exactly 6 succeed, and the others leave neither task nor sandbox. A start in
/// an existing sandbox is not capped.
pub async fn a_race_never_exceeds_a_cap(ports: &StorePorts) {
    let caps = SandboxCaps {
        per_user: 6,
        overall: 100,
    };
    let starts: Vec<_> = (1..=50)
        .map(|n| start(n, "alice", &format!("s{n}"), at(0)))
        .collect();
    let answers = join_all(starts.iter().map(|new| ports.tasks.insert(new, &caps))).await;
    let mut won = None;
    for (answer, new) in answers.into_iter().zip(&starts) {
        match answer {
            Ok(_) => won = Some(new.task.sandbox_id.clone()),
            other => assert_is!(other, Err(StoreError::CapReached(ReachedCap::PerUser(6)))),
        }
    }
    let alice = scope("alice");
    let count = ports.tasks.count(&alice, &StartTaskFilter::default()).await;
    assert_eq!(count.unwrap(), 6);
    let sandboxes = ports.sandboxes.search(&alice, &page(100)).await.unwrap();
    assert_eq!(sandboxes.items.len(), 6);
    let inside = start_in(
        99,
        "alice",
        won.expect("one start succeeds").as_str(),
        at(1),
    );
    let answer = ports.tasks.insert(&inside, &caps).await;
    assert_eq!(answer.unwrap(), StartTaskInsertOutcome::New);
}

/// The number of one user's unfinished starts is bounded, also in existing sandboxes; other users are unaffected.
pub async fn the_queue_of_one_user_is_bounded(ports: &StorePorts) {
    for owner in ["alice", "bob"] {
        ports.insert_sandbox(&format!("of-{owner}"), owner).await;
    }
    for n in 1..=u64::from(MAX_UNFINISHED_STARTS) {
        ports
            .insert_start(&start_in(n, "alice", "of-alice", at(0)))
            .await;
    }
    let more = start_in(1_000, "alice", "of-alice", at(1));
    let answer = ports.tasks.insert(&more, &AMPLE_CAPS).await;
    assert_is!(
        answer,
        Err(StoreError::CapReached(ReachedCap::Starts(
            MAX_UNFINISHED_STARTS
        )))
    );
    ports
        .insert_start(&start_in(1_001, "bob", "of-bob", at(1)))
        .await;
}

/// A conversation whose start failed can be started again.
pub async fn a_failed_start_can_be_repeated(ports: &StorePorts) {
    let claimed = ports
        .insert_and_claim_start(&start(1, "alice", "s", at(0)))
        .await;
    ports
        .start_queue
        .fail(
            task_id(1),
            claimed.fence,
            &status_update(StartStatus::Error),
            at(2),
        )
        .await
        .unwrap();
    let mut again = start(2, "alice", "t", at(3));
    again.task.conversation_id = conversation_id(1);
    ports.insert_start(&again).await;
}

/// `find_many` keeps order, length and repetition.
pub async fn find_many_keeps_order(ports: &StorePorts) {
    for n in [1, 2] {
        ports
            .insert_start(&start(n, "alice", &format!("s{n}"), at(0)))
            .await;
    }
    let ids = [2, 9, 1, 2].map(task_id);
    let found = ports.tasks.find_many(&scope("alice"), &ids).await;
    let found: Vec<_> = found
        .unwrap()
        .into_iter()
        .map(|task| task.map(|task| task.id))
        .collect();
    assert_eq!(found, [Some(ids[0]), None, Some(ids[2]), Some(ids[3])]);
}

/// All four orders, ties by id, page by page.
pub async fn tasks_are_listed_in_every_order(ports: &StorePorts) {
    for (n, created, updated) in [(1, 1, 9), (2, 2, 4), (3, 2, 4), (4, 3, 1)] {
        let mut new = start(n, "alice", &format!("s{n}"), at(created));
        new.task.updated_at = at(updated);
        ports.insert_start(&new).await;
    }
    for (order, expected) in [
        (StartTaskOrder::CreatedAt, [1, 2, 3, 4]),
        (StartTaskOrder::CreatedAtDesc, [4, 3, 2, 1]),
        (StartTaskOrder::UpdatedAt, [4, 2, 3, 1]),
        (StartTaskOrder::UpdatedAtDesc, [1, 3, 2, 4]),
    ] {
        let whole = search(ports, order, &page(4)).await;
        assert_eq!(numbers(&whole.items), expected, "{order:?}");
        assert_eq!(whole.next, None);
        for size in [1, 3] {
            let walked = read_all_pages(9, async |token| {
                search(ports, order, &after(size, token)).await
            });
            assert_eq!(numbers(&walked.await), expected, "{order:?} by {size}");
        }
    }
    assert_eq!(StartTaskOrder::default(), StartTaskOrder::CreatedAtDesc);
}

/// A page continues after the previous one, also when tasks are added in between.
pub async fn paging_is_stable(ports: &StorePorts) {
    for n in 1..=3_u64 {
        let created = at(i64::try_from(n).unwrap());
        ports
            .insert_start(&start(n, "alice", &format!("s{n}"), created))
            .await;
    }
    let order = StartTaskOrder::CreatedAtDesc;
    let first = search(ports, order, &page(2)).await;
    ports.insert_start(&start(9, "alice", "s9", at(9))).await;
    let rest = search(ports, order, &after(9, first.next)).await;
    assert_eq!((numbers(&rest.items), rest.next), (vec![1], None));
}

/// A page of large requests ends early, and all pages together contain every task once and in order.
pub async fn pages_of_large_requests_end_early(ports: &StorePorts) {
    let half = MAX_PAGE_BYTES / 2;
    for (size, n) in [half, 1, half, MAX_PAGE_BYTES + 1, 1, 1]
        .into_iter()
        .zip(1_u64..)
    {
        let created = at(i64::try_from(n).unwrap());
        let mut new = start(n, "alice", &format!("s{n}"), created);
        new.task.request.system_message_suffix = Some("x".repeat(size));
        ports.insert_start(&new).await;
    }
    for (order, lengths, tasks) in [
        (StartTaskOrder::CreatedAt, [2, 1, 1, 2], [1, 2, 3, 4, 5, 6]),
        (
            StartTaskOrder::UpdatedAtDesc,
            [2, 1, 2, 1],
            [6, 5, 4, 3, 2, 1],
        ),
    ] {
        let seen = RefCell::new(Vec::new());
        let walked = read_all_pages(9, async |token| {
            let found = search(ports, order, &after(9, token)).await;
            seen.borrow_mut().push(found.items.len());
            found
        });
        assert_eq!(numbers(&walked.await), tasks, "{order:?}");
        assert_eq!(seen.into_inner(), lengths, "{order:?}");
    }
}

/// A foreign token, or one of another order, is refused.
pub async fn foreign_page_tokens_are_refused(ports: &StorePorts) {
    for n in [1, 2] {
        ports
            .insert_start(&start(n, "alice", &format!("s{n}"), at(0)))
            .await;
    }
    let mut tokens = foreign_tokens();
    let orders = [
        StartTaskOrder::CreatedAt,
        StartTaskOrder::UpdatedAt,
        StartTaskOrder::UpdatedAtDesc,
    ];
    for order in orders {
        tokens.extend(search(ports, order, &page(1)).await.next);
    }
    assert_eq!(tokens.len(), foreign_tokens().len() + orders.len());
    for token in tokens {
        let answer = ports
            .tasks
            .search(
                &scope("alice"),
                &StartTaskFilter::default(),
                StartTaskOrder::CreatedAtDesc,
                &after(5, Some(token)),
            )
            .await;
        assert_is!(answer, Err(StoreError::InvalidPageToken));
    }
}

/// The conversation filter finds only READY tasks; `count` agrees with `search`.
pub async fn filters_narrow(ports: &StorePorts) {
    for (n, created) in [(1, 1), (2, 2)] {
        let name = format!("s{n}");
        ports
            .insert_start(&start(n, "alice", &name, at(created)))
            .await;
    }
    let of = |n| StartTaskFilter {
        conversation_id: Some(conversation_id(n)),
        ..StartTaskFilter::default()
    };
    let since = StartTaskFilter {
        created_from: Some(at(2)),
        ..StartTaskFilter::default()
    };
    let found = async |filter: StartTaskFilter| {
        let (alice, order) = (scope("alice"), StartTaskOrder::CreatedAt);
        let found = ports.tasks.search(&alice, &filter, order, &page(9)).await;
        let found = numbers(&found.unwrap().items);
        let count = ports.tasks.count(&alice, &filter).await.unwrap();
        assert_eq!(count, u64::try_from(found.len()).unwrap());
        found
    };
    assert_eq!(found(since).await, [2]);
    assert_eq!(found(of(1)).await, Vec::<u64>::new(), "not READY yet");
    let claimed = ports
        .start_queue
        .claim(&host(), at(3), at(60), ClaimLimit::tasks(1))
        .await
        .unwrap();
    ports
        .start_queue
        .advance(
            task_id(1),
            claimed[0].fence,
            &status_update(StartStatus::Ready),
            at(4),
        )
        .await
        .unwrap();
    assert_eq!(found(of(1)).await, [1]);
    assert_eq!(found(of(2)).await, Vec::<u64>::new());
}
