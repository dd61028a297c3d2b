//! Laws of `AdministrationRepository`.

use domain::audit::AuditFilter;
use domain::error::StoreError;
use domain::identity::{Administered, ApiKey, DELETED_USER, KnownKey, Role};

use super::audit_log::entry;
use super::user_repository::key;
use crate::fixtures::{at, page, user};
use crate::{Ports, assert_is};

async fn administer(ports: &Ports, n: u64, change: Administered) -> Result<(), StoreError> {
    let when = i64::try_from(n).unwrap();
    ports
        .administration
        .administer(&change, &entry(n, when))
        .await
}

async fn entries(ports: &Ports) -> usize {
    let found = ports
        .audit
        .search(&AuditFilter::default(), &page(100))
        .await;
    found.unwrap().items.len()
}

async fn role(ports: &Ports, name: &str) -> Option<Role> {
    let found = ports.users.find(&user(name)).await.unwrap();
    found.map(|it| it.role)
}

async fn known(ports: &Ports, key: &ApiKey) -> Option<KnownKey> {
    ports.keys.find_by_hash(&key.hash).await.unwrap()
}

fn create(name: &str, role: Role) -> Administered {
    Administered::CreateUser {
        user: user(name),
        role,
    }
}

fn give(key: ApiKey, new_user: Option<Role>) -> Administered {
    Administered::CreateKey { key, new_user }
}

/// A user is made once, with a role that may change and that every look-up of their keys tells; each change leaves its
/// entry, and what is refused leaves none.
pub async fn users_have_roles(ports: &Ports) {
    administer(ports, 1, create("ada", Role::Admin))
        .await
        .unwrap();
    assert_eq!(role(ports, "ada").await, Some(Role::Admin));
    assert_is!(
        administer(ports, 2, create("ada", Role::User)).await,
        Err(StoreError::Conflict { entity: "user" })
    );
    let theirs = key(1, "ada", 0);
    ports.keys.insert(&theirs).await.unwrap();
    let found = known(ports, &theirs).await.unwrap();
    assert_eq!(found.role, Role::Admin, "a key more does not change it");
    let set = |name| Administered::SetRole {
        user: user(name),
        role: Role::User,
    };
    administer(ports, 3, set("ada")).await.unwrap();
    assert_eq!(known(ports, &theirs).await.unwrap().role, Role::User);
    assert_is!(
        administer(ports, 4, set("bob")).await,
        Err(StoreError::NotFound { entity: "user" })
    );
    assert_eq!(entries(ports).await, 2);
}

/// A key is made for a user who is there, or makes them if that is wanted.
pub async fn keys_are_made_for_users(ports: &Ports) {
    let (one, two) = (key(1, "ada", 1), key(2, "ada", 2));
    assert_is!(
        administer(ports, 1, give(one.clone(), None)).await,
        Err(StoreError::NotFound { entity: "user" })
    );
    let new = give(one.clone(), Some(Role::Admin));
    administer(ports, 2, new.clone()).await.unwrap();
    assert_is!(
        administer(ports, 3, new).await,
        Err(StoreError::Conflict { entity: "API key" })
    );
    let more = give(two.clone(), Some(Role::User));
    administer(ports, 4, more).await.unwrap();
    assert_eq!(role(ports, "ada").await, Some(Role::Admin));
    administer(ports, 5, give(key(3, "ada", 3), None))
        .await
        .unwrap();
    assert_eq!(ports.keys.list(None).await.unwrap().len(), 3);
    assert_eq!(entries(ports).await, 3);
}

/// A rotated key ends when it is told to, or before; nobody else's, and none that is over, is rotated.
pub async fn a_key_is_rotated(ports: &Ports) {
    let (one, two) = (key(1, "ada", 1), key(2, "ada", 2));
    ports.keys.insert(&one).await.unwrap();
    ports.keys.insert(&key(3, "bob", 1)).await.unwrap();
    let rotate = |old: &ApiKey, new: &ApiKey, until| Administered::RotateKey {
        old: old.id,
        new: new.clone(),
        until: at(until),
    };
    let gone = || Err::<(), _>(StoreError::NotFound { entity: "API key" });
    let foreign = rotate(&one, &key(4, "bob", 2), 50);
    assert_eq!(
        format!("{:?}", administer(ports, 1, foreign).await),
        format!("{:?}", gone())
    );
    administer(ports, 2, rotate(&one, &two, 50)).await.unwrap();
    let former = known(ports, &one).await.unwrap().key;
    assert_eq!(former.expires_at, Some(at(50)));
    assert_eq!(known(ports, &two).await.unwrap().key, two);
    // Again: the end does not move away.
    let three = key(5, "ada", 3);
    administer(ports, 3, rotate(&one, &three, 90))
        .await
        .unwrap();
    let former = known(ports, &one).await.unwrap().key;
    assert_eq!(former.expires_at, Some(at(50)));
    let late = key(6, "ada", 50);
    assert_eq!(
        format!("{:?}", administer(ports, 4, rotate(&one, &late, 90)).await),
        format!("{:?}", gone())
    );
    assert_eq!((known(ports, &late).await, entries(ports).await), (None, 2));
}

/// A user's key is revoked, and nobody else's.
pub async fn a_key_is_revoked_by_its_user(ports: &Ports) {
    let one = key(1, "ada", 1);
    ports.keys.insert(&one).await.unwrap();
    let revoke = |name| Administered::RevokeKey {
        id: one.id,
        user: user(name),
    };
    for (n, name, is_done) in [(1, "bob", false), (2, "ada", true), (3, "ada", false)] {
        let done = administer(ports, n, revoke(name)).await;
        assert_eq!(done.is_ok(), is_done, "{done:?}");
    }
    assert_eq!((known(ports, &one).await, entries(ports).await), (None, 1));
}

/// With the beginning of a deletion nothing of the user opens anything, and nothing is made.
pub async fn a_deletion_begins(ports: &Ports) {
    let one = key(1, "ada", 1);
    ports.keys.insert(&one).await.unwrap();
    let delete = |name| Administered::DeleteUser { user: user(name) };
    assert_is!(
        administer(ports, 1, delete("bob")).await,
        Err(StoreError::NotFound { entity: "user" })
    );
    administer(ports, 2, delete("ada")).await.unwrap();
    assert_eq!(known(ports, &one).await, None);
    let half = ports.users.half_deleted(9).await.unwrap();
    assert_eq!(half, [user("ada")], "whoever looks goes on");
    assert_is!(
        administer(ports, 3, give(key(2, "ada", 3), None)).await,
        Err(StoreError::NotFound { entity: "user" })
    );
    assert_is!(
        administer(ports, 4, create("ada", Role::User)).await,
        Err(StoreError::Conflict {
            entity: DELETED_USER
        })
    );
    let purged = ports.users.purge(&user("ada"), at(3), 9).await.unwrap();
    assert_eq!(purged.unwrap().api_keys, 1);
    let row = ports.users.find(&user("ada")).await.unwrap().unwrap();
    assert_eq!(row.deleted_at, Some(at(2)));
    assert_eq!(entries(ports).await, 1);
}

/// Stamps the laws of `AdministrationRepository` into tests. `$fresh`: a future of something that derefs to [`Ports`].
#[macro_export]
macro_rules! administration_conformance {
    ($fresh:expr) => {
        $crate::stamp_laws!(
            administration,
            $fresh,
            [
                users_have_roles,
                keys_are_made_for_users,
                a_key_is_rotated,
                a_key_is_revoked_by_its_user,
                a_deletion_begins,
            ]
        );
    };
}
