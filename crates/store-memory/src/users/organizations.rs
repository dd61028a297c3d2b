//! `OrganizationRepository` and `OrganizationDeletionRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{InvitationId, OrganizationId, UserId};
use domain::user::identity::{KeyHash, PurgeCounts};
use domain::user::organization::{
    ActiveMembership, Invitation, MemberFilter, Membership, Organization,
    OrganizationDeletionRepository, OrganizationRepository,
};
use domain::user::permission::MemberRole;

use crate::MemoryStore;
use crate::state::MemoryState;
use crate::users::purge::OwnerSet;

impl MemoryState {
    /// The organization, unless its deletion has begun.
    pub(super) fn organization(&self, id: OrganizationId) -> Option<&Organization> {
        let row = self.organizations.get(&id)?;
        row.deleted_at.is_none().then_some(&row.organization)
    }

    pub(super) fn active_membership(
        &self,
        id: OrganizationId,
        user: &UserId,
    ) -> Option<ActiveMembership> {
        let found = self.memberships.get(&(id, user.clone()))?;
        Some(ActiveMembership {
            organization: id,
            role: found.role,
        })
    }

    fn members<'a>(
        &'a self,
        id: OrganizationId,
        filter: &MemberFilter,
    ) -> impl Iterator<Item = &'a Membership> {
        let part = filter.name.as_deref().map(str::to_ascii_lowercase);
        self.memberships.values().filter(move |it| {
            let name = it.user.as_str().to_ascii_lowercase();
            it.organization == id && part.as_deref().is_none_or(|part| name.contains(part))
        })
    }
}

#[async_trait]
impl OrganizationRepository for MemoryStore {
    async fn find(&self, id: OrganizationId) -> Result<Option<Organization>, StoreError> {
        Ok(self.lock().organization(id).cloned())
    }

    async fn membership(
        &self,
        id: OrganizationId,
        user: &UserId,
    ) -> Result<Option<Membership>, StoreError> {
        let state = self.lock();
        Ok(state.memberships.get(&(id, user.clone())).cloned())
    }

    async fn list_of_user(
        &self,
        user: &UserId,
    ) -> Result<Vec<(Organization, MemberRole)>, StoreError> {
        let state = self.lock();
        let theirs = state.memberships.values().filter(|it| it.user == *user);
        let mut found: Vec<_> = theirs
            .filter_map(|it| Some((state.organization(it.organization)?.clone(), it.role)))
            .collect();
        found.sort_by(|(a, _), (b, _)| (&a.name, a.id).cmp(&(&b.name, b.id)));
        Ok(found)
    }

    async fn members(
        &self,
        id: OrganizationId,
        filter: &MemberFilter,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<Membership>, StoreError> {
        let state = self.lock();
        let members = state.members(id, filter).skip(skip).take(limit);
        Ok(members.cloned().collect())
    }

    async fn count_members(
        &self,
        id: OrganizationId,
        filter: &MemberFilter,
    ) -> Result<u64, StoreError> {
        Ok(self.lock().members(id, filter).count() as u64)
    }

    async fn invitations(&self, id: OrganizationId) -> Result<Vec<Invitation>, StoreError> {
        let state = self.lock();
        let all = state.invitations.values();
        let mut found: Vec<_> = all.filter(|it| it.organization == id).cloned().collect();
        found.sort_by_key(|it| (it.created_at, it.id));
        Ok(found)
    }

    async fn find_invitation(
        &self,
        hash: &KeyHash,
    ) -> Result<Option<(Invitation, Organization)>, StoreError> {
        let state = self.lock();
        let found = state.invitations.values().find(|it| it.hash == *hash);
        Ok(found.and_then(|it| {
            let organization = state.organization(it.organization)?;
            Some((it.clone(), organization.clone()))
        }))
    }
}

#[async_trait]
impl OrganizationDeletionRepository for MemoryStore {
    async fn purge(
        &self,
        id: OrganizationId,
        at: Timestamp,
        limit: usize,
    ) -> Result<PurgeCounts, StoreError> {
        let mut state = self.lock();
        let is_deleted = |row: &crate::state::OrganizationRow| row.deleted_at.is_some();
        if !state.organizations.get(&id).is_some_and(is_deleted) {
            return Ok(PurgeCounts::default());
        }
        let theirs = OwnerSet::Organization(id);
        let mut purged = state.erase_secrets(&theirs, at);
        purged += state.purge_owned(&theirs, limit);
        self.publish_sandboxes(&state, &theirs);
        Ok(purged)
    }

    async fn list_partially_deleted(
        &self,
        limit: usize,
    ) -> Result<Vec<OrganizationId>, StoreError> {
        let mut state = self.lock();
        let deleted = state.organizations.iter();
        let mut deleted: Vec<_> = deleted
            .filter_map(|(id, row)| Some((row.deleted_at?, *id)))
            .collect();
        deleted.sort_unstable();
        let mut found = Vec::new();
        for (_, id) in deleted {
            let theirs = OwnerSet::Organization(id);
            if !state.has_owned_rows(&theirs) && !state.has_sandboxes(&theirs) {
                state.organizations.remove(&id);
            } else if found.len() < limit {
                found.push(id);
            }
        }
        Ok(found)
    }

    async fn prune_invitations(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old = state.invitations.values();
        let old = old.filter(|it| it.expires_at < before).map(|it| it.id);
        let old: Vec<InvitationId> = old.take(limit).collect();
        for id in &old {
            state.invitations.remove(id);
        }
        Ok(old.len() as u64)
    }
}
