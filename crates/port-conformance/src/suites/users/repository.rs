//! Conformance tests of `UserRepository` about users themselves; `purge` tests the deletion of their objects.

use domain::error::StoreError;
use domain::id::ApiKeyId;
use domain::user::identity::{ApiKey, KeyHash, PurgeCounts, Role, USER_NAME_REUSE_GRACE, User};

use crate::fixtures::{at, sandbox_id, user, uuid};
use crate::{StorePorts, assert_is};

pub(crate) fn key(n: u64, owner: &str, when: i64) -> ApiKey {
    ApiKey {
        id: ApiKeyId::new(uuid(n)),
        user: user(owner),
        hash: KeyHash::of(&n.to_string()),
        prefix: format!("aw_{n}"),
        created_at: at(when),
        expires_at: None,
        last_used_at: None,
        name: None,
        made_by: None,
        is_automation: false,
        organization: None,
    }
}

fn after_reuse_grace(when: i64) -> i64 {
    when + i64::try_from(USER_NAME_REUSE_GRACE.as_secs()).unwrap()
}

async fn users(ports: &StorePorts) -> Vec<User> {
    ports.users.list(None, 100).await.unwrap()
}

/// A user exists once, from the first key on. Users are listed by name, in pages.
pub async fn users_are_listed_by_name(ports: &StorePorts) {
    for (n, owner) in [(1, "carol"), (2, "alice"), (3, "bob"), (4, "alice")] {
        let when = i64::try_from(n).unwrap();
        ports.keys.insert(&key(n, owner, when)).await.unwrap();
    }
    let expected = [("alice", 2), ("bob", 3), ("carol", 1)].map(|(name, when)| User {
        id: user(name),
        role: Role::User,
        created_at: at(when),
        deleted_at: None,
        disabled_at: None,
    });
    assert_eq!(users(ports).await, expected);
    let first = ports.users.list(None, 2).await.unwrap();
    assert_eq!(first, expected[..2]);
    let rest = ports.users.list(Some(&user("bob")), 2).await.unwrap();
    assert_eq!(rest, expected[2..]);
    let bob = ports.users.find(&user("bob")).await.unwrap();
    assert_eq!(bob.as_ref(), Some(&expected[1]));
    assert_eq!(ports.users.find(&user("bo")).await.unwrap(), None);
}

/// The user with the earliest creation time that is not deleted; ties by name.
pub async fn the_oldest_user_is_found(ports: &StorePorts) {
    assert_eq!(ports.users.find_oldest().await.unwrap(), None);
    for (n, owner, when) in [
        (1, "carol", 2),
        (2, "bob", 2),
        (3, "alice", 1),
        (4, "dave", 3),
    ] {
        ports.keys.insert(&key(n, owner, when)).await.unwrap();
    }
    for expected in ["alice", "bob", "carol", "dave"] {
        let oldest = ports.users.find_oldest().await.unwrap();
        assert_eq!(oldest.map(|it| it.id), Some(user(expected)));
        ports.users.purge(&user(expected), at(9), 9).await.unwrap();
    }
    assert_eq!(ports.users.find_oldest().await.unwrap(), None);
}

/// Deleting an unknown user changes nothing and creates no user.
pub async fn an_unknown_user_is_not_deleted(ports: &StorePorts) {
    ports.keys.insert(&key(1, "alice", 0)).await.unwrap();
    let purged = ports.users.purge(&user("alic"), at(1), 10).await;
    assert_eq!(purged.unwrap(), None);
    assert_eq!(users(ports).await.len(), 1);
    assert_eq!(ports.users.list_partially_deleted(9).await.unwrap(), []);
}

/// A deleted user is shown as deleted, and stays so after repeated deletions.
pub async fn a_user_is_deleted_once(ports: &StorePorts) {
    ports.keys.insert(&key(1, "alice", 0)).await.unwrap();
    let alice = user("alice");
    let purged = ports.users.purge(&alice, at(5), 10).await.unwrap();
    let one_key = PurgeCounts {
        api_keys: 1,
        ..PurgeCounts::default()
    };
    assert_eq!(purged, Some(one_key));
    let again = ports.users.purge(&alice, at(6), 10).await.unwrap();
    assert_eq!(again, Some(PurgeCounts::default()));
    assert_eq!(users(ports).await[0].deleted_at, Some(at(5)));
}

/// A name is reserved until all rows are gone and the grace has passed; then a new user can take it. Other names are
/// not affected.
pub async fn a_name_is_reserved_after_a_deletion(ports: &StorePorts) {
    ports.keys.insert(&key(1, "alice", 0)).await.unwrap();
    ports.insert_sandbox("s", "alice").await;
    ports.users.purge(&user("alice"), at(5), 10).await.unwrap();
    let (early, late) = (after_reuse_grace(5) - 1, after_reuse_grace(5));
    let insert = async |n, when| ports.keys.insert(&key(n, "alice", when)).await;
    assert_is!(insert(2, late).await, Err(StoreError::UserNameReserved));
    ports.host_sandboxes.remove(&sandbox_id("s")).await.unwrap();
    assert_is!(insert(2, early).await, Err(StoreError::UserNameReserved));
    ports.keys.insert(&key(3, "bob", early)).await.unwrap();
    insert(2, late).await.unwrap();
    let again = User {
        id: user("alice"),
        role: Role::User,
        created_at: at(late),
        deleted_at: None,
        disabled_at: None,
    };
    assert_eq!(users(ports).await[0], again);
    ports.insert_sandbox("new", "alice").await;
}

/// Pruning deletes rows of deleted users when nothing is left of them and they are old enough, up to the limit, and no
/// other rows.
pub async fn deleted_users_are_pruned(ports: &StorePorts) {
    for (n, owner) in [
        (1, "alice"),
        (2, "bob"),
        (3, "carol"),
        (4, "dave"),
        (5, "eve"),
    ] {
        ports.keys.insert(&key(n, owner, 0)).await.unwrap();
    }
    ports.insert_sandbox("s", "dave").await;
    for (owner, when) in [("alice", 1), ("bob", 2), ("carol", 9), ("dave", 1)] {
        ports.users.purge(&user(owner), at(when), 10).await.unwrap();
    }
    assert_eq!(ports.users.prune(at(9), 1).await.unwrap(), 1);
    assert_eq!(ports.users.prune(at(9), 9).await.unwrap(), 1);
    assert_eq!(ports.users.prune(at(9), 9).await.unwrap(), 0);
    let left: Vec<_> = users(ports).await.into_iter().map(|it| it.id).collect();
    assert_eq!(left, ["carol", "dave", "eve"].map(user));
    ports.host_sandboxes.remove(&sandbox_id("s")).await.unwrap();
    assert_eq!(ports.users.prune(at(99), 9).await.unwrap(), 2);
    assert_eq!(users(ports).await.len(), 1);
}

/// Generates the conformance tests of `UserRepository`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! user_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::repository),
            $fresh,
            [
                users_are_listed_by_name,
                the_oldest_user_is_found,
                an_unknown_user_is_not_deleted,
                a_user_is_deleted_once,
                a_name_is_reserved_after_a_deletion,
                deleted_users_are_pruned,
            ]
        );
        $crate::conformance_tests!(
            (users::purge),
            $fresh,
            [
                a_purge_leaves_nothing,
                others_are_unaffected,
                the_first_call_revokes_all_access,
                writes_of_a_deleted_user_are_refused,
                late_reports_do_not_recreate_conversations,
                a_call_deletes_a_bounded_part,
                a_local_user_without_a_key_can_be_deleted,
            ]
        );
        $crate::conformance_tests!(
            (users::purge_races),
            $fresh,
            [concurrent_writes_are_deleted_too]
        );
    };
}
