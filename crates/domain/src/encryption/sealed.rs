//! All sealed values of a store, for the rotation of the master key.

use async_trait::async_trait;

use crate::encryption::cipher::Sealed;
use crate::error::StoreError;
use crate::id::{OwnerId, SandboxId, SecretId, StartTaskId};
use crate::sandbox::Sandbox;
use crate::start_task::StartTask;
use crate::user::secret::SecretValue;
use crate::user::settings::{SettingsOwner, StoredSettings};
use crate::wire_enum::wire_enum;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SealedLocation {
    Settings(SettingsOwner),
    /// A user's secret, by the id of its value.
    Secret(OwnerId, SecretId),
    SessionKey(SandboxId),
    /// The encryption key of a sandbox's agent server.
    SecretKey(SandboxId),
    /// The future session key of a warm sandbox.
    WarmSessionKey(SandboxId),
    /// The encryption key of a warm sandbox's agent server.
    WarmSecretKey(SandboxId),
    /// The secrets of an unfinished start task.
    StartSecrets(StartTaskId),
}

impl SealedLocation {
    pub fn context(&self) -> String {
        match self {
            Self::Settings(owner) => StoredSettings::context(owner),
            Self::Secret(owner, id) => SecretValue::context(owner, *id),
            Self::SessionKey(id)
            | Self::SecretKey(id)
            | Self::WarmSessionKey(id)
            | Self::WarmSecretKey(id) => Sandbox::key_context(id),
            Self::StartSecrets(id) => StartTask::secrets_context(*id),
        }
    }
}

wire_enum! {
    /// The kinds of [`SealedLocation`], with their names for users. Warm sandboxes come before sandboxes, because their
    /// keys move in that direction.
    SealedKind {
        Settings = "settings",
        Secrets = "secrets of users",
        WarmSessionKeys = "session keys of warm sandboxes",
        WarmSecretKeys = "agent server keys of warm sandboxes",
        SessionKeys = "session keys of sandboxes",
        SecretKeys = "agent server keys of sandboxes",
        StartSecrets = "secrets of unfinished starts",
    }
}

/// A sealed value as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedRecord {
    pub location: SealedLocation,
    pub sealed: Sealed,
}

/// A secret that was sealed again with another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResealedRecord {
    pub location: SealedLocation,
    /// The expected stored value.
    pub before: Sealed,
    pub after: Sealed,
}

/// All sealed values of a store except those of the [vault](crate::encryption::vault).
#[async_trait]
pub trait SealedRecordRepository: Send + Sync + 'static {
    /// At most `limit` values of this kind after `after` (a location of the same kind, which may be gone), ordered by
    /// ids that never change. Fewer than `limit` means that there are no more.
    async fn page(
        &self,
        kind: SealedKind,
        after: Option<&SealedLocation>,
        limit: usize,
    ) -> Result<Vec<SealedRecord>, StoreError>;
    /// Replaces each value that is still stored, in one transaction; returns how many. Revisions and times of change
    /// stay, because the secret is the same. A concurrent save is never lost: it either replaces the new value or
    /// prevents the replacement.
    async fn replace(&self, batch: &[ResealedRecord]) -> Result<u64, StoreError>;
}
