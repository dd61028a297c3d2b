//! `HostRepository`.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::coordination::change::StoreChange;
use domain::coordination::host::{Host, HostRepository};
use domain::error::StoreError;
use domain::id::{HostId, SandboxId, StartTaskId};
use domain::sandbox::{DesiredState, Sandbox, SandboxStatus};

use crate::MemoryStore;
use crate::state::{MemoryState, TaskRow};

impl MemoryState {
    /// The starts that may move, with their sandboxes, oldest first.
    fn movable(&self, from: &HostId, now: Timestamp) -> Vec<(StartTaskId, SandboxId)> {
        let is_wanted = |id: &SandboxId| {
            let sandbox = self.sandboxes.get(id);
            sandbox.is_some_and(|it| it.desired == DesiredState::Running)
        };
        let mut found: Vec<_> = self
            .tasks
            .values()
            .filter(|row| {
                let task = &row.task;
                task.host == *from
                    && !task.status.is_terminal()
                    && task.owns_sandbox
                    && !row.begun
                    && row.lease_until.is_none_or(|until| until <= now)
                    && is_wanted(&task.sandbox_id)
            })
            .map(|row| {
                (
                    row.task.created_at,
                    row.task.id,
                    row.task.sandbox_id.clone(),
                )
            })
            .collect();
        found.sort();
        found
            .into_iter()
            .map(|(_, task, sandbox)| (task, sandbox))
            .collect()
    }

    /// Whether the host is as silent as when it was listed.
    fn is_silent(&self, lost: &Host) -> bool {
        let now = self.hosts.get(&lost.id);
        now.is_some_and(|now| now.seen_at == lost.seen_at)
    }

    fn adopt(&mut self, task: StartTaskId, sandbox: &SandboxId, to: &HostId, now: Timestamp) {
        if let Some(row) = self.tasks.get_mut(&task) {
            row.task.host = to.clone();
            row.fence += 1;
            row.lease_until = None;
        }
        if let Some(sandbox) = self.sandboxes.get_mut(sandbox) {
            self.lost_with_host.remove(&sandbox.id);
            sandbox.host = to.clone();
            sandbox.status = SandboxStatus::Starting;
            sandbox.status_detail = None;
            sandbox.agent_url = None;
            sandbox.exposed_urls = Arc::default();
            sandbox.workspace = None;
            sandbox.has_proxy = false;
            sandbox.updated_at = now;
        }
    }
}

fn is_in(sandbox: &Sandbox, host: &HostId, status: SandboxStatus) -> bool {
    sandbox.host == *host && sandbox.desired == DesiredState::Running && sandbox.status == status
}

#[async_trait]
impl HostRepository for MemoryStore {
    async fn is_known(&self, host: &HostId) -> Result<bool, StoreError> {
        Ok(self.lock().hosts.contains_key(host))
    }

    async fn register(&self, host: &HostId, at: Timestamp) -> Result<(), StoreError> {
        let mut state = self.lock();
        let known = state.hosts.entry(host.clone());
        known.or_insert_with(|| Host {
            id: host.clone(),
            registered_at: at,
            seen_at: Some(at),
            is_draining: false,
            sandboxes: 0,
            open_starts: 0,
        });
        Ok(())
    }

    async fn note_alive(&self, host: &HostId, at: Timestamp) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let state = &mut *state;
        if let Some(host) = state.hosts.get_mut(host) {
            host.seen_at = Some(at);
        }
        let mut restored = 0;
        for sandbox in state.sandboxes.values_mut() {
            if is_in(sandbox, host, SandboxStatus::Missing)
                && state.lost_with_host.remove(&sandbox.id)
            {
                sandbox.status = SandboxStatus::Running;
                sandbox.status_detail = None;
                restored += 1;
            }
        }
        Ok(restored)
    }

    async fn list(&self) -> Result<Vec<Host>, StoreError> {
        let state = self.lock();
        let is_up = |it: &&Sandbox| it.desired == DesiredState::Running && it.status.is_up();
        let counted = |host: &Host| {
            let up = state.sandboxes.values().filter(is_up);
            let open = state.tasks.values().map(|row| &row.task);
            let open = open.filter(|task| !task.status.is_terminal());
            Host {
                sandboxes: up.filter(|it| it.host == host.id).count() as u64,
                open_starts: open.filter(|it| it.host == host.id).count() as u64,
                ..host.clone()
            }
        };
        Ok(state.hosts.values().map(counted).collect())
    }

    async fn set_draining(&self, host: &HostId, is_draining: bool) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let known = state.hosts.get_mut(host);
        Ok(known.map(|it| it.is_draining = is_draining).is_some())
    }

    async fn adopt_starts(
        &self,
        lost: &Host,
        to: &HostId,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let mut state = self.lock();
        if !state.is_silent(lost) {
            return Ok(0);
        }
        let mut found = state.movable(&lost.id, now);
        found.truncate(limit);
        for (task, sandbox) in &found {
            state.adopt(*task, sandbox, to, now);
        }
        drop(state);
        if !found.is_empty() {
            self.publish(StoreChange::StartTaskQueued(to.clone()));
        }
        Ok(found.len() as u64)
    }

    async fn mark_lost(&self, lost: &Host, detail: &str) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let state = &mut *state;
        if !state.is_silent(lost) {
            return Ok(0);
        }
        let mut marked = 0;
        for sandbox in state.sandboxes.values_mut() {
            if is_in(sandbox, &lost.id, SandboxStatus::Running) {
                sandbox.status = SandboxStatus::Missing;
                sandbox.status_detail = Some(detail.to_owned());
                state.lost_with_host.insert(sandbox.id.clone());
                marked += 1;
            }
        }
        Ok(marked)
    }

    async fn remove(&self, lost: &Host, heir: &HostId) -> Result<bool, StoreError> {
        let mut state = self.lock();
        if !state.is_silent(lost) {
            return Ok(false);
        }
        let tables = &mut *state;
        let of_host =
            |row: &&mut TaskRow| row.task.host == lost.id && !row.task.status.is_terminal();
        for row in tables.tasks.values_mut().filter(of_host) {
            row.task.host = heir.clone();
            row.fence += 1;
            row.lease_until = None;
        }
        let all = std::mem::take(&mut tables.sandboxes).into_iter();
        let (gone, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.partition(|(_, it)| it.host == lost.id);
        tables.sandboxes = kept;
        for deleted in tables.deleted.values_mut() {
            deleted.pending &= !gone.contains_key(&deleted.sandbox);
        }
        tables.warm.retain(|_, it| it.host != lost.id);
        tables.hosts.remove(&lost.id);
        drop(state);
        self.publish(StoreChange::StartTaskQueued(heir.clone()));
        Ok(true)
    }
}
