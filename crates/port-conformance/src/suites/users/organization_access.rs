//! Conformance tests of what members own in organizations, what their credentials show, and how access ends.

use std::time::Duration;

use domain::encryption::cipher::Sealed;
use domain::encryption::sealed::{SealedKind, SealedLocation, SealedRecord};
use domain::error::StoreError;
use domain::id::SessionId;
use domain::sandbox::{DesiredState, SandboxStatus};
use domain::user::administration::AdminChange;
use domain::user::identity::KeyHash;
use domain::user::organization::OrganizationChange;
use domain::user::permission::MemberRole;
use domain::user::scope::Scope;
use domain::user::settings::SettingsOwner;
use domain::user::sign_in::{OneTimeLink, PasswordHash, Session, SignInChange};

use super::organizations::{
    add, administer, bound_key, change, found, invitation, organization_id, remove, role_of,
    shared_owner,
};
use super::repository::key;
use crate::fixtures::{AMPLE_CAPS, at, sandbox, sandbox_id, secret, user, uuid};
use crate::{StorePorts, assert_is};

/// Sessions act in the current organization while the user is a member; a bound key ends with the membership.
pub async fn credentials_show_the_membership(ports: &StorePorts) {
    found(ports).await;
    let id = organization_id();
    let switch = |name: &str| OrganizationChange::Switch {
        organization: id,
        user: user(name),
    };
    assert_is!(
        change(ports, switch("bob")).await,
        Err(StoreError::NotFound { .. })
    );
    let create = |n| AdminChange::CreateKey {
        key: bound_key(n, "bob"),
        new_user: None,
    };
    assert_is!(
        administer(ports, create(1)).await,
        Err(StoreError::NotFound { .. })
    );
    add(ports, 1, "bob", MemberRole::Admin).await;
    administer(ports, create(1)).await.unwrap();
    ports.keys.insert(&key(2, "bob", 1)).await.unwrap();
    let enrol_bob = begin_session(ports, 3, "bob").await;
    change(ports, switch("bob")).await.unwrap();
    let shown = async |session: &Session| {
        let found = ports.sessions.find_by_hash(&session.hash).await.unwrap();
        found.map(|it| it.membership.map(|it| (it.organization, it.role)))
    };
    assert_eq!(shown(&enrol_bob).await, Some(Some((id, MemberRole::Admin))));
    let key_of = async |n| {
        ports
            .keys
            .find_by_hash(&key(n, "bob", 1).hash)
            .await
            .unwrap()
    };
    let bound = key_of(1).await.unwrap();
    assert_eq!(bound.key.organization, Some(id));
    assert_eq!(bound.membership.map(|it| it.role), Some(MemberRole::Admin));
    assert_eq!(key_of(2).await.unwrap().membership, None);
    change(ports, remove("bob", MemberRole::Admin))
        .await
        .unwrap();
    assert_eq!(shown(&enrol_bob).await, Some(None));
    assert_eq!(key_of(1).await, None);
    assert!(key_of(2).await.is_some());
}

/// A user whom an invitation created acts in its organization from the first session on.
pub async fn a_new_member_begins_in_the_organization(ports: &StorePorts) {
    found(ports).await;
    let id = organization_id();
    let new = invitation(1, MemberRole::Member);
    let enrol = OrganizationChange::Enrol {
        organization: id,
        invitation: new.hash,
        user: user("dave"),
        password: PasswordHash::from_text("$test$two"),
    };
    let invite = OrganizationChange::Invite {
        organization: id,
        invitations: vec![new],
    };
    change(ports, invite).await.unwrap();
    change(ports, enrol).await.unwrap();
    let session = begin_session(ports, 3, "dave").await;
    let found = ports.sessions.find_by_hash(&session.hash).await.unwrap();
    let membership = found.unwrap().membership.unwrap();
    assert_eq!(
        (membership.organization, membership.role),
        (id, MemberRole::Member)
    );
}

async fn begin_session(ports: &StorePorts, n: u64, name: &str) -> Session {
    let link = OneTimeLink {
        hash: KeyHash::of(&format!("link {n}")),
        user: user(name),
        created_at: at(1),
        expires_at: at(1_000),
    };
    let password = PasswordHash::from_text("$test$one");
    let session = Session {
        id: SessionId::new(uuid(n)),
        user: user(name),
        hash: KeyHash::of(&format!("session {n}")),
        created_at: at(1),
        last_seen_at: at(1),
        expires_at: at(1).plus(Duration::from_secs(1_000)),
        address: None,
        user_agent: None,
    };
    let steps = [
        SignInChange::CreateLink {
            link: link.clone(),
            new_user: None,
        },
        SignInChange::RedeemLink {
            link: link.hash,
            user: link.user,
            password: password.clone(),
        },
        SignInChange::BeginSession {
            session: session.clone(),
            password,
        },
    ];
    for step in steps {
        administer(ports, AdminChange::SignIn(step)).await.unwrap();
    }
    session
}

/// The sandboxes of a former member pause and cannot be resumed, nothing new is stored, and what there was is there again when
/// the user returns. The user's personal objects are not affected.
pub async fn a_former_member_keeps_rows_but_no_access(ports: &StorePorts) {
    found(ports).await;
    add(ports, 1, "bob", MemberRole::Member).await;
    let shared = shared_owner("bob");
    let scope = Scope::Owner(shared.clone());
    let mut running = sandbox("s1", "bob", at(1));
    running.owner = shared.clone();
    ports.sandboxes.insert(&running, &AMPLE_CAPS).await.unwrap();
    ports.insert_sandbox("s2", "bob").await;
    let mut kept = secret(1, "bob", "TOKEN", at(1));
    kept.owner = shared.clone();
    ports.secrets.insert(&kept).await.unwrap();
    let personal = Scope::Owner(user("bob"));
    let hidden = ports.sandboxes.find(&personal, &running.id).await.unwrap();
    assert_eq!(hidden, None, "another organization of the same user");
    change(ports, remove("bob", MemberRole::Member))
        .await
        .unwrap();
    let desired = async |id: &str| {
        let found = ports.sandboxes.find(&Scope::System, &sandbox_id(id)).await;
        found.unwrap().unwrap().desired
    };
    assert_eq!(desired("s1").await, DesiredState::Paused);
    assert_eq!(desired("s2").await, DesiredState::Running);
    let resume = async || {
        let (id, running) = (sandbox_id("s1"), DesiredState::Running);
        let sandboxes = &ports.sandboxes;
        sandboxes
            .set_desired(&scope, &id, running, &AMPLE_CAPS, at(6))
            .await
    };
    assert_is!(resume().await, Err(StoreError::NotFound { .. }));
    let mut late = secret(2, "bob", "LATE", at(1));
    late.owner = shared.clone();
    assert_is!(
        ports.secrets.insert(&late).await,
        Err(StoreError::NotFound { .. })
    );
    add(ports, 2, "bob", MemberRole::Member).await;
    assert!(
        ports
            .secrets
            .find(&shared, "TOKEN")
            .await
            .unwrap()
            .is_some()
    );
    let resumed = resume().await.unwrap().unwrap();
    assert_eq!(resumed.status, SandboxStatus::Starting);
}

/// The deletion of an organization ends all memberships, and then deletes what present and former members own in it. Other
/// objects stay.
pub async fn a_deleted_organization_leaves_nothing(ports: &StorePorts) {
    found(ports).await;
    let id = organization_id();
    add(ports, 1, "bob", MemberRole::Member).await;
    add(ports, 2, "carol", MemberRole::Member).await;
    for (n, name) in [(1, "ada"), (2, "bob"), (3, "carol")] {
        let mut shared = secret(n, name, "TOKEN", at(1));
        shared.owner = shared_owner(name);
        ports.secrets.insert(&shared).await.unwrap();
        ports
            .secrets
            .insert(&secret(n + 10, name, "OWN", at(1)))
            .await
            .unwrap();
    }
    change(ports, remove("carol", MemberRole::Member))
        .await
        .unwrap();
    ports
        .organization_deletions
        .purge(id, at(6), 5)
        .await
        .unwrap();
    assert!(
        ports
            .secrets
            .find(&shared_owner("bob"), "TOKEN")
            .await
            .unwrap()
            .is_some()
    );
    let delete = OrganizationChange::Delete { organization: id };
    change(ports, delete.clone()).await.unwrap();
    assert_is!(
        change(ports, delete).await,
        Err(StoreError::NotFound { .. })
    );
    assert_eq!(ports.organizations.find(id).await.unwrap(), None);
    assert_eq!(role_of(ports, "ada").await, None);
    while ports
        .organization_deletions
        .purge(id, at(6), 1)
        .await
        .unwrap()
        .more
    {}
    for name in ["ada", "bob", "carol"] {
        let gone = ports
            .secrets
            .find(&shared_owner(name), "TOKEN")
            .await
            .unwrap();
        assert_eq!(gone, None, "{name}");
        let own = ports.secrets.find(&user(name), "OWN").await.unwrap();
        assert!(own.is_some(), "{name}");
    }
    let left = ports.organization_deletions.list_partially_deleted(9).await;
    assert_eq!(left.unwrap(), []);
}

/// The settings of an organization belong to no member. They are sealed records, stay when members leave, and go with the
/// organization.
pub async fn an_organization_has_settings_of_its_own(ports: &StorePorts) {
    let id = organization_id();
    let (shared, document) = (SettingsOwner::from(id), Sealed::from_text("the crew's"));
    let save = async |expected| {
        let saved = ports.settings.save(&shared, &document, expected, at(2));
        saved.await
    };
    assert_is!(save(None).await, Err(StoreError::NotFound { .. }));
    found(ports).await;
    add(ports, 1, "bob", MemberRole::Member).await;
    let revision = save(None).await.unwrap();
    assert_is!(save(None).await, Err(StoreError::Stale { .. }));
    save(Some(revision)).await.unwrap();
    for name in ["ada", "bob"] {
        let own = SettingsOwner::from(shared_owner(name));
        assert_eq!(ports.settings.load(&own).await.unwrap(), None, "{name}");
    }
    let own = SettingsOwner::from(shared_owner("bob"));
    let of_bob = Sealed::from_text("bob's");
    ports
        .settings
        .save(&own, &of_bob, None, at(3))
        .await
        .unwrap();
    let mut records = Vec::new();
    loop {
        let after = records.last().map(|it: &SealedRecord| &it.location);
        let page = ports.sealed.page(SealedKind::Settings, after, 1).await;
        let page = page.unwrap();
        if page.is_empty() {
            break;
        }
        records.extend(page);
    }
    let expected = [(&shared, &document), (&own, &of_bob)];
    let expected = expected.map(|(owner, document)| SealedRecord {
        location: SealedLocation::Settings(owner.clone()),
        sealed: document.clone(),
    });
    assert_eq!(records, expected);
    change(ports, remove("bob", MemberRole::Member))
        .await
        .unwrap();
    let stored = ports.settings.load(&shared).await.unwrap();
    assert_eq!(stored.map(|it| it.document), Some(document.clone()));
    let delete = OrganizationChange::Delete { organization: id };
    change(ports, delete).await.unwrap();
    assert_eq!(ports.settings.load(&shared).await.unwrap(), None);
    assert_is!(save(None).await, Err(StoreError::NotFound { .. }));
}

/// A deleted user's rows in shared organizations go, too.
pub async fn a_deleted_user_leaves_no_rows_in_organizations(ports: &StorePorts) {
    found(ports).await;
    add(ports, 1, "bob", MemberRole::Member).await;
    let mut shared = secret(1, "bob", "TOKEN", at(1));
    shared.owner = shared_owner("bob");
    ports.secrets.insert(&shared).await.unwrap();
    while ports
        .users
        .purge(&user("bob"), at(6), 1)
        .await
        .unwrap()
        .unwrap()
        .more
    {}
    assert_eq!(
        ports
            .secrets
            .find(&shared_owner("bob"), "TOKEN")
            .await
            .unwrap(),
        None
    );
    assert_eq!(role_of(ports, "bob").await, None);
    assert_eq!(ports.users.list_partially_deleted(9).await.unwrap(), []);
    assert_eq!(ports.users.prune(at(100_000), 9).await.unwrap(), 1);
}

/// A disabled user has no session, no key and no way to sign in; enabling restores keys and passwords, not sessions.
pub async fn a_disabled_user_has_no_access(ports: &StorePorts) {
    found(ports).await;
    ports.keys.insert(&key(1, "bob", 1)).await.unwrap();
    let session = begin_session(ports, 2, "bob").await;
    ports.insert_sandbox("s1", "bob").await;
    let set = |disabled| AdminChange::SetDisabled {
        user: user("bob"),
        disabled,
    };
    administer(ports, set(true)).await.unwrap();
    let shown = ports.users.find(&user("bob")).await.unwrap().unwrap();
    assert_eq!(shown.disabled_at, Some(at(5)));
    let key_hash = key(1, "bob", 1).hash;
    assert_eq!(ports.keys.find_by_hash(&key_hash).await.unwrap(), None);
    assert_eq!(
        ports.sessions.find_by_hash(&session.hash).await.unwrap(),
        None
    );
    assert_eq!(ports.passwords.find(&user("bob")).await.unwrap(), None);
    let begin = AdminChange::SignIn(SignInChange::BeginSession {
        session: session.clone(),
        password: PasswordHash::from_text("$test$one"),
    });
    assert_is!(
        administer(ports, begin).await,
        Err(StoreError::NotFound { .. })
    );
    let paused = ports
        .sandboxes
        .find(&Scope::System, &sandbox_id("s1"))
        .await;
    assert_eq!(paused.unwrap().unwrap().desired, DesiredState::Paused);
    assert_is!(
        ports.secrets.insert(&secret(1, "bob", "X", at(1))).await,
        Err(StoreError::NotFound { .. })
    );
    administer(ports, set(false)).await.unwrap();
    assert!(ports.keys.find_by_hash(&key_hash).await.unwrap().is_some());
    assert_eq!(
        ports.sessions.find_by_hash(&session.hash).await.unwrap(),
        None
    );
    assert!(ports.passwords.find(&user("bob")).await.unwrap().is_some());
}

/// Generates the conformance tests of access by members. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! organization_access_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::organization_access),
            $fresh,
            [
                credentials_show_the_membership,
                a_new_member_begins_in_the_organization,
                a_former_member_keeps_rows_but_no_access,
                a_deleted_organization_leaves_nothing,
                a_deleted_user_leaves_no_rows_in_organizations,
                an_organization_has_settings_of_its_own,
                a_disabled_user_has_no_access,
            ]
        );
    };
}
