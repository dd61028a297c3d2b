//! `VaultRepository` and `SealedRecordRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::encryption::sealed::{
    ResealedRecord, SealedKind, SealedLocation, SealedRecord, SealedRecordRepository,
};
use domain::encryption::vault::{KeyHolder, VaultRepository};
use domain::error::{Entity, StoreError};

use crate::MemoryStore;
use crate::state::MemoryState;

#[async_trait]
impl VaultRepository for MemoryStore {
    async fn installation(&self) -> Result<Option<Sealed>, StoreError> {
        Ok(self.lock().vault.clone())
    }

    async fn create_installation(
        &self,
        sealed: &Sealed,
        _: Timestamp,
    ) -> Result<Sealed, StoreError> {
        let mut state = self.lock();
        Ok(state.vault.get_or_insert_with(|| sealed.clone()).clone())
    }

    async fn replace_installation(
        &self,
        before: &Sealed,
        after: &Sealed,
        _: Timestamp,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.vault.as_ref() != Some(before) {
            return Err(StoreError::Stale {
                entity: Entity::Vault,
            });
        }
        state.vault = Some(after.clone());
        Ok(())
    }

    async fn announce(&self, holder: &KeyHolder) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.key_holders.insert(holder.id.clone(), holder.clone());
        Ok(())
    }

    async fn withdraw(&self, holder: &str) -> Result<(), StoreError> {
        self.lock().key_holders.remove(holder);
        Ok(())
    }

    async fn list_holders(&self, since: Timestamp) -> Result<Vec<KeyHolder>, StoreError> {
        let state = self.lock();
        let holders = state.key_holders.values();
        Ok(holders.filter(|it| it.seen_at >= since).cloned().collect())
    }

    async fn prune_holders(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let outdated = state.key_holders.values().filter(|it| it.seen_at < before);
        let outdated: Vec<String> = outdated.map(|it| it.id.clone()).take(limit).collect();
        for id in &outdated {
            state.key_holders.remove(id);
        }
        Ok(outdated.len() as u64)
    }
}

/// All values of a kind, each with its sort key.
fn sealed(state: &MemoryState, kind: SealedKind) -> Vec<(String, SealedLocation, Sealed)> {
    match kind {
        SealedKind::Settings => state
            .settings
            .iter()
            .map(|(owner, it)| {
                let location = SealedLocation::Settings(owner.clone());
                (owner.to_string(), location, it.document.clone())
            })
            .collect(),
        SealedKind::Secrets => state
            .secrets
            .values()
            .map(|it| {
                let location = SealedLocation::Secret(it.owner.clone(), it.value.id);
                (it.value.id.to_string(), location, it.value.sealed.clone())
            })
            .collect(),
        SealedKind::WarmSessionKeys => state
            .warm
            .values()
            .map(|it| {
                let location = SealedLocation::WarmSessionKey(it.id.clone());
                (it.id.to_string(), location, it.session_key.clone())
            })
            .collect(),
        SealedKind::WarmSecretKeys => state
            .warm
            .values()
            .map(|it| {
                let location = SealedLocation::WarmSecretKey(it.id.clone());
                (it.id.to_string(), location, it.secret_key.clone())
            })
            .collect(),
        SealedKind::SessionKeys => state
            .sandboxes
            .values()
            .map(|it| {
                let location = SealedLocation::SessionKey(it.id.clone());
                (it.id.to_string(), location, it.session_key.clone())
            })
            .collect(),
        SealedKind::SecretKeys => state
            .sandboxes
            .values()
            .map(|it| {
                let location = SealedLocation::SecretKey(it.id.clone());
                (it.id.to_string(), location, it.secret_key.clone())
            })
            .collect(),
        SealedKind::StartSecrets => state
            .tasks
            .values()
            .filter_map(|row| {
                let location = SealedLocation::StartSecrets(row.task.id);
                let sealed = row.task.sealed_secrets.clone()?;
                Some((row.task.id.to_string(), location, sealed))
            })
            .collect(),
    }
}

fn sort_key(location: &SealedLocation) -> String {
    match location {
        SealedLocation::Settings(owner) => owner.to_string(),
        SealedLocation::Secret(_, id) => id.to_string(),
        SealedLocation::SessionKey(id)
        | SealedLocation::SecretKey(id)
        | SealedLocation::WarmSessionKey(id)
        | SealedLocation::WarmSecretKey(id) => id.to_string(),
        SealedLocation::StartSecrets(id) => id.to_string(),
    }
}

/// The stored value at this location, if it exists.
fn stored_value<'a>(
    state: &'a mut MemoryState,
    location: &SealedLocation,
) -> Option<&'a mut Sealed> {
    match location {
        SealedLocation::Settings(owner) => {
            let row = state.settings.get_mut(owner)?;
            Some(&mut row.document)
        }
        SealedLocation::Secret(owner, id) => {
            let mut all = state.secrets.values_mut();
            let row = all.find(|it| it.owner == *owner && it.value.id == *id)?;
            Some(&mut row.value.sealed)
        }
        SealedLocation::WarmSessionKey(id) => {
            let row = state.warm.get_mut(id)?;
            Some(&mut row.session_key)
        }
        SealedLocation::WarmSecretKey(id) => {
            let row = state.warm.get_mut(id)?;
            Some(&mut row.secret_key)
        }
        SealedLocation::SessionKey(id) => {
            let row = state.sandboxes.get_mut(id)?;
            Some(&mut row.session_key)
        }
        SealedLocation::SecretKey(id) => {
            let row = state.sandboxes.get_mut(id)?;
            Some(&mut row.secret_key)
        }
        SealedLocation::StartSecrets(id) => {
            let row = state.tasks.get_mut(id)?;
            row.task.sealed_secrets.as_mut()
        }
    }
}

#[async_trait]
impl SealedRecordRepository for MemoryStore {
    async fn page(
        &self,
        kind: SealedKind,
        after: Option<&SealedLocation>,
        limit: usize,
    ) -> Result<Vec<SealedRecord>, StoreError> {
        let mut all = sealed(&self.lock(), kind);
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let after = after.map(sort_key);
        let rest = all.into_iter().filter(|it| Some(&it.0) > after.as_ref());
        Ok(rest
            .take(limit)
            .map(|(_, location, sealed)| SealedRecord { location, sealed })
            .collect())
    }

    async fn replace(&self, batch: &[ResealedRecord]) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let mut count = 0;
        for record in batch {
            let stored = stored_value(&mut state, &record.location);
            if let Some(value) = stored.filter(|value| **value == record.before) {
                *value = record.after.clone();
                count += 1;
            }
        }
        Ok(count)
    }
}
