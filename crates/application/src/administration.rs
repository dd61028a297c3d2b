//! Users, their roles and their keys. Every change is stored together with its line in the audit log: neither is there
//! without the other, also after `kill -9`.
//!
//! A request has been let in when its change is made: so that nothing outlives the end of a key or of a role, the transaction
//! looks once more whether whoever asks still may.
//!
//! Nobody locks themself out: an administrator cannot take the role from themself or delete themself, and no key revokes
//! itself. So whoever made the last change is still there to make another one (and the command line always is).

use std::sync::Arc;
use std::time::Duration;

use domain::audit::{AuditActor, AuditEntry, AuditOutcome, sanitize_text};
use domain::clock::Timestamp;
use domain::error::{ErrorClass, StoreError};
use domain::id::{ApiKeyId, IdGenerator, UserId};
use domain::identity::{
    ADMINISTRATOR_ENTITY, AdminChange, AdministrationRepository, ApiKey, CALLER_ENTITY, BOOTSTRAP_KEY_ID,
    DELETED_USER_ENTITY, KeyHash, MAX_KEYS_PER_USER, PurgeCounts, Role, User,
};
use domain::page::{Page, PageRequest, PageToken};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{AppError, Inner};

/// What page tokens of users begin with.
const PAGE_TOKEN_PREFIX: &str = "users|";

/// Who asks, and from where: what the line in the audit log says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Who.
    pub actor: AuditActor,
    /// With which key.
    pub key: Option<ApiKeyId>,
    /// What for: method and route, or the command.
    pub action: String,
    /// From which address.
    pub source: Option<String>,
    /// The id of the request.
    pub request_id: Option<String>,
    /// The status of the answer, if all goes well.
    pub status: Option<u16>,
}

impl Origin {
    /// A command (`users delete`) of whoever runs the command line.
    pub fn command(words: &str) -> Self {
        Self::of(AuditActor::Cli, format!("cli {words}"))
    }

    /// The service itself.
    pub fn service(action: &str) -> Self {
        Self::of(AuditActor::Service, action.to_owned())
    }

    fn of(actor: AuditActor, action: String) -> Self {
        Self {
            actor,
            key: None,
            action,
            source: None,
            request_id: None,
            status: None,
        }
    }

    /// The line about a change.
    pub fn entry(&self, ids: &dyn IdGenerator, at: Timestamp, change: &AdminChange) -> AuditEntry {
        let (object, detail) = describe_change(change);
        AuditEntry {
            id: ids.uuid(),
            at,
            actor: self.actor.clone(),
            key: self.key,
            action: sanitize_text(&self.action),
            object: Some(sanitize_text(&object)),
            detail: detail.map(|detail| sanitize_text(&detail)),
            source: self.source.clone(),
            outcome: AuditOutcome::Ok,
            status: self.status,
            request_id: self.request_id.clone(),
            count: 1,
        }
    }
}

/// What is changed, and how.
fn describe_change(change: &AdminChange) -> (String, Option<String>) {
    match change {
        AdminChange::CreateUser { user, role } | AdminChange::SetRole { user, role } => (
            format!("user:{user}"),
            Some(format!("role:{}", role.as_str())),
        ),
        AdminChange::DeleteUser { user } => (format!("user:{user}"), None),
        AdminChange::CreateKey { key, .. } => (
            format!("key:{}", key.id),
            Some(format!("user:{}", key.user)),
        ),
        AdminChange::RotateKey { old, new, .. } => (
            format!("key:{old}"),
            Some(format!("new:{} user:{}", new.id, new.user)),
        ),
        AdminChange::RevokeKey { id, user } => (format!("key:{id}"), Some(format!("user:{user}"))),
    }
}

/// What is asked of a new key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyOptions {
    /// What its owner calls it.
    pub name: Option<String>,
    /// How long it is good for; else for ever (rotation: as long as the one before was meant to be).
    pub expires_in: Option<Duration>,
}

/// A key that was made, and its text, which nobody can be told again.
#[derive(Debug)]
pub struct IssuedKey {
    /// The record.
    pub key: ApiKey,
    /// The text.
    pub text: SecretString,
}

/// A key to be stored.
pub fn new_key(
    ids: &dyn IdGenerator,
    now: Timestamp,
    user: &UserId,
    wish: &KeyOptions,
    made_by: &AuditActor,
) -> IssuedKey {
    let text = ids.api_key();
    let key = ApiKey {
        id: ApiKeyId::new(ids.uuid()),
        user: user.clone(),
        hash: KeyHash::of(text.text.expose_secret()),
        prefix: text.prefix,
        created_at: now,
        expires_at: wish.expires_in.map(|time| now.plus(time)),
        last_used_at: None,
        name: wish.name.clone(),
        made_by: Some(made_by.to_string()),
    };
    IssuedKey {
        key,
        text: text.text,
    }
}

/// The key that takes the place of `old`: with its name, and meant to last as long, unless something else is wished.
pub fn successor_key(
    ids: &dyn IdGenerator,
    now: Timestamp,
    old: &ApiKey,
    wish: &KeyOptions,
    made_by: &AuditActor,
) -> IssuedKey {
    let as_before = old.expires_at.map(|end| end.since(old.created_at));
    let wish = KeyOptions {
        name: wish.name.clone().or_else(|| old.name.clone()),
        expires_in: wish.expires_in.or(as_before),
    };
    new_key(ids, now, &old.user, &wish, made_by)
}

/// Changes users and keys.
#[derive(Clone)]
pub struct Administration(Arc<Inner>);

impl Administration {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// Users by name, also those whose deletion is not complete.
    pub async fn users(&self, page: &PageRequest) -> Result<Page<User>, AppError> {
        let after = page.after.as_ref().map(|token| {
            let name = token.0.strip_prefix(PAGE_TOKEN_PREFIX);
            let name = name.and_then(|name| UserId::parse(name).ok());
            name.ok_or(StoreError::InvalidPageToken)
        });
        let (after, limit) = (after.transpose()?, page.limit.get());
        let found = self.0.ports.users.list(after.as_ref(), limit + 1).await;
        let mut items = found?;
        let is_more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| is_more);
        let next = last.map(|last| PageToken(format!("{PAGE_TOKEN_PREFIX}{}", last.id)));
        Ok(Page { items, next })
    }

    /// A user who is there, also when their deletion is not complete.
    pub async fn user(&self, user: &UserId) -> Result<User, AppError> {
        let found = self.0.ports.users.find(user).await?;
        found.ok_or_else(|| user_not_found(user))
    }

    /// Makes a user, who has no key yet.
    pub async fn create_user(
        &self,
        origin: &Origin,
        user: &UserId,
        role: Role,
    ) -> Result<User, AppError> {
        self.0.refuse_second_user(user).await?;
        let change = AdminChange::CreateUser {
            user: user.clone(),
            role,
        };
        self.administer(origin, &change).await?;
        self.user(user).await
    }

    /// Changes what a user may do: at once here, within a second elsewhere. Nobody takes the role from themself.
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

    /// Deletes a user with everything of theirs; see [`crate::users::Users::delete`]. Nobody deletes themself.
    pub async fn delete_user(&self, origin: &Origin, user: &UserId) -> Result<PurgeCounts, AppError> {
        if is_self(origin, user) {
            return Err(AppError::conflict(
                "You cannot delete yourself: another administrator can",
            ));
        }
        let change = AdminChange::DeleteUser { user: user.clone() };
        let begun = self.administer(origin, &change).await;
        // Now, and not after the rest, which may fail: also after a failure here, for it may have been done.
        self.0.keeper.reporters().clear();
        self.0.look_again.notify_one();
        let mut purged = begun?;
        let users = crate::users::Users::new(Arc::clone(&self.0));
        purged += users.delete(user).await?.unwrap_or_default();
        Ok(purged)
    }

    /// A user's keys, oldest first.
    pub async fn keys(&self, user: &UserId) -> Result<Vec<ApiKey>, AppError> {
        Ok(self.0.ports.api_keys.list(Some(user)).await?)
    }

    /// Makes a key for a user who is there. Refused in open mode.
    pub async fn create_key(
        &self,
        origin: &Origin,
        user: &UserId,
        wish: &KeyOptions,
    ) -> Result<IssuedKey, AppError> {
        check_authenticated(origin)?;
        let (ids, now) = (self.0.ports.ids.as_ref(), self.0.ports.clock.now());
        check_key_count(&self.keys(user).await?, MAX_KEYS_PER_USER, now)?;
        let made = new_key(ids, now, user, wish, &origin.actor);
        let key = made.key.clone();
        let change = AdminChange::CreateKey {
            key,
            new_user: None,
        };
        self.administer(origin, &change).await?;
        Ok(made)
    }

    /// Puts a new key in the place of another one, which goes on to open for `grace` at most.
    pub async fn rotate_key(
        &self,
        origin: &Origin,
        user: &UserId,
        id: ApiKeyId,
        wish: &KeyOptions,
        grace: Duration,
    ) -> Result<IssuedKey, AppError> {
        check_authenticated(origin)?;
        check_not_bootstrap_key(id)?;
        let keys = self.keys(user).await?;
        let (ids, now) = (self.0.ports.ids.as_ref(), self.0.ports.clock.now());
        let old = keys.iter().find(|key| key.id == id);
        let old = old.ok_or_else(key_not_found)?;
        if old.is_expired(now) {
            return Err(AppError::conflict(
                "The key has expired: make a new one instead",
            ));
        }
        // Who has as many as one may have can rotate one all the same, but not all of them for ever.
        check_key_count(&keys, MAX_KEYS_PER_USER + 1, now)?;
        let made = successor_key(ids, now, old, wish, &origin.actor);
        let change = AdminChange::RotateKey {
            old: id,
            new: made.key.clone(),
            until: now.plus(grace),
        };
        self.administer(origin, &change).await?;
        Ok(made)
    }

    /// Revokes a key of this user, but not the one that the request came with.
    pub async fn revoke_key(
        &self,
        origin: &Origin,
        user: &UserId,
        id: ApiKeyId,
    ) -> Result<(), AppError> {
        if origin.key == Some(id) {
            return Err(AppError::conflict(
                "A key cannot revoke itself: rotate it, or use another one",
            ));
        }
        check_not_bootstrap_key(id)?;
        let user = user.clone();
        let change = AdminChange::RevokeKey { id, user };
        self.administer(origin, &change).await?;
        Ok(())
    }

    async fn administer(&self, origin: &Origin, change: &AdminChange) -> Result<PurgeCounts, AppError> {
        let ports = &self.0.ports;
        let (ids, now) = (ports.ids.as_ref(), ports.clock.now());
        let done = administer(ports.administration.as_ref(), origin, ids, now, change).await;
        // Also after a failure: it may have been done.
        self.0.api_keys.clear();
        done
    }
}

/// Makes a change with its line in the audit log; for programs that have the store and nothing else, too. What the
/// beginning of a deletion took away.
pub async fn administer(
    store: &dyn AdministrationRepository,
    origin: &Origin,
    ids: &dyn IdGenerator,
    now: Timestamp,
    change: &AdminChange,
) -> Result<PurgeCounts, AppError> {
    let entry = origin.entry(ids, now, change);
    let done = store.administer(change, &entry).await;
    done.map_err(|error| match (error, change) {
        (StoreError::NotFound { entity: CALLER_ENTITY }, _) => AppError::refused(
            ErrorClass::Unauthenticated,
            "The API key has been revoked or has expired",
        ),
        (
            StoreError::NotFound {
                entity: ADMINISTRATOR_ENTITY,
            },
            _,
        ) => AppError::refused(ErrorClass::Forbidden, "Only administrators may do this"),
        (StoreError::NotFound { entity: "user" }, AdminChange::CreateKey { key, .. }) => {
            user_not_found(&key.user)
        }
        (
            StoreError::NotFound { entity: "user" },
            AdminChange::SetRole { user, .. } | AdminChange::DeleteUser { user },
        ) => user_not_found(user),
        (StoreError::NotFound { entity: "API key" }, _) => key_not_found(),
        (StoreError::Conflict { entity: "user" }, AdminChange::CreateUser { user, .. }) => {
            AppError::conflict(format!("There is a user {user} already"))
        }
        (
            StoreError::Conflict {
                entity: DELETED_USER_ENTITY,
            },
            _,
        ) => AppError::conflict(
            "A user of this name was deleted: the name is free again once their sandboxes are gone, and not before ten \
             minutes have passed",
        ),
        (error, _) => error.into(),
    })
}

/// In open mode whoever reaches the port is the administrator, the agent in a sandbox perhaps included; a key would go on to
/// open everything once requests need one.
fn check_authenticated(origin: &Origin) -> Result<(), AppError> {
    if matches!(origin.actor, AuditActor::User(_)) && origin.key.is_none() {
        return Err(AppError::conflict(
            "Requests need no key here, so none makes keys: use `agent-workspace keys create`",
        ));
    }
    Ok(())
}

/// The next start would store it again.
fn check_not_bootstrap_key(id: ApiKeyId) -> Result<(), AppError> {
    if id == BOOTSTRAP_KEY_ID {
        return Err(AppError::conflict(
            "This key is configured (auth.bootstrap_key): change it there",
        ));
    }
    Ok(())
}

fn check_key_count(keys: &[ApiKey], most: usize, now: Timestamp) -> Result<(), AppError> {
    let good = keys.iter().filter(|key| !key.is_expired(now)).count();
    if good >= most {
        return Err(AppError::conflict(format!(
            "The user has {good} keys already: revoke some first"
        )));
    }
    Ok(())
}

fn is_self(origin: &Origin, user: &UserId) -> bool {
    origin.actor == AuditActor::User(user.clone())
}

fn user_not_found(user: &UserId) -> AppError {
    AppError::not_found(format!("There is no user {user}"))
}

fn key_not_found() -> AppError {
    AppError::not_found("There is no such key")
}
