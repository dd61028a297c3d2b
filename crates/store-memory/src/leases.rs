//! `LeaseRepository` and `ChangeFeed`. Several applications in one process can share a store like replicas.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::coordination::change::{ChangeFeed, StoreChange};
use domain::coordination::lease::LeaseRepository;
use domain::error::StoreError;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast::error::RecvError;

use crate::MemoryStore;

#[async_trait]
impl LeaseRepository for MemoryStore {
    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let taken = state
            .leases
            .get(name)
            .is_some_and(|(by, end)| by != holder && *end > now);
        if !taken {
            let lease = (holder.to_owned(), until);
            state.leases.insert(name.to_owned(), lease);
        }
        Ok(!taken)
    }

    async fn release(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.leases.get(name).is_some_and(|(by, _)| by == holder) {
            state.leases.remove(name);
        }
        Ok(())
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let ended = state.leases.iter().filter(|(_, (_, end))| *end < before);
        let ended: Vec<String> = ended.map(|(name, _)| name.clone()).take(limit).collect();
        for name in &ended {
            state.leases.remove(name);
        }
        Ok(ended.len() as u64)
    }
}

impl ChangeFeed for MemoryStore {
    fn changes(&self) -> BoxStream<'static, StoreChange> {
        stream::unfold(self.subscribe(), |mut changes| async move {
            match changes.recv().await {
                Ok(change) => Some((change, changes)),
                Err(RecvError::Lagged(_)) => Some((StoreChange::Gap, changes)),
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}
