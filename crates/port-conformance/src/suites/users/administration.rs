//! Conformance tests of `AdministrationRepository`.

use domain::audit::{AuditEntry, AuditFilter};
use domain::encryption::cipher::Sealed;
use domain::error::{Entity, StoreError};
use domain::user::administration::AdminChange;
use domain::user::identity::{ApiKey, ApiKeyWithRole, PurgeCounts, Role};

use super::audit_log::entry;
use super::repository::key;
use crate::fixtures::{at, conversation, page, scope, secret, user};
use crate::{StorePorts, assert_is};

async fn administer(
    ports: &StorePorts,
    n: u64,
    change: AdminChange,
) -> Result<PurgeCounts, StoreError> {
    let when = i64::try_from(n).unwrap();
    ports
        .administration
        .administer(&change, &entry(n, when))
        .await
}

async fn entries(ports: &StorePorts) -> usize {
    let found = ports
        .audit
        .search(&AuditFilter::default(), &page(100))
        .await;
    found.unwrap().items.len()
}

async fn role(ports: &StorePorts, name: &str) -> Option<Role> {
    let found = ports.users.find(&user(name)).await.unwrap();
    found.map(|it| it.role)
}

async fn find_key(ports: &StorePorts, key: &ApiKey) -> Option<ApiKeyWithRole> {
    ports.keys.find_by_hash(&key.hash).await.unwrap()
}

fn create(name: &str, role: Role) -> AdminChange {
    AdminChange::CreateUser {
        user: user(name),
        role,
    }
}

fn create_key(key: ApiKey, new_user: Option<Role>) -> AdminChange {
    AdminChange::CreateKey { key, new_user }
}

/// A user is created once; every look-up of their keys returns their present role. Each change stores its entry, and a
/// refused change stores none.
pub async fn users_have_roles(ports: &StorePorts) {
    administer(ports, 1, create("ada", Role::Admin))
        .await
        .unwrap();
    assert_eq!(role(ports, "ada").await, Some(Role::Admin));
    assert_is!(
        administer(ports, 2, create("ada", Role::User)).await,
        Err(StoreError::Conflict {
            entity: Entity::User
        })
    );
    let stored = key(1, "ada", 0);
    ports.keys.insert(&stored).await.unwrap();
    let found = find_key(ports, &stored).await.unwrap();
    assert_eq!(
        found.role,
        Role::Admin,
        "another key does not change the role"
    );
    let set = |name| AdminChange::SetRole {
        user: user(name),
        role: Role::User,
    };
    administer(ports, 3, set("ada")).await.unwrap();
    assert_eq!(find_key(ports, &stored).await.unwrap().role, Role::User);
    assert_is!(
        administer(ports, 4, set("bob")).await,
        Err(StoreError::NotFound {
            entity: Entity::User
        })
    );
    assert_eq!(entries(ports).await, 2);
}

/// A key is created for an existing user, or together with the user if the change says so.
pub async fn keys_are_created_for_users(ports: &StorePorts) {
    let (one, two) = (key(1, "ada", 1), key(2, "ada", 2));
    assert_is!(
        administer(ports, 1, create_key(one.clone(), None)).await,
        Err(StoreError::NotFound {
            entity: Entity::User
        })
    );
    let new = create_key(one.clone(), Some(Role::Admin));
    administer(ports, 2, new.clone()).await.unwrap();
    assert_is!(
        administer(ports, 3, new).await,
        Err(StoreError::Conflict {
            entity: Entity::ApiKey
        })
    );
    let more = create_key(two.clone(), Some(Role::User));
    administer(ports, 4, more).await.unwrap();
    assert_eq!(role(ports, "ada").await, Some(Role::Admin));
    administer(ports, 5, create_key(key(3, "ada", 3), None))
        .await
        .unwrap();
    assert_eq!(ports.keys.list(None).await.unwrap().len(), 3);
    assert_eq!(entries(ports).await, 3);
}

/// A rotated key expires at the given time, or before. Keys of other users and expired keys cannot be rotated.
pub async fn keys_are_rotated(ports: &StorePorts) {
    let (one, two) = (key(1, "ada", 1), key(2, "ada", 2));
    ports.keys.insert(&one).await.unwrap();
    ports.keys.insert(&key(3, "bob", 1)).await.unwrap();
    let rotate = |old: &ApiKey, new: &ApiKey, until| AdminChange::RotateKey {
        old: old.id,
        new: new.clone(),
        until: at(until),
    };
    let not_found = || {
        Err::<(), _>(StoreError::NotFound {
            entity: Entity::ApiKey,
        })
    };
    let foreign = rotate(&one, &key(4, "bob", 2), 50);
    assert_eq!(
        format!("{:?}", administer(ports, 1, foreign).await),
        format!("{:?}", not_found())
    );
    administer(ports, 2, rotate(&one, &two, 50)).await.unwrap();
    let former = find_key(ports, &one).await.unwrap().key;
    assert_eq!(former.expires_at, Some(at(50)));
    assert_eq!(find_key(ports, &two).await.unwrap().key, two);
    // A second rotation does not postpone the expiry.
    let three = key(5, "ada", 3);
    administer(ports, 3, rotate(&one, &three, 90))
        .await
        .unwrap();
    let former = find_key(ports, &one).await.unwrap().key;
    assert_eq!(former.expires_at, Some(at(50)));
    let late = key(6, "ada", 50);
    assert_eq!(
        format!("{:?}", administer(ports, 4, rotate(&one, &late, 90)).await),
        format!("{:?}", not_found())
    );
    assert_eq!(
        (find_key(ports, &late).await, entries(ports).await),
        (None, 2)
    );
}

/// Only keys of the named user can be revoked.
pub async fn a_key_is_revoked_by_its_user(ports: &StorePorts) {
    let one = key(1, "ada", 1);
    ports.keys.insert(&one).await.unwrap();
    let revoke = |name| AdminChange::RevokeKey {
        id: one.id,
        user: user(name),
    };
    for (n, name, is_done) in [(1, "bob", false), (2, "ada", true), (3, "ada", false)] {
        let done = administer(ports, n, revoke(name)).await;
        assert_eq!(done.is_ok(), is_done, "{done:?}");
    }
    assert_eq!(
        (find_key(ports, &one).await, entries(ports).await),
        (None, 1)
    );
}

/// The first call of a deletion revokes the user's access and refuses new objects. It also deletes what their sandboxes
/// could use.
pub async fn a_deletion_takes_effect_at_once(ports: &StorePorts) {
    let one = key(1, "ada", 1);
    ports.keys.insert(&one).await.unwrap();
    let delete = |name| AdminChange::DeleteUser { user: user(name) };
    assert_is!(
        administer(ports, 1, delete("bob")).await,
        Err(StoreError::NotFound {
            entity: Entity::User
        })
    );
    let (secret, document) = (
        secret(9, "ada", "TOKEN", at(1)),
        Sealed::from_text("sealed"),
    );
    ports.secrets.insert(&secret).await.unwrap();
    let saved = ports
        .settings
        .save(&user("ada"), &document, None, at(1))
        .await;
    saved.unwrap();
    ports.insert_sandbox("up", "ada").await;
    ports
        .insert_conversation(&conversation(5, "ada", "up", at(1)))
        .await;
    let begun = administer(ports, 2, delete("ada")).await.unwrap();
    let expected = PurgeCounts {
        api_keys: 1,
        settings: 1,
        secrets: 1,
        sandboxes: 1,
        ..PurgeCounts::default()
    };
    assert_eq!(begun, expected);
    assert_eq!(find_key(ports, &one).await, None);
    assert!(ports.secrets.all(&user("ada")).await.unwrap().is_empty());
    assert!(ports.settings.load(&user("ada")).await.unwrap().is_none());
    let (all, page) = (scope("ada"), page(9));
    let sandboxes = ports.sandboxes.search(&all, &page).await.unwrap().items;
    assert_eq!(sandboxes, []);
    let half = ports.users.list_partially_deleted(9).await.unwrap();
    assert_eq!(half, [user("ada")], "the deletion can continue");
    assert_is!(
        administer(ports, 3, create_key(key(2, "ada", 3), None)).await,
        Err(StoreError::NotFound {
            entity: Entity::User
        })
    );
    assert_is!(
        administer(ports, 4, create("ada", Role::User)).await,
        Err(StoreError::UserNameReserved)
    );
    let purged = ports.users.purge(&user("ada"), at(3), 9).await.unwrap();
    let purged = purged.unwrap();
    assert_eq!((purged.api_keys, purged.conversations), (0, 1));
    let row = ports.users.find(&user("ada")).await.unwrap().unwrap();
    assert_eq!(row.deleted_at, Some(at(2)));
    assert_eq!(entries(ports).await, 1);
}

/// One change of every kind by `ada`: first those to her own keys, then those that require an administrator.
fn changes(n: u64, mine: &ApiKey, theirs: &ApiKey) -> ([AdminChange; 3], [AdminChange; 6]) {
    let revoke = |old: &ApiKey| AdminChange::RevokeKey {
        id: old.id,
        user: old.user.clone(),
    };
    let rotate = |old: &ApiKey, n| AdminChange::RotateKey {
        old: old.id,
        new: key(n, old.user.as_str(), 1),
        until: at(9),
    };
    let own = [
        create_key(key(n, "ada", 1), Some(Role::Admin)),
        rotate(mine, n + 1),
        revoke(mine),
    ];
    let others = [
        create("carol", Role::Admin),
        AdminChange::SetRole {
            user: user("ada"),
            role: Role::Admin,
        },
        create_key(key(n + 2, "bob", 1), None),
        rotate(theirs, n + 3),
        revoke(theirs),
        AdminChange::DeleteUser { user: user("bob") },
    ];
    (own, others)
}

/// Makes the change on behalf of `ada`, authenticated by this key.
async fn administer_as_ada(
    ports: &StorePorts,
    n: u64,
    key: &ApiKey,
    change: &AdminChange,
) -> Result<PurgeCounts, StoreError> {
    let entry = AuditEntry {
        key: Some(key.id),
        ..entry(n, 4)
    };
    ports.administration.administer(change, &entry).await
}

/// A caller whose key was revoked, has expired or belongs to another user, or whose user was deleted, changes nothing.
/// A caller who is not an administrator changes only their own keys. The transaction checks this again.
pub async fn callers_are_authorized_again(ports: &StorePorts) {
    administer(ports, 1, create("ada", Role::User))
        .await
        .unwrap();
    let (hers, spare, theirs) = (key(1, "ada", 0), key(2, "ada", 0), key(3, "bob", 0));
    let expired = ApiKey {
        expires_at: Some(at(4)),
        ..key(4, "ada", 0)
    };
    for stored in [&hers, &spare, &theirs, &expired] {
        ports.keys.insert(stored).await.unwrap();
    }
    let (own, others) = changes(10, &spare, &theirs);
    let before = ports.keys.list(None).await.unwrap();
    for (change, n) in own.iter().chain(&others).zip(20..) {
        for bad in [&key(99, "ada", 0), &expired, &theirs] {
            let done = administer_as_ada(ports, n, bad, change).await;
            assert_is!(done, Err(StoreError::CallerRevoked));
        }
    }
    for (change, n) in others.iter().zip(30..) {
        let done = administer_as_ada(ports, n, &hers, change).await;
        assert_is!(done, Err(StoreError::CallerNotAdministrator));
    }
    assert_eq!(ports.keys.list(None).await.unwrap(), before);
    assert_eq!(role(ports, "ada").await, Some(Role::User));
    assert_eq!(
        (role(ports, "carol").await, entries(ports).await),
        (None, 1)
    );
    for (change, n) in own.iter().zip(40..) {
        administer_as_ada(ports, n, &hers, change).await.unwrap();
    }
    let admin = AdminChange::SetRole {
        user: user("ada"),
        role: Role::Admin,
    };
    administer(ports, 50, admin).await.unwrap();
    for (change, n) in others.iter().zip(60..) {
        administer_as_ada(ports, n, &hers, change).await.unwrap();
    }
    ports.users.purge(&user("ada"), at(5), 9).await.unwrap();
    let done = administer_as_ada(ports, 70, &hers, &create("dave", Role::User)).await;
    assert_is!(done, Err(StoreError::CallerRevoked));
}

/// Generates the conformance tests of `AdministrationRepository`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! administration_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::administration),
            $fresh,
            [
                users_have_roles,
                keys_are_created_for_users,
                keys_are_rotated,
                a_key_is_revoked_by_its_user,
                a_deletion_takes_effect_at_once,
                callers_are_authorized_again,
            ]
        );
    };
}
