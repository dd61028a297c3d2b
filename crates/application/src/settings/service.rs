//! The service of settings: loads the sealed document, and saves changes of it against its revision.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use domain::clock::Clock;
use domain::encryption::cipher::{Cipher, Sealed};
use domain::error::{Entity, ErrorClass, StoreError};
use domain::git::GitHosting;
use domain::id::OwnerId;
use domain::user::settings::{Revision, SettingsOwner, SettingsRepository, StoredSettings};
use secrecy::ExposeSecret;

use super::document;
use super::launch::{self, LaunchProfile};
use super::model::Settings;
use super::update_queues::{QueueFull, UpdateQueues};
use crate::error::AppError;

/// How long a change waits and retries. Each failure means that another save succeeded, so this only ends under a
/// steady stream of saves for one user.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(20);

/// Longest stored document.
pub(super) const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

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

impl From<UpdateError<Self>> for AppError {
    fn from(error: UpdateError<Self>) -> Self {
        match error {
            UpdateError::Refused(error) | UpdateError::Failed(error) => error,
        }
    }
}

impl From<UpdateError<Infallible>> for AppError {
    fn from(error: UpdateError<Infallible>) -> Self {
        match error {
            UpdateError::Failed(error) => error,
            UpdateError::Refused(never) => match never {},
        }
    }
}

#[derive(Clone)]
pub struct SettingsService {
    pub(super) store: Arc<dyn SettingsRepository>,
    cipher: Arc<dyn Cipher>,
    pub(super) clock: Arc<dyn Clock>,
    update_queues: UpdateQueues,
    /// Verifies new git tokens before they are stored; `None` stores them unverified.
    pub(super) verifier: Option<Arc<dyn GitHosting>>,
}

impl SettingsService {
    pub fn new(
        store: Arc<dyn SettingsRepository>,
        cipher: Arc<dyn Cipher>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            cipher,
            clock,
            update_queues: UpdateQueues::default(),
            verifier: None,
        }
    }

    /// Verifies git tokens with their provider before they are stored.
    #[must_use]
    pub fn verifying(mut self, providers: Arc<dyn GitHosting>) -> Self {
        self.verifier = Some(providers);
        self
    }

    /// The settings of a user in force; `None` before the first save. A document that does not open is `Corrupt`.
    pub async fn load(&self, owner: &OwnerId) -> Result<Option<Settings>, AppError> {
        let documents = self.documents(owner).await?;
        documents
            .map(|documents| self.open_all(owner, &documents))
            .transpose()
    }

    async fn load_revision(
        &self,
        owner: &SettingsOwner,
    ) -> Result<Option<(Settings, Revision)>, AppError> {
        let Some(stored) = self.store.load(owner).await? else {
            return Ok(None);
        };
        let settings = self.open(owner, &stored.document)?;
        Ok(Some((settings, stored.revision)))
    }

    pub(super) fn open(
        &self,
        owner: &SettingsOwner,
        document: &Sealed,
    ) -> Result<Settings, AppError> {
        let text = self
            .cipher
            .open(&StoredSettings::context(owner), document)?;
        let settings = document::decode(&text).map_err(|_| StoreError::Corrupt {
            entity: Entity::Settings,
            what: "the opened document is not a JSON object".to_owned(),
        })?;
        Ok(settings)
    }

    /// Changes a user's own settings (the defaults before the first save) and returns the stored ones. `change` may run
    /// several times.
    pub async fn update<E, F>(
        &self,
        owner: &OwnerId,
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
    pub(super) async fn update_if<E, F>(
        &self,
        owner: &OwnerId,
        change: F,
    ) -> Result<Option<Settings>, UpdateError<E>>
    where
        F: FnMut(Option<Settings>) -> Result<Option<Settings>, E> + Send,
        E: Send,
    {
        self.update_document(&owner.into(), change).await
    }

    pub(super) async fn update_document<E, F>(
        &self,
        owner: &SettingsOwner,
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
        owner: &SettingsOwner,
        mut change: F,
    ) -> Result<Option<Settings>, UpdateError<E>>
    where
        F: FnMut(Option<Settings>) -> Result<Option<Settings>, E> + Send,
        E: Send,
    {
        let turn = self.update_queues.acquire(owner).await;
        let mut turn = turn.map_err(|QueueFull| too_many_updates())?;
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
        owner: &SettingsOwner,
        settings: &Settings,
        expected: Option<Revision>,
    ) -> Result<(), AppError> {
        let text = document::encode(settings);
        if text.expose_secret().len() > MAX_DOCUMENT_BYTES {
            return Err(AppError::refused(
                ErrorClass::TooLarge,
                format!(
                    "The settings are too large: at most {MAX_DOCUMENT_BYTES} bytes are stored."
                ),
            ));
        }
        let sealed = self.cipher.seal(&StoredSettings::context(owner), &text)?;
        self.store
            .save(owner, &sealed, expected, self.clock.now())
            .await?;
        Ok(())
    }

    /// What a start needs from the user's settings. `model_override` is the model of the start request. If a setting
    /// is missing, the error (class `Invalid`) names it: see [`MissingSettings`](super::MissingSettings).
    pub async fn launch_profile(
        &self,
        owner: &OwnerId,
        model_override: Option<&str>,
    ) -> Result<LaunchProfile, AppError> {
        let settings = self.load(owner).await?.unwrap_or_default();
        launch::profile(&settings, model_override).map_err(|needs| AppError::invalid(needs.0))
    }
}

fn too_many_updates() -> AppError {
    AppError::refused(
        ErrorClass::Unavailable,
        "Your settings are being changed by several requests at the same time. Try again.",
    )
}
