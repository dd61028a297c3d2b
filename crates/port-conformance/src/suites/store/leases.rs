//! Conformance tests of `LeaseRepository`.

use futures::future::join_all;

use crate::StorePorts;
use crate::fixtures::at;

/// A lease has one holder until its end, who may extend it; then it is free.
pub async fn a_lease_has_one_holder_until_its_end(ports: &StorePorts) {
    let take = async |holder: &str, now: i64, until: i64| {
        let taken = ports.leases.acquire("x", holder, at(now), at(until)).await;
        taken.unwrap()
    };
    assert!(take("one", 0, 10).await, "a free lease");
    assert!(!take("two", 9, 20).await, "a held lease");
    assert!(take("one", 9, 15).await, "its holder extends it");
    assert!(!take("two", 14, 20).await, "an extended lease");
    assert!(take("two", 15, 20).await, "an expired lease");
    assert!(!take("one", 16, 30).await, "the former holder lost it");
    let other = ports.leases.acquire("y", "one", at(16), at(30)).await;
    assert!(other.unwrap(), "another name is another lease");
}

/// Only its holder can release it, also repeatedly.
pub async fn only_the_holder_releases(ports: &StorePorts) {
    let leases = &ports.leases;
    assert!(leases.acquire("x", "one", at(0), at(10)).await.unwrap());
    leases.release("x", "two").await.unwrap();
    assert!(!leases.acquire("x", "two", at(1), at(11)).await.unwrap());
    leases.release("x", "one").await.unwrap();
    leases.release("x", "one").await.unwrap();
    assert!(leases.acquire("x", "two", at(1), at(11)).await.unwrap());
}

/// Of many concurrent callers, exactly one gets a free or expired lease.
pub async fn a_race_has_one_winner(ports: &StorePorts) {
    for round in 0..10 {
        let name = format!("lease-{}", round % 2);
        let now = round * 100;
        let holders: Vec<String> = (0..20).map(|n| format!("{round}-{n}")).collect();
        let race = holders
            .iter()
            .map(|holder| ports.leases.acquire(&name, holder, at(now), at(now + 50)));
        let won = join_all(race).await;
        let winners = won.into_iter().filter(|taken| *taken.as_ref().unwrap());
        assert_eq!(winners.count(), 1, "round {round}");
    }
}

/// Pruning deletes expired leases, up to the limit; released ones are gone already.
pub async fn ended_leases_are_pruned(ports: &StorePorts) {
    let leases = &ports.leases;
    for (n, until) in [(1, 10), (2, 11), (3, 12), (4, 20)] {
        let name = format!("lease-{n}");
        let taken = leases.acquire(&name, "one", at(0), at(until)).await;
        assert!(taken.unwrap());
    }
    assert_eq!(
        leases.prune(at(10), 9).await.unwrap(),
        0,
        "a lease that ends at that time has not ended before it"
    );
    assert_eq!(leases.prune(at(20), 2).await.unwrap(), 2);
    assert_eq!(leases.prune(at(20), 2).await.unwrap(), 1);
    assert_eq!(leases.prune(at(20), 2).await.unwrap(), 0);
    let held = leases.acquire("lease-4", "two", at(19), at(30)).await;
    assert!(!held.unwrap(), "the other lease stays");
}

/// Generates the conformance tests of `LeaseRepository`.
#[macro_export]
macro_rules! lease_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (store::leases),
            $fresh,
            [
                a_lease_has_one_holder_until_its_end,
                only_the_holder_releases,
                a_race_has_one_winner,
                ended_leases_are_pruned,
            ]
        );
    };
}
