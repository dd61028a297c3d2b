//! Everything that is sealed in a store, for the rotation of the master key.

use async_trait::async_trait;

use crate::cipher::Sealed;
use crate::error::StoreError;
use crate::id::{SandboxId, SecretId, StartTaskId, UserId};
use crate::sandbox::Sandbox;
use crate::secret::SecretValue;
use crate::settings::StoredSettings;
use crate::start_task::StartTask;

/// Where a sealed value is stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SealedLocation {
    /// A user's settings.
    Settings(UserId),
    /// A user's secret, by the id of its value.
    Secret(UserId, SecretId),
    /// The key of a sandbox.
    SessionKey(SandboxId),
    /// The key that a sandbox's agent server encrypts with.
    SecretKey(SandboxId),
    /// The key that a warm sandbox will have.
    WarmSessionKey(SandboxId),
    /// The key that a warm sandbox's agent server encrypts with.
    WarmSecretKey(SandboxId),
    /// The secrets of a start that is under way.
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
    /// Settings.
    Settings,
    /// Custom secrets.
    Secrets,
    /// Keys of warm sandboxes.
    WarmSessionKeys,
    /// Keys of their agent servers.
    WarmSecretKeys,
    /// Keys of sandboxes.
    SessionKeys,
    /// Keys of agent servers.
    SecretKeys,
    /// Secrets of starts.
    StartSecrets,
}

impl SealedKind {
    /// All of them. Warm sandboxes come before sandboxes, because that is the way in which their keys go.
    pub const ALL: [Self; 7] = [
        Self::Settings,
        Self::Secrets,
        Self::WarmSessionKeys,
        Self::WarmSecretKeys,
        Self::SessionKeys,
        Self::SecretKeys,
        Self::StartSecrets,
    ];

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Settings => "settings of users",
            Self::Secrets => "secrets of users",
            Self::WarmSessionKeys => "keys of warm sandboxes",
            Self::WarmSecretKeys => "keys of their agent servers",
            Self::SessionKeys => "keys of sandboxes",
            Self::SecretKeys => "keys of agent servers",
            Self::StartSecrets => "secrets of starts under way",
        }
    }
}

/// A sealed value as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedRecord {
    /// Where.
    pub location: SealedLocation,
    /// The value.
    pub sealed: Sealed,
}

/// The same secret, sealed anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResealedRecord {
    /// Where.
    pub location: SealedLocation,
    /// What must be stored still.
    pub before: Sealed,
    /// What is to be stored.
    pub after: Sealed,
}

/// All sealed values of a store but the [vault's](crate::vault).
#[async_trait]
pub trait SealedRecordRepository: Send + Sync + 'static {
    /// Values of this kind in an order that no change of a record changes (by id), those behind `after` (a place of the
    /// same kind, which may be gone), at most `limit`. Fewer than `limit` means that there are no more.
    async fn page(
        &self,
        kind: SealedKind,
        after: Option<&SealedLocation>,
        limit: usize,
    ) -> Result<Vec<SealedRecord>, StoreError>;
    /// Puts each new value in place of the old one where that is stored still, in one transaction; how many. Revisions and
    /// times of change stay: what the record says is the same. So a saver who read before and saves after loses nothing,
    /// and neither does one who saved in between.
    async fn replace(&self, batch: &[ResealedRecord]) -> Result<u64, StoreError>;
}
