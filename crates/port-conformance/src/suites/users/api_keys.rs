//! Conformance tests of `ApiKeyRepository`.

use domain::error::StoreError;
use domain::id::ApiKeyId;
use domain::user::identity::{ApiKey, ApiKeyWithRole, KeyHash, Role};

use crate::fixtures::{at, user, uuid};
use crate::{StorePorts, assert_is};

fn key(n: u64, owner: &str) -> ApiKey {
    ApiKey {
        id: ApiKeyId::new(uuid(n)),
        user: user(owner),
        hash: KeyHash::of(&n.to_string()),
        prefix: format!("aw_{n}"),
        created_at: at(i64::try_from(n).unwrap_or_default()),
        expires_at: None,
        last_used_at: None,
        name: None,
        made_by: None,
        organization: None,
        is_automation: false,
    }
}

/// A key is found by its hash, with every field, also if it has expired. An unknown hash finds nothing.
pub async fn a_key_is_found_by_its_hash(ports: &StorePorts) {
    let stored = ApiKey {
        expires_at: Some(at(-1)),
        last_used_at: Some(at(5)),
        name: Some("laptop – é".to_owned()),
        made_by: Some("user:alice".to_owned()),
        organization: None,
        is_automation: true,
        ..key(1, "alice")
    };
    ports.keys.insert(&stored).await.unwrap();
    let found = ports.keys.find_by_hash(&stored.hash).await.unwrap();
    let expected = ApiKeyWithRole {
        key: stored,
        membership: None,
        role: Role::User,
    };
    assert_eq!(found, Some(expected));
    let unknown = ports.keys.find_by_hash(&key(2, "alice").hash).await;
    assert_eq!(unknown.unwrap(), None);
}

/// Hash and id are unique; a user may have several keys.
pub async fn hash_and_id_are_unique(ports: &StorePorts) {
    ports.keys.insert(&key(1, "alice")).await.unwrap();
    let same_hash = ApiKey {
        hash: key(1, "alice").hash,
        ..key(2, "bob")
    };
    let same_id = ApiKey {
        id: key(1, "alice").id,
        ..key(3, "alice")
    };
    for taken in [same_hash, same_id] {
        assert_is!(
            ports.keys.insert(&taken).await,
            Err(StoreError::Conflict { .. })
        );
    }
    ports.keys.insert(&key(4, "alice")).await.unwrap();
    assert_eq!(ports.keys.list(None).await.unwrap().len(), 2);
}

/// `list` is ordered oldest first, for one user or for all.
pub async fn keys_are_listed_oldest_first(ports: &StorePorts) {
    let (one, two, three) = (key(1, "alice"), key(2, "bob"), key(3, "alice"));
    for stored in [&three, &one, &two] {
        ports.keys.insert(stored).await.unwrap();
    }
    let all = ports.keys.list(None).await.unwrap();
    assert_eq!(all, [one.clone(), two, three.clone()]);
    let alices = ports.keys.list(Some(&user("alice"))).await.unwrap();
    assert_eq!(alices, [one, three]);
    let nobodys = ports.keys.list(Some(&user("carol"))).await.unwrap();
    assert_eq!(nobodys, []);
}

/// Revoking deletes exactly one key at once.
pub async fn a_revoked_key_is_gone(ports: &StorePorts) {
    let (one, two) = (key(1, "alice"), key(2, "alice"));
    ports.keys.insert(&one).await.unwrap();
    ports.keys.insert(&two).await.unwrap();
    assert!(ports.keys.revoke(one.id).await.unwrap());
    assert!(!ports.keys.revoke(one.id).await.unwrap());
    assert_eq!(ports.keys.find_by_hash(&one.hash).await.unwrap(), None);
    assert_eq!(ports.keys.list(None).await.unwrap(), [two]);
}

/// `touch` records a use, and does nothing for a deleted key.
pub async fn a_use_is_recorded(ports: &StorePorts) {
    let one = key(1, "alice");
    ports.keys.insert(&one).await.unwrap();
    ports.keys.touch(one.id, at(9)).await.unwrap();
    let found = ports.keys.find_by_hash(&one.hash).await.unwrap().unwrap();
    assert_eq!(found.key.last_used_at, Some(at(9)));
    ports.keys.touch(key(2, "alice").id, at(9)).await.unwrap();
    assert_eq!(ports.keys.list(None).await.unwrap().len(), 1);
}

/// Pruning deletes keys that expired long enough ago, up to the limit, and no others.
pub async fn expired_keys_are_pruned(ports: &StorePorts) {
    for (n, end) in [
        (1, Some(at(5))),
        (2, Some(at(9))),
        (3, None),
        (4, Some(at(6))),
    ] {
        let expiring = ApiKey {
            expires_at: end,
            ..key(n, "alice")
        };
        ports.keys.insert(&expiring).await.unwrap();
    }
    assert_eq!(ports.keys.prune(at(9), 1).await.unwrap(), 1);
    assert_eq!(ports.keys.prune(at(9), 9).await.unwrap(), 1);
    assert_eq!(ports.keys.prune(at(9), 9).await.unwrap(), 0);
    let left = ports.keys.list(None).await.unwrap();
    let left: Vec<_> = left.into_iter().map(|it| it.id).collect();
    assert_eq!(left, [key(2, "alice").id, key(3, "alice").id]);
}

/// Generates the conformance tests of `ApiKeyRepository`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! api_key_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::api_keys),
            $fresh,
            [
                a_key_is_found_by_its_hash,
                hash_and_id_are_unique,
                keys_are_listed_oldest_first,
                a_revoked_key_is_gone,
                a_use_is_recorded,
                expired_keys_are_pruned,
            ]
        );
    };
}
