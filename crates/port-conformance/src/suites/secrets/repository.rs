//! Conformance tests of `SecretRepository`.

use domain::error::StoreError;
use domain::page::{PageLimit, PageRequest, PageToken};
use domain::secret_rule::SecretRules;
use domain::user::secret::{
    CustomSecret, MAX_SECRETS_PER_USER, SECRETS_ENTITY, SecretChange, SecretSummary,
};
use futures::future::join_all;

use crate::fixtures::{at, secret, secret_value, user};
use crate::{StorePorts, assert_is};

async fn insert(ports: &StorePorts, n: u64, owner: &str, name: &str) -> CustomSecret {
    let secret = secret(n, owner, name, at(i64::try_from(n).unwrap_or(0)));
    ports.secrets.insert(&secret).await.unwrap();
    secret
}

async fn names(ports: &StorePorts, owner: &str) -> Vec<String> {
    let all = ports.secrets.all(&user(owner)).await.unwrap();
    all.into_iter().map(|it| it.name).collect()
}

/// All names that contain the text.
async fn search(ports: &StorePorts, owner: &str, contains: Option<&str>) -> Vec<String> {
    let page = PageRequest::default();
    let found = ports.secrets.search(&user(owner), contains, &page).await;
    let found = found.unwrap();
    assert_eq!(found.next, None);
    found.items.into_iter().map(|it| it.name).collect()
}

fn limit(limit: i64, after: Option<PageToken>) -> PageRequest {
    PageRequest {
        after,
        limit: PageLimit::new(limit).unwrap(),
    }
}

fn renamed(name: &str) -> SecretChange {
    SecretChange {
        name: Some(name.to_owned()),
        ..SecretChange::default()
    }
}

fn valued(n: u64) -> SecretChange {
    SecretChange {
        value: Some(secret_value(n)),
        ..SecretChange::default()
    }
}

/// Every field is stored, times to the microsecond, and lists are in order of creation.
pub async fn every_field_is_stored(ports: &StorePorts) {
    let alice = user("alice");
    assert_eq!(ports.secrets.find(&alice, "B").await.unwrap(), None);
    let b = insert(ports, 1, "alice", "B").await;
    let a = insert(ports, 2, "alice", "a_1").await;
    let found = ports.secrets.find(&alice, "B").await.unwrap();
    assert_eq!(found.as_ref(), Some(&b));
    assert_eq!(ports.secrets.find(&alice, "b").await.unwrap(), None);
    // Created at the same time: ordered by name.
    let (d, c) = (
        secret(3, "alice", "D", at(2)),
        secret(4, "alice", "C", at(2)),
    );
    ports.secrets.insert(&d).await.unwrap();
    ports.secrets.insert(&c).await.unwrap();
    let expected = [b, c, d, a].map(|it| SecretSummary::from(&it));
    assert_eq!(ports.secrets.all(&alice).await.unwrap(), expected);
}

/// A name is unique for its owner only.
pub async fn a_name_is_taken_once(ports: &StorePorts) {
    let first = insert(ports, 1, "alice", "A").await;
    let again = ports.secrets.insert(&secret(2, "alice", "A", at(5))).await;
    assert_is!(again, Err(StoreError::Conflict { .. }));
    insert(ports, 3, "bob", "A").await;
    insert(ports, 4, "alice", "a").await;
    let found = ports.secrets.find(&user("alice"), "A").await.unwrap();
    assert_eq!(found, Some(first));
}

/// A change sets only its fields.
pub async fn a_change_applies_only_to_its_fields(ports: &StorePorts) {
    let (secrets, alice) = (&ports.secrets, user("alice"));
    let mut expected = insert(ports, 1, "alice", "A").await;
    let nothing = SecretChange::default();
    for (n, change) in [
        (10, nothing.clone()),
        (11, renamed("A")),
        (12, valued(2)),
        (
            13,
            SecretChange {
                description: Some(String::new()),
                ..nothing.clone()
            },
        ),
        (
            14,
            SecretChange {
                hosts: Some(SecretRules::default()),
                ..nothing.clone()
            },
        ),
        (15, renamed("B")),
    ] {
        let name = expected.name.clone();
        assert!(secrets.change(&alice, &name, &change, at(n)).await.unwrap());
        expected.name = change.name.unwrap_or(expected.name);
        expected.description = change.description.unwrap_or(expected.description);
        expected.hosts = change.hosts.unwrap_or(expected.hosts);
        expected.value = change.value.unwrap_or(expected.value);
        expected.updated_at = at(n);
        let found = secrets.find(&alice, &expected.name).await.unwrap();
        assert_eq!(found.as_ref(), Some(&expected));
    }
    assert_eq!(names(ports, "alice").await, ["B"]);
    insert(ports, 3, "alice", "C").await;
    let taken = secrets.change(&alice, "B", &renamed("C"), at(20)).await;
    assert_is!(taken, Err(StoreError::Conflict { .. }));
    for (owner, name) in [("alice", "A"), ("alice", "b"), ("bob", "B")] {
        let changed = secrets.change(&user(owner), name, &nothing, at(20)).await;
        assert!(!changed.unwrap(), "{owner} {name}");
    }
    assert_eq!(secrets.find(&alice, "B").await.unwrap(), Some(expected));
}

/// `put` stores a new secret or changes an existing one, and returns which.
pub async fn put_stores_or_changes(ports: &StorePorts) {
    let (secrets, alice) = (&ports.secrets, user("alice"));
    let first = secret(1, "alice", "A", at(1));
    assert!(secrets.put(&first, &valued(1)).await.unwrap());
    assert_eq!(
        secrets.find(&alice, "A").await.unwrap(),
        Some(first.clone())
    );
    let second = secret(2, "alice", "A", at(2));
    assert!(!secrets.put(&second, &valued(2)).await.unwrap());
    let expected = CustomSecret {
        value: second.value,
        updated_at: at(2),
        ..first
    };
    assert_eq!(secrets.find(&alice, "A").await.unwrap(), Some(expected));
    assert!(
        secrets
            .put(&secret(3, "bob", "A", at(3)), &valued(3))
            .await
            .unwrap()
    );
}

/// A deleted secret is gone, and its name is free.
pub async fn a_deleted_secret_is_gone(ports: &StorePorts) {
    let alice = user("alice");
    insert(ports, 1, "alice", "A").await;
    assert!(!ports.secrets.delete(&user("bob"), "A").await.unwrap());
    assert!(!ports.secrets.delete(&alice, "a").await.unwrap());
    assert!(ports.secrets.delete(&alice, "A").await.unwrap());
    assert!(!ports.secrets.delete(&alice, "A").await.unwrap());
    assert_eq!(ports.secrets.find(&alice, "A").await.unwrap(), None);
    insert(ports, 2, "alice", "A").await;
}

/// Users neither see nor affect each other's secrets.
pub async fn users_are_separate(ports: &StorePorts) {
    let stored = insert(ports, 1, "alice", "A").await;
    assert_eq!(names(ports, "bob").await, [""; 0]);
    assert_eq!(search(ports, "bob", None).await, [""; 0]);
    assert_eq!(ports.secrets.find(&user("bob"), "A").await.unwrap(), None);
    let own = secret(2, "bob", "A", at(2));
    assert!(ports.secrets.put(&own, &valued(2)).await.unwrap());
    assert!(ports.secrets.delete(&user("bob"), "A").await.unwrap());
    let found = ports.secrets.find(&user("alice"), "A").await.unwrap();
    assert_eq!(found, Some(stored));
}

/// The search term matches any part in any case, and has no wildcards.
pub async fn a_search_takes_its_text_literally(ports: &StorePorts) {
    for (n, name) in (1..).zip(["MY_KEY", "MYXKEY", "other", "_"]) {
        insert(ports, n, "alice", name).await;
    }
    for (search_term, expected) in [
        (None, vec!["MYXKEY", "MY_KEY", "_", "other"]),
        (Some(""), vec!["MYXKEY", "MY_KEY", "_", "other"]),
        (Some("my"), vec!["MYXKEY", "MY_KEY"]),
        (Some("Y_k"), vec!["MY_KEY"]),
        (Some("_"), vec!["MY_KEY", "_"]),
        (Some("%"), vec![]),
        (Some("\\"), vec![]),
        (Some("\0"), vec![]),
        (Some("OTHER"), vec!["other"]),
        (Some("my_key_and_more"), vec![]),
        // The Kelvin sign is not an ASCII letter, though Unicode folds it into one.
        (Some("\u{212a}ey"), vec![]),
    ] {
        assert_eq!(
            search(ports, "alice", search_term).await,
            expected,
            "{search_term:?}"
        );
    }
    let long = "x".repeat(60_000);
    assert_eq!(search(ports, "alice", Some(&long)).await, [""; 0]);
}

/// Pages are in byte order, and stable while secrets are added, deleted and changed.
pub async fn pages_are_stable(ports: &StorePorts) {
    let (secrets, alice) = (&ports.secrets, user("alice"));
    for (n, name) in (1..).zip(["c", "B", "a", "_x", "D"]) {
        insert(ports, n, "alice", name).await;
    }
    insert(ports, 9, "bob", "C").await;
    let first = secrets.search(&alice, None, &limit(2, None)).await.unwrap();
    let names = |page: &[SecretSummary]| page.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&first.items), ["B", "D"]);
    // Before, at and after the position of the token.
    insert(ports, 10, "alice", "A").await;
    assert!(secrets.delete(&alice, "D").await.unwrap());
    insert(ports, 11, "alice", "b").await;
    assert!(
        secrets
            .change(&alice, "c", &renamed("z"), at(30))
            .await
            .unwrap()
    );
    let next = limit(2, first.next);
    let second = secrets.search(&alice, None, &next).await.unwrap();
    assert_eq!(names(&second.items), ["_x", "a"]);
    let next = limit(2, second.next);
    let last = secrets.search(&alice, None, &next).await.unwrap();
    assert_eq!(names(&last.items), ["b", "z"]);
    assert_eq!(last.next, None);
    for token in ["", "2", "c", "é\0", "djF8b3RoZXJ8MHxh"] {
        let foreign = limit(2, Some(PageToken(token.to_owned())));
        let refused = secrets.search(&alice, None, &foreign).await;
        assert_is!(refused, Err(StoreError::InvalidPageToken));
    }
}

/// Of many concurrent writers of a name, one inserts; each later `put` changes it, and no writer fails.
pub async fn one_of_many_writers_takes_a_name(ports: &StorePorts) {
    let inserted = join_all((0..20).map(|n| async move {
        let secret = secret(n, "alice", "A", at(1));
        ports.secrets.insert(&secret).await
    }));
    let won = inserted.await.into_iter().filter(|it| match it {
        Ok(()) => true,
        Err(StoreError::Conflict { .. }) => false,
        Err(other) => panic!("{other:?}"),
    });
    assert_eq!(won.count(), 1);
    let put = join_all((0..50).map(|n| async move {
        let secret = secret(100 + n, "alice", "B", at(1));
        ports.secrets.put(&secret, &valued(100 + n)).await
    }));
    let new = put.await.into_iter().filter(|it| *it.as_ref().unwrap());
    assert_eq!(new.count(), 1);
    let stored = ports.secrets.find(&user("alice"), "B").await.unwrap();
    let value = stored.unwrap().value;
    assert!(
        (100..150).any(|n| secret_value(n) == value),
        "the value of one of the writers"
    );
    let renames = join_all((0..20).map(|n| async move {
        let name = format!("R{n}");
        insert(ports, 200 + n, "alice", &name).await;
        let change = renamed("WON");
        ports
            .secrets
            .change(&user("alice"), &name, &change, at(2))
            .await
    }));
    let won = renames.await.into_iter().filter(|it| match it {
        Ok(changed) => *changed,
        Err(StoreError::Conflict { .. }) => false,
        Err(other) => panic!("{other:?}"),
    });
    assert_eq!(won.count(), 1);
    assert_eq!(names(ports, "alice").await.len(), 22);
}

/// Concurrent writers of different secrets lose nothing.
pub async fn writers_lose_nothing(ports: &StorePorts) {
    let alice = &user("alice");
    join_all((0..50).map(|n| async move {
        let (name, other) = (format!("S{n}"), format!("T{n}"));
        let secret = secret(n, "alice", &name, at(1));
        assert!(ports.secrets.put(&secret, &valued(n)).await.unwrap());
        let valued = valued(1000 + n);
        let changed = ports.secrets.change(alice, &name, &valued, at(2)).await;
        assert!(changed.unwrap());
        let renamed = renamed(&other);
        let changed = ports.secrets.change(alice, &name, &renamed, at(3)).await;
        assert!(changed.unwrap());
    }))
    .await;
    for n in 0..50 {
        let name = format!("T{n}");
        let found = ports.secrets.find(alice, &name).await.unwrap();
        assert_eq!(found.unwrap().value, secret_value(1000 + n));
    }
    assert_eq!(names(ports, "alice").await.len(), 50);
}

/// The cap is exact: with room for three, three of many concurrent writers succeed. Existing secrets can be changed at
/// the cap.
pub async fn the_cap_is_exact(ports: &StorePorts) {
    let most = u64::try_from(MAX_SECRETS_PER_USER).unwrap();
    for n in 0..most - 3 {
        insert(ports, n, "alice", &format!("S{n}")).await;
    }
    let writers = join_all((0..20).map(|n| async move {
        let secret = secret(10_000 + n, "alice", &format!("C{n}"), at(1));
        if n % 2 == 0 {
            ports.secrets.insert(&secret).await
        } else {
            ports.secrets.put(&secret, &valued(n)).await.map(|_| ())
        }
    }));
    let stored = writers.await.into_iter().filter(|it| match it {
        Ok(()) => true,
        Err(StoreError::Full {
            entity: SECRETS_ENTITY,
            ..
        }) => false,
        Err(other) => panic!("{other:?}"),
    });
    assert_eq!(stored.count(), 3);
    assert_eq!(names(ports, "alice").await.len(), MAX_SECRETS_PER_USER);
    let there = secret(20_000, "alice", "S0", at(2));
    let again = ports.secrets.insert(&there).await;
    assert_is!(again, Err(StoreError::Conflict { .. }));
    assert!(!ports.secrets.put(&there, &valued(20_000)).await.unwrap());
    insert(ports, 20_001, "bob", "A").await;
    assert!(ports.secrets.delete(&user("alice"), "S1").await.unwrap());
    insert(ports, 20_002, "alice", "NEW").await;
}

/// Generates the conformance tests of `SecretRepository`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! secret_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (secrets::repository),
            $fresh,
            [
                every_field_is_stored,
                a_name_is_taken_once,
                a_change_applies_only_to_its_fields,
                put_stores_or_changes,
                a_deleted_secret_is_gone,
                users_are_separate,
                a_search_takes_its_text_literally,
                pages_are_stable,
                one_of_many_writers_takes_a_name,
                writers_lose_nothing,
                the_cap_is_exact,
            ]
        );
    };
}
