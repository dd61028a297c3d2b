//! `AuditLog`.

use async_trait::async_trait;
use domain::audit::{AuditEntry, AuditFilter, AuditLog};
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::page::{Page, PageRequest};

use crate::MemoryStore;
use crate::page;

fn matches(filter: &AuditFilter, entry: &AuditEntry) -> bool {
    filter
        .actor
        .as_ref()
        .is_none_or(|actor| *actor == entry.actor)
        && filter
            .action
            .as_ref()
            .is_none_or(|action| *action == entry.action)
        && filter
            .object
            .as_ref()
            .is_none_or(|_| filter.object == entry.object)
        && filter
            .outcome
            .is_none_or(|outcome| outcome == entry.outcome)
        && filter.since.is_none_or(|since| entry.at >= since)
        && filter.until.is_none_or(|until| entry.at < until)
}

#[async_trait]
impl AuditLog for MemoryStore {
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let mut state = self.lock();
        for entry in entries {
            state.audit.entry(entry.id).or_insert_with(|| entry.clone());
        }
        Ok(())
    }

    async fn search(
        &self,
        filter: &AuditFilter,
        request: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError> {
        let state = self.lock();
        let rows = state.audit.values().filter(|it| matches(filter, it));
        let rows = rows.map(|it| ((it.at.micros(), it.id.simple().to_string()), it.clone()));
        page::page_by_count("audit", request, true, rows)
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old = state.audit.values().filter(|it| it.at < before);
        let mut old: Vec<_> = old.map(|it| (it.at, it.id)).collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, id) in &old {
            state.audit.remove(id);
        }
        Ok(old.len() as u64)
    }
}
