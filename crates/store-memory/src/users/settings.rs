//! `SettingsRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::error::{Entity, StoreError};
use domain::user::settings::{Revision, SettingsOwner, SettingsRepository, StoredSettings};

use crate::MemoryStore;

#[async_trait]
impl SettingsRepository for MemoryStore {
    async fn load(&self, owner: &SettingsOwner) -> Result<Option<StoredSettings>, StoreError> {
        Ok(self.lock().settings.get(owner).cloned())
    }

    async fn save(
        &self,
        owner: &SettingsOwner,
        document: &Sealed,
        expected: Option<Revision>,
        at: Timestamp,
    ) -> Result<Revision, StoreError> {
        let mut state = self.lock();
        match owner {
            SettingsOwner::Member(owner) => state.check_active_owner(owner)?,
            SettingsOwner::Organization(id) if state.organization(*id).is_none() => {
                return Err(StoreError::NotFound {
                    entity: Entity::Organization,
                });
            }
            SettingsOwner::Organization(_) => {}
        }
        let stored = state.settings.get(owner).map(|it| it.revision);
        if stored != expected {
            return Err(StoreError::Stale {
                entity: Entity::Settings,
            });
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
