//! Conformance tests of `EgressRequestRepository`.

use domain::error::StoreError;
use domain::id::EgressRequestId;
use domain::sandbox::DesiredState;
use domain::user::egress::{EgressDecision, EgressRequest, MAX_EGRESS_REQUESTS_PER_OWNER};

use crate::fixtures::{
    AMPLE_CAPS, after, at, foreign_tokens, page, read_all_pages, sandbox_id, scope, user, uuid,
};
use crate::{StorePorts, assert_is};

/// Request number `n`, of a sandbox of ada, for `host-n.example`.
pub(super) fn request(n: u64, sandbox: &str) -> EgressRequest {
    let created_at = at(i64::try_from(n).unwrap());
    EgressRequest {
        id: EgressRequestId::new(uuid(n)),
        owner: user("ada"),
        sandbox_id: sandbox_id(sandbox),
        host: format!("host-{n}.example"),
        port: 443,
        decision: EgressDecision::Pending,
        created_at,
        updated_at: created_at,
    }
}

async fn insert(ports: &StorePorts, request: &EgressRequest) {
    ports.egress_requests.insert(request).await.unwrap();
}

async fn list(
    ports: &StorePorts,
    owner: &str,
    decision: Option<EgressDecision>,
    limit: i64,
) -> Vec<EgressRequest> {
    let (owner, page) = (user(owner), page(limit));
    let found = ports.egress_requests.search(&owner, decision, &page);
    found.await.unwrap().items
}

/// Ids of ada's requests with this decision.
async fn ids(ports: &StorePorts, decision: Option<EgressDecision>) -> Vec<EgressRequestId> {
    let found = list(ports, "ada", decision, 100).await;
    found.iter().map(|it| it.id).collect()
}

async fn decide(ports: &StorePorts, n: u64, decision: EgressDecision) -> Option<EgressRequest> {
    let (owner, id) = (user("ada"), EgressRequestId::new(uuid(n)));
    let decided = ports.egress_requests.decide(&owner, id, decision, at(50));
    decided.await.unwrap()
}

/// A sandbox asks once for each host and port. Only sandboxes that their owner has can ask.
pub async fn a_sandbox_asks_once_for_each_host(ports: &StorePorts) {
    ports.insert_sandbox("one", "ada").await;
    ports.insert_sandbox("gone", "ada").await;
    ports.insert_sandbox("hers", "bob").await;
    let (owner, gone) = (scope("ada"), sandbox_id("gone"));
    let deleted = DesiredState::Deleted;
    let set = ports
        .sandboxes
        .set_desired(&owner, &gone, deleted, &AMPLE_CAPS, at(1));
    set.await.unwrap();
    let first = request(1, "one");
    let repeated = EgressRequest {
        id: request(2, "one").id,
        ..first.clone()
    };
    let other_port = EgressRequest {
        port: 8443,
        ..request(3, "one")
    };
    for asked in [
        &first,
        &repeated,
        &other_port,
        &request(4, "gone"),
        &request(5, "hers"),
        &request(6, "unknown"),
    ] {
        insert(ports, asked).await;
    }
    assert_eq!(ids(ports, None).await, [other_port.id, first.id]);
    assert_eq!(list(ports, "ada", None, 1).await, [other_port]);
    assert_eq!(list(ports, "bob", None, 9).await, []);
}

/// A decision is for one sandbox or for all of its owner's, and no other user can make it.
pub async fn a_decision_holds_for_its_owner(ports: &StorePorts) {
    ports.insert_sandbox("one", "ada").await;
    ports.insert_sandbox("two", "ada").await;
    ports.insert_sandbox("hers", "bob").await;
    let first = request(1, "one");
    let of_other_sandbox = EgressRequest {
        id: EgressRequestId::new(uuid(2)),
        sandbox_id: sandbox_id("two"),
        ..first.clone()
    };
    let of_bob = EgressRequest {
        id: EgressRequestId::new(uuid(3)),
        owner: user("bob"),
        sandbox_id: sandbox_id("hers"),
        ..first.clone()
    };
    let decision = async |of: &EgressRequest| ports.egress_requests.decision(of).await.unwrap();
    assert_eq!(decision(&first).await, None);
    insert(ports, &first).await;
    assert_eq!(decision(&first).await, Some(EgressDecision::Pending));
    assert_eq!(decision(&of_other_sandbox).await, None);

    let once = EgressDecision::ApprovedForSandbox;
    let decided = decide(ports, 1, once).await;
    let expected = EgressRequest {
        decision: once,
        updated_at: at(50),
        ..first.clone()
    };
    assert_eq!(decided, Some(expected));
    assert_eq!(decision(&first).await, Some(once));
    assert_eq!(decision(&of_other_sandbox).await, None);

    insert(ports, &of_other_sandbox).await;
    insert(ports, &of_bob).await;
    decide(ports, 2, EgressDecision::Approved).await.unwrap();
    for of in [&first, &of_other_sandbox] {
        assert_eq!(decision(of).await, Some(EgressDecision::Approved));
    }
    assert_eq!(ids(ports, None).await, [of_other_sandbox.id]);
    assert_eq!(decision(&of_bob).await, Some(EgressDecision::Pending));

    let other_port = EgressRequest {
        port: 80,
        ..first.clone()
    };
    assert_eq!(decision(&other_port).await, None);
    assert_eq!(decide(ports, 3, once).await, None);
    let delete = async |name: &str, n| {
        let (owner, id) = (user(name), EgressRequestId::new(uuid(n)));
        ports.egress_requests.delete(&owner, id).await.unwrap()
    };
    assert!(!delete("ada", 3).await);
    assert!(delete("ada", 2).await);
    assert!(!delete("ada", 2).await);
    assert_eq!(decision(&first).await, None);
    assert_eq!(decision(&of_bob).await, Some(EgressDecision::Pending));
}

/// Lists are pages of what one owner has, filtered by decision.
pub async fn requests_are_listed_newest_first(ports: &StorePorts) {
    ports.insert_sandbox("one", "ada").await;
    for n in 1..6 {
        insert(ports, &request(n, "one")).await;
    }
    decide(ports, 2, EgressDecision::Denied).await.unwrap();
    let owner = user("ada");
    let all = read_all_pages(9, async |token| {
        let page = after(2, token);
        let found = ports.egress_requests.search(&owner, None, &page);
        found.await.unwrap()
    });
    let all: Vec<_> = all.await.iter().map(|it| it.id).collect();
    assert_eq!(all, [5, 4, 3, 2, 1].map(|n| EgressRequestId::new(uuid(n))));
    let denied = ids(ports, Some(EgressDecision::Denied)).await;
    assert_eq!(denied, [EgressRequestId::new(uuid(2))]);
    for token in foreign_tokens() {
        let page = after(2, Some(token));
        let found = ports.egress_requests.search(&owner, None, &page);
        assert_is!(found.await, Err(StoreError::InvalidPageToken));
    }
}

/// A new request replaces the oldest one that waits, and never a decision.
pub async fn requests_are_bounded(ports: &StorePorts) {
    ports.insert_sandbox("one", "ada").await;
    let count = u64::try_from(MAX_EGRESS_REQUESTS_PER_OWNER).unwrap();
    for n in 1..=count {
        insert(ports, &request(n, "one")).await;
    }
    decide(ports, 1, EgressDecision::Denied).await.unwrap();
    insert(ports, &request(count + 1, "one")).await;
    let decision = async |n| {
        let asked = request(n, "one");
        ports.egress_requests.decision(&asked).await.unwrap()
    };
    assert_eq!(decision(1).await, Some(EgressDecision::Denied));
    assert_eq!(decision(2).await, None);
    assert_eq!(decision(3).await, Some(EgressDecision::Pending));
    assert_eq!(decision(count + 1).await, Some(EgressDecision::Pending));
    for n in 3..=count + 1 {
        decide(ports, n, EgressDecision::Denied).await.unwrap();
    }
    insert(ports, &request(count + 2, "one")).await;
    assert_eq!(decision(count + 2).await, None);
}

/// Only approvals for all sandboxes outlive the sandbox that asked.
pub async fn requests_end_with_their_sandbox(ports: &StorePorts) {
    ports.insert_sandbox("one", "ada").await;
    ports.insert_sandbox("two", "ada").await;
    for (n, sandbox) in [(1, "one"), (2, "one"), (3, "one"), (4, "two")] {
        insert(ports, &request(n, sandbox)).await;
    }
    decide(ports, 2, EgressDecision::Approved).await.unwrap();
    decide(ports, 3, EgressDecision::ApprovedForSandbox)
        .await
        .unwrap();
    assert_eq!(ports.egress_requests.prune(9).await.unwrap(), 0);
    assert!(
        ports
            .host_sandboxes
            .remove(&sandbox_id("one"))
            .await
            .unwrap()
    );
    assert_eq!(ports.egress_requests.prune(1).await.unwrap(), 1);
    assert_eq!(ports.egress_requests.prune(9).await.unwrap(), 1);
    let left = ids(ports, None).await;
    assert_eq!(left, [4, 2].map(|n| EgressRequestId::new(uuid(n))));
}

/// Generates the conformance tests of requests. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! egress_requests_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::egress_requests),
            $fresh,
            [
                a_sandbox_asks_once_for_each_host,
                a_decision_holds_for_its_owner,
                requests_are_listed_newest_first,
                requests_are_bounded,
                requests_end_with_their_sandbox,
            ]
        );
    };
}
