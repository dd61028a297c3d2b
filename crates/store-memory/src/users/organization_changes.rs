//! The steps of changes to organizations, and of disabling users.

use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{OrganizationId, OwnerId, UserId};
use domain::sandbox::DesiredState;
use domain::user::identity::{ApiKey, KeyHash, PurgeCounts, Role};
use domain::user::organization::{
    Invitation, MAX_INVITATIONS_PER_ORGANIZATION, MAX_MEMBERS_PER_ORGANIZATION,
    MAX_ORGANIZATIONS_PER_USER, Membership, Organization, OrganizationChange,
};
use domain::user::permission::MemberRole;

use crate::state::{MemoryState, OrganizationRow};
use crate::users::purge::OwnerSet;

/// Detail of a start task whose owner lost access; clients can read it.
const ACCESS_ENDED: &str = "The user's access ended before the start had ended.";
const USER_NOT_FOUND: StoreError = StoreError::NotFound {
    entity: Entity::User,
};

const fn not_found(entity: Entity) -> StoreError {
    StoreError::NotFound { entity }
}

impl MemoryState {
    pub(super) fn set_disabled(
        &mut self,
        user: &UserId,
        disabled: bool,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let row = self.users.get_mut(user);
        let row = row.filter(|it| it.deleted_at.is_none());
        let row = row.ok_or(USER_NOT_FOUND)?;
        if !disabled {
            row.disabled_at = None;
            return Ok(());
        }
        row.disabled_at.get_or_insert(at);
        self.sessions.retain(|_, it| it.user != *user);
        self.links.retain(|_, it| it.user != *user);
        self.suspend(&OwnerSet::User(user.clone()), at);
        Ok(())
    }

    /// Fails unfinished starts and pauses running sandboxes.
    fn suspend(&mut self, of: &OwnerSet, at: Timestamp) {
        self.fail_starts(of, ACCESS_ENDED, at);
        for sandbox in self.sandboxes.values_mut() {
            if of.contains(&sandbox.owner) && sandbox.desired == DesiredState::Running {
                sandbox.desired = DesiredState::Paused;
                sandbox.paused_at = Some(at);
                sandbox.updated_at = at;
            }
        }
    }

    /// Refuses a key that is bound to an organization of which its user is no member.
    pub(super) fn check_key_organization(&self, key: &ApiKey) -> Result<(), StoreError> {
        let Some(id) = key.organization else {
            return Ok(());
        };
        let is_member = id == OrganizationId::personal(&key.user)
            || self.active_membership(id, &key.user).is_some();
        is_member
            .then_some(())
            .ok_or(not_found(Entity::Organization))
    }

    /// Refuses to leave a shared organization, or all of them, without an owner.
    pub(super) fn check_not_last_owner(
        &self,
        user: &UserId,
        of: Option<OrganizationId>,
    ) -> Result<(), StoreError> {
        let owners = |id| {
            let all = self.memberships.values();
            all.filter(move |it| it.organization == id && it.role == MemberRole::Owner)
        };
        let theirs = self.memberships.values().filter(|it| it.user == *user);
        for it in theirs.filter(|it| of.is_none_or(|id| it.organization == id)) {
            if it.role == MemberRole::Owner && owners(it.organization).count() == 1 {
                let organization = self.organization(it.organization);
                return Err(StoreError::LastOwner {
                    user: user.to_string(),
                    organization: organization.map(|it| it.name.clone()).unwrap_or_default(),
                });
            }
        }
        Ok(())
    }

    pub(super) fn change_organization(
        &mut self,
        change: &OrganizationChange,
        at: Timestamp,
    ) -> Result<PurgeCounts, StoreError> {
        let id = change.organization();
        let is_new = matches!(change, OrganizationChange::Create { .. });
        let is_personal = matches!(change, OrganizationChange::Switch { user, .. }
            if OrganizationId::personal(user) == id);
        if !is_new && !is_personal && self.organization(id).is_none() {
            return Err(not_found(Entity::Organization));
        }
        match change {
            OrganizationChange::Create {
                organization,
                owner,
            } => self.create_organization(organization, owner, at)?,
            OrganizationChange::Update { update, .. } => {
                if let Some(row) = self.organizations.get_mut(&id) {
                    let organization = &mut row.organization;
                    if let Some(name) = &update.name {
                        organization.name.clone_from(name);
                    }
                    let budget = update.month_budget.clone();
                    budget.apply(&mut organization.month_budget);
                }
            }
            OrganizationChange::Delete { .. } => return Ok(self.delete_organization(id, at)),
            OrganizationChange::Invite { invitations, .. } => self.invite(id, invitations)?,
            OrganizationChange::WithdrawInvitation { id: invitation, .. } => {
                let found = self.invitations.get(invitation);
                let found = found.filter(|it| it.organization == id);
                found.ok_or(not_found(Entity::Invitation))?;
                self.invitations.remove(invitation);
            }
            _ => self.change_membership(change, at)?,
        }
        Ok(PurgeCounts::default())
    }

    /// Changes who is a member, and with which role.
    fn change_membership(
        &mut self,
        change: &OrganizationChange,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let id = change.organization();
        match change {
            OrganizationChange::AcceptInvitation {
                invitation, user, ..
            } => self.accept(id, invitation, user, at),
            OrganizationChange::Enrol {
                invitation,
                user,
                password,
                ..
            } => {
                self.valid_invitation(id, invitation, at)?;
                if !self.ensure_user(user, Role::User, at)? {
                    return Err(StoreError::Conflict {
                        entity: Entity::User,
                    });
                }
                self.passwords.insert(user.clone(), password.clone());
                self.accept(id, invitation, user, at)?;
                self.switch(id, user)
            }
            OrganizationChange::SetMemberRole {
                user, before, role, ..
            } => {
                self.check_member(id, user, *before)?;
                if *role != MemberRole::Owner {
                    self.check_not_last_owner(user, Some(id))?;
                }
                if let Some(row) = self.memberships.get_mut(&(id, user.clone())) {
                    row.role = *role;
                }
                Ok(())
            }
            OrganizationChange::RemoveMember { user, before, .. } => {
                self.check_member(id, user, *before)?;
                self.check_not_last_owner(user, Some(id))?;
                self.memberships.remove(&(id, user.clone()));
                let is_bound = |it: &ApiKey| it.user == *user && it.organization == Some(id);
                self.keys.retain(|_, it| !is_bound(it));
                self.suspend(&OwnerSet::Membership(OwnerId::new(user, id)), at);
                Ok(())
            }
            OrganizationChange::Switch { user, .. } => self.switch(id, user),
            _ => Ok(()),
        }
    }

    fn create_organization(
        &mut self,
        organization: &Organization,
        owner: &UserId,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if self.organizations.contains_key(&organization.id) {
            return Err(StoreError::Conflict {
                entity: Entity::Organization,
            });
        }
        if !self.user_exists(owner) {
            return Err(USER_NOT_FOUND);
        }
        self.check_member_counts(organization.id, owner)?;
        let row = OrganizationRow {
            organization: organization.clone(),
            deleted_at: None,
        };
        self.organizations.insert(organization.id, row);
        self.add_member(organization.id, owner, MemberRole::Owner, at);
        Ok(())
    }

    fn delete_organization(&mut self, id: OrganizationId, at: Timestamp) -> PurgeCounts {
        if let Some(row) = self.organizations.get_mut(&id) {
            row.deleted_at = Some(at);
        }
        self.memberships.retain(|(of, _), _| *of != id);
        self.invitations.retain(|_, it| it.organization != id);
        let keys = self.keys.len();
        self.keys.retain(|_, it| it.organization != Some(id));
        PurgeCounts {
            api_keys: (keys - self.keys.len()) as u64,
            ..self.erase_secrets(&OwnerSet::Organization(id), at)
        }
    }

    fn invite(&mut self, id: OrganizationId, new: &[Invitation]) -> Result<(), StoreError> {
        let pending = self.invitations.values();
        let pending = pending.filter(|it| it.organization == id).count();
        if pending + new.len() > MAX_INVITATIONS_PER_ORGANIZATION {
            return Err(StoreError::Full {
                entity: "pending invitations",
                limit: MAX_INVITATIONS_PER_ORGANIZATION,
            });
        }
        for invitation in new {
            self.invitations.insert(invitation.id, invitation.clone());
        }
        Ok(())
    }

    fn valid_invitation(
        &self,
        id: OrganizationId,
        hash: &KeyHash,
        at: Timestamp,
    ) -> Result<Invitation, StoreError> {
        let found = self.invitations.values();
        let mut found = found.filter(|it| it.organization == id && it.hash == *hash);
        let found = found.find(|it| it.expires_at > at);
        found.cloned().ok_or(not_found(Entity::Invitation))
    }

    fn accept(
        &mut self,
        id: OrganizationId,
        hash: &KeyHash,
        user: &UserId,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let invitation = self.valid_invitation(id, hash, at)?;
        if !self.user_exists(user) {
            return Err(USER_NOT_FOUND);
        }
        if self.active_membership(id, user).is_some() {
            return Err(StoreError::Conflict {
                entity: Entity::Member,
            });
        }
        self.check_member_counts(id, user)?;
        self.invitations.remove(&invitation.id);
        self.add_member(id, user, invitation.role, at);
        Ok(())
    }

    fn check_member_counts(&self, id: OrganizationId, user: &UserId) -> Result<(), StoreError> {
        let count = |f: &dyn Fn(&Membership) -> bool| {
            let all = self.memberships.values();
            all.filter(|it| f(it)).count()
        };
        if count(&|it| it.organization == id) >= MAX_MEMBERS_PER_ORGANIZATION {
            return Err(StoreError::Full {
                entity: "members of this organization",
                limit: MAX_MEMBERS_PER_ORGANIZATION,
            });
        }
        if count(&|it| it.user == *user) >= MAX_ORGANIZATIONS_PER_USER {
            return Err(StoreError::Full {
                entity: "organizations of this user",
                limit: MAX_ORGANIZATIONS_PER_USER,
            });
        }
        Ok(())
    }

    fn add_member(&mut self, id: OrganizationId, user: &UserId, role: MemberRole, at: Timestamp) {
        let membership = Membership {
            organization: id,
            user: user.clone(),
            role,
            created_at: at,
        };
        self.memberships.insert((id, user.clone()), membership);
    }

    fn check_member(
        &self,
        id: OrganizationId,
        user: &UserId,
        before: MemberRole,
    ) -> Result<(), StoreError> {
        match self.active_membership(id, user) {
            None => Err(not_found(Entity::Member)),
            Some(found) if found.role != before => Err(StoreError::Stale {
                entity: Entity::Member,
            }),
            Some(_) => Ok(()),
        }
    }

    fn switch(&mut self, id: OrganizationId, user: &UserId) -> Result<(), StoreError> {
        if id == OrganizationId::personal(user) {
            self.current_organizations.remove(user);
            return Ok(());
        }
        if self.active_membership(id, user).is_none() {
            return Err(not_found(Entity::Organization));
        }
        self.current_organizations.insert(user.clone(), id);
        Ok(())
    }
}
