//! `SettingsRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::error::StoreError;
use domain::id::UserId;
use domain::user::settings::{Revision, SettingsRepository, StoredSettings};

use crate::MemoryStore;

#[async_trait]
impl SettingsRepository for MemoryStore {
    async fn load(&self, owner: &UserId) -> Result<Option<StoredSettings>, StoreError> {
        Ok(self.lock().settings.get(owner).cloned())
    }

    async fn save(
        &self,
        owner: &UserId,
        document: &Sealed,
        expected: Option<Revision>,
        at: Timestamp,
    ) -> Result<Revision, StoreError> {
        let mut state = self.lock();
        state.check_not_deleted(owner)?;
        let stored = state.settings.get(owner).map(|it| it.revision);
        if stored != expected {
            return Err(StoreError::Stale { entity: "settings" });
        }
        let revision = Revision(stored.map_or(1, |revision| revision.0 + 1));
        let row = StoredSettings {
            document: document.clone(),
            revision,
            updated_at: at,
        };
        state.settings.insert(owner.clone(), row);
        Ok(revision)
    }
}
