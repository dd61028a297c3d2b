//! Conformance tests of `VaultRepository`.

use domain::encryption::cipher::Sealed;
use domain::encryption::vault::KeyHolder;
use domain::error::StoreError;
use futures::future::join_all;

use crate::fixtures::at;
use crate::{StorePorts, assert_is};

fn sealed(text: &str) -> Sealed {
    Sealed::from_text(text)
}

fn holder(id: &str, keys: &[&str], seen: i64) -> KeyHolder {
    KeyHolder {
        id: id.to_owned(),
        keys: keys.iter().map(|&key| key.to_owned()).collect(),
        seals_with: keys.first().map(|&key| key.to_owned()),
        seen_at: at(seen),
    }
}

/// Of many concurrent first starts one stores its secret, and all get that one.
pub async fn the_first_writer_wins(ports: &StorePorts) {
    assert_eq!(ports.vault.installation().await.unwrap(), None);
    let race = (0..8).map(|n| async move {
        let mine = sealed(&format!("secret {n}"));
        ports.vault.create_installation(&mine, at(n)).await.unwrap()
    });
    let got = join_all(race).await;
    let stored = ports.vault.installation().await.unwrap().unwrap();
    assert!(got.iter().all(|it| *it == stored), "{stored:?}");
    let late = ports
        .vault
        .create_installation(&sealed("late"), at(9))
        .await
        .unwrap();
    assert_eq!(late, stored);
}

/// The secret is replaced only by a caller that knows the stored value; of several concurrent ones, one succeeds.
pub async fn a_replacement_needs_the_present_value(ports: &StorePorts) {
    let early = ports
        .vault
        .replace_installation(&sealed("a"), &sealed("b"), at(1))
        .await;
    assert_is!(early, Err(StoreError::Stale { .. }));
    let first = ports
        .vault
        .create_installation(&sealed("a"), at(1))
        .await
        .unwrap();
    let race = (0..8).map(|n| {
        let (first, mine) = (first.clone(), sealed(&format!("b {n}")));
        async move { ports.vault.replace_installation(&first, &mine, at(2)).await }
    });
    let done = join_all(race).await;
    assert_eq!(done.iter().filter(|it| it.is_ok()).count(), 1, "{done:?}");
    for refused in done.iter().filter(|it| it.is_err()) {
        assert_is!(refused, Err(StoreError::Stale { .. }));
    }
    assert_ne!(ports.vault.installation().await.unwrap(), Some(first));
}

/// The latest announcement of a process counts, until it withdraws or becomes too old.
pub async fn processes_announce_their_keys(ports: &StorePorts) {
    let vault = &ports.vault;
    let mut one = holder("one", &["k1"], 1);
    one.seals_with = None;
    let two = holder("two", &["k1", "k2"], 5);
    for holder in [&one, &two] {
        vault.announce(holder).await.unwrap();
    }
    assert_eq!(
        vault.list_holders(at(1)).await.unwrap(),
        [one.clone(), two.clone()]
    );
    let late = vault.list_holders(at(2)).await.unwrap();
    assert_eq!(late, std::slice::from_ref(&two));
    let again = holder("one", &["k2", "k1"], 6);
    vault.announce(&again).await.unwrap();
    assert_eq!(
        vault.list_holders(at(0)).await.unwrap(),
        [again.clone(), two]
    );
    assert_eq!(vault.prune_holders(at(6), 10).await.unwrap(), 1);
    assert_eq!(vault.list_holders(at(0)).await.unwrap(), [again]);
    vault.withdraw("one").await.unwrap();
    vault.withdraw("one").await.unwrap();
    assert_eq!(vault.list_holders(at(0)).await.unwrap(), []);
}

/// Generates the conformance tests of `VaultRepository`.
#[macro_export]
macro_rules! vault_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (secrets::vault),
            $fresh,
            [
                the_first_writer_wins,
                a_replacement_needs_the_present_value,
                processes_announce_their_keys,
            ]
        );
    };
}
