//! Facts of the backend that no operation asked for, and the relist, which compares everything.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use domain::conversation::ExecutionStatus;
use domain::error::chain;
use domain::id::SandboxId;
use domain::metrics::Gauge;
use domain::sandbox::{
    BackendFact, BackendState, DesiredState, Sandbox, SandboxFacts, SandboxStatus,
};

use super::SandboxReconciler;
use super::bring_up::first_line;
use crate::AppError;
use crate::sandboxes::for_each_on_host;

/// Sandboxes that one pass acts on; the next one continues.
const MAX_UNSETTLED: usize = 500;

impl SandboxReconciler {
    /// Handles a fact that no operation asked for: inspects the sandbox and stores its current state.
    pub(super) async fn note_fact(&self, fact: &BackendFact) -> Result<(), AppError> {
        if let BackendState::Running(endpoints) = &fact.state {
            // Perhaps at another address, where its agent server boots.
            let (id, mut exits) = (&fact.id, self.0.lifecycle.watch());
            let booted = self.wait_until_alive(id, &endpoints.agent_url, &mut exits);
            return match booted.await {
                Ok(()) => self.refresh(id).await,
                // The comparison of all sandboxes finds what became of it.
                Err(_) => Ok(()),
            };
        }
        let guard = self.acquire(&fact.id).await;
        guard.unless_lease_lost(self.inspect_ended(fact)).await
    }

    async fn inspect_ended(&self, fact: &BackendFact) -> Result<(), AppError> {
        let Some(row) = self.row(&fact.id).await? else {
            return Ok(());
        };
        // A start holds the lock, so a row that is STARTING now belongs to the next action.
        if !is_running(&row) {
            return Ok(());
        }
        let facts = match self.0.lifecycle.inspect(&fact.id).await? {
            Some(BackendState::Running(_)) => return Ok(()),
            Some(BackendState::Exited { detail }) => SandboxFacts::Error { detail },
            Some(BackendState::Stopped) => SandboxFacts::Error {
                detail: "the sandbox was stopped outside of the service; resume it".to_owned(),
            },
            Some(BackendState::Remains) => SandboxFacts::Missing {
                detail: "the sandbox was removed outside of the service; its workspace is kept. Resume it to create a new sandbox around the workspace".to_owned(),
            },
            Some(BackendState::Absent) | None => SandboxFacts::Missing {
                detail: "the sandbox was removed outside of the service".to_owned(),
            },
        };
        let cause = match &facts {
            SandboxFacts::Error { detail } | SandboxFacts::Missing { detail } => first_line(detail),
            _ => "",
        };
        tracing::warn!(sandbox.id = %row.id, cause, "sandbox ended unexpectedly");
        self.record(&row, DesiredState::Running, &facts).await?;
        let (conversations, now) = (&self.0.conversations, self.0.clock.now());
        let settled = conversations.settle_running(&row.id, ExecutionStatus::Error, now);
        settled.await?;
        Ok(())
    }

    /// Compares everything of this host: removes orphans, and acts on rows that differ from the backend. The backend
    /// is listed *before* the rows, and a row exists before its sandbox, so nothing new is taken for an orphan. Each
    /// action is a task of its own, so a slow sandbox delays no other.
    pub(super) async fn relist(&self) -> Result<(), AppError> {
        self.note_alive().await?;
        let facts = self.0.lifecycle.list().await?;
        // All warm rows, because few are stored. Before the sandbox rows: a claimed warm sandbox gets its sandbox row
        // before its warm row is deleted.
        let warm = self.0.warm.list_on_host(&self.0.policy.host).await?;
        let rows = self.rows_on_host().await?;
        let warm: HashSet<_> = warm.into_iter().map(|warm| warm.id).collect();
        let is_owned = |id: &SandboxId| rows.contains_key(id) || warm.contains(id);
        let orphans = facts.iter().filter(|fact| !is_owned(&fact.id));
        if self.check_host_ownership(orphans.clone().count()).await? {
            for fact in orphans {
                let (reconciler, id) = (self.clone(), fact.id.clone());
                let work = async move { reconciler.remove_orphan(&id).await };
                self.0.tasks.spawn(work);
            }
        }
        let states = facts.into_iter().map(|fact| (fact.id, fact.state));
        let states: HashMap<_, _> = states.collect();
        self.clear_stale_annotations(&rows).await?;
        for row in rows.into_values() {
            if needs_action(&row, states.get(&row.id)) {
                self.act_on(row, true);
            }
        }
        Ok(())
    }

    /// What a process does while another one compares the sandboxes of its host.
    pub(super) async fn count_sandboxes(&self) -> Result<(), AppError> {
        self.note_alive().await?;
        self.rows_on_host().await.map(drop)
    }

    /// Acts on sandboxes that a process has left in the middle of something, if this one `leads` its host. Any process cancels its
    /// own starts that are no longer wanted.
    pub(super) async fn settle(&self, leads: bool) -> Result<(), AppError> {
        self.note_alive().await?;
        let (sandboxes, host) = (&self.0.host_sandboxes, &self.0.policy.host);
        for row in sandboxes.list_unsettled(host, MAX_UNSETTLED).await? {
            self.act_on(row, leads);
        }
        Ok(())
    }

    /// Brings a sandbox into its desired state in the background, unless something acts on it already.
    fn act_on(&self, row: Sandbox, leads: bool) {
        if self.is_under_way(&row) {
            // It will store its facts.
        } else if !self.is_idle(&row.id) {
            if row.desired != DesiredState::Running {
                // A running start does not know the new intent (the command line only wrote it to the store); cancel it.
                self.cancel_start(&row.id);
            }
        } else if leads {
            let reconciler = self.clone();
            self.0
                .tasks
                .spawn(async move { reconciler.repair(&row).await });
        }
    }

    /// Tells other hosts that this one is alive. While it was silent, they may have shown its sandboxes as MISSING.
    async fn note_alive(&self) -> Result<(), AppError> {
        let (hosts, now) = (&self.0.hosts, self.0.clock.now());
        let restored = hosts.note_alive(&self.0.policy.host, now).await?;
        if restored > 0 {
            tracing::info!(
                sandboxes = restored,
                "this host is back; its sandboxes are no longer MISSING"
            );
        }
        Ok(())
    }

    /// All rows of this host, which are counted.
    async fn rows_on_host(&self) -> Result<HashMap<SandboxId, Sandbox>, AppError> {
        let mut rows = HashMap::new();
        for_each_on_host(&*self.0.host_sandboxes, &self.0.policy.host, |row| {
            rows.insert(row.id.clone(), row);
        })
        .await?;
        self.count_statuses(&rows);
        Ok(rows)
    }

    fn count_statuses(&self, rows: &HashMap<SandboxId, Sandbox>) {
        let is_up = |row: &&Sandbox| row.desired == DesiredState::Running && row.status.is_up();
        let up = rows.values().filter(is_up).count();
        let up = u32::try_from(up).unwrap_or(u32::MAX);
        self.0.up.store(up, Ordering::Relaxed);
        let mut seen = [0; SandboxStatus::ALL.len()];
        let shown = rows
            .values()
            .filter(|row| row.desired != DesiredState::Deleted);
        shown.for_each(|row| seen[row.status as usize] += 1);
        for (level, seen) in self.0.statuses.iter().zip(seen) {
            level.set(seen);
        }
    }

    /// Numbers of sandboxes of this host by [`SandboxStatus`], in its order, as of the last relist.
    pub(crate) fn statuses(&self) -> &[Gauge; SandboxStatus::ALL.len()] {
        &self.0.statuses
    }

    /// Whether orphans may be removed: only if the sandboxes of this host were created with this store. A host without
    /// sandboxes is registered with it.
    async fn check_host_ownership(&self, orphans: usize) -> Result<bool, AppError> {
        if self.0.owns_host.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let (hosts, host) = (&self.0.hosts, &self.0.policy.host);
        let is_known = hosts.is_known(host).await?;
        if !is_known && orphans > 0 {
            tracing::error!(
                sandboxes = orphans,
                host = %host,
                "the store has no record of this host, but sandboxes of this host exist. Another store created them, so the \
                 service does not touch them. Check `storage.url`, or remove them by hand"
            );
            return Ok(false);
        }
        if !is_known {
            hosts.register(host, self.0.clock.now()).await?;
        }
        self.0.owns_host.store(true, Ordering::Relaxed);
        Ok(true)
    }

    async fn remove_orphan(&self, id: &SandboxId) {
        let guard = self.acquire(id).await;
        tracing::warn!(sandbox.id = %id, "removing a sandbox that no row owns");
        let removal = async { Ok(self.0.lifecycle.remove(id).await?) };
        if let Err(error) = guard.unless_lease_lost(removal).await {
            tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot remove a sandbox that no row owns; the next periodic list tries again");
        }
    }

    async fn repair(&self, row: &Sandbox) {
        let outcome = match (row.desired, row.status) {
            (DesiredState::Running, SandboxStatus::Running) => self.recheck(&row.id).await,
            (DesiredState::Running, SandboxStatus::Error | SandboxStatus::Missing) => {
                self.stop_again(&row.id).await
            }
            _ => self.converge(&row.id).await,
        };
        if let Err(error) = outcome {
            tracing::warn!(sandbox.id = %row.id, error = %chain(&error), "cannot bring a sandbox into its desired state; the next periodic list tries again");
        }
    }

    /// Whether this process is starting the sandbox: the process that stores STARTING also acts on it. The relist only
    /// acts on rows of earlier processes, and on starts that take longer than allowed.
    fn is_under_way(&self, row: &Sandbox) -> bool {
        let (now, policy) = (self.0.clock.now(), &self.0.policy);
        // On a shared host the process that acts on the sandbox holds a lease, for which this action waits.
        let max_age = if policy.is_host_shared {
            policy.lease_ttl / 2
        } else {
            policy.sandbox_start_timeout
        };
        row.desired == DesiredState::Running
            && row.status == SandboxStatus::Starting
            && row.updated_at >= self.0.started_at
            && now.since(row.updated_at) <= max_age
            && !self.was_out_of_contact(row.updated_at)
    }

    /// Checks a RUNNING row that differs from the backend: its process ended unnoticed, or its address changed.
    async fn recheck(&self, id: &SandboxId) -> Result<(), AppError> {
        self.note_fact(&BackendFact {
            id: id.clone(),
            state: BackendState::Absent,
        })
        .await?;
        self.refresh(id).await
    }

    /// Stops a failed sandbox whose process still lives (an earlier stop failed). It counts towards no cap, so it must
    /// end.
    async fn stop_again(&self, id: &SandboxId) -> Result<(), AppError> {
        let guard = self.acquire(id).await;
        let must_stop = |row: Sandbox| {
            let failed = matches!(row.status, SandboxStatus::Error | SandboxStatus::Missing);
            failed && row.desired == DesiredState::Running
        };
        if self.row(id).await?.is_some_and(must_stop) {
            let stop = async { Ok(self.0.lifecycle.stop(id).await?) };
            guard.unless_lease_lost(stop).await?;
        }
        Ok(())
    }

    /// Updates a RUNNING row whose process lives: its address may have changed.
    async fn refresh(&self, id: &SandboxId) -> Result<(), AppError> {
        let guard = self.acquire(id).await;
        if let Some(row) = self.row(id).await?.filter(is_running) {
            guard.unless_lease_lost(self.find_answering(&row)).await?;
        }
        Ok(())
    }
}

fn is_running(row: &Sandbox) -> bool {
    row.desired == DesiredState::Running && row.status == SandboxStatus::Running
}

/// Whether row and backend differ in a way that needs an action. A sandbox in ERROR waits for its owner.
fn needs_action(row: &Sandbox, state: Option<&BackendState>) -> bool {
    match (row.desired, row.status, state) {
        (DesiredState::Running, SandboxStatus::Running, Some(BackendState::Running(endpoints))) => {
            row.agent_url.as_deref() != Some(&endpoints.agent_url)
                || row.has_proxy != endpoints.has_proxy
        }
        (DesiredState::Deleted, _, _)
        | (_, SandboxStatus::Starting | SandboxStatus::Running, _) => true,
        // The workspace was removed from outside.
        (DesiredState::Paused, SandboxStatus::Paused, None) => row.workspace.is_some(),
        (_, _, state) => matches!(state, Some(BackendState::Running(_))),
    }
}
