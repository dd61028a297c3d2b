//! Users, their roles and their keys. Every change is committed in one transaction with its audit entry, so neither
//! exists without the other, even after `kill -9`.
//!
//! The transaction checks the caller's key and role again. A key or role that was revoked after the request was
//! authenticated has no effect.
//!
//! Administrators cannot lock themselves out. They cannot remove their own role or delete their own user, and no key
//! can revoke itself. The command line always works.

use std::sync::Arc;
use std::time::Duration;

use domain::audit::AuditActor;
use domain::clock::{Clock, Timestamp};
use domain::error::StoreError;
use domain::id::{ApiKeyId, IdGenerator, UserId};
use domain::page::{Page, PageRequest, PageToken};
use domain::user::administration::{AdminChange, AdministrationRepository};
use domain::user::identity::{
    ApiKey, ApiKeyRepository, BOOTSTRAP_KEY_ID, MAX_KEYS_PER_USER, PurgeCounts, Role, User,
    UserRepository,
};

pub(crate) use super::changes::CallerCaches;
pub use super::changes::{Origin, administer};
use super::changes::{key_not_found, user_not_found};
pub use super::new_keys::{IssuedKey, KeyOptions, new_key, successor_key};
use super::single_user::SingleUserCheck;
use super::users;
use crate::sandboxes::SandboxReconciler;
use crate::{AppError, Ports};

const PAGE_TOKEN_PREFIX: &str = "users|";

#[derive(Clone)]
pub struct AdministrationService {
    users: Arc<dyn UserRepository>,
    keys: Arc<dyn ApiKeyRepository>,
    administration: Arc<dyn AdministrationRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    single_user: SingleUserCheck,
    caches: CallerCaches,
    reconciler: SandboxReconciler,
}

impl AdministrationService {
    pub(crate) fn new(
        ports: &Ports,
        single_user: SingleUserCheck,
        caches: CallerCaches,
        reconciler: SandboxReconciler,
    ) -> Self {
        Self {
            users: Arc::clone(&ports.users),
            keys: Arc::clone(&ports.api_keys),
            administration: Arc::clone(&ports.administration),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            single_user,
            caches,
            reconciler,
        }
    }

    /// Lists users by name, including users whose deletion is not complete.
    pub async fn users(&self, page: &PageRequest) -> Result<Page<User>, AppError> {
        let after = page.after.as_ref().map(|token| {
            let name = token.0.strip_prefix(PAGE_TOKEN_PREFIX);
            let name = name.and_then(|name| UserId::parse(name).ok());
            name.ok_or(StoreError::InvalidPageToken)
        });
        let (after, limit) = (after.transpose()?, page.limit.get());
        let found = self.users.list(after.as_ref(), limit + 1).await;
        let mut items = found?;
        let is_more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| is_more);
        let next = last.map(|last| PageToken(format!("{PAGE_TOKEN_PREFIX}{}", last.id)));
        Ok(Page { items, next })
    }

    /// Finds a user, including one whose deletion is not complete.
    pub async fn user(&self, user: &UserId) -> Result<User, AppError> {
        let found = self.users.find(user).await?;
        found.ok_or_else(|| user_not_found(user))
    }

    pub async fn create_user(
        &self,
        origin: &Origin,
        user: &UserId,
        role: Role,
    ) -> Result<User, AppError> {
        self.single_user.check_new_user(user).await?;
        let change = AdminChange::CreateUser {
            user: user.clone(),
            role,
        };
        self.administer(origin, &change).await?;
        self.user(user).await
    }

    /// Changes a user's role: at once in this process, within a second in others. Users cannot remove their own role.
    pub async fn set_role(
        &self,
        origin: &Origin,
        user: &UserId,
        role: Role,
    ) -> Result<User, AppError> {
        if is_self(origin, user) && role != Role::Admin {
            return Err(AppError::conflict(
                "You cannot take the role from yourself: another administrator can",
            ));
        }
        let change = AdminChange::SetRole {
            user: user.clone(),
            role,
        };
        self.administer(origin, &change).await?;
        self.user(user).await
    }

    /// Disables a user at once in this process, within a second in others, or enables them. Users cannot disable themselves.
    pub async fn set_disabled(
        &self,
        origin: &Origin,
        user: &UserId,
        disabled: bool,
    ) -> Result<User, AppError> {
        if is_self(origin, user) && disabled {
            return Err(AppError::conflict(
                "You cannot disable yourself: another administrator can",
            ));
        }
        let change = AdminChange::SetDisabled {
            user: user.clone(),
            disabled,
        };
        let changed = self.administer(origin, &change).await;
        self.caches.reporters.clear();
        self.reconciler.request_relist();
        changed?;
        self.user(user).await
    }

    /// Deletes a user and all their data; see [`users::purge`]. Users cannot delete themselves.
    pub async fn delete_user(
        &self,
        origin: &Origin,
        user: &UserId,
    ) -> Result<PurgeCounts, AppError> {
        if is_self(origin, user) {
            return Err(AppError::conflict(
                "You cannot delete yourself: another administrator can",
            ));
        }
        let change = AdminChange::DeleteUser { user: user.clone() };
        let begun = self.administer(origin, &change).await;
        // Clear before the rest, which may fail; and after a failure too, because the change may have been committed.
        self.caches.reporters.clear();
        self.reconciler.request_relist();
        let mut purged = begun?;
        purged += self.purge_user(user).await?.unwrap_or_default();
        Ok(purged)
    }

    /// Deletes all data of a user. The reconciler removes their sandboxes: at once on this host, soon on others.
    /// Returns `None` if the user does not exist.
    pub async fn purge_user(&self, user: &UserId) -> Result<Option<PurgeCounts>, AppError> {
        let purged = users::purge(self.users.as_ref(), self.clock.as_ref(), user).await;
        // After a failure too: the first step removes the keys.
        self.caches.clear_users();
        self.caches.reporters.clear();
        self.reconciler.request_relist();
        purged
    }

    /// A user's keys, oldest first, without those of the automations service.
    pub async fn keys(&self, user: &UserId) -> Result<Vec<ApiKey>, AppError> {
        let mut keys = self.keys.list(Some(user)).await?;
        keys.retain(|key| !key.is_automation);
        Ok(keys)
    }

    /// Creates a key for an existing user. Refused in open mode.
    pub async fn create_key(
        &self,
        origin: &Origin,
        user: &UserId,
        options: &KeyOptions,
    ) -> Result<IssuedKey, AppError> {
        check_authenticated(origin)?;
        let (ids, now) = (self.ids.as_ref(), self.clock.now());
        check_key_count(&self.keys(user).await?, MAX_KEYS_PER_USER, now)?;
        let issued = new_key(ids, now, user, options, &origin.actor);
        let key = issued.key.clone();
        let change = AdminChange::CreateKey {
            key,
            new_user: None,
        };
        self.administer(origin, &change).await?;
        Ok(issued)
    }

    /// Replaces a key by a new one. The old key still works for at most `grace`.
    pub async fn rotate_key(
        &self,
        origin: &Origin,
        user: &UserId,
        id: ApiKeyId,
        options: &KeyOptions,
        grace: Duration,
    ) -> Result<IssuedKey, AppError> {
        check_authenticated(origin)?;
        check_not_bootstrap_key(id)?;
        let keys = self.keys(user).await?;
        let (ids, now) = (self.ids.as_ref(), self.clock.now());
        let old = keys.iter().find(|key| key.id == id);
        let old = old.ok_or_else(key_not_found)?;
        if old.is_expired(now) {
            return Err(AppError::conflict(
                "The key has expired: make a new one instead",
            ));
        }
        // A user at the limit can still rotate a key, but not without bound.
        check_key_count(&keys, MAX_KEYS_PER_USER + 1, now)?;
        let issued = successor_key(ids, now, old, options, &origin.actor);
        let change = AdminChange::RotateKey {
            old: id,
            new: issued.key.clone(),
            until: now.plus(grace),
        };
        self.administer(origin, &change).await?;
        Ok(issued)
    }

    /// Revokes a key of this user. A key that never expires cannot revoke itself: its owner may have no other one.
    pub async fn revoke_key(
        &self,
        origin: &Origin,
        user: &UserId,
        id: ApiKeyId,
    ) -> Result<(), AppError> {
        check_not_bootstrap_key(id)?;
        if origin.key == Some(id) {
            let keys = self.keys(user).await?;
            let own = keys.iter().find(|key| key.id == id);
            if own.is_some_and(|key| key.expires_at.is_none()) {
                return Err(AppError::conflict(
                    "A key that never expires cannot revoke itself: rotate it, or use another one",
                ));
            }
        }
        let user = user.clone();
        let change = AdminChange::RevokeKey { id, user };
        self.administer(origin, &change).await?;
        Ok(())
    }

    async fn administer(
        &self,
        origin: &Origin,
        change: &AdminChange,
    ) -> Result<PurgeCounts, AppError> {
        let (ids, now) = (self.ids.as_ref(), self.clock.now());
        let done = administer(self.administration.as_ref(), origin, ids, now, change).await;
        // After a failure too: the change may have been committed.
        self.caches.clear_users();
        done
    }
}

/// In open mode every caller is the administrator, even the agent in a sandbox. A key issued now would still open
/// everything after the service requires keys.
fn check_authenticated(origin: &Origin) -> Result<(), AppError> {
    let has_credential = origin.key.is_some() || origin.session.is_some();
    if matches!(origin.actor, AuditActor::User(_)) && !has_credential {
        return Err(AppError::conflict(
            "Requests cannot create keys in open mode: use `agent-workspace keys create`",
        ));
    }
    Ok(())
}

/// The next start of the service would store the key again.
fn check_not_bootstrap_key(id: ApiKeyId) -> Result<(), AppError> {
    if id == BOOTSTRAP_KEY_ID {
        return Err(AppError::conflict(
            "This key is configured by auth.bootstrap_key: change that setting instead",
        ));
    }
    Ok(())
}

pub(super) fn check_key_count(keys: &[ApiKey], max: usize, now: Timestamp) -> Result<(), AppError> {
    let counts = |key: &&ApiKey| !key.is_automation && !key.is_expired(now);
    let active = keys.iter().filter(counts).count();
    if active >= max {
        return Err(AppError::conflict(format!(
            "The user has {active} keys already: revoke some first"
        )));
    }
    Ok(())
}

fn is_self(origin: &Origin, user: &UserId) -> bool {
    origin.actor == AuditActor::User(user.clone())
}
