//! Secrets of users, and the access of running sandboxes to them.
//!
//! Knows: names, limits, who may read a value. Must never know: HTTP, where secrets are stored, how they are sealed.
//!
//! * Values only leave to a running sandbox of their owner ([`SecretsService::reveal`]).
//! * Every write is one transaction that does not depend on an earlier read, so parallel writers lose nothing.

mod placeholders;
mod sandbox_access;
mod validation;

use std::sync::Arc;

use domain::clock::Clock;
use domain::encryption::cipher::Cipher;
use domain::encryption::vault::Fingerprints;
use domain::error::{ErrorClass, StoreError};
use domain::git::CloneSourceResolver;
use domain::id::{IdGenerator, OwnerId, SecretId};
use domain::page::{Page, PageRequest};
use domain::secret_rule::SecretRules;
use domain::user::secret::{
    CustomSecret, SecretChange, SecretRepository, SecretSummary, SecretValue,
};
use domain::user::usage::Quota;
use secrecy::SecretString;
use url::Url;

use crate::quotas::Quotas;
use crate::sandboxes::SandboxTokens;
use crate::settings::SettingsService;
use crate::{AppError, Policy, Ports, SecretExposure, SecretForm};

pub use placeholders::BoundSecret;
pub(crate) use sandbox_access::ProviderTokens;
pub use sandbox_access::{SecretInfo, may_read_secrets};
pub(crate) use validation::{MAX_SECRET_VALUE_BYTES, is_reserved};
pub use validation::{check_description, check_hosts, check_name, check_value};

const EXPOSED_WITH_HOSTS: &str =
    "A secret with hosts is not exposed: leave out `hosts`, or `exposed`";
const HIDDEN_WITHOUT_HOSTS: &str =
    "A secret that is not exposed needs `hosts`: the service sends its value to them only";
const NOT_CHOSEN: &str =
    "Name the `hosts` that get the value, or set `exposed` to true: then agents can read it";

/// What a new secret uses of the quotas.
const ONE_SECRET: [(Quota, u64); 1] = [(Quota::Secrets, 1)];

#[derive(Debug, Clone)]
pub struct NewSecret {
    /// Name, see [`check_name`].
    pub name: String,
    /// Value, see [`check_value`].
    pub value: SecretString,
    /// Description; `None` keeps the stored one, or is empty.
    pub description: Option<String>,
    /// The hosts to which the service sends the value, see [`check_hosts`]; `None` keeps the stored ones, or is none.
    pub hosts: Option<SecretRules>,
    /// Whether agents get the value, which they do without hosts. `None`: as the hosts say.
    pub exposed: Option<bool>,
}

#[derive(Debug, Clone)]
pub struct SecretUpdate {
    pub name: String,
    pub description: String,
    /// See [`NewSecret::hosts`]; `None` keeps the stored ones.
    pub hosts: Option<SecretRules>,
    /// See [`NewSecret::exposed`].
    pub exposed: Option<bool>,
    /// The new value; `None` keeps the stored one.
    pub value: Option<SecretString>,
}

#[derive(Clone)]
pub struct SecretsService {
    secrets: Arc<dyn SecretRepository>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    quotas: Quotas,
    settings: SettingsService,
    tokens: SandboxTokens,
    sources: Arc<dyn CloneSourceResolver>,
    fingerprints: Arc<dyn Fingerprints>,
    /// What sandboxes with a proxy get.
    form: SecretForm,
    /// Whether they get tokens of git hosts.
    shows_git_tokens: bool,
    exposure: SecretExposure,
    /// `…/api/v1/`, as sandboxes reach the service.
    base: Url,
}

impl SecretsService {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        quotas: Quotas,
        settings: SettingsService,
        tokens: SandboxTokens,
    ) -> Self {
        Self {
            secrets: Arc::clone(&ports.secrets),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            quotas,
            settings,
            tokens,
            sources: Arc::clone(&ports.clone_sources),
            fingerprints: Arc::clone(&ports.fingerprints),
            form: policy.secrets_in_sandboxes,
            shows_git_tokens: !policy.git.is_limited(),
            exposure: policy.secret_exposure,
            base: sandbox_access::base_of(&policy.webhook_url),
        }
    }

    /// Lists a page of secrets by name whose names contain the text, in any case.
    pub async fn search(
        &self,
        owner: &OwnerId,
        name_contains: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<SecretSummary>, AppError> {
        let found = self.secrets.search(owner, name_contains, page);
        Ok(found.await?)
    }

    /// Lists all secrets, oldest first.
    pub async fn list(&self, owner: &OwnerId) -> Result<Vec<SecretSummary>, AppError> {
        Ok(self.secrets.all(owner).await?)
    }

    /// Stores a secret. An existing one of this name gets the value, and the description if there is one. Returns
    /// whether it is new.
    pub async fn put(&self, owner: &OwnerId, input: &NewSecret) -> Result<bool, AppError> {
        let wanted = (input.hosts.as_ref(), input.exposed);
        let hosts = self.hosts_to_store(owner, &input.name, wanted).await?;
        let secret = self.sealed(owner, input, hosts.clone())?;
        let change = SecretChange {
            name: None,
            description: input.description.clone(),
            hosts,
            value: Some(secret.value.clone()),
        };
        if let Err(refusal) = self.check_quota(owner).await
            && self.secrets.find(owner, &input.name).await?.is_none()
        {
            return Err(refusal);
        }
        let is_new = self.secrets.put(&secret, &change).await?;
        if is_new {
            self.quotas.add_usage(owner, &ONE_SECRET);
        }
        Ok(is_new)
    }

    /// Creates a secret; `Invalid` if the name is taken.
    pub async fn create(&self, owner: &OwnerId, input: &NewSecret) -> Result<(), AppError> {
        let wanted = (input.hosts.as_ref(), input.exposed);
        let hosts = self.hosts_to_store(owner, &input.name, wanted).await?;
        let secret = self.sealed(owner, input, hosts)?;
        self.check_quota(owner).await?;
        let stored = self.secrets.insert(&secret).await;
        stored.map_err(|error| taken(error, &input.name))?;
        self.quotas.add_usage(owner, &ONE_SECRET);
        Ok(())
    }

    async fn check_quota(&self, owner: &OwnerId) -> Result<(), AppError> {
        self.quotas.check(owner, &ONE_SECRET).await
    }

    /// Changes a secret. `NotFound` if it does not exist, `Invalid` if the new name is taken.
    pub async fn update(
        &self,
        owner: &OwnerId,
        name: &str,
        input: &SecretUpdate,
    ) -> Result<(), AppError> {
        check(check_name(&input.name))?;
        check(check_description(&input.description))?;
        let value = input.value.as_ref();
        let value = value.map(|value| self.seal(owner, value)).transpose()?;
        let wanted = (input.hosts.as_ref(), input.exposed);
        let change = SecretChange {
            name: Some(input.name.clone()),
            description: Some(input.description.clone()),
            hosts: self.hosts_to_store(owner, name, wanted).await?,
            value,
        };
        let now = self.clock.now();
        let changed = self.secrets.change(owner, name, &change, now).await;
        if changed.map_err(|error| taken(error, &input.name))? {
            Ok(())
        } else {
            Err(missing(name))
        }
    }

    /// Deletes a secret; `NotFound` if it does not exist.
    pub async fn delete(&self, owner: &OwnerId, name: &str) -> Result<(), AppError> {
        if self.secrets.delete(owner, name).await? {
            Ok(())
        } else {
            Err(missing(name))
        }
    }

    /// The hosts of a secret of this name; `None` keeps the stored ones. Refuses what contradicts `exposed`, and without it
    /// a secret that no one chose to expose, where the operator asks for that choice.
    async fn hosts_to_store(
        &self,
        owner: &OwnerId,
        name: &str,
        (hosts, exposed): (Option<&SecretRules>, Option<bool>),
    ) -> Result<Option<SecretRules>, AppError> {
        let hosts = match (hosts, exposed) {
            (None, Some(true)) => Some(SecretRules::default()),
            (hosts, _) => hosts.cloned(),
        };
        if exposed.is_none() && self.exposure == SecretExposure::WithoutHosts {
            return Ok(hosts);
        }
        let stored = match hosts {
            Some(_) => None,
            None => self.secrets.find(owner, name).await?,
        };
        let keeps_value_inside = stored.as_ref().is_some_and(|it| it.hosts.is_empty());
        let in_force = hosts.as_ref().or(stored.as_ref().map(|it| &it.hosts));
        let refusal = match (in_force.is_none_or(SecretRules::is_empty), exposed) {
            (false, Some(true)) => EXPOSED_WITH_HOSTS,
            (true, Some(false)) => HIDDEN_WITHOUT_HOSTS,
            (true, None) if !keeps_value_inside => NOT_CHOSEN,
            _ => return Ok(hosts),
        };
        Err(AppError::refused(ErrorClass::Unprocessable, refusal))
    }

    fn sealed(
        &self,
        owner: &OwnerId,
        input: &NewSecret,
        hosts: Option<SecretRules>,
    ) -> Result<CustomSecret, AppError> {
        check(check_name(&input.name))?;
        check(check_description(
            input.description.as_deref().unwrap_or(""),
        ))?;
        let now = self.clock.now();
        Ok(CustomSecret {
            owner: owner.clone(),
            name: input.name.clone(),
            description: input.description.clone().unwrap_or_default(),
            hosts: hosts.unwrap_or_default(),
            value: self.seal(owner, &input.value)?,
            created_at: now,
            updated_at: now,
        })
    }

    fn seal(&self, owner: &OwnerId, value: &SecretString) -> Result<SecretValue, AppError> {
        check(check_value(value))?;
        let id = SecretId::new(self.ids.uuid());
        let context = SecretValue::context(owner, id);
        Ok(SecretValue {
            id,
            sealed: self.cipher.seal(&context, value)?,
        })
    }

    /// Whether the sealed value is empty, judged by its length. That needs no key, so a value that does not open
    /// (damaged, or under a missing key) is treated like others until it is requested.
    fn is_empty(&self, owner: &OwnerId, secret: &SecretSummary) -> Result<bool, AppError> {
        let context = SecretValue::context(owner, SecretId::new(uuid::Uuid::nil()));
        let empty = self.cipher.seal(&context, &SecretString::default())?;
        Ok(secret.sealed_length <= empty.as_text().len())
    }

    fn open(&self, secret: &CustomSecret) -> Result<SecretString, AppError> {
        let value = &secret.value;
        let context = SecretValue::context(&secret.owner, value.id);
        Ok(self.cipher.open(&context, &value.sealed)?)
    }
}

fn check(checked: Result<(), String>) -> Result<(), AppError> {
    checked.map_err(|why| AppError::refused(ErrorClass::Unprocessable, why))
}

fn missing(name: &str) -> AppError {
    AppError::not_found(format!("Secret with ID {name} not found"))
}

/// A taken name is an error of the client and not a race: 400 on the wire.
fn taken(error: StoreError, name: &str) -> AppError {
    match error {
        StoreError::Conflict { .. } => AppError::invalid(format!("Secret {name} already exists")),
        other => other.into(),
    }
}
