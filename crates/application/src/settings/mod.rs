//! Settings of users: one sealed document per user, and the rules of its changes.
//!
//! Knows: the meaning of fields, how requests of both APIs are merged, what a start needs. Must never know: HTTP
//! bodies, where documents are stored, how they are sealed.
//!
//! # One document for two APIs
//!
//! The V1 documents (`agent_settings`, `conversation_settings`) are stored sparsely, over embedded defaults. The
//! legacy fields `llm_model`, `llm_base_url`, `llm_api_key`, `agent`, `max_iterations`, `confirmation_mode`,
//! `security_analyzer` and `enable_default_condenser` are views of them: null in a legacy response while never set.
//!
//! # Saving
//!
//! A change reads a revision, applies itself and saves against that revision, and retries if another change was
//! faster. Changes of one user queue up inside this process, so that a burst of requests does not exhaust its retries,
//! and leave gaps for other replicas (`update_queues.rs`).

mod document;
mod fields;
mod git_providers;
mod issues;
mod launch;
mod legacy;
mod llm;
pub(crate) mod marketplaces;
mod mcp;
mod model;
mod profiles;
mod update_queues;
mod v1;
mod view_cache;

use std::sync::Arc;
use std::time::Duration;

use domain::clock::Clock;
use domain::encryption::cipher::{Cipher, Sealed};
use domain::error::{ErrorClass, StoreError};
use domain::git::GitHosting;
use domain::id::UserId;
use domain::user::settings::{Revision, SettingsRepository, StoredSettings};
use secrecy::ExposeSecret;

use crate::error::AppError;

pub use git_providers::{GitProvidersInput, TokenInput, TokenRefusal};
pub use issues::{Issue, IssueKind};
pub use launch::{LaunchProfile, MissingSettings, token_name};
pub use legacy::LegacySettings;
pub use llm::llm_endpoint;
pub use mcp::{McpConfig, McpRemote, McpStdio, has_credentials};
pub use model::{
    AgentDocument, GROUPINGS, LLM_API_KEY, MASK, ProviderToken, SecretInput, Settings,
};
pub use profiles::{MAX_PROFILES_PER_USER, Profile, ProfileRefusal, Profiles, SaveProfile};
pub use v1::{SecretVisibility, V1Refusal, agent_schema, conversation_schema};
pub use view_cache::ViewCache;

/// How long a change waits and retries. Each failure means that another save succeeded, so this only ends under a
/// steady stream of saves for one user.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(20);

/// Longest stored document.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

/// Why a change was not stored.
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
    update_queues: update_queues::UpdateQueues,
    /// Verifies new git tokens before they are stored; `None` stores them unverified.
    verifier: Option<Arc<dyn GitHosting>>,
}

impl SettingsService {
    /// Uses these ports.
    pub fn new(
        store: Arc<dyn SettingsRepository>,
        cipher: Arc<dyn Cipher>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            cipher,
            clock,
            update_queues: update_queues::UpdateQueues::default(),
            verifier: None,
        }
    }

    /// Verifies git tokens with their provider before they are stored.
    #[must_use]
    pub fn verifying(mut self, providers: Arc<dyn GitHosting>) -> Self {
        self.verifier = Some(providers);
        self
    }

    /// The settings of a user; `None` before the first save. A document that does not open is `Corrupt`.
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
        let settings = self.open(owner, &stored.document)?;
        Ok(Some((settings, stored.revision)))
    }

    fn open(&self, owner: &UserId, document: &Sealed) -> Result<Settings, AppError> {
        let text = self
            .cipher
            .open(&StoredSettings::context(owner), document)?;
        let settings = document::decode(&text).map_err(|_| StoreError::Corrupt {
            entity: "settings",
            what: "the opened document is not a JSON object".to_owned(),
        })?;
        Ok(settings)
    }

    /// Changes the settings of a user (the defaults before the first save) and returns the stored ones. `change` may
    /// run several times.
    pub async fn update<E, F>(
        &self,
        owner: &UserId,
        mut change: F,
    ) -> Result<Settings, UpdateError<E>>
    where
        F: FnMut(Settings) -> Result<Settings, E> + Send,
        E: Send,
    {
        let stored = self.update_if(owner, |found| change(found.unwrap_or_default()).map(Some));
        Ok(stored.await?.unwrap_or_default())
    }

    /// The same; `change` also sees whether settings exist, and may leave them unchanged (`None`). Returns what was
    /// stored.
    async fn update_if<E, F>(
        &self,
        owner: &UserId,
        change: F,
    ) -> Result<Option<Settings>, UpdateError<E>>
    where
        F: FnMut(Option<Settings>) -> Result<Option<Settings>, E> + Send,
        E: Send,
    {
        let ended = tokio::time::timeout(UPDATE_TIMEOUT, self.change_in_turn(owner, change)).await;
        ended.unwrap_or_else(|_| Err(too_many_updates().into()))
    }

    async fn change_in_turn<E, F>(
        &self,
        owner: &UserId,
        mut change: F,
    ) -> Result<Option<Settings>, UpdateError<E>>
    where
        F: FnMut(Option<Settings>) -> Result<Option<Settings>, E> + Send,
        E: Send,
    {
        let turn = self.update_queues.acquire(owner).await;
        let mut turn = turn.map_err(|update_queues::QueueFull| too_many_updates())?;
        loop {
            let (before, revision) = self.load_revision(owner).await?.unzip();
            let Some(after) = change(before).map_err(UpdateError::Refused)? else {
                return Ok(None);
            };
            match self.save(owner, &after, revision).await {
                Ok(()) => return Ok(Some(after)),
                Err(AppError::Store(StoreError::Stale { .. } | StoreError::Conflict { .. })) => {
                    turn.back_off().await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn save(
        &self,
        owner: &UserId,
        settings: &Settings,
        expected: Option<Revision>,
    ) -> Result<(), AppError> {
        let text = document::encode(settings);
        if text.expose_secret().len() > MAX_DOCUMENT_BYTES {
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

    /// What a start needs from the user's settings. `model_override` is the model of the start request. If a setting
    /// is missing, the error (class `Invalid`) names it: see [`MissingSettings`].
    pub async fn launch_profile(
        &self,
        owner: &UserId,
        model_override: Option<&str>,
    ) -> Result<LaunchProfile, AppError> {
        let settings = self.load(owner).await?.unwrap_or_default();
        launch::profile(&settings, model_override).map_err(|needs| AppError::invalid(needs.0))
    }
}

fn too_many_updates() -> AppError {
    AppError::refused(
        ErrorClass::Unavailable,
        "Your settings are being changed from several places at once. Try again.",
    )
}

#[cfg(test)]
mod tests;
