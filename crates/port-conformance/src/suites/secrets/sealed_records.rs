//! Conformance tests of `SealedRecordRepository`, on which the rotation of the master key relies.

use domain::encryption::cipher::Sealed;
use domain::encryption::sealed::{ResealedRecord, SealedKind, SealedLocation, SealedRecord};
use domain::id::SecretId;
use domain::secret_rule::SecretRules;
use domain::user::secret::{CustomSecret, SecretValue};
use domain::user::settings::{SettingsOwner, StoredSettings};

use crate::StorePorts;
use crate::fixtures::{at, sandbox_id, start, start_in, task_id, user, uuid, warm};

fn sealed(text: &str) -> Sealed {
    Sealed::from_text(text)
}

fn record(location: SealedLocation, text: &str) -> SealedRecord {
    SealedRecord {
        location,
        sealed: sealed(text),
    }
}

fn secret(owner: &str, n: u64) -> CustomSecret {
    CustomSecret {
        owner: user(owner),
        name: format!("NAME_{n}"),
        description: String::new(),
        hosts: SecretRules::default(),
        value: SecretValue {
            id: SecretId::new(uuid(n)),
            sealed: sealed(&format!("secret {n}")),
        },
        created_at: at(0),
        updated_at: at(0),
    }
}

/// All records of a kind, `limit` at a time.
async fn all(ports: &StorePorts, kind: SealedKind, limit: usize) -> Vec<SealedRecord> {
    let mut all: Vec<SealedRecord> = Vec::new();
    loop {
        let after = all.last().map(|it| &it.location);
        let page = ports.sealed.page(kind, after, limit).await.unwrap();
        assert!(page.len() <= limit);
        let is_last = page.len() < limit;
        all.extend(page);
        if is_last {
            return all;
        }
    }
}

/// Stores one or two values of each kind, and returns all records by kind.
async fn fill(ports: &StorePorts) -> Vec<(SealedKind, Vec<SealedRecord>)> {
    for name in ["bob", "alice", "carol"] {
        let (owner, document) = (user(name), sealed(&format!("{name}'s settings")));
        let saved = ports.settings.save(&owner, &document, None, at(1));
        saved.await.unwrap();
    }
    for (owner, n) in [("bob", 1), ("alice", 2), ("alice", 3)] {
        ports.secrets.insert(&secret(owner, n)).await.unwrap();
    }
    ports.insert_sandbox("1", "alice").await;
    ports.insert_start(&start(7, "alice", "2", at(1))).await;
    for id in ["4", "3"] {
        assert!(ports.warm.insert(&warm(id, at(1)), 9).await.unwrap());
    }
    let mut without = start_in(8, "alice", "1", at(2));
    without.task.sealed_secrets = None;
    ports.insert_start(&without).await;
    let settings = ["alice", "bob", "carol"].map(|name| {
        let location = SealedLocation::Settings(user(name));
        record(location, &format!("{name}'s settings"))
    });
    let secrets = [("bob", 1), ("alice", 2), ("alice", 3)].map(|(owner, n)| {
        let location = SealedLocation::Secret(user(owner), SecretId::new(uuid(n)));
        record(location, &format!("secret {n}"))
    });
    let ids = ["1", "2"].map(sandbox_id);
    let session = ids
        .clone()
        .map(|id| record(SealedLocation::SessionKey(id), "sealed session key"));
    let secret = ids.map(|id| record(SealedLocation::SecretKey(id), "sealed secret key"));
    let starts = [record(
        SealedLocation::StartSecrets(task_id(7)),
        "sealed secrets",
    )];
    let warm_session = ["3", "4"].map(|id| {
        let location = SealedLocation::WarmSessionKey(sandbox_id(id));
        record(location, &format!("sealed session key of {id}"))
    });
    let warm_secret = ["3", "4"].map(|id| {
        let location = SealedLocation::WarmSecretKey(sandbox_id(id));
        record(location, &format!("sealed secret key of {id}"))
    });
    vec![
        (SealedKind::WarmSessionKeys, warm_session.to_vec()),
        (SealedKind::WarmSecretKeys, warm_secret.to_vec()),
        (SealedKind::Settings, settings.to_vec()),
        (SealedKind::Secrets, secrets.to_vec()),
        (SealedKind::SessionKeys, session.to_vec()),
        (SealedKind::SecretKeys, secret.to_vec()),
        (SealedKind::StartSecrets, starts.to_vec()),
    ]
}

/// Every sealed value is listed once, whatever the size of pages.
pub async fn everything_sealed_is_found(ports: &StorePorts) {
    let expected = fill(ports).await;
    assert_eq!(expected.len(), SealedKind::ALL.len());
    for (kind, expected) in expected {
        for limit in [1, 2, 100] {
            assert_eq!(all(ports, kind, limit).await, expected, "{kind:?} {limit}");
        }
    }
}

/// An unchanged value is replaced without a change of revisions and times. A changed or deleted one is left alone.
pub async fn only_what_is_unchanged_is_replaced(ports: &StorePorts) {
    let expected = fill(ports).await;
    let alice = user("alice");
    let before = ports.settings.load(&alice).await.unwrap().unwrap();
    for (kind, records) in expected {
        let anew = |stored: &SealedRecord, before: &Sealed| ResealedRecord {
            location: stored.location.clone(),
            before: before.clone(),
            after: sealed("anew"),
        };
        let wrong: Vec<_> = records
            .iter()
            .map(|it| anew(it, &sealed("other")))
            .collect();
        assert_eq!(ports.sealed.replace(&wrong).await.unwrap(), 0, "{kind:?}");
        assert_eq!(all(ports, kind, 100).await, records, "{kind:?}");
        let mut right: Vec<_> = records.iter().map(|it| anew(it, &it.sealed)).collect();
        // The second call has nothing to do.
        right.extend(right.clone());
        let count = ports.sealed.replace(&right).await.unwrap();
        assert_eq!(count, records.len() as u64, "{kind:?}");
        let now = all(ports, kind, 100).await;
        assert!(now.iter().all(|it| it.sealed == sealed("anew")), "{now:?}");
    }
    let stored = ports.settings.load(&alice).await.unwrap().unwrap();
    let document = sealed("anew");
    assert_eq!(stored, StoredSettings { document, ..before });
    let missing = ResealedRecord {
        location: SealedLocation::Settings(user("stranger")),
        before: sealed("a"),
        after: sealed("b"),
    };
    assert_eq!(ports.sealed.replace(&[missing]).await.unwrap(), 0);
    assert_eq!(ports.settings.load(&user("stranger")).await.unwrap(), None);
}

/// After a concurrent save and replacement, the saved value is stored, whichever came first.
pub async fn a_save_is_never_lost(ports: &StorePorts) {
    let alice: SettingsOwner = user("alice");
    let mut revision = None;
    for round in 0..40 {
        let text = format!("round {round}");
        let location = SealedLocation::Settings(alice.clone());
        let stored = ports.settings.load(&alice).await.unwrap();
        let batch: Vec<_> = stored
            .into_iter()
            .map(|it| ResealedRecord {
                location: location.clone(),
                before: it.document,
                after: sealed("resealed"),
            })
            .collect();
        let document = sealed(&text);
        let (saved, replaced) = tokio::join!(
            ports.settings.save(&alice, &document, revision, at(round)),
            ports.sealed.replace(&batch),
        );
        revision = Some(saved.unwrap());
        assert!(replaced.unwrap() <= 1);
        let stored = ports.settings.load(&alice).await.unwrap().unwrap();
        assert_eq!(stored.document, document);
    }
}

/// Generates the conformance tests of `SealedRecordRepository`.
#[macro_export]
macro_rules! sealed_records_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (secrets::sealed_records),
            $fresh,
            [
                everything_sealed_is_found,
                only_what_is_unchanged_is_replaced,
                a_save_is_never_lost,
            ]
        );
    };
}
