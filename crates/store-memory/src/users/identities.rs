//! `IdentityRepository`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{IdentityId, ProviderName, SessionId, UserId};
use domain::user::identity::Role;
use domain::user::sign_in::{Session, SignInChange, UserEmail};
use domain::user::single_sign_on::{IdentityRepository, LinkedIdentity, MAX_IDENTITIES_PER_USER};

use crate::MemoryStore;
use crate::state::MemoryState;

const USER_NOT_FOUND: StoreError = StoreError::NotFound {
    entity: Entity::User,
};
const IDENTITY_CONFLICT: StoreError = StoreError::Conflict {
    entity: Entity::Identity,
};

impl MemoryState {
    pub(super) fn change_identities(
        &mut self,
        change: &SignInChange,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        match change {
            SignInChange::BeginIdentitySession {
                session,
                identity,
                email,
                role,
            } => self.begin_identity_session(session, *identity, (email.as_ref(), *role)),
            SignInChange::LinkIdentity { identity, new_user } => {
                self.link_identity(identity, *new_user, at)
            }
            SignInChange::UnlinkIdentity { id, user, keep } => {
                self.unlink_identity(*id, user, *keep)
            }
            SignInChange::SetEmail { user, email } => {
                if !self.user_exists(user) {
                    return Err(USER_NOT_FOUND);
                }
                match email {
                    Some(email) => self.emails.insert(user.clone(), email.clone()),
                    None => self.emails.remove(user),
                };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn identity_count(&self, user: &UserId) -> usize {
        let all = self.identities.values();
        all.filter(|it| it.user == *user).count()
    }

    fn begin_identity_session(
        &mut self,
        session: &Session,
        identity: IdentityId,
        (email, role): (Option<&UserEmail>, Option<Role>),
    ) -> Result<(), StoreError> {
        let linked = self.identities.get(&identity);
        if linked.is_none_or(|it| it.user != session.user) || !self.is_active(&session.user) {
            return Err(USER_NOT_FOUND);
        }
        self.begin_session(session)?;
        if let Some(linked) = self.identities.get_mut(&identity) {
            linked.last_used_at = session.created_at;
            linked.email = email.map(|email| email.address.clone());
        }
        if let (Some(role), Some(user)) = (role, self.users.get_mut(&session.user)) {
            user.role = role;
        }
        if let Some(email) = email.filter(|email| email.is_verified) {
            self.emails.insert(session.user.clone(), email.clone());
        }
        Ok(())
    }

    fn link_identity(
        &mut self,
        identity: &LinkedIdentity,
        new_user: Option<Role>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let is_same = |it: &LinkedIdentity| {
            it.id == identity.id
                || (&it.provider, &it.subject) == (&identity.provider, &identity.subject)
        };
        if new_user.is_some() && self.user_exists(&identity.user) {
            return Err(StoreError::Conflict {
                entity: Entity::User,
            });
        }
        if new_user.is_none() && !self.user_exists(&identity.user) {
            return Err(USER_NOT_FOUND);
        }
        if self.identity_count(&identity.user) >= MAX_IDENTITIES_PER_USER {
            return Err(StoreError::Full {
                entity: "linked identities",
                limit: MAX_IDENTITIES_PER_USER,
            });
        }
        if self.identities.values().any(is_same) {
            return Err(IDENTITY_CONFLICT);
        }
        if let Some(role) = new_user {
            self.ensure_user(&identity.user, role, at)?;
        }
        self.identities.insert(identity.id, identity.clone());
        Ok(())
    }

    fn unlink_identity(
        &mut self,
        id: IdentityId,
        user: &UserId,
        keep: Option<SessionId>,
    ) -> Result<(), StoreError> {
        let found = self.identities.get(&id).filter(|it| it.user == *user);
        found.ok_or(StoreError::NotFound {
            entity: Entity::Identity,
        })?;
        if self.identity_count(user) == 1 && !self.passwords.contains_key(user) {
            return Err(IDENTITY_CONFLICT);
        }
        self.identities.remove(&id);
        self.sessions
            .retain(|id, it| it.user != *user || Some(*id) == keep);
        Ok(())
    }
}

#[async_trait]
impl IdentityRepository for MemoryStore {
    async fn find(
        &self,
        provider: &ProviderName,
        subject: &str,
    ) -> Result<Option<LinkedIdentity>, StoreError> {
        let state = self.lock();
        let mut all = state.identities.values();
        let found = all.find(|it| it.provider == *provider && it.subject == subject);
        Ok(found.filter(|it| state.user_exists(&it.user)).cloned())
    }

    async fn list(&self, user: &UserId) -> Result<Vec<LinkedIdentity>, StoreError> {
        let state = self.lock();
        let theirs = state.identities.values().filter(|it| it.user == *user);
        let mut theirs: Vec<LinkedIdentity> = theirs.cloned().collect();
        theirs.sort_by_key(|it| (it.created_at, it.id));
        Ok(theirs)
    }

    async fn email(&self, user: &UserId) -> Result<Option<UserEmail>, StoreError> {
        Ok(self.lock().emails.get(user).cloned())
    }

    async fn verified_emails(
        &self,
        users: &[UserId],
    ) -> Result<BTreeMap<UserId, String>, StoreError> {
        let state = self.lock();
        let found = users.iter().filter_map(|user| {
            let email = state.emails.get(user).filter(|it| it.is_verified)?;
            Some((user.clone(), email.address.clone()))
        });
        Ok(found.collect())
    }

    async fn find_by_email(
        &self,
        address: &str,
        limit: usize,
    ) -> Result<Vec<(UserId, UserEmail)>, StoreError> {
        let (state, address) = (self.lock(), address.to_lowercase());
        let found = state.emails.iter();
        let found = found.filter(|(user, it)| it.address == address && state.user_exists(user));
        let found = found.map(|(user, it)| (user.clone(), it.clone()));
        Ok(found.take(limit).collect())
    }
}
