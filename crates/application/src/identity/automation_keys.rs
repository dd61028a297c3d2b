//! Keys with which the automations service acts for users.
//!
//! That service never gets a user's own key. It gets keys of this kind, each for one user in one organization, which open
//! only what it needs and expire by themselves: one for each request that a user sends it, and one for each run of an
//! automation, which the run's sandbox holds as well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::clock::{Clock, Timestamp};
use domain::id::{IdGenerator, OrganizationId, OwnerId, UserId};
use domain::user::administration::{AdminChange, AdministrationRepository};
use domain::user::identity::{ApiKeyRepository, KeyHash, Role, UserRepository};
use domain::user::organization::OrganizationRepository;
use secrecy::SecretString;

use super::authenticate::{AuthenticatedUser, looks_like_key};
use super::changes::{Origin, administer};
use super::new_keys::{KeyOptions, new_key};
use crate::{AppError, Ports};

/// How long a run waits for its sandbox at a cap.
pub(crate) const MAX_RUN_WAIT: Duration = Duration::from_secs(2 * 60 * 60);
/// Longer than a run from the start of its sandbox, with all waits in it: 55 minutes.
pub(crate) const MAX_RUN_DURATION: Duration = Duration::from_secs(60 * 60);
const RUN_KEY_TTL: Duration = MAX_RUN_WAIT.saturating_add(MAX_RUN_DURATION);
const REQUEST_KEY_TTL: Duration = Duration::from_secs(60 * 60);
/// How long a key for requests of one user is used again. Its rest is longer than any request.
const REQUEST_KEY_REUSE: Duration = Duration::from_secs(30 * 60);
/// Users whose keys for requests are kept. Beyond this number all of them are made anew.
const MAX_REQUEST_KEYS: usize = 1_000;
/// Users of one query.
const USER_PAGE: usize = 1_000;

/// Makes and finds the keys.
pub struct AutomationKeys {
    keys: Arc<dyn ApiKeyRepository>,
    users: Arc<dyn UserRepository>,
    organizations: Arc<dyn OrganizationRepository>,
    administration: Arc<dyn AdministrationRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    /// The keys for requests, with the times when they were made.
    of_requests: Mutex<HashMap<OwnerId, (SecretString, Timestamp)>>,
    /// Users by the ids of their personal organizations, as far as they were looked up.
    names: Mutex<HashMap<OrganizationId, UserId>>,
}

impl AutomationKeys {
    pub(crate) fn new(ports: &Ports) -> Self {
        Self {
            keys: Arc::clone(&ports.api_keys),
            users: Arc::clone(&ports.users),
            organizations: Arc::clone(&ports.organizations),
            administration: Arc::clone(&ports.administration),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            of_requests: Mutex::default(),
            names: Mutex::default(),
        }
    }

    /// The user whose key this is; `None` for other keys. Not cached, so that a revoked key ends at once.
    pub async fn user(&self, key: &str) -> Result<Option<AuthenticatedUser>, AppError> {
        if !looks_like_key(key) {
            return Ok(None);
        }
        let found = self.keys.find_by_hash(&KeyHash::of(key)).await?;
        let now = self.clock.now();
        let found = found.filter(|it| it.key.is_automation && !it.key.is_expired(now));
        Ok(found.as_ref().and_then(AuthenticatedUser::from_key))
    }

    /// A key for a request that this user sends to the automations service.
    pub async fn for_request(&self, caller: &AuthenticatedUser) -> Result<SecretString, AppError> {
        let now = self.clock.now();
        let reusable =
            |(_, made_at): &&(SecretString, Timestamp)| now.since(*made_at) < REQUEST_KEY_REUSE;
        let known = lock(&self.of_requests)
            .get(&caller.owner)
            .filter(reusable)
            .cloned();
        if let Some((key, _)) = known {
            return Ok(key);
        }
        // The local user of an open service may not exist yet.
        let key = self
            .issue(&caller.owner, REQUEST_KEY_TTL, Some(caller.role))
            .await?;
        let mut kept = lock(&self.of_requests);
        if kept.len() >= MAX_REQUEST_KEYS {
            kept.clear();
        }
        kept.insert(caller.owner.clone(), (key.clone(), now));
        Ok(key)
    }

    /// A key for a run of this user in this organization. Not found: there is no such user who can sign in, or the user is no
    /// member.
    pub async fn for_run(
        &self,
        user: OrganizationId,
        organization: OrganizationId,
    ) -> Result<SecretString, AppError> {
        let missing = || AppError::not_found("There is no such member of this organization");
        let name = self.name_of(user).await?.ok_or_else(missing)?;
        let found = self.users.find(&name).await?;
        let is_active = found.is_some_and(|user| user.is_active());
        let is_member = organization == user
            || self
                .organizations
                .membership(organization, &name)
                .await?
                .is_some();
        if !is_active || !is_member {
            return Err(missing());
        }
        self.issue(&OwnerId::new(&name, organization), RUN_KEY_TTL, None)
            .await
    }

    /// `new_user`: the role with which the user is created if there is none.
    async fn issue(
        &self,
        owner: &OwnerId,
        ttl: Duration,
        new_user: Option<Role>,
    ) -> Result<SecretString, AppError> {
        let (ids, now) = (self.ids.as_ref(), self.clock.now());
        let origin = Origin::service("automation key");
        let options = KeyOptions {
            name: Some("automations".to_owned()),
            expires_in: Some(ttl),
            organization: owner.shared_organization(),
            is_automation: true,
        };
        let issued = new_key(ids, now, &owner.user(), &options, &origin.actor);
        let change = AdminChange::CreateKey {
            key: issued.key,
            new_user,
        };
        administer(self.administration.as_ref(), &origin, ids, now, &change).await?;
        Ok(issued.text)
    }

    /// The user with this personal organization. Its id is a hash of the name, so the users are searched once.
    async fn name_of(&self, personal: OrganizationId) -> Result<Option<UserId>, AppError> {
        if let Some(name) = lock(&self.names).get(&personal) {
            return Ok(Some(name.clone()));
        }
        let mut after: Option<UserId> = None;
        loop {
            let page = self.users.list(after.as_ref(), USER_PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(None);
            };
            after = Some(last.id.clone());
            let found = page.into_iter().map(|user| user.id);
            let found = found.map(|name| (OrganizationId::personal(&name), name));
            if let Some((id, name)) = found.into_iter().find(|(id, _)| *id == personal) {
                lock(&self.names).insert(id, name.clone());
                return Ok(Some(name));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
