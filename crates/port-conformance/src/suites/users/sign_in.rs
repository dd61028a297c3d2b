//! Conformance tests of `SessionRepository` and `PasswordRepository`, and of the changes to sign-in.

use std::time::Duration;

use domain::audit::{AuditActor, AuditEntry, AuditFilter};
use domain::error::{Entity, StoreError};
use domain::id::SessionId;
use domain::user::administration::AdminChange;
use domain::user::identity::{KeyHash, Role};
use domain::user::sign_in::{
    MAX_LINKS_PER_USER, MAX_SESSIONS_PER_USER, OneTimeLink, PasswordHash, Session, SignInChange,
};

use super::audit_log::entry;
use super::repository::key;
use crate::fixtures::{at, page, user, uuid};
use crate::{StorePorts, assert_is};

fn password(text: &str) -> PasswordHash {
    PasswordHash::from_text(format!("$test${text}"))
}

fn link(n: u64, name: &str) -> OneTimeLink {
    let created_at = at(i64::try_from(n).unwrap());
    OneTimeLink {
        hash: KeyHash::of(&format!("link {n}")),
        user: user(name),
        created_at,
        expires_at: created_at.plus(Duration::from_secs(1_000)),
    }
}

pub(super) fn session(n: u64, name: &str) -> Session {
    let created_at = at(i64::try_from(n).unwrap());
    Session {
        id: SessionId::new(uuid(n)),
        user: user(name),
        hash: KeyHash::of(&format!("session {n}")),
        created_at,
        last_seen_at: created_at,
        expires_at: created_at.plus(Duration::from_secs(1_000)),
        address: Some("2001:db8::1".to_owned()),
        user_agent: Some("Browser é".to_owned()),
    }
}

/// Makes the change as the service at this time.
async fn change_at(ports: &StorePorts, when: i64, change: SignInChange) -> Result<(), StoreError> {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(100_000);
    let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let entry = AuditEntry {
        actor: AuditActor::Service,
        ..entry(n, when)
    };
    let change = AdminChange::SignIn(change);
    let done = ports.administration.administer(&change, &entry).await;
    done.map(|_| ())
}

pub(super) async fn change(ports: &StorePorts, change: SignInChange) -> Result<(), StoreError> {
    change_at(ports, 5, change).await
}

/// Creates a user with a password by a link.
pub(super) async fn enrol(ports: &StorePorts, n: u64, name: &str, text: &str) {
    let link = link(n, name);
    let create = SignInChange::CreateLink {
        link: link.clone(),
        new_user: Some(Role::User),
    };
    change(ports, create).await.unwrap();
    let redeem = SignInChange::RedeemLink {
        link: link.hash,
        user: link.user,
        password: password(text),
    };
    change(ports, redeem).await.unwrap();
}

fn begin(session: &Session, text: &str) -> SignInChange {
    SignInChange::BeginSession {
        session: session.clone(),
        password: password(text),
    }
}

pub(super) async fn is_active(ports: &StorePorts, session: &Session) -> bool {
    let found = ports.sessions.find_by_hash(&session.hash).await.unwrap();
    found.is_some()
}

/// A link sets a password once, within its lifetime, for its own user. Redeeming ends sessions and other links.
pub async fn a_link_sets_a_password_once(ports: &StorePorts) {
    let first = link(1, "ada");
    let create = |link: &OneTimeLink, new_user| SignInChange::CreateLink {
        link: link.clone(),
        new_user,
    };
    assert_is!(
        change(ports, create(&first, None)).await,
        Err(StoreError::NotFound {
            entity: Entity::User
        })
    );
    change(ports, create(&first, Some(Role::Admin)))
        .await
        .unwrap();
    let found = ports.users.find(&user("ada")).await.unwrap().unwrap();
    assert_eq!(found.role, Role::Admin);
    let found = ports.passwords.find_link(&first.hash).await.unwrap();
    assert_eq!(found, Some(first.clone()));
    assert_eq!(ports.passwords.find(&user("ada")).await.unwrap(), None);
    let second = link(2, "ada");
    change(ports, create(&second, Some(Role::User)))
        .await
        .unwrap();
    let found = ports.users.find(&user("ada")).await.unwrap().unwrap();
    assert_eq!(found.role, Role::Admin, "a link changes no role");

    let redeem = |name: &str, text: &str| SignInChange::RedeemLink {
        link: first.hash,
        user: user(name),
        password: password(text),
    };
    for (name, when) in [("bob", 5), ("ada", 1_001)] {
        assert_is!(
            change_at(ports, when, redeem(name, "x")).await,
            Err(StoreError::NotFound { .. })
        );
    }
    change(ports, redeem("ada", "one")).await.unwrap();
    let found = ports.passwords.find(&user("ada")).await.unwrap();
    assert_eq!(found, Some(password("one")));
    assert_is!(
        change(ports, redeem("ada", "two")).await,
        Err(StoreError::NotFound { .. })
    );
    for gone in [&first, &second] {
        assert_eq!(ports.passwords.find_link(&gone.hash).await.unwrap(), None);
    }
    let found = ports.passwords.find(&user("ada")).await.unwrap();
    assert_eq!(found, Some(password("one")), "used once");
}

/// A session begins with the present password only, is found by its hash with the present role, and ends.
pub async fn sessions_begin_and_end(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    let hers = session(2, "ada");
    for (bad, text) in [(&hers, "two"), (&session(3, "bob"), "one")] {
        assert_is!(
            change(ports, begin(bad, text)).await,
            Err(StoreError::NotFound { .. })
        );
        assert!(!is_active(ports, bad).await);
    }
    change(ports, begin(&hers, "one")).await.unwrap();
    let found = ports.sessions.find_by_hash(&hers.hash).await.unwrap();
    let found = found.unwrap();
    assert_eq!((&found.session, found.role), (&hers, Role::User));
    assert_eq!(
        ports.sessions.list(&user("ada")).await.unwrap(),
        std::slice::from_ref(&hers)
    );
    let twin = Session {
        id: SessionId::new(uuid(9)),
        ..hers.clone()
    };
    assert_is!(
        change(ports, begin(&twin, "one")).await,
        Err(StoreError::Conflict { .. })
    );

    ports.sessions.touch(hers.id, at(70)).await.unwrap();
    let found = ports.sessions.find_by_hash(&hers.hash).await.unwrap();
    assert_eq!(found.unwrap().session.last_seen_at, at(70));
    ports.sessions.touch(twin.id, at(70)).await.unwrap();

    let end = |name: &str| SignInChange::EndSession {
        id: hers.id,
        user: user(name),
    };
    assert_is!(
        change(ports, end("bob")).await,
        Err(StoreError::NotFound {
            entity: Entity::Session
        })
    );
    change(ports, end("ada")).await.unwrap();
    assert!(!is_active(ports, &hers).await);
    assert_is!(
        change(ports, end("ada")).await,
        Err(StoreError::NotFound {
            entity: Entity::Session
        })
    );
}

/// A new password ends all sessions but the named one, and all links.
pub async fn a_new_password_ends_other_sessions(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    enrol(ports, 2, "bob", "b").await;
    let (kept, other, theirs) = (session(3, "ada"), session(4, "ada"), session(5, "bob"));
    for (session, text) in [(&kept, "one"), (&other, "one"), (&theirs, "b")] {
        change(ports, begin(session, text)).await.unwrap();
    }
    let invited = link(6, "ada");
    let create = SignInChange::CreateLink {
        link: invited.clone(),
        new_user: None,
    };
    change(ports, create).await.unwrap();
    let set = |before: &str| SignInChange::ChangePassword {
        user: user("ada"),
        before: password(before),
        password: password("two"),
        keep: Some(kept.id),
    };
    assert_is!(
        change(ports, set("wrong")).await,
        Err(StoreError::NotFound { .. })
    );
    change(ports, set("one")).await.unwrap();
    let found = ports.passwords.find(&user("ada")).await.unwrap();
    assert_eq!(found, Some(password("two")));
    assert!(is_active(ports, &kept).await && is_active(ports, &theirs).await);
    assert!(!is_active(ports, &other).await);
    assert_eq!(
        ports.passwords.find_link(&invited.hash).await.unwrap(),
        None
    );

    let reset = link(7, "ada");
    let create = SignInChange::CreateLink {
        link: reset.clone(),
        new_user: None,
    };
    change(ports, create).await.unwrap();
    let redeem = SignInChange::RedeemLink {
        link: reset.hash,
        user: user("ada"),
        password: password("three"),
    };
    change(ports, redeem).await.unwrap();
    assert!(!is_active(ports, &kept).await, "a reset ends every session");
    assert!(is_active(ports, &theirs).await);
}

/// Sessions and links of a user are bounded: new ones replace the oldest.
pub async fn sessions_and_links_are_bounded(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    let count = u64::try_from(MAX_SESSIONS_PER_USER).unwrap() + 2;
    for n in 10..10 + count {
        change(ports, begin(&session(n, "ada"), "one"))
            .await
            .unwrap();
    }
    let all = ports.sessions.list(&user("ada")).await.unwrap();
    assert_eq!(all.len(), MAX_SESSIONS_PER_USER);
    assert_eq!(all[0].id, session(12, "ada").id);

    let count = u64::try_from(MAX_LINKS_PER_USER).unwrap() + 1;
    for n in 200..200 + count {
        let create = SignInChange::CreateLink {
            link: link(n, "ada"),
            new_user: None,
        };
        change(ports, create).await.unwrap();
    }
    let find = async |n| {
        let found = ports.passwords.find_link(&link(n, "ada").hash).await;
        found.unwrap().is_some()
    };
    assert!(!find(200).await && find(201).await && find(200 + count - 1).await);
}

/// Expired sessions and links are pruned.
pub async fn expired_sessions_and_links_are_pruned(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    for n in [2, 3] {
        change(ports, begin(&session(n, "ada"), "one"))
            .await
            .unwrap();
        let create = SignInChange::CreateLink {
            link: link(n, "ada"),
            new_user: None,
        };
        change(ports, create).await.unwrap();
    }
    let before = session(3, "ada").expires_at;
    assert_eq!(ports.sessions.prune(before, 10).await.unwrap(), 1);
    assert_eq!(ports.passwords.prune_links(before, 10).await.unwrap(), 1);
    assert!(is_active(ports, &session(3, "ada")).await);
    assert!(!is_active(ports, &session(2, "ada")).await);
    let kept = ports.passwords.find_link(&link(3, "ada").hash).await;
    assert!(kept.unwrap().is_some());
}

/// The deletion of a user removes password, sessions and links, and refuses new ones.
pub async fn a_deleted_user_cannot_sign_in(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    let hers = session(2, "ada");
    change(ports, begin(&hers, "one")).await.unwrap();
    let invited = link(3, "ada");
    let create = || SignInChange::CreateLink {
        link: invited.clone(),
        new_user: None,
    };
    change(ports, create()).await.unwrap();
    ports.users.purge(&user("ada"), at(9), 9).await.unwrap();
    assert!(!is_active(ports, &hers).await);
    assert_eq!(ports.sessions.list(&user("ada")).await.unwrap(), []);
    assert_eq!(ports.passwords.find(&user("ada")).await.unwrap(), None);
    assert_eq!(
        ports.passwords.find_link(&invited.hash).await.unwrap(),
        None
    );
    for refused in [create(), begin(&session(4, "ada"), "one")] {
        assert_is!(
            change(ports, refused).await,
            Err(StoreError::NotFound { .. })
        );
    }
}

/// The transaction of a change checks the caller's session again: that it lives, and the present role of its user.
pub async fn callers_with_a_session_are_authorized_again(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    let hers = session(2, "ada");
    change(ports, begin(&hers, "one")).await.unwrap();
    let make = async |n: u64, when, change: &AdminChange| {
        let entry = AuditEntry {
            session: Some(hers.id),
            ..entry(n, when)
        };
        ports.administration.administer(change, &entry).await
    };
    let own = AdminChange::CreateKey {
        key: key(5, "ada", 3),
        new_user: None,
    };
    make(20, 3, &own).await.unwrap();
    let create = AdminChange::CreateUser {
        user: user("bob"),
        role: Role::User,
    };
    assert_is!(
        make(21, 3, &create).await,
        Err(StoreError::CallerNotAdministrator)
    );
    let appoint = AdminChange::SetRole {
        user: user("ada"),
        role: Role::Admin,
    };
    let by_service = AuditEntry {
        actor: AuditActor::Service,
        ..entry(22, 3)
    };
    let done = ports.administration.administer(&appoint, &by_service).await;
    done.unwrap();
    make(23, 3, &create).await.unwrap();
    let other = AdminChange::CreateUser {
        user: user("eve"),
        role: Role::User,
    };
    assert_is!(
        make(24, 1_002, &other).await,
        Err(StoreError::CallerRevoked)
    );
    let end = SignInChange::EndSession {
        id: hers.id,
        user: user("ada"),
    };
    change(ports, end).await.unwrap();
    assert_is!(make(25, 3, &other).await, Err(StoreError::CallerRevoked));
    let found = ports
        .audit
        .search(&AuditFilter::default(), &page(100))
        .await;
    let with_session = found.unwrap().items.into_iter();
    let with_session = with_session.filter(|entry| entry.session == Some(hers.id));
    assert_eq!(with_session.count(), 2, "the successful ones");
}

/// Generates the conformance tests of sign-in. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! sign_in_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::sign_in),
            $fresh,
            [
                a_link_sets_a_password_once,
                sessions_begin_and_end,
                a_new_password_ends_other_sessions,
                sessions_and_links_are_bounded,
                expired_sessions_and_links_are_pruned,
                a_deleted_user_cannot_sign_in,
                callers_with_a_session_are_authorized_again,
            ]
        );
    };
}
