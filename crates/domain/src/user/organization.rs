//! Organizations that users share, their members, and the invitations to join them. A personal organization has no rows.

use std::time::Duration;

use async_trait::async_trait;

use crate::agent::spending::NanoUsd;
use crate::clock::Timestamp;
use crate::error::{Entity, StoreError};
use crate::id::{InvitationId, OrganizationId, UserId};
use crate::patch::Patch;
use crate::user::identity::{CallerIdentity, KeyHash, PurgeCounts, Role};
pub use crate::user::permission::ActiveMembership;
use crate::user::permission::{MemberRole, Permission};
use crate::user::sign_in::PasswordHash;

/// Maximum length of an organization's name, in characters.
pub const MAX_ORGANIZATION_NAME_CHARS: usize = 100;

/// Maximum length of the e-mail address of an invitation, in characters.
pub const MAX_EMAIL_CHARS: usize = 254;

pub const MAX_MEMBERS_PER_ORGANIZATION: usize = 1_000;

/// Maximum number of shared organizations of one user.
pub const MAX_ORGANIZATIONS_PER_USER: usize = 100;

/// Maximum number of pending invitations of one organization.
pub const MAX_INVITATIONS_PER_ORGANIZATION: usize = 200;

/// How long an invitation is valid.
pub const INVITATION_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An organization that several users can share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Organization {
    pub id: OrganizationId,
    pub name: String,
    /// What all members together may spend on models in it in a calendar month (UTC). `None`: no limit.
    pub month_budget: Option<NanoUsd>,
    pub created_at: Timestamp,
}

/// The fields of an organization that change. The default keeps all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrganizationUpdate {
    pub name: Option<String>,
    pub month_budget: Patch<NanoUsd>,
}

/// A user in a shared organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    pub organization: OrganizationId,
    pub user: UserId,
    pub role: MemberRole,
    pub created_at: Timestamp,
}

/// An invitation to join an organization. Its link holds a random token, of which the store has the hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    pub id: InvitationId,
    pub hash: KeyHash,
    pub organization: OrganizationId,
    /// Whom the inviter means. The holder of the link may join, whatever their address is.
    pub email: Option<String>,
    pub role: MemberRole,
    pub inviter: UserId,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A change of a shared organization, its members or its invitations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrganizationChange {
    /// Creates an organization with its first owner. `NotFound` if the user does not exist.
    Create {
        organization: Organization,
        owner: UserId,
    },
    Update {
        organization: OrganizationId,
        update: OrganizationUpdate,
    },
    /// Begins the deletion: all memberships end, nothing can be stored, and invitations and bound keys are gone.
    /// [`OrganizationDeletionRepository::purge`] deletes what the members own in it.
    Delete { organization: OrganizationId },
    /// Stores invitations, all or none. `Full` above [`MAX_INVITATIONS_PER_ORGANIZATION`].
    Invite {
        organization: OrganizationId,
        invitations: Vec<Invitation>,
    },
    WithdrawInvitation {
        organization: OrganizationId,
        id: InvitationId,
    },
    /// Uses an invitation up and makes the user a member. `NotFound` if there is no such valid invitation, `Conflict` if
    /// the user is a member already.
    AcceptInvitation {
        organization: OrganizationId,
        invitation: KeyHash,
        user: UserId,
    },
    /// Like `AcceptInvitation`, and creates the user with this password, whose sessions act in the organization. `Conflict`
    /// if the name is taken.
    Enrol {
        organization: OrganizationId,
        invitation: KeyHash,
        user: UserId,
        password: PasswordHash,
    },
    /// `Stale` if the member has not the role `before`, `LastOwner` if no owner would be left.
    SetMemberRole {
        organization: OrganizationId,
        user: UserId,
        before: MemberRole,
        role: MemberRole,
    },
    /// Ends a membership: keys bound to it are revoked, its unfinished starts fail and its sandboxes pause. Its rows stay
    /// and are there again if the user returns. `Stale` and `LastOwner` as above.
    RemoveMember {
        organization: OrganizationId,
        user: UserId,
        before: MemberRole,
    },
    /// Sets the organization in which the user's sessions act. `NotFound` if the user is no member.
    Switch {
        organization: OrganizationId,
        user: UserId,
    },
}

impl OrganizationChange {
    pub const fn organization(&self) -> OrganizationId {
        match self {
            Self::Create { organization, .. } => organization.id,
            Self::Update { organization, .. }
            | Self::Delete { organization }
            | Self::Invite { organization, .. }
            | Self::WithdrawInvitation { organization, .. }
            | Self::AcceptInvitation { organization, .. }
            | Self::Enrol { organization, .. }
            | Self::SetMemberRole { organization, .. }
            | Self::RemoveMember { organization, .. }
            | Self::Switch { organization, .. } => *organization,
        }
    }

    /// Checks that the caller, whose role in the organization is `role`, may make the change.
    pub fn authorize(
        &self,
        caller: &CallerIdentity,
        role: Option<MemberRole>,
    ) -> Result<(), StoreError> {
        let may = |needed: Permission| role.is_some_and(|role| role.may(needed));
        let is_allowed = match self {
            Self::Create { .. } => {
                return match caller.role {
                    Role::Admin => Ok(()),
                    Role::User => Err(StoreError::CallerNotAdministrator),
                };
            }
            Self::AcceptInvitation { user, .. } | Self::Switch { user, .. } => {
                *user == caller.user && caller.bound_to.is_none()
            }
            // By strangers only, who have no credential.
            Self::Enrol { .. } => false,
            _ if role.is_none() => {
                return Err(StoreError::NotFound {
                    entity: Entity::Organization,
                });
            }
            Self::Update { update, .. } => {
                (update.name.is_none() || may(Permission::ChangeOrganizationName))
                    && (update.month_budget.is_keep() || may(Permission::EditOrgSettings))
            }
            Self::Delete { .. } => may(Permission::DeleteOrganization),
            Self::Invite { invitations, .. } => {
                let is_above = |it: &Invitation| role.is_some_and(|role| it.role <= role);
                may(Permission::InviteUser) && invitations.iter().all(is_above)
            }
            Self::WithdrawInvitation { .. } => may(Permission::InviteUser),
            Self::SetMemberRole {
                user, before, role, ..
            } => {
                *user != caller.user
                    && may(before.change_permission())
                    && may(role.change_permission())
            }
            Self::RemoveMember { user, before, .. } => {
                *user == caller.user || may(before.change_permission())
            }
        };
        is_allowed
            .then_some(())
            .ok_or(StoreError::MemberNotPermitted)
    }
}

/// The members that a list shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberFilter {
    /// Part of the name, without regard to the case of ASCII letters.
    pub name: Option<String>,
}

/// Shared organizations that exist. [`crate::user::administration::AdministrationRepository`] changes them.
#[async_trait]
pub trait OrganizationRepository: Send + Sync + 'static {
    /// The organization, unless its deletion has begun.
    async fn find(&self, id: OrganizationId) -> Result<Option<Organization>, StoreError>;
    /// The membership of this user, unless it was ended.
    async fn membership(
        &self,
        id: OrganizationId,
        user: &UserId,
    ) -> Result<Option<Membership>, StoreError>;
    /// The shared organizations of a user with the user's role, by name and id.
    async fn list_of_user(
        &self,
        user: &UserId,
    ) -> Result<Vec<(Organization, MemberRole)>, StoreError>;
    /// Members by name, without the first `skip`, at most `limit`.
    async fn members(
        &self,
        id: OrganizationId,
        filter: &MemberFilter,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<Membership>, StoreError>;
    async fn count_members(
        &self,
        id: OrganizationId,
        filter: &MemberFilter,
    ) -> Result<u64, StoreError>;
    /// The invitations of an organization, oldest first, including expired ones.
    async fn invitations(&self, id: OrganizationId) -> Result<Vec<Invitation>, StoreError>;
    /// The invitation with this hash, also if it has expired, and its organization.
    async fn find_invitation(
        &self,
        hash: &KeyHash,
    ) -> Result<Option<(Invitation, Organization)>, StoreError>;
}

/// Deletes what [`OrganizationChange::Delete`] has begun to delete.
#[async_trait]
pub trait OrganizationDeletionRepository: Send + Sync + 'static {
    /// Deletes about `limit` rows that members own in a deleted organization; the caller repeats the call while `more`
    /// is set. The reconcilers of their hosts remove the sandboxes.
    async fn purge(
        &self,
        id: OrganizationId,
        at: Timestamp,
        limit: usize,
    ) -> Result<PurgeCounts, StoreError>;
    /// At most `limit` deleted organizations of which rows are left, sandboxes included, earliest deletion first. Forgets
    /// those of which nothing is left.
    async fn list_partially_deleted(&self, limit: usize)
    -> Result<Vec<OrganizationId>, StoreError>;
    /// Deletes at most `limit` invitations that expired before `before`; returns how many.
    async fn prune_invitations(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn caller(name: &str, role: Role) -> CallerIdentity {
        CallerIdentity {
            user: UserId::parse(name).unwrap(),
            role,
            expires_at: None,
            bound_to: None,
        }
    }

    #[test]
    fn roles_decide_about_changes() {
        let id = OrganizationId::new(Uuid::nil());
        let user = |name: &str| UserId::parse(name).unwrap();
        let set_role = |before, role| OrganizationChange::SetMemberRole {
            organization: id,
            user: user("bob"),
            before,
            role,
        };
        let remove = |name: &str, before| OrganizationChange::RemoveMember {
            organization: id,
            user: user(name),
            before,
        };
        let update = |name: Option<&str>, month_budget| OrganizationChange::Update {
            organization: id,
            update: OrganizationUpdate {
                name: name.map(str::to_owned),
                month_budget,
            },
        };
        let [member, admin, owner] = [MemberRole::Member, MemberRole::Admin, MemberRole::Owner];
        let delete = OrganizationChange::Delete { organization: id };
        // The least role that may make the change.
        for (change, least) in [
            (set_role(member, admin), admin),
            (set_role(admin, member), admin),
            (set_role(member, owner), owner),
            (set_role(owner, member), owner),
            (remove("bob", member), admin),
            (remove("bob", owner), owner),
            (remove("ada", member), member),
            (update(Some("x"), Patch::Keep), owner),
            (update(None, Patch::Clear), admin),
            (update(Some("x"), Patch::Clear), owner),
            (delete, owner),
        ] {
            for role in [member, admin, owner] {
                let allowed = change.authorize(&caller("ada", Role::User), Some(role));
                assert_eq!(allowed.is_ok(), role >= least, "{change:?} by {role:?}");
            }
            let outsider = change.authorize(&caller("ada", Role::Admin), None);
            assert!(matches!(outsider, Err(StoreError::NotFound { .. })));
        }
        let own = OrganizationChange::SetMemberRole {
            organization: id,
            user: user("ada"),
            before: owner,
            role: member,
        };
        let own = own.authorize(&caller("ada", Role::User), Some(owner));
        assert!(matches!(own, Err(StoreError::MemberNotPermitted)));
    }
}
