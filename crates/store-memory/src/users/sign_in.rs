//! `SessionRepository` and `PasswordRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{SessionId, UserId};
use domain::user::identity::{CallerCredential, CallerIdentity, KeyHash};
use domain::user::sign_in::{
    MAX_LINKS_PER_USER, MAX_SESSIONS_PER_USER, OneTimeLink, PasswordHash, PasswordRepository,
    Session, SessionRepository, SessionWithRole, SignInChange,
};

use crate::MemoryStore;
use crate::state::MemoryState;

const USER_NOT_FOUND: StoreError = StoreError::NotFound {
    entity: Entity::User,
};

impl MemoryState {
    /// The user and role behind a credential.
    pub(super) fn identify(&self, caller: CallerCredential) -> Option<CallerIdentity> {
        match caller {
            CallerCredential::ApiKey(id) => self.key_with_role(id).map(Into::into),
            CallerCredential::Session(id) => self.session_with_role(id).map(Into::into),
        }
    }

    fn session_with_role(&self, id: SessionId) -> Option<SessionWithRole> {
        let session = self.sessions.get(&id)?;
        let user = self.users.get(&session.user);
        let user = user.filter(|it| it.is_active())?;
        let current = self.current_organizations.get(&session.user);
        Some(SessionWithRole {
            session: session.clone(),
            role: user.role,
            membership: current.and_then(|id| self.active_membership(*id, &session.user)),
        })
    }

    fn set_password(&mut self, user: &UserId, password: &PasswordHash, keep: Option<SessionId>) {
        self.passwords.insert(user.clone(), password.clone());
        self.sessions
            .retain(|id, it| it.user != *user || Some(*id) == keep);
        self.links.retain(|_, it| it.user != *user);
    }

    pub(super) fn change_sign_in(
        &mut self,
        change: &SignInChange,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        match change {
            SignInChange::BeginSession { session, password } => {
                if !self.is_active(&session.user)
                    || self.passwords.get(&session.user) != Some(password)
                {
                    return Err(USER_NOT_FOUND);
                }
                self.begin_session(session)?;
            }
            SignInChange::EndSession { id, user } => {
                let found = self.sessions.get(id).filter(|it| it.user == *user);
                found.ok_or(StoreError::NotFound {
                    entity: Entity::Session,
                })?;
                self.sessions.remove(id);
            }
            SignInChange::ChangePassword {
                user,
                before,
                password,
                keep,
            } => {
                if self.passwords.get(user) != Some(before) {
                    return Err(USER_NOT_FOUND);
                }
                self.set_password(user, password, *keep);
            }
            SignInChange::CreateLink { link, new_user } => {
                if let Some(role) = new_user {
                    self.ensure_user(&link.user, *role, at)?;
                }
                if !self.user_exists(&link.user) {
                    return Err(USER_NOT_FOUND);
                }
                self.insert_link(link);
            }
            SignInChange::RedeemLink {
                link,
                user,
                password,
            } => {
                let found = self.links.get(link);
                let found = found.filter(|it| it.user == *user && it.expires_at > at);
                found.ok_or(StoreError::NotFound {
                    entity: Entity::OneTimeLink,
                })?;
                self.set_password(user, password, None);
            }
            SignInChange::ConfirmDevice { code, user } => {
                self.decide_device(code, Some(user), at)?;
            }
            SignInChange::DenyDevice { code, .. } => self.decide_device(code, None, at)?,
            SignInChange::RedeemDevice { hash, key } => self.redeem_device(hash, key, at)?,
            SignInChange::BeginIdentitySession { .. }
            | SignInChange::LinkIdentity { .. }
            | SignInChange::UnlinkIdentity { .. }
            | SignInChange::SetEmail { .. } => self.change_identities(change, at)?,
        }
        Ok(())
    }

    pub(super) fn begin_session(&mut self, session: &Session) -> Result<(), StoreError> {
        let is_taken = |it: &Session| it.id == session.id || it.hash == session.hash;
        if self.sessions.values().any(is_taken) {
            return Err(StoreError::Conflict {
                entity: Entity::Session,
            });
        }
        self.sessions.insert(session.id, session.clone());
        let theirs = self.sessions.values().filter(|it| it.user == session.user);
        let mut all: Vec<_> = theirs.map(|it| (it.created_at, it.id)).collect();
        all.sort_unstable();
        let surplus = all.len().saturating_sub(MAX_SESSIONS_PER_USER);
        for (_, id) in &all[..surplus] {
            self.sessions.remove(id);
        }
        Ok(())
    }

    fn insert_link(&mut self, link: &OneTimeLink) {
        self.links.insert(link.hash, link.clone());
        let theirs = self.links.values().filter(|it| it.user == link.user);
        let mut all: Vec<_> = theirs.map(|it| (it.created_at, it.hash)).collect();
        all.sort_unstable();
        let surplus = all.len().saturating_sub(MAX_LINKS_PER_USER);
        for (_, hash) in &all[..surplus] {
            self.links.remove(hash);
        }
    }
}

#[async_trait]
impl SessionRepository for MemoryStore {
    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<SessionWithRole>, StoreError> {
        let state = self.lock();
        let session = state.sessions.values().find(|it| it.hash == *hash);
        Ok(session.and_then(|session| state.session_with_role(session.id)))
    }

    async fn list(&self, user: &UserId) -> Result<Vec<Session>, StoreError> {
        let state = self.lock();
        let theirs = state.sessions.values().filter(|it| it.user == *user);
        let mut sessions: Vec<Session> = theirs.cloned().collect();
        sessions.sort_by_key(|it| (it.created_at, it.id));
        Ok(sessions)
    }

    async fn touch(&self, id: SessionId, at: Timestamp) -> Result<(), StoreError> {
        if let Some(session) = self.lock().sessions.get_mut(&id) {
            session.last_seen_at = at;
        }
        Ok(())
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old = state.sessions.values().filter(|it| it.expires_at < before);
        let old: Vec<SessionId> = old.map(|it| it.id).take(limit).collect();
        for id in &old {
            state.sessions.remove(id);
        }
        Ok(old.len() as u64)
    }
}

#[async_trait]
impl PasswordRepository for MemoryStore {
    async fn find(&self, user: &UserId) -> Result<Option<PasswordHash>, StoreError> {
        let state = self.lock();
        let found = state.passwords.get(user);
        Ok(found.filter(|_| state.is_active(user)).cloned())
    }

    async fn find_link(&self, hash: &KeyHash) -> Result<Option<OneTimeLink>, StoreError> {
        let state = self.lock();
        let found = state.links.get(hash);
        Ok(found.filter(|it| state.is_active(&it.user)).cloned())
    }

    async fn prune_links(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old = state.links.values().filter(|it| it.expires_at < before);
        let old: Vec<KeyHash> = old.map(|it| it.hash).take(limit).collect();
        for hash in &old {
            state.links.remove(hash);
        }
        Ok(old.len() as u64)
    }
}
