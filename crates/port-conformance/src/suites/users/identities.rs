//! Conformance tests of `IdentityRepository`, and of the changes to identities and e-mail addresses.

use domain::error::{Entity, StoreError};
use domain::id::{IdentityId, ProviderName};
use domain::user::administration::AdminChange;
use domain::user::identity::Role;
use domain::user::sign_in::{Session, SignInChange, UserEmail};
use domain::user::single_sign_on::{LinkedIdentity, MAX_IDENTITIES_PER_USER};

use super::organizations::administer;
use super::sign_in::{change, enrol, is_active, session};
use crate::fixtures::{at, user, uuid};
use crate::{StorePorts, assert_is};

fn provider(name: &str) -> ProviderName {
    ProviderName::parse(name).unwrap()
}

fn identity(n: u64, subject: &str, name: &str) -> LinkedIdentity {
    LinkedIdentity {
        id: IdentityId::new(uuid(n)),
        provider: provider("corp"),
        subject: subject.to_owned(),
        user: user(name),
        email: None,
        created_at: at(i64::try_from(n).unwrap()),
        last_used_at: at(i64::try_from(n).unwrap()),
    }
}

fn email(address: &str, is_verified: bool) -> UserEmail {
    UserEmail {
        address: address.to_owned(),
        is_verified,
    }
}

fn link(identity: &LinkedIdentity, new_user: Option<Role>) -> SignInChange {
    SignInChange::LinkIdentity {
        identity: identity.clone(),
        new_user,
    }
}

fn begin(session: &Session, identity: &LinkedIdentity) -> SignInChange {
    SignInChange::BeginIdentitySession {
        session: session.clone(),
        identity: identity.id,
        email: None,
        role: None,
    }
}

fn unlink(n: u64, name: &str) -> SignInChange {
    SignInChange::UnlinkIdentity {
        id: IdentityId::new(uuid(n)),
        user: user(name),
        keep: None,
    }
}

/// An identity is linked once, to a new user or to one who exists, and is found by provider and subject.
pub async fn an_identity_belongs_to_one_user(ports: &StorePorts) {
    let hers = identity(1, "Sub-é", "ada");
    assert_is!(
        change(ports, link(&hers, None)).await,
        Err(StoreError::NotFound {
            entity: Entity::User
        })
    );
    change(ports, link(&hers, Some(Role::Admin))).await.unwrap();
    let found = ports.users.find(&user("ada")).await.unwrap().unwrap();
    assert_eq!(found.role, Role::Admin);
    let find = async |name: &str, subject: &str| {
        let found = ports.identities.find(&provider(name), subject).await;
        found.unwrap()
    };
    assert_eq!(find("corp", "Sub-é").await, Some(hers.clone()));
    assert_eq!(find("corp", "sub-é").await, None, "subjects have a case");
    assert_eq!(find("other", "Sub-é").await, None);

    // The name is taken: a stranger's identity does not get the user.
    assert_is!(
        change(ports, link(&identity(2, "x", "ada"), Some(Role::User))).await,
        Err(StoreError::Conflict {
            entity: Entity::User
        })
    );
    enrol(ports, 3, "bob", "b").await;
    for new_user in [None, Some(Role::User)] {
        let name = if new_user.is_some() { "eve" } else { "bob" };
        let theirs = identity(4, "Sub-é", name);
        assert_is!(
            change(ports, link(&theirs, new_user)).await,
            Err(StoreError::Conflict {
                entity: Entity::Identity
            })
        );
    }
    assert_eq!(ports.users.find(&user("eve")).await.unwrap(), None);
    let second = identity(5, "second", "ada");
    change(ports, link(&second, None)).await.unwrap();
    let all = ports.identities.list(&user("ada")).await.unwrap();
    assert_eq!(all, [hers, second]);
    assert_eq!(ports.identities.list(&user("bob")).await.unwrap(), []);
}

/// A session begins by a linked identity only, with the role and the verified address that the provider names.
pub async fn a_session_begins_by_an_identity(ports: &StorePorts) {
    let hers = identity(1, "ada", "ada");
    change(ports, link(&hers, Some(Role::User))).await.unwrap();
    enrol(ports, 2, "bob", "b").await;
    for bad in [
        begin(&session(3, "bob"), &hers),
        begin(&session(3, "ada"), &identity(9, "x", "ada")),
    ] {
        assert_is!(change(ports, bad).await, Err(StoreError::NotFound { .. }));
    }
    let known = |n, address: &str, is_verified, role| SignInChange::BeginIdentitySession {
        session: session(n, "ada"),
        identity: hers.id,
        email: Some(email(address, is_verified)),
        role,
    };
    let stored = async || ports.identities.email(&user("ada")).await.unwrap();
    change(ports, known(4, "x@x.example", false, None))
        .await
        .unwrap();
    assert_eq!(stored().await, None, "only a verified one");
    change(ports, known(5, "ada@x.example", true, Some(Role::Admin)))
        .await
        .unwrap();
    assert_eq!(stored().await, Some(email("ada@x.example", true)));
    change(ports, begin(&session(6, "ada"), &hers))
        .await
        .unwrap();
    assert_eq!(stored().await, Some(email("ada@x.example", true)));
    let found = ports.sessions.find_by_hash(&session(6, "ada").hash).await;
    assert_eq!(found.unwrap().unwrap().role, Role::Admin);
    let found = ports.identities.list(&user("ada")).await.unwrap();
    assert_eq!(found[0].last_used_at, session(6, "ada").created_at);
}

/// The last means of signing in cannot be unlinked; unlinking ends sessions.
pub async fn an_identity_is_unlinked(ports: &StorePorts) {
    let (one, two) = (identity(1, "one", "ada"), identity(2, "two", "ada"));
    change(ports, link(&one, Some(Role::User))).await.unwrap();
    assert_is!(
        change(ports, unlink(1, "ada")).await,
        Err(StoreError::Conflict {
            entity: Entity::Identity
        })
    );
    change(ports, link(&two, None)).await.unwrap();
    let (kept, ended) = (session(3, "ada"), session(4, "ada"));
    for session in [&kept, &ended] {
        change(ports, begin(session, &one)).await.unwrap();
    }
    assert_is!(
        change(ports, unlink(1, "bob")).await,
        Err(StoreError::NotFound {
            entity: Entity::Identity
        })
    );
    let keeping = SignInChange::UnlinkIdentity {
        id: one.id,
        user: user("ada"),
        keep: Some(kept.id),
    };
    change(ports, keeping.clone()).await.unwrap();
    assert!(is_active(ports, &kept).await && !is_active(ports, &ended).await);
    assert_is!(
        change(ports, keeping).await,
        Err(StoreError::NotFound { .. })
    );
    assert_eq!(ports.identities.list(&user("ada")).await.unwrap(), [two]);

    enrol(ports, 5, "bob", "b").await;
    change(ports, link(&identity(6, "bob", "bob"), None))
        .await
        .unwrap();
    change(ports, unlink(6, "bob")).await.unwrap();
}

/// The number of identities of a user is bounded.
pub async fn identities_are_bounded(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    let count = u64::try_from(MAX_IDENTITIES_PER_USER).unwrap();
    for n in 0..count {
        let new = identity(10 + n, &format!("subject {n}"), "ada");
        change(ports, link(&new, None)).await.unwrap();
    }
    assert_is!(
        change(ports, link(&identity(9, "more", "ada"), None)).await,
        Err(StoreError::Full { .. })
    );
}

/// Addresses are set, found in any case of letters, and removed. Several users may have the same.
pub async fn users_have_an_email_address(ports: &StorePorts) {
    let set = |name: &str, email: Option<UserEmail>| SignInChange::SetEmail {
        user: user(name),
        email,
    };
    assert_is!(
        change(ports, set("ada", Some(email("a@x.example", true)))).await,
        Err(StoreError::NotFound {
            entity: Entity::User
        })
    );
    for (n, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
        enrol(ports, n, name, name).await;
        assert_eq!(ports.identities.email(&user(name)).await.unwrap(), None);
    }
    for (name, verified) in [("ada", true), ("bob", false)] {
        let email = Some(email("a@x.example", verified));
        change(ports, set(name, email.clone())).await.unwrap();
        let found = ports.identities.email(&user(name)).await.unwrap();
        assert_eq!(found, email);
    }
    let find = async |address: &str, limit| {
        let found = ports.identities.find_by_email(address, limit).await;
        found.unwrap()
    };
    let (first, second) = (
        (user("ada"), email("a@x.example", true)),
        (user("bob"), email("a@x.example", false)),
    );
    assert_eq!(find("A@x.example", 9).await, [first.clone(), second]);
    assert_eq!(find("a@x.example", 1).await, [first]);
    assert_eq!(find("b@x.example", 9).await, []);
    let verified = async || {
        let users = ["ada", "bob", "eve", "olaf"].map(user);
        let found = ports.identities.verified_emails(&users).await.unwrap();
        let found = found.into_iter();
        found
            .map(|(user, it)| (user.to_string(), it))
            .collect::<Vec<_>>()
    };
    let hers = ("ada".to_owned(), "a@x.example".to_owned());
    assert_eq!(verified().await, [hers]);
    assert!(
        ports
            .identities
            .verified_emails(&[])
            .await
            .unwrap()
            .is_empty()
    );
    change(ports, set("ada", None)).await.unwrap();
    assert_eq!(verified().await, []);
    assert_eq!(ports.identities.email(&user("ada")).await.unwrap(), None);
}

/// A disabled user begins no session, and does again once they are enabled.
pub async fn a_disabled_user_begins_no_session(ports: &StorePorts) {
    let hers = identity(1, "ada", "ada");
    change(ports, link(&hers, Some(Role::User))).await.unwrap();
    let set = |disabled| AdminChange::SetDisabled {
        user: user("ada"),
        disabled,
    };
    administer(ports, set(true)).await.unwrap();
    let new = session(2, "ada");
    assert_is!(
        change(ports, begin(&new, &hers)).await,
        Err(StoreError::NotFound { .. })
    );
    administer(ports, set(false)).await.unwrap();
    assert!(!is_active(ports, &new).await);
    change(ports, begin(&new, &hers)).await.unwrap();
    assert!(is_active(ports, &new).await);
}

/// The deletion of a user removes identities and address; the identity may then be linked to another user.
pub async fn a_deleted_user_has_no_identities(ports: &StorePorts) {
    let hers = identity(1, "ada", "ada");
    change(ports, link(&hers, Some(Role::User))).await.unwrap();
    let set = SignInChange::SetEmail {
        user: user("ada"),
        email: Some(email("a@x.example", true)),
    };
    change(ports, set.clone()).await.unwrap();
    ports.users.purge(&user("ada"), at(9), 9).await.unwrap();
    let found = ports.identities.find(&hers.provider, "ada").await.unwrap();
    assert_eq!(found, None);
    assert_eq!(ports.identities.list(&user("ada")).await.unwrap(), []);
    assert_eq!(ports.identities.email(&user("ada")).await.unwrap(), None);
    let verified = ports.identities.verified_emails(&[user("ada")]).await;
    assert!(verified.unwrap().is_empty());
    assert_eq!(
        ports
            .identities
            .find_by_email("a@x.example", 9)
            .await
            .unwrap(),
        []
    );
    for refused in [set, link(&hers, None), begin(&session(2, "ada"), &hers)] {
        assert_is!(
            change(ports, refused).await,
            Err(StoreError::NotFound { .. })
        );
    }
    assert_is!(
        change(ports, link(&hers, Some(Role::User))).await,
        Err(StoreError::UserNameReserved)
    );
    change(ports, link(&identity(3, "ada", "bob"), Some(Role::User)))
        .await
        .unwrap();
}

/// Generates the conformance tests of identities. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! identities_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::identities),
            $fresh,
            [
                an_identity_belongs_to_one_user,
                a_session_begins_by_an_identity,
                a_disabled_user_begins_no_session,
                an_identity_is_unlinked,
                identities_are_bounded,
                users_have_an_email_address,
                a_deleted_user_has_no_identities,
            ]
        );
    };
}
