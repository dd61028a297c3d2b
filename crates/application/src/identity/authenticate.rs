//! Who is calling: a user by API key, or a sandbox by its session key.

use std::sync::Arc;
use std::time::Duration;

use domain::clock::Timestamp;
use domain::error::chain;
use domain::id::{ApiKeyId, UserId};
use domain::identity::{KeyHash, ApiKeyWithRole, Role};
use domain::sandbox::Sandbox;

use crate::{AppError, AuthMode, Inner};

/// `last_used_at` is written at most this often.
const LAST_USED_INTERVAL: Duration = Duration::from_secs(60);
/// No key of ours is longer; a longer one is refused unhashed.
const MAX_KEY_BYTES: usize = 512;

/// A user, as their key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedUser {
    /// Who.
    pub user: UserId,
    /// What they may do.
    pub role: Role,
    /// By which key; the local user needs none.
    pub key: Option<ApiKeyId>,
}

impl AuthenticatedUser {
    fn by(known: &ApiKeyWithRole) -> Self {
        Self {
            user: known.key.user.clone(),
            role: known.role,
            key: Some(known.key.id),
        }
    }
}

fn looks_like_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY_BYTES
}

/// Looks keys up, by hash: the comparison says nothing about the key. A revoked one is refused at the latest
/// a second after that, an expired one at once.
#[derive(Clone)]
pub struct KeyAuthenticator(Arc<Inner>);

impl KeyAuthenticator {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// The user of this API key; `None` for no, an unknown or an expired key. In open mode always the local user, who
    /// administers.
    pub async fn user(&self, key: Option<&str>) -> Result<Option<AuthenticatedUser>, AppError> {
        if let AuthMode::Open(user) = &self.0.policy.auth {
            return Ok(Some(AuthenticatedUser {
                user: user.clone(),
                role: Role::Admin,
                key: None,
            }));
        }
        let Some(text) = key.filter(|key| looks_like_key(key)) else {
            return Ok(None);
        };
        let hash = KeyHash::of(text);
        let query = || self.0.ports.api_keys.find_by_hash(&hash);
        let answer = self.0.api_keys.find(&hash, query).await?;
        let Some(known) = answer.found else {
            return Ok(None);
        };
        let key = &known.key;
        let now = self.0.ports.clock.now();
        if key.is_expired(now) {
            return Ok(None);
        }
        // Whoever asked the store does it: a remembered key does not know that it was done.
        let is_due = key
            .last_used_at
            .is_none_or(|at| now.since(at) >= LAST_USED_INTERVAL);
        if is_due && !answer.is_cached {
            let (keys, id) = (Arc::clone(&self.0.ports.api_keys), key.id);
            self.0.tasks.spawn(async move {
                if let Err(error) = keys.touch(id, now).await {
                    tracing::debug!(error = %chain(&error), "could not note the use of an API key");
                }
            });
        }
        Ok(Some(AuthenticatedUser::by(&known)))
    }

    /// The same as far as it is known without a query: as another request was told less than a second ago. `None` says
    /// nothing.
    pub fn remembered(&self, key: Option<&str>, now: Timestamp) -> Option<AuthenticatedUser> {
        if matches!(self.0.policy.auth, AuthMode::Open(_)) {
            return None;
        }
        let hash = KeyHash::of(key.filter(|key| looks_like_key(key))?);
        let known = self.0.api_keys.remembered(&hash)?;
        (!known.key.is_expired(now)).then(|| AuthenticatedUser::by(&known))
    }

    /// The sandbox of this session key, while it may report: running, starting, or paused a moment ago.
    pub async fn sandbox(&self, key: &str) -> Result<Option<Sandbox>, AppError> {
        if !looks_like_key(key) {
            return Ok(None);
        }
        let sandboxes = &self.0.ports.sandboxes;
        let sandbox = sandboxes.find_by_key(&KeyHash::of(key)).await?;
        Ok(sandbox.filter(|it| self.0.may_report(it)))
    }

    /// The same for a report, which reads nothing of its owner's: as the look-up for another report found it, less than
    /// a second ago. Nothing is refused on that ground.
    pub async fn reporter(&self, key: &str) -> Result<Option<Arc<Sandbox>>, AppError> {
        if !looks_like_key(key) {
            return Ok(None);
        }
        let hash = KeyHash::of(key);
        let query = || self.0.ports.sandboxes.find_by_key(&hash);
        let answer = self.0.keeper.reporters().find(&hash, query).await?;
        let found = answer.found.filter(|it| self.0.may_report(it));
        if found.is_none() && answer.is_cached {
            // It may have been resumed since, elsewhere.
            return Ok(self.sandbox(key).await?.map(Arc::new));
        }
        Ok(found)
    }
}
