//! Conformance tests of `SettingsRepository`.

use domain::encryption::cipher::Sealed;
use domain::error::StoreError;
use domain::user::settings::{Revision, StoredSettings};
use futures::future::join_all;

use crate::fixtures::{at, user};
use crate::{StorePorts, assert_is};

/// Nothing before the first save; then the saved document with its time and revision.
pub async fn saved_settings_are_loaded(ports: &StorePorts) {
    let (settings, alice) = (&ports.settings, user("alice"));
    assert_eq!(settings.load(&alice).await.unwrap(), None);
    let document = Sealed::from_text("v1:k:…é");
    let revision = settings.save(&alice, &document, None, at(1)).await.unwrap();
    let stored = StoredSettings {
        document,
        revision,
        updated_at: at(1),
    };
    assert_eq!(settings.load(&alice).await.unwrap(), Some(stored));
    let next = settings
        .save(&alice, &Sealed::from_text("2"), Some(revision), at(2))
        .await
        .unwrap();
    assert!(next > revision);
    let stored = settings.load(&alice).await.unwrap().unwrap();
    assert_eq!((stored.revision, stored.updated_at), (next, at(2)));
}

/// A save that expects another revision than the stored one is stale and changes nothing.
pub async fn a_stale_save_changes_nothing(ports: &StorePorts) {
    let (settings, alice) = (&ports.settings, user("alice"));
    let document = Sealed::from_text("1");
    let early = settings
        .save(&alice, &document, Some(Revision(1)), at(1))
        .await;
    assert_is!(early, Err(StoreError::Stale { .. }));
    let first = settings.save(&alice, &document, None, at(1)).await.unwrap();
    let second = settings
        .save(&alice, &document, Some(first), at(2))
        .await
        .unwrap();
    for expected in [None, Some(first), Some(Revision(second.0 + 1))] {
        let late = settings
            .save(&alice, &Sealed::from_text("late"), expected, at(3))
            .await;
        assert_is!(late, Err(StoreError::Stale { .. }));
    }
    let stored = settings.load(&alice).await.unwrap().unwrap();
    assert_eq!((stored.revision, stored.document), (second, document));
}

/// Users neither see nor affect each other's settings.
pub async fn users_are_separate(ports: &StorePorts) {
    let (settings, alice, bob) = (&ports.settings, user("alice"), user("bob"));
    let of_alice = Sealed::from_text("alice's");
    settings.save(&alice, &of_alice, None, at(1)).await.unwrap();
    assert_eq!(settings.load(&bob).await.unwrap(), None);
    let of_bob = Sealed::from_text("bob's");
    settings.save(&bob, &of_bob, None, at(2)).await.unwrap();
    let stored = settings.load(&alice).await.unwrap().unwrap();
    assert_eq!(stored.document, of_alice);
}

/// 50 concurrent savers each add a letter and retry when they are stale. No letter is lost.
pub async fn no_update_is_lost(ports: &StorePorts) {
    let alice = user("alice");
    join_all((0..50).map(|_| async {
        loop {
            let before = ports.settings.load(&alice).await.unwrap();
            let (text, expected) = match &before {
                Some(stored) => (stored.document.as_text().to_owned(), Some(stored.revision)),
                None => (String::new(), None),
            };
            let document = Sealed::from_text(text + "x");
            match ports
                .settings
                .save(&alice, &document, expected, at(1))
                .await
            {
                Ok(_) => break,
                Err(StoreError::Stale { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }))
    .await;
    let stored = ports.settings.load(&alice).await.unwrap().unwrap();
    assert_eq!(stored.document.as_text().len(), 50);
}

/// Generates the conformance tests of `SettingsRepository`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! settings_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (secrets::settings),
            $fresh,
            [
                saved_settings_are_loaded,
                a_stale_save_changes_nothing,
                users_are_separate,
                no_update_is_lost,
            ]
        );
    };
}
