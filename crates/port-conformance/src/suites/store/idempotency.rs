//! Conformance tests of `IdempotencyRepository`, and of the repositories that write its rows.

use domain::coordination::idempotency::{
    IdempotencyCheck, IdempotentRequest, IdempotentResponse, MAX_RESPONSES_PER_USER,
};
use domain::error::{ReachedCap, StoreError};
use domain::sandbox::SandboxCaps;
use domain::start_task::{NewStartTask, StartTaskInsertOutcome};
use futures::future::join_all;

use crate::fixtures::{AMPLE_CAPS, at, sandbox, sandbox_id, start, user};
use crate::{StorePorts, assert_is};

fn request(owner: &str, key: &str, fingerprint: &str) -> IdempotentRequest {
    IdempotentRequest {
        owner: user(owner),
        key: key.to_owned(),
        fingerprint: fingerprint.to_owned(),
        since: at(0),
    }
}

fn response(request: IdempotentRequest, text: &str) -> IdempotentResponse {
    IdempotentResponse {
        request,
        response: text.to_owned(),
        at: at(1),
    }
}

fn keyed_start(n: u64, response: IdempotentResponse) -> NewStartTask {
    let owner = response.request.owner.as_str().to_owned();
    NewStartTask {
        response: Some(response),
        ..start(n, &owner, &format!("s-{n}"), at(1))
    }
}

/// A repeated start creates nothing and gets the first response. Another request with the key gets a mismatch.
pub async fn a_repeated_start_creates_once(ports: &StorePorts) {
    let keyed = request("alice", "k", "this");
    let first = keyed_start(1, response(keyed.clone(), "one"));
    assert_eq!(
        ports.idempotency.look_up(&keyed).await.unwrap(),
        IdempotencyCheck::New
    );
    assert_is!(
        ports.tasks.insert(&first, &AMPLE_CAPS).await,
        Ok(StartTaskInsertOutcome::New)
    );
    let same = IdempotencyCheck::Replay("one".to_owned());
    assert_eq!(ports.idempotency.look_up(&keyed).await.unwrap(), same);
    // Not even the caps are checked.
    let none = SandboxCaps {
        per_user: 0,
        overall: 0,
    };
    let again = keyed_start(2, response(keyed, "two"));
    assert_eq!(
        ports.tasks.insert(&again, &none).await.unwrap(),
        StartTaskInsertOutcome::KeyUsed(same)
    );
    let other = keyed_start(3, response(request("alice", "k", "that"), "three"));
    assert_eq!(
        ports.tasks.insert(&other, &none).await.unwrap(),
        StartTaskInsertOutcome::KeyUsed(IdempotencyCheck::Mismatch)
    );
    for n in [2, 3] {
        assert_eq!(
            ports.sandbox_row(&sandbox_id(&format!("s-{n}"))).await,
            None
        );
    }
    // Keys of different users are independent.
    let bobs = keyed_start(4, response(request("bob", "k", "that"), "four"));
    assert_is!(
        ports.tasks.insert(&bobs, &AMPLE_CAPS).await,
        Ok(StartTaskInsertOutcome::New)
    );
}

/// The same for sandboxes.
pub async fn a_repeated_sandbox_creates_once(ports: &StorePorts) {
    let keyed = request("alice", "k", "this");
    let insert = async |name: &str, request: IdempotentRequest| {
        let row = sandbox(name, "alice", at(1));
        let answer = response(request, name);
        let inserted = ports
            .sandboxes
            .insert_once(&row, &AMPLE_CAPS, &answer)
            .await;
        inserted.unwrap()
    };
    assert_eq!(insert("a", keyed.clone()).await, IdempotencyCheck::New);
    assert_eq!(
        insert("b", keyed).await,
        IdempotencyCheck::Replay("a".to_owned())
    );
    let other = request("alice", "k", "that");
    assert_eq!(insert("c", other).await, IdempotencyCheck::Mismatch);
    assert!(ports.sandbox_row(&sandbox_id("a")).await.is_some());
    assert_eq!(ports.sandbox_row(&sandbox_id("b")).await, None);
}

/// A refused request stores no response: it can be repeated.
pub async fn a_refusal_stores_no_response(ports: &StorePorts) {
    let none = SandboxCaps {
        per_user: 0,
        overall: 0,
    };
    let keyed = request("alice", "k", "this");
    let refused = ports
        .tasks
        .insert(&keyed_start(1, response(keyed.clone(), "one")), &none)
        .await;
    assert_is!(refused, Err(StoreError::CapReached(ReachedCap::PerUser(0))));
    let row = sandbox("a", "alice", at(1));
    let refused = ports
        .sandboxes
        .insert_once(&row, &none, &response(keyed.clone(), "a"))
        .await;
    assert_is!(refused, Err(StoreError::CapReached(ReachedCap::PerUser(0))));
    assert_eq!(
        ports.idempotency.look_up(&keyed).await.unwrap(),
        IdempotencyCheck::New
    );
}

/// Of many concurrent repetitions one creates, and all others get its response.
pub async fn a_race_creates_one(ports: &StorePorts) {
    let race = (0..20).map(|n| {
        let answer = response(request("alice", "k", "this"), &format!("answer {n}"));
        let start = keyed_start(n, answer);
        async move { ports.tasks.insert(&start, &AMPLE_CAPS).await }
    });
    let mut made = Vec::new();
    let mut repeated = Vec::new();
    for (n, inserted) in join_all(race).await.into_iter().enumerate() {
        match inserted.unwrap() {
            StartTaskInsertOutcome::New => made.push(n),
            StartTaskInsertOutcome::KeyUsed(known) => repeated.push(known),
            other @ StartTaskInsertOutcome::Existing(_) => panic!("{other:?}"),
        }
    }
    assert_eq!((made.len(), repeated.len()), (1, 19));
    let answer = IdempotencyCheck::Replay(format!("answer {}", made[0]));
    assert!(
        repeated.iter().all(|known| *known == answer),
        "{repeated:?}"
    );
}

/// A response that is too old is ignored, and its key is free for another request. Pruning deletes old responses.
pub async fn old_responses_are_pruned(ports: &StorePorts) {
    let keyed = request("alice", "k", "this");
    let first = keyed_start(1, response(keyed.clone(), "one"));
    ports.tasks.insert(&first, &AMPLE_CAPS).await.unwrap();
    let later = IdempotentRequest {
        since: at(2),
        ..request("alice", "k", "that")
    };
    assert_eq!(
        ports.idempotency.look_up(&later).await.unwrap(),
        IdempotencyCheck::New
    );
    let mut second = keyed_start(2, response(later.clone(), "two"));
    if let Some(response) = &mut second.response {
        response.at = at(9);
    }
    assert_is!(
        ports.tasks.insert(&second, &AMPLE_CAPS).await,
        Ok(StartTaskInsertOutcome::New)
    );
    let third = keyed_start(3, response(request("alice", "other", "x"), "three"));
    ports.tasks.insert(&third, &AMPLE_CAPS).await.unwrap();
    assert_eq!(ports.idempotency.prune(at(5), 10).await.unwrap(), 1);
    assert_eq!(ports.idempotency.prune(at(5), 10).await.unwrap(), 0);
    let same = IdempotencyCheck::Replay("two".to_owned());
    assert_eq!(ports.idempotency.look_up(&later).await.unwrap(), same);
}

/// The response to a request that created nothing is stored like any other: once, and only for that request.
pub async fn a_response_without_a_creation_is_stored(ports: &StorePorts) {
    let idempotency = &ports.idempotency;
    let keyed = request("alice", "k", "this");
    let first = idempotency
        .store_response(&response(keyed.clone(), "one"))
        .await
        .unwrap();
    assert_eq!(first, IdempotencyCheck::New);
    let same = IdempotencyCheck::Replay("one".to_owned());
    let second = idempotency
        .store_response(&response(keyed.clone(), "two"))
        .await
        .unwrap();
    assert_eq!(second, same);
    assert_eq!(idempotency.look_up(&keyed).await.unwrap(), same);
    let other = response(request("alice", "k", "that"), "three");
    assert_eq!(
        idempotency.store_response(&other).await.unwrap(),
        IdempotencyCheck::Mismatch
    );
    let start = keyed_start(1, response(keyed, "four"));
    let inserted = ports.tasks.insert(&start, &AMPLE_CAPS).await.unwrap();
    assert_eq!(inserted, StartTaskInsertOutcome::KeyUsed(same));
}

/// The latest responses of a user are stored, and those of other users are unaffected.
pub async fn responses_of_one_user_are_bounded(ports: &StorePorts) {
    let idempotency = &ports.idempotency;
    let bobs = request("bob", "k", "this");
    idempotency
        .store_response(&response(bobs.clone(), "bob's"))
        .await
        .unwrap();
    let number = |n: usize| request("alice", &format!("k{n}"), "this");
    for n in 0..=MAX_RESPONSES_PER_USER {
        let mut answer = response(number(n), "an answer");
        answer.at = at(2 + i64::try_from(n).unwrap());
        assert_eq!(
            idempotency.store_response(&answer).await.unwrap(),
            IdempotencyCheck::New
        );
    }
    let same = IdempotencyCheck::Replay("an answer".to_owned());
    for (n, known) in [
        (0, &IdempotencyCheck::New),
        (1, &same),
        (MAX_RESPONSES_PER_USER, &same),
    ] {
        assert_eq!(
            idempotency.look_up(&number(n)).await.unwrap(),
            *known,
            "{n}"
        );
    }
    assert_ne!(
        idempotency.look_up(&bobs).await.unwrap(),
        IdempotencyCheck::New
    );
}

/// Generates the conformance tests of `IdempotencyRepository`.
#[macro_export]
macro_rules! idempotency_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (store::idempotency),
            $fresh,
            [
                a_repeated_start_creates_once,
                a_repeated_sandbox_creates_once,
                a_refusal_stores_no_response,
                a_race_creates_one,
                old_responses_are_pruned,
                a_response_without_a_creation_is_stored,
                responses_of_one_user_are_bounded,
            ]
        );
    };
}
