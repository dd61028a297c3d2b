//! Conformance tests of `WarmRepository`.

use std::collections::BTreeSet;

use domain::error::StoreError;
use domain::id::{HostId, SpecId};
use domain::sandbox::{MAX_WARM_SANDBOXES_PER_HOST, SandboxEndpoints, WarmSandbox, WarmState};
use domain::user::identity::KeyHash;
use futures::future::join_all;

use crate::StorePorts;
use crate::assert_is;
use crate::fixtures::{AMPLE_CAPS, at, endpoints, host, sandbox, sandbox_id, warm};

/// Stores a READY warm sandbox at this port and returns it.
async fn ready(ports: &StorePorts, mut row: WarmSandbox, port: u16) -> WarmSandbox {
    assert!(ports.warm.insert(&row, 1_000).await.unwrap());
    let addresses = endpoints(port);
    assert!(
        ports
            .warm
            .mark_ready(&row.id, &addresses, at(1))
            .await
            .unwrap()
    );
    row.state = WarmState::Ready;
    row.endpoints = Some(addresses);
    row.updated_at = at(1);
    row
}

/// Claims with the host, spec and recipe of the fixtures.
async fn claim(ports: &StorePorts) -> Option<WarmSandbox> {
    let like = warm("like", at(0));
    let claimed = ports
        .warm
        .claim(&like.host, &like.spec_id, &like.recipe, at(9));
    claimed.await.unwrap()
}

async fn all(ports: &StorePorts) -> Vec<WarmSandbox> {
    ports.warm.list_on_host(&host()).await.unwrap()
}

async fn ids(ports: &StorePorts) -> Vec<String> {
    let all = all(ports).await;
    all.into_iter().map(|it| it.id.to_string()).collect()
}

/// Every field is stored, times to the microsecond, with and without addresses.
pub async fn every_field_is_stored(ports: &StorePorts) {
    let mut row = warm("12345678901234567890", at(0));
    "é – 'recipe' \" {}".clone_into(&mut row.recipe);
    assert!(ports.warm.insert(&row, 1).await.unwrap());
    assert_eq!(all(ports).await, std::slice::from_ref(&row));
    let addresses = SandboxEndpoints {
        workspace: "/wörk/'space' \"".to_owned(),
        ..endpoints(8_000)
    };
    assert!(
        ports
            .warm
            .mark_ready(&row.id, &addresses, at(1))
            .await
            .unwrap()
    );
    let expected = WarmSandbox {
        state: WarmState::Ready,
        endpoints: Some(addresses),
        updated_at: at(1),
        ..row
    };
    assert_eq!(all(ports).await, std::slice::from_ref(&expected));
    let claimed = ports
        .warm
        .claim(&expected.host, &expected.spec_id, &expected.recipe, at(2));
    let claimed = claimed.await.unwrap();
    let expected = WarmSandbox {
        state: WarmState::Claimed,
        updated_at: at(2),
        ..expected
    };
    assert_eq!(claimed, Some(expected.clone()));
    assert_eq!(all(ports).await, [expected]);
}

/// A sandbox that is stored with its addresses keeps them.
pub async fn a_ready_sandbox_can_be_stored(ports: &StorePorts) {
    let mut row = warm("1", at(0));
    row.state = WarmState::Ready;
    row.endpoints = Some(endpoints(8_000));
    assert!(ports.warm.insert(&row, 1).await.unwrap());
    assert_eq!(all(ports).await, [row]);
}

/// Each change succeeds in one state only and returns whether it did.
pub async fn states_follow_each_other(ports: &StorePorts) {
    let warm_rows = &ports.warm;
    let id = sandbox_id("1");
    let addresses = endpoints(8_000);
    // Not stored.
    assert!(!warm_rows.mark_ready(&id, &addresses, at(1)).await.unwrap());
    assert!(!warm_rows.release(&id, at(1)).await.unwrap());
    assert!(!warm_rows.dismiss(&id).await.unwrap());
    assert!(!warm_rows.remove(&id).await.unwrap());
    // BOOTING.
    assert!(warm_rows.insert(&warm("1", at(0)), 1).await.unwrap());
    assert_eq!(claim(ports).await, None);
    assert!(!warm_rows.release(&id, at(1)).await.unwrap());
    // READY.
    assert!(warm_rows.mark_ready(&id, &addresses, at(1)).await.unwrap());
    assert!(
        !warm_rows
            .mark_ready(&id, &endpoints(9), at(2))
            .await
            .unwrap()
    );
    assert!(!warm_rows.release(&id, at(2)).await.unwrap());
    assert_eq!(all(ports).await[0].endpoints, Some(addresses.clone()));
    // CLAIMED.
    assert_eq!(claim(ports).await.unwrap().id, id);
    assert_eq!(claim(ports).await, None);
    assert!(!warm_rows.mark_ready(&id, &addresses, at(10)).await.unwrap());
    assert!(!warm_rows.dismiss(&id).await.unwrap());
    assert_eq!(all(ports).await[0].state, WarmState::Claimed);
    // READY again, and claimed again.
    assert!(warm_rows.release(&id, at(11)).await.unwrap());
    assert_eq!(all(ports).await[0].updated_at, at(11));
    assert!(!warm_rows.release(&id, at(12)).await.unwrap());
    assert_eq!(claim(ports).await.unwrap().endpoints, Some(addresses));
    // Removed.
    assert!(warm_rows.remove(&id).await.unwrap());
    assert!(!warm_rows.remove(&id).await.unwrap());
    assert_eq!(claim(ports).await, None);
    assert_eq!(all(ports).await, []);
}

/// A sandbox can be dismissed until it is claimed, and is never claimed after it.
pub async fn a_dismissed_sandbox_is_never_claimed(ports: &StorePorts) {
    assert!(ports.warm.insert(&warm("1", at(0)), 9).await.unwrap());
    ready(ports, warm("2", at(0)), 8_002).await;
    for id in ["1", "2"] {
        assert!(ports.warm.dismiss(&sandbox_id(id)).await.unwrap());
        assert!(!ports.warm.dismiss(&sandbox_id(id)).await.unwrap());
    }
    assert_eq!(claim(ports).await, None);
    let (id, addresses) = (sandbox_id("1"), endpoints(8_001));
    assert!(!ports.warm.mark_ready(&id, &addresses, at(2)).await.unwrap());
}

/// The oldest is claimed first, ties by id.
pub async fn the_oldest_is_claimed_first(ports: &StorePorts) {
    for (id, age) in [("b", 3), ("9", 2), ("a", 3), ("10", 2), ("c", 1)] {
        ready(ports, warm(id, at(age)), 8_000).await;
    }
    let order = ["c", "10", "9", "a", "b"];
    assert_eq!(ids(ports).await, order);
    for id in order {
        assert_eq!(claim(ports).await.unwrap().id, sandbox_id(id));
    }
    assert_eq!(claim(ports).await, None);
}

/// A claim finds neither another host nor another spec or recipe.
pub async fn claims_match_host_spec_and_recipe(ports: &StorePorts) {
    let like = warm("1", at(0));
    ready(ports, like.clone(), 8_000).await;
    let other_host = HostId::parse("host-2").unwrap();
    let other_spec = SpecId::parse("agent-server:2.0").unwrap();
    for (host, spec, recipe) in [
        (&other_host, &like.spec_id, "recipe-1"),
        (&like.host, &other_spec, "recipe-1"),
        (&like.host, &like.spec_id, "recipe-2"),
        (&like.host, &like.spec_id, ""),
    ] {
        let claimed = ports.warm.claim(host, spec, recipe, at(2)).await.unwrap();
        assert_eq!(claimed, None, "{host} {spec} {recipe}");
    }
    assert_eq!(ports.warm.list_on_host(&other_host).await.unwrap(), []);
    // Each spec is counted by itself, whatever the recipe.
    let mut more = warm("2", at(0));
    "recipe-2".clone_into(&mut more.recipe);
    assert!(!ports.warm.insert(&more, 1).await.unwrap());
    more.spec_id = other_spec;
    assert!(ports.warm.insert(&more, 1).await.unwrap());
    let mut more = warm("3", at(0));
    more.host = other_host;
    assert!(ports.warm.insert(&more, 1).await.unwrap());
    assert!(claim(ports).await.is_some());
}

/// Booting and ready sandboxes count; claimed ones make room.
pub async fn no_more_are_stored_than_the_maximum(ports: &StorePorts) {
    assert!(!ports.warm.insert(&warm("0", at(0)), 0).await.unwrap());
    ready(ports, warm("1", at(0)), 8_001).await;
    assert!(ports.warm.insert(&warm("2", at(0)), 2).await.unwrap());
    assert!(!ports.warm.insert(&warm("3", at(0)), 2).await.unwrap());
    assert!(claim(ports).await.is_some());
    assert!(ports.warm.insert(&warm("3", at(0)), 2).await.unwrap());
    assert!(!ports.warm.insert(&warm("4", at(0)), 2).await.unwrap());
    assert_eq!(ids(ports).await, ["1", "2", "3"]);
    // A taken id or key is an error, not a full pool.
    let again = ports.warm.insert(&warm("3", at(0)), 9).await;
    assert_is!(again, Err(StoreError::Conflict { .. }));
    let mut same_key = warm("5", at(0));
    same_key.key_hash = warm("3", at(0)).key_hash;
    let again = ports.warm.insert(&same_key, 9).await;
    assert_is!(again, Err(StoreError::Conflict { .. }));
}

/// The maximum holds for concurrent inserts.
pub async fn a_race_never_exceeds_the_maximum(ports: &StorePorts) {
    let rows: Vec<_> = (0..20).map(|n| warm(&format!("w{n}"), at(n))).collect();
    let stored = join_all(rows.iter().map(|it| ports.warm.insert(it, 5))).await;
    let stored: Vec<bool> = stored.into_iter().map(Result::unwrap).collect();
    assert_eq!(stored.iter().filter(|it| **it).count(), 5);
    assert_eq!(all(ports).await.len(), 5);
}

/// A host has a bounded number in all states, whatever the requested maximum.
pub async fn the_number_of_a_host_is_bounded(ports: &StorePorts) {
    for n in 0..MAX_WARM_SANDBOXES_PER_HOST {
        let mut row = warm(&format!("w{n:04}"), at(0));
        row.spec_id = SpecId::parse(format!("spec-{}", n % 7)).unwrap();
        if n % 2 == 0 {
            row.state = WarmState::Claimed;
        }
        assert!(ports.warm.insert(&row, 1_000).await.unwrap(), "{n}");
    }
    assert!(
        !ports
            .warm
            .insert(&warm("more", at(1)), 1_000)
            .await
            .unwrap()
    );
    assert_eq!(all(ports).await.len(), MAX_WARM_SANDBOXES_PER_HOST);
    assert!(ports.warm.remove(&sandbox_id("w0000")).await.unwrap());
    assert!(
        ports
            .warm
            .insert(&warm("more", at(1)), 1_000)
            .await
            .unwrap()
    );
}

/// Of many concurrent claims, each gets a sandbox of its own while there are any, and the others get none.
pub async fn each_claim_has_one_winner(ports: &StorePorts) {
    for n in 0..10 {
        ready(ports, warm(&format!("w{n}"), at(n)), 8_000).await;
    }
    let claims = join_all((0..25).map(|_| claim(ports))).await;
    let won: Vec<_> = claims.into_iter().flatten().collect();
    let different: BTreeSet<_> = won.iter().map(|it| it.id.clone()).collect();
    assert_eq!((won.len(), different.len()), (10, 10));
    assert!(won.iter().all(|it| it.state == WarmState::Claimed));
    assert_eq!(claim(ports).await, None);
}

/// Of a concurrent claim and dismissal, one succeeds.
pub async fn a_claim_or_a_dismissal_wins(ports: &StorePorts) {
    for round in 0..20 {
        let row = ready(ports, warm(&format!("w{round}"), at(round)), 8_000).await;
        let (claimed, dismissed) = tokio::join!(claim(ports), ports.warm.dismiss(&row.id));
        let dismissed = dismissed.unwrap();
        assert_eq!(claimed.is_some(), !dismissed, "round {round}");
        assert_eq!(ids(ports).await.len(), usize::from(!dismissed));
        ports.warm.remove(&row.id).await.unwrap();
    }
}

/// A warm sandbox whose id is a sandbox row is neither released nor claimed, even if it is READY.
pub async fn a_warm_sandbox_with_a_row_is_never_claimed(ports: &StorePorts) {
    let row = ready(ports, warm("1", at(0)), 8_000).await;
    let claimed = claim(ports).await.unwrap();
    ports.insert_sandbox("1", "alice").await;
    assert!(!ports.warm.release(&row.id, at(3)).await.unwrap());
    assert_eq!(all(ports).await, [claimed]);
    assert!(ports.warm.remove(&row.id).await.unwrap());
    assert!(ports.sandbox_row(&row.id).await.is_some());

    ready(ports, warm("2", at(1)), 8_000).await;
    let mut sandbox = sandbox("2", "alice", at(0));
    sandbox.key_hash = KeyHash::of("another");
    ports.sandboxes.insert(&sandbox, &AMPLE_CAPS).await.unwrap();
    assert_eq!(claim(ports).await, None);
}

/// Generates the conformance tests of `WarmRepository`.
#[macro_export]
macro_rules! warm_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (sandboxes::warm),
            $fresh,
            [
                every_field_is_stored,
                a_ready_sandbox_can_be_stored,
                states_follow_each_other,
                a_dismissed_sandbox_is_never_claimed,
                the_oldest_is_claimed_first,
                claims_match_host_spec_and_recipe,
                no_more_are_stored_than_the_maximum,
                a_race_never_exceeds_the_maximum,
                the_number_of_a_host_is_bounded,
                each_claim_has_one_winner,
                a_claim_or_a_dismissal_wins,
                a_warm_sandbox_with_a_row_is_never_claimed,
            ]
        );
    };
}
