//! Authentication: a user by API key, or a sandbox by its session key.

use std::sync::Arc;
use std::time::Duration;

use domain::clock::{Clock, Timestamp};
use domain::error::{StoreError, chain};
use domain::id::{ApiKeyId, OrganizationId, OwnerId, SessionId, UserId};
use domain::sandbox::{CALLBACK_TOKEN_PREFIX, Sandbox, SandboxKeyRepository};
use domain::user::identity::{ApiKeyRepository, ApiKeyWithRole, KeyHash, Role};
use domain::user::organization::ActiveMembership;
use domain::user::permission::{MemberRole, Permission};
use domain::user::scope::Scope;

use super::key_cache::KeyCache;
use crate::{AppError, AuthMode, BackgroundTasks};

/// Shortest time between two writes of `last_used_at`.
pub(super) const LAST_USED_INTERVAL: Duration = Duration::from_secs(60);
/// Longest key in bytes; longer ones are refused without hashing them.
const MAX_KEY_BYTES: usize = 512;

/// A user whom an API key or a session identified, or the local user of an open service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedUser {
    pub user: UserId,
    /// The membership for which the user acts: it owns what the request makes.
    pub owner: OwnerId,
    /// The user's role in that organization.
    pub member_role: MemberRole,
    /// The organization to which the key is bound.
    pub bound_to: Option<OrganizationId>,
    /// The role of the user in this installation. A bound key administers nothing.
    pub role: Role,
    /// The API key of the request.
    pub key: Option<ApiKeyId>,
    /// The session of the request.
    pub session: Option<SessionId>,
    /// Whether the automations service acts for the user, by a key of its own.
    pub is_automation: bool,
}

impl AsRef<Self> for AuthenticatedUser {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl AuthenticatedUser {
    /// A user without administrator rights.
    pub fn plain(user: UserId) -> Self {
        Self {
            owner: OwnerId::from(&user),
            user,
            member_role: MemberRole::Owner,
            bound_to: None,
            role: Role::User,
            key: None,
            session: None,
            is_automation: false,
        }
    }

    /// What the user may do in the organization.
    pub fn permissions(&self) -> Vec<Permission> {
        match self.owner.shared_organization() {
            Some(_) => self.member_role.permissions(),
            None => Permission::personal(),
        }
    }

    pub fn check_permission(&self, needed: Permission) -> Result<(), AppError> {
        if self.permissions().contains(&needed) {
            return Ok(());
        }
        Err(StoreError::MemberNotPermitted.into())
    }

    /// The scope in which this user reads and writes.
    pub fn scope(&self) -> Scope {
        Scope::Owner(self.owner.clone())
    }

    /// `None` if the key is bound to an organization of which its user is no member any more.
    pub(super) fn from_key(known: &ApiKeyWithRole) -> Option<Self> {
        let user = known.key.user.clone();
        let is_automation = known.key.is_automation;
        let personal = || is_automation.then(|| OrganizationId::personal(&user));
        let bound_to = known.key.organization.or_else(personal);
        let is_shared = |id: &OrganizationId| *id != OrganizationId::personal(&user);
        if bound_to.as_ref().is_some_and(is_shared) && known.membership.is_none() {
            return None;
        }
        Some(Self {
            role: bound_to.map_or(known.role, |_| Role::User),
            bound_to,
            key: Some(known.key.id),
            is_automation,
            ..Self::member(user, known.membership)
        })
    }

    /// A user who acts in this shared organization, or in their personal one.
    pub(super) fn member(user: UserId, membership: Option<ActiveMembership>) -> Self {
        let plain = Self::plain(user);
        match membership {
            None => plain,
            Some(it) => Self {
                owner: OwnerId::new(&plain.user, it.organization),
                member_role: it.role,
                ..plain
            },
        }
    }
}

pub(super) fn looks_like_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY_BYTES
}

/// Finds the users of API keys. Keys are looked up by hash, so the comparison reveals nothing about the key. A revoked
/// key is refused within a second, an expired one at once.
#[derive(Clone)]
pub struct KeyAuthenticator {
    pub(crate) keys: Arc<dyn ApiKeyRepository>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache: KeyCache<ApiKeyWithRole>,
    pub(crate) mode: AuthMode,
    pub(crate) tasks: BackgroundTasks,
}

impl KeyAuthenticator {
    /// The user of this API key; `None` for a missing, unknown or expired key. In open mode always the local user, as
    /// administrator.
    pub async fn user(&self, key: Option<&str>) -> Result<Option<AuthenticatedUser>, AppError> {
        if let AuthMode::Open(user) = &self.mode {
            return Ok(Some(AuthenticatedUser {
                role: Role::Admin,
                ..AuthenticatedUser::plain(user.clone())
            }));
        }
        let Some(text) = key.filter(|key| looks_like_key(key)) else {
            return Ok(None);
        };
        let hash = KeyHash::of(text);
        let query = || self.keys.find_by_hash(&hash);
        let answer = self.cache.find(&hash, query).await?;
        let Some(known) = answer.found else {
            return Ok(None);
        };
        let key = &known.key;
        let now = self.clock.now();
        if key.is_expired(now) {
            return Ok(None);
        }
        // Only the request that queried the store writes `last_used_at`: a cached key does not show whether it was
        // written.
        let is_due = key
            .last_used_at
            .is_none_or(|at| now.since(at) >= LAST_USED_INTERVAL);
        if is_due && !answer.is_cached {
            let (keys, id) = (Arc::clone(&self.keys), key.id);
            self.tasks.spawn(async move {
                if let Err(error) = keys.touch(id, now).await {
                    tracing::debug!(error = %chain(&error), "cannot record the use of an API key");
                }
            });
        }
        Ok(AuthenticatedUser::from_key(&known))
    }

    /// The user of this API key if it is cached. `None` means unknown, not unauthenticated.
    pub fn cached_user(&self, key: Option<&str>, now: Timestamp) -> Option<AuthenticatedUser> {
        if matches!(self.mode, AuthMode::Open(_)) {
            return None;
        }
        let hash = KeyHash::of(key.filter(|key| looks_like_key(key))?);
        let known = self.cache.get_cached(&hash)?;
        (!known.key.is_expired(now)).then(|| AuthenticatedUser::from_key(&known))?
    }
}

/// Finds the sandboxes of session keys and callback tokens, while the sandboxes may report: running, starting, or paused
/// a moment ago.
#[derive(Clone)]
pub struct SandboxAuthenticator {
    pub(crate) keys: Arc<dyn SandboxKeyRepository>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache: KeyCache<Sandbox>,
    pub(crate) report_grace: Duration,
}

impl SandboxAuthenticator {
    /// Whether the service accepts reports of this sandbox now.
    pub(crate) fn may_report(&self, sandbox: &Sandbox) -> bool {
        sandbox.accepts_reports(self.clock.now(), self.report_grace)
    }

    /// The sandbox of this session key.
    pub async fn by_session_key(&self, key: &str) -> Result<Option<Sandbox>, AppError> {
        if !looks_like_key(key) {
            return Ok(None);
        }
        let sandbox = self.keys.find_by_key(&KeyHash::of(key)).await?;
        Ok(sandbox.filter(|it| self.may_report(it)))
    }

    /// The sandbox for a look-up of secrets or the MCP server, by its callback token or by its session key. Both are
    /// valid in the same states of the sandbox.
    pub async fn by_callback_key(&self, key: &str) -> Result<Option<Sandbox>, AppError> {
        if !looks_like_key(key) || !key.starts_with(CALLBACK_TOKEN_PREFIX) {
            return self.by_session_key(key).await;
        }
        let sandbox = self.keys.find_by_callback_token(&KeyHash::of(key)).await?;
        Ok(sandbox.filter(|it| self.may_report(it)))
    }

    /// The sandbox of this session key for a webhook report, from the cache. A cached row never causes a refusal,
    /// because the sandbox may have been resumed since.
    pub async fn by_report_key(&self, key: &str) -> Result<Option<Arc<Sandbox>>, AppError> {
        if !looks_like_key(key) {
            return Ok(None);
        }
        let hash = KeyHash::of(key);
        let query = || self.keys.find_by_key(&hash);
        let answer = self.cache.find(&hash, query).await?;
        let found = answer.found.filter(|it| self.may_report(it));
        if found.is_none() && answer.is_cached {
            // Another process may have resumed the sandbox since.
            return Ok(self.by_session_key(key).await?.map(Arc::new));
        }
        Ok(found)
    }
}
