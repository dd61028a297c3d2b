//! Users, keys and passwords of the tests.

use application::administration::{KeyOptions, Origin, administer, new_key};
use application::sign_in::new_link;
use domain::audit::AuditActor;
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, IdGenerator, UserId};
use domain::user::administration::AdminChange;
use domain::user::identity::{ApiKey, ApiKeyRepository, KeyHash, Role};
use domain::user::sign_in::{PasswordHasher as _, SignInChange, UserEmail};
use secrecy::{ExposeSecret as _, SecretString};
use store_memory::{MarkerPasswords, MemoryStore};

use crate::fixture::{ADA, BOB, ROOT};

/// The keys of both users and of the administrator.
pub(crate) async fn add_keys(store: &MemoryStore, now: Timestamp, ids: &dyn IdGenerator) {
    for (user, text) in [("ada", ADA), ("bob", BOB)] {
        let key = ApiKey {
            id: ApiKeyId::new(ids.uuid()),
            user: UserId::parse(user).unwrap(),
            hash: KeyHash::of(text),
            prefix: "aw_".to_owned(),
            created_at: now,
            expires_at: None,
            last_used_at: None,
            name: None,
            made_by: None,
            is_automation: false,
            organization: None,
        };
        ApiKeyRepository::insert(store, &key).await.unwrap();
    }
    let root = UserId::parse("root").unwrap();
    let mut made = new_key(
        ids,
        now,
        &root,
        &KeyOptions::default(),
        &AuditActor::Service,
    );
    made.key.hash = KeyHash::of(ROOT);
    let change = AdminChange::CreateKey {
        key: made.key,
        new_user: Some(Role::Admin),
    };
    let origin = Origin::service("test");
    let done = administer(store, &origin, ids, now, &change).await;
    done.unwrap();
}

/// Makes a link for a user; returns its code.
pub(crate) async fn add_link(
    store: &MemoryStore,
    now: Timestamp,
    ids: &dyn IdGenerator,
    user: &str,
) -> SecretString {
    let new = new_link(ids, now, &UserId::parse(user).unwrap());
    let change = SignInChange::CreateLink {
        link: new.link,
        new_user: None,
    };
    let (change, origin) = (AdminChange::SignIn(change), Origin::service("test"));
    let done = administer(store, &origin, ids, now, &change).await;
    done.unwrap();
    new.token
}

/// Sets a password by a link.
pub(crate) async fn set_password(
    store: &MemoryStore,
    now: Timestamp,
    ids: &dyn IdGenerator,
    (user, password): (&str, &str),
) {
    let token = add_link(store, now, ids, user).await;
    let change = SignInChange::RedeemLink {
        link: KeyHash::of(token.expose_secret()),
        user: UserId::parse(user).unwrap(),
        password: MarkerPasswords.hash(&password.into()),
    };
    let (change, origin) = (AdminChange::SignIn(change), Origin::service("test"));
    let done = administer(store, &origin, ids, now, &change).await;
    done.unwrap();
}

/// Sets the address of a user.
pub(crate) async fn set_email(
    store: &MemoryStore,
    now: Timestamp,
    ids: &dyn IdGenerator,
    (user, address, is_verified): (&str, &str, bool),
) {
    let change = SignInChange::SetEmail {
        user: UserId::parse(user).unwrap(),
        email: Some(UserEmail {
            address: address.to_owned(),
            is_verified,
        }),
    };
    let (change, origin) = (AdminChange::SignIn(change), Origin::service("test"));
    let done = administer(store, &origin, ids, now, &change).await;
    done.unwrap();
}
