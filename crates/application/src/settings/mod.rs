//! Settings of users: one sealed document each, and the rules by which requests change it.
//!
//! Knows: what the fields mean, how requests of either API are merged, what a start needs. Must never know: HTTP bodies,
//! where documents are stored, how they are sealed.
//!
//! # One truth for two APIs
//!
//! The V1 documents (`agent_settings`, `conversation_settings`) are stored sparsely, over defaults that are embedded
//! here. The legacy fields `llm_model`, `llm_base_url`, `llm_api_key`, `agent`, `max_iterations`, `confirmation_mode`,
//! `security_analyzer` and `enable_default_condenser` are views on them: null in a legacy answer while never set.
//!
//! # Saving
//!
//! A change is read, applied and saved against the revision that was read, again if somebody else was faster. Changes
//! of one user queue up inside this process, so that a burst of requests does not retry itself to death; other
//! replicas are kept apart by the revision alone.

mod document;
mod fields;
mod launch;
mod legacy;
mod llm;
mod marketplaces;
mod mcp;
mod model;
mod providers;
mod refusal;
mod v1;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use domain::cipher::Cipher;
use domain::clock::Clock;
use domain::error::{ErrorClass, StoreError};
use domain::id::UserId;
use domain::settings::{Revision, SettingsRepository, StoredSettings};
use secrecy::ExposeSecret;
use tokio::sync::Mutex;

use crate::error::AppError;

pub use launch::{LaunchProfile, NeedsSettings, token_name};
pub use legacy::LegacySettings;
pub use mcp::{McpConfig, McpRemote, McpStdio, has_credentials};
pub use model::{
    AgentDocument, GROUPINGS, LLM_API_KEY, MASK, ProviderToken, SecretInput, Settings,
};
pub use providers::{GitProvidersInput, TokenInput};
pub use refusal::{Issue, IssueKind};
pub use v1::{Reveal, V1Refusal, agent_schema, conversation_schema};

/// Queues for changes. Users that share one only wait for each other.
const QUEUES: usize = 64;

/// How often a change is tried again after another replica was faster. Each failure means that somebody else's save
/// went through, so this only ends under a steady stream of saves for one user from elsewhere.
const ATTEMPTS: usize = 16;

/// Bytes of a stored document.
const MAX_DOCUMENT: usize = 1024 * 1024;

/// Why a change was not made: refused by the change itself, or it could not be stored.
#[derive(Debug)]
pub enum UpdateError<E> {
    /// The change refused. Nothing was stored.
    Refused(E),
    /// The store or the cipher failed.
    Failed(AppError),
}

impl<E> From<AppError> for UpdateError<E> {
    fn from(error: AppError) -> Self {
        Self::Failed(error)
    }
}

/// Loads and changes settings.
#[derive(Clone)]
pub struct SettingsService {
    store: Arc<dyn SettingsRepository>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    queues: Arc<[Mutex<()>]>,
}

impl SettingsService {
    /// Over these ports.
    pub fn new(
        store: Arc<dyn SettingsRepository>,
        cipher: Arc<dyn Cipher>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let queues = (0..QUEUES).map(|_| Mutex::new(())).collect();
        Self {
            store,
            cipher,
            clock,
            queues,
        }
    }

    /// The settings of a user; `None` before anything was stored. A document that does not open is `Corrupt`.
    pub async fn load(&self, owner: &UserId) -> Result<Option<Settings>, AppError> {
        Ok(self
            .load_revision(owner)
            .await?
            .map(|(settings, _)| settings))
    }

    async fn load_revision(
        &self,
        owner: &UserId,
    ) -> Result<Option<(Settings, Revision)>, AppError> {
        let Some(stored) = self.store.load(owner).await? else {
            return Ok(None);
        };
        let text = self
            .cipher
            .open(&StoredSettings::context(owner), &stored.document)?;
        let settings = document::decode(&text).map_err(|_| StoreError::Corrupt {
            entity: "settings",
            what: "the opened document is not a JSON object".to_owned(),
        })?;
        Ok(Some((settings, stored.revision)))
    }

    /// Changes the settings of a user (starting from the defaults if there are none) and returns what was stored.
    /// `change` may run several times.
    pub async fn update<E, F>(
        &self,
        owner: &UserId,
        mut change: F,
    ) -> Result<Settings, UpdateError<E>>
    where
        F: FnMut(Settings) -> Result<Settings, E> + Send,
        E: Send,
    {
        let _turn = self.queue(owner).lock().await;
        for _ in 0..ATTEMPTS {
            let (before, revision) = match self.load_revision(owner).await? {
                Some((settings, revision)) => (settings, Some(revision)),
                None => (Settings::default(), None),
            };
            let after = change(before).map_err(UpdateError::Refused)?;
            match self.save(owner, &after, revision).await {
                Ok(()) => return Ok(after),
                Err(AppError::Store(StoreError::Stale { .. } | StoreError::Conflict { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(AppError::refused(
            ErrorClass::Unavailable,
            "Your settings are being changed from several places at once. Try again.",
        )
        .into())
    }

    async fn save(
        &self,
        owner: &UserId,
        settings: &Settings,
        expected: Option<Revision>,
    ) -> Result<(), AppError> {
        let text = document::encode(settings);
        if text.expose_secret().len() > MAX_DOCUMENT {
            return Err(AppError::refused(
                ErrorClass::TooLarge,
                "The settings are too large.",
            ));
        }
        let sealed = self.cipher.seal(&StoredSettings::context(owner), &text)?;
        self.store
            .save(owner, &sealed, expected, self.clock.now())
            .await?;
        Ok(())
    }

    fn queue(&self, owner: &UserId) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        let slot = hasher.finish() % QUEUES as u64;
        &self.queues[usize::try_from(slot).unwrap_or(0)]
    }

    /// What a start needs from the user's settings. `model_override` is the model that the start request names. If the
    /// settings do not suffice, the error (class `Invalid`) says which one to set: see [`NeedsSettings`].
    pub async fn launch_profile(
        &self,
        owner: &UserId,
        model_override: Option<&str>,
    ) -> Result<LaunchProfile, AppError> {
        let settings = self.load(owner).await?.unwrap_or_default();
        launch::profile(&settings, model_override).map_err(|needs| AppError::invalid(needs.0))
    }
}

#[cfg(test)]
mod tests;
