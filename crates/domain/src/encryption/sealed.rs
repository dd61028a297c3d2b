//! All sealed values of a store, for the rotation of the master key.

use async_trait::async_trait;

use crate::encryption::cipher::Sealed;
use crate::error::StoreError;
use crate::id::{SandboxId, SecretId, StartTaskId, UserId};
use crate::sandbox::Sandbox;
use crate::start_task::StartTask;
use crate::user::secret::SecretValue;
use crate::user::settings::StoredSettings;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SealedLocation {
    Settings(UserId),
    /// A user's secret, by the id of its value.
    Secret(UserId, SecretId),
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
    /// Associated data of the value.
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

/// The kinds of [`SealedLocation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SealedKind {
    Settings,
    Secrets,
    /// Keys of warm sandboxes.
    WarmSessionKeys,
    /// Keys of their agent servers.
    WarmSecretKeys,
    /// Keys of sandboxes.
    SessionKeys,
    /// Keys of agent servers.
    SecretKeys,
    StartSecrets,
}

impl SealedKind {
    /// All kinds. Warm sandboxes come before sandboxes, because their keys move in that direction.
    pub const ALL: [Self; 7] = [
        Self::Settings,
        Self::Secrets,
        Self::WarmSessionKeys,
        Self::WarmSecretKeys,
        Self::SessionKeys,
        Self::SecretKeys,
        Self::StartSecrets,
    ];

    /// The name of the kind for users.
    pub fn title(self) -> &'static str {
        match self {
            Self::Settings => "settings of users",
            Self::Secrets => "secrets of users",
            Self::WarmSessionKeys => "session keys of warm sandboxes",
            Self::WarmSecretKeys => "agent server keys of warm sandboxes",
            Self::SessionKeys => "session keys of sandboxes",
            Self::SecretKeys => "agent server keys of sandboxes",
            Self::StartSecrets => "secrets of unfinished starts",
        }
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
