//! Slow marketplaces.

use std::time::Duration;

use application::skills::RegisteredMarketplace;
use domain::id::OwnerId;
use tokio::time::{Instant, timeout};

use crate::fixture::{Fixture, alice};

fn marketplace(name: &str) -> Vec<RegisteredMarketplace> {
    vec![RegisteredMarketplace {
        name: name.to_owned(),
        source: "github:acme/x".to_owned(),
        reference: None,
        repo_path: None,
    }]
}

#[tokio::test(start_paused = true)]
async fn slow_marketplaces_delay_only_their_user() {
    let fixture = Fixture::without_settings(|_| {});
    let (skills, alice) = (&fixture.app.skills, alice());
    let bob = OwnerId::parse("bob").expect("a name");
    let began = Instant::now();
    let ask = |name: &'static str| skills.offers(&alice, marketplace(name));
    let other = async {
        let offers = skills.offers(&bob, marketplace("quick")).await;
        assert_eq!(offers.errors, [""; 0]);
        assert!(began.elapsed() < Duration::from_secs(1), "does not wait");
    };
    let (first, second, ()) = tokio::join!(ask("slow"), ask("quick"), other);
    assert_eq!(first.errors, ["slow: reading all of them takes too long"]);
    assert_eq!(
        second.errors,
        ["quick: not read, because others are being read for you; try again in a minute"]
    );
    // Abandoned requests leave nothing behind.
    let again = timeout(Duration::from_secs(1), ask("quick")).await;
    assert_eq!(again.expect("at once").skills.len(), 1);
}
