//! Conformance tests of `OrganizationRepository` and `OrganizationDeletionRepository`, of the changes to organizations, and of
//! disabling users.

use domain::agent::spending::NanoUsd;
use domain::audit::{AuditActor, AuditEntry};
use domain::error::StoreError;
use domain::id::{InvitationId, OrganizationId, OwnerId};
use domain::patch::Patch;
use domain::user::administration::AdminChange;
use domain::user::identity::{ApiKey, KeyHash, PurgeCounts, Role};
use domain::user::organization::{
    Invitation, MAX_INVITATIONS_PER_ORGANIZATION, MemberFilter, Organization, OrganizationChange,
    OrganizationUpdate,
};
use domain::user::permission::MemberRole;
use domain::user::sign_in::PasswordHash;

use super::audit_log::entry;
use super::repository::key;
use crate::fixtures::{at, user, uuid};
use crate::{StorePorts, assert_is};

pub(super) fn organization_id() -> OrganizationId {
    OrganizationId::new(uuid(500))
}

pub(super) fn invitation(n: u64, role: MemberRole) -> Invitation {
    Invitation {
        id: InvitationId::new(uuid(n)),
        hash: KeyHash::of(&format!("invitation {n}")),
        organization: organization_id(),
        email: Some("é@example.org".to_owned()),
        role,
        inviter: user("ada"),
        created_at: at(i64::try_from(n).unwrap()),
        expires_at: at(1_000),
    }
}

pub(super) async fn administer(ports: &StorePorts, change: AdminChange) -> Result<(), StoreError> {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(200_000);
    let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let entry = AuditEntry {
        actor: AuditActor::Service,
        ..entry(n, 5)
    };
    let done = ports.administration.administer(&change, &entry).await;
    done.map(|_| ())
}

pub(super) async fn change(
    ports: &StorePorts,
    change: OrganizationChange,
) -> Result<(), StoreError> {
    administer(ports, AdminChange::Organization(change)).await
}

/// Creates the users and an organization whose owner is `ada`.
pub(super) async fn found(ports: &StorePorts) {
    for name in ["ada", "bob", "carol"] {
        let create = AdminChange::CreateUser {
            user: user(name),
            role: Role::User,
        };
        administer(ports, create).await.unwrap();
    }
    let create = OrganizationChange::Create {
        organization: Organization {
            id: organization_id(),
            name: "Crew é".to_owned(),
            month_budget: None,
            created_at: at(1),
        },
        owner: user("ada"),
    };
    change(ports, create).await.unwrap();
}

fn accept(n: u64, name: &str) -> OrganizationChange {
    OrganizationChange::AcceptInvitation {
        organization: organization_id(),
        invitation: invitation(n, MemberRole::Member).hash,
        user: user(name),
    }
}

pub(super) async fn add(ports: &StorePorts, n: u64, name: &str, role: MemberRole) {
    let invite = OrganizationChange::Invite {
        organization: organization_id(),
        invitations: vec![invitation(n, role)],
    };
    change(ports, invite).await.unwrap();
    change(ports, accept(n, name)).await.unwrap();
}

pub(super) fn remove(name: &str, before: MemberRole) -> OrganizationChange {
    OrganizationChange::RemoveMember {
        organization: organization_id(),
        user: user(name),
        before,
    }
}

fn set_role(name: &str, before: MemberRole, role: MemberRole) -> OrganizationChange {
    OrganizationChange::SetMemberRole {
        organization: organization_id(),
        user: user(name),
        before,
        role,
    }
}

pub(super) fn bound_key(n: u64, name: &str) -> ApiKey {
    ApiKey {
        organization: Some(organization_id()),
        ..key(n, name, 1)
    }
}

pub(super) fn shared_owner(name: &str) -> OwnerId {
    OwnerId::new(&user(name), organization_id())
}

pub(super) async fn role_of(ports: &StorePorts, name: &str) -> Option<MemberRole> {
    let user = user(name);
    let found = ports
        .organizations
        .membership(organization_id(), &user)
        .await;
    found.unwrap().map(|it| it.role)
}

/// An invitation is used once, within its lifetime, and gives its role. Members are listed by name and filtered.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
pub async fn invitations_make_members_once(ports: &StorePorts) {
    found(ports).await;
    let id = organization_id();
    let invite = OrganizationChange::Invite {
        organization: id,
        invitations: vec![
            invitation(2, MemberRole::Admin),
            invitation(1, MemberRole::Member),
        ],
    };
    change(ports, invite).await.unwrap();
    let pending = ports.organizations.invitations(id).await.unwrap();
    assert_eq!(
        pending,
        [
            invitation(1, MemberRole::Member),
            invitation(2, MemberRole::Admin)
        ]
    );
    let hash = invitation(2, MemberRole::Admin).hash;
    let shown = ports
        .organizations
        .find_invitation(&hash)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (shown.0.role, shown.1.name.as_str()),
        (MemberRole::Admin, "Crew é")
    );
    for (n, name) in [(2, "nobody"), (9, "bob")] {
        assert_is!(
            change(ports, accept(n, name)).await,
            Err(StoreError::NotFound { .. })
        );
    }
    change(ports, accept(2, "bob")).await.unwrap();
    assert_is!(
        change(ports, accept(2, "carol")).await,
        Err(StoreError::NotFound { .. })
    );
    assert_is!(
        change(ports, accept(1, "bob")).await,
        Err(StoreError::Conflict { .. })
    );
    let enrol = |name: &str| OrganizationChange::Enrol {
        organization: id,
        invitation: invitation(1, MemberRole::Member).hash,
        user: user(name),
        password: PasswordHash::from_text("$test$one"),
    };
    assert_is!(
        change(ports, enrol("carol")).await,
        Err(StoreError::Conflict { .. })
    );
    change(ports, enrol("Dave")).await.unwrap();
    assert_is!(
        change(ports, enrol("eve")).await,
        Err(StoreError::NotFound { .. })
    );
    assert_eq!(ports.users.find(&user("eve")).await.unwrap(), None);
    let password = ports.passwords.find(&user("Dave")).await.unwrap();
    assert_eq!(password, Some(PasswordHash::from_text("$test$one")));
    let names = async |filter: Option<&str>, skip, limit| -> Vec<String> {
        let filter = MemberFilter {
            name: filter.map(str::to_owned),
        };
        let all = ports.organizations.members(id, &filter, skip, limit).await;
        all.unwrap()
            .into_iter()
            .map(|it| it.user.to_string())
            .collect()
    };
    assert_eq!(names(None, 0, 9).await, ["Dave", "ada", "bob"]);
    assert_eq!(names(None, 1, 1).await, ["ada"]);
    assert_eq!(names(Some("DA"), 0, 9).await, ["Dave", "ada"]);
    assert_eq!(names(Some("%"), 0, 9).await, [""; 0]);
    let all = MemberFilter::default();
    let count = ports.organizations.count_members(id, &all);
    assert_eq!(count.await.unwrap(), 3);
    let of_bob = ports
        .organizations
        .list_of_user(&user("bob"))
        .await
        .unwrap();
    assert_eq!(of_bob.len(), 1);
    assert_eq!((of_bob[0].0.id, of_bob[0].1), (id, MemberRole::Admin));
}

/// Pending invitations are bounded, and can be withdrawn or expire.
pub async fn invitations_are_bounded(ports: &StorePorts) {
    found(ports).await;
    let id = organization_id();
    let invite = |range: std::ops::Range<u64>| OrganizationChange::Invite {
        organization: id,
        invitations: range.map(|n| invitation(n, MemberRole::Member)).collect(),
    };
    let max = MAX_INVITATIONS_PER_ORGANIZATION as u64;
    change(ports, invite(1_000..1_000 + max)).await.unwrap();
    assert_is!(
        change(ports, invite(10..11)).await,
        Err(StoreError::Full { .. })
    );
    let withdraw = OrganizationChange::WithdrawInvitation {
        organization: id,
        id: InvitationId::new(uuid(1_000)),
    };
    change(ports, withdraw.clone()).await.unwrap();
    assert_is!(
        change(ports, withdraw).await,
        Err(StoreError::NotFound { .. })
    );
    change(ports, invite(10..11)).await.unwrap();
    let deletions = &ports.organization_deletions;
    assert_eq!(deletions.prune_invitations(at(1_000), 5).await.unwrap(), 0);
    assert_eq!(deletions.prune_invitations(at(1_001), 5).await.unwrap(), 5);
}

/// A shared organization has always an owner: roles, leaving and deleting a user keep one. A role that changed meanwhile is
/// stale.
pub async fn the_last_owner_stays(ports: &StorePorts) {
    found(ports).await;
    add(ports, 1, "bob", MemberRole::Member).await;
    let [member, owner] = [MemberRole::Member, MemberRole::Owner];
    for last in [set_role("ada", owner, member), remove("ada", owner)] {
        assert_is!(change(ports, last).await, Err(StoreError::LastOwner { .. }));
    }
    let delete = |name: &str| AdminChange::DeleteUser { user: user(name) };
    assert_is!(
        administer(ports, delete("ada")).await,
        Err(StoreError::LastOwner { .. })
    );
    assert_is!(
        change(ports, set_role("bob", owner, member)).await,
        Err(StoreError::Stale { .. })
    );
    assert_is!(
        change(ports, set_role("carol", member, owner)).await,
        Err(StoreError::NotFound { .. })
    );
    change(ports, set_role("bob", member, owner)).await.unwrap();
    change(ports, set_role("ada", owner, member)).await.unwrap();
    assert_eq!(role_of(ports, "ada").await, Some(member));
    administer(ports, delete("ada")).await.unwrap();
    assert_eq!(role_of(ports, "ada").await, None);
    assert_is!(
        change(ports, remove("bob", owner)).await,
        Err(StoreError::LastOwner { .. })
    );
}

/// Makes the change with this key of a user, and an audit entry with the number `n`.
async fn administer_by(
    ports: &StorePorts,
    n: u64,
    (key, name): (u64, &str),
    change: &AdminChange,
) -> Result<PurgeCounts, StoreError> {
    let entry = AuditEntry {
        actor: AuditActor::User(user(name)),
        key: Some(domain::id::ApiKeyId::new(uuid(key))),
        ..entry(300_000 + n, 5)
    };
    ports.administration.administer(change, &entry).await
}

/// The caller's role is checked in the transaction of the change, and a bound key acts in its organization only.
pub async fn changes_are_authorized_in_their_transaction(ports: &StorePorts) {
    found(ports).await;
    add(ports, 1, "bob", MemberRole::Member).await;
    ports.keys.insert(&key(1, "ada", 1)).await.unwrap();
    ports.keys.insert(&key(2, "bob", 1)).await.unwrap();
    ports.keys.insert(&key(3, "carol", 1)).await.unwrap();
    let other = ApiKey {
        organization: Some(OrganizationId::personal(&user("ada"))),
        ..key(4, "ada", 1)
    };
    ports.keys.insert(&other).await.unwrap();
    let rename = AdminChange::Organization(OrganizationChange::Update {
        organization: organization_id(),
        update: OrganizationUpdate {
            name: Some("New".to_owned()),
            ..OrganizationUpdate::default()
        },
    });
    let by = async |n, name: &str, change: &AdminChange| {
        administer_by(ports, n, (n, name), change).await
    };
    assert_is!(
        by(2, "bob", &rename).await,
        Err(StoreError::MemberNotPermitted)
    );
    assert_is!(
        by(3, "carol", &rename).await,
        Err(StoreError::NotFound { .. })
    );
    assert_is!(
        by(4, "ada", &rename).await,
        Err(StoreError::NotFound { .. })
    );
    let unbound = AdminChange::CreateKey {
        key: key(9, "ada", 1),
        new_user: None,
    };
    assert_is!(
        by(4, "ada", &unbound).await,
        Err(StoreError::KeyBoundElsewhere)
    );
    by(1, "ada", &rename).await.unwrap();
    let found = ports.organizations.find(organization_id()).await.unwrap();
    let found = found.unwrap();
    assert_eq!((found.name.as_str(), found.month_budget), ("New", None));
}

/// A change of the budget keeps the name, and members may not make it.
pub async fn a_budget_is_set_and_removed(ports: &StorePorts) {
    found(ports).await;
    add(ports, 1, "bob", MemberRole::Member).await;
    add(ports, 2, "carol", MemberRole::Admin).await;
    for (n, name) in [(1, "ada"), (2, "bob"), (3, "carol")] {
        ports.keys.insert(&key(n, name, 1)).await.unwrap();
    }
    let budget = |month_budget| {
        AdminChange::Organization(OrganizationChange::Update {
            organization: organization_id(),
            update: OrganizationUpdate {
                name: None,
                month_budget,
            },
        })
    };
    let half = NanoUsd::new(500_000_000);
    assert_is!(
        administer_by(ports, 1, (2, "bob"), &budget(Patch::Set(half))).await,
        Err(StoreError::MemberNotPermitted)
    );
    for (n, change, expected) in [
        (2, Patch::Set(half), Some(half)),
        (3, Patch::Keep, Some(half)),
        (4, Patch::Clear, None),
    ] {
        let changed = administer_by(ports, n, (3, "carol"), &budget(change)).await;
        changed.unwrap();
        let found = ports.organizations.find(organization_id()).await.unwrap();
        let found = found.unwrap();
        assert_eq!(
            (found.name.as_str(), found.month_budget),
            ("Crew é", expected)
        );
    }
}

/// Generates the conformance tests of organizations. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! organizations_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::organizations),
            $fresh,
            [
                invitations_make_members_once,
                invitations_are_bounded,
                the_last_owner_stays,
                changes_are_authorized_in_their_transaction,
                a_budget_is_set_and_removed,
            ]
        );
    };
}
