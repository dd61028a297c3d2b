//! Boots of warm sandboxes.

use std::time::Duration;

use domain::error::{Classify, chain};
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{PrepareProgress, SandboxEndpoints, WarmSandbox, WarmState};
use tokio::time::Instant;

use super::WarmSandboxPool;
use super::demand::boot_backoff;
use crate::AppError;
use crate::sandboxes::SpareBootSlot;

/// Delay of a boot, several times the length of a warm start: a boot uses a whole core, which that start needs.
const BOOT_DELAY: Duration = Duration::from_millis(500);

/// A boot of this process; the pool counts it while this guard lives.
pub(super) struct BootGuard {
    warm: WarmSandboxPool,
    id: SandboxId,
}

impl BootGuard {
    pub(super) fn new(warm: &WarmSandboxPool, id: SandboxId) -> Self {
        warm.state().booting.insert(id.clone());
        Self {
            warm: warm.clone(),
            id,
        }
    }
}

impl Drop for BootGuard {
    fn drop(&mut self) {
        self.warm.state().booting.remove(&self.id);
        self.warm.0.wake.notify_one();
    }
}

enum BootOutcome {
    Dormant(SandboxEndpoints),
    /// It booted, but not dormant.
    Awake,
    Aborted,
}

impl WarmSandboxPool {
    pub(super) async fn boot_new(self, booting: BootGuard, spec: SpecId, recipe: String) {
        let silent = PrepareProgress::silent();
        if let Err(error) = self.0.reconciler.prepare_backend(&spec, &silent).await {
            return self.record_failure(&error);
        }
        // The usual cause is a claim: leave the cores to its start first.
        tokio::time::sleep(BOOT_DELAY).await;
        let Some(slot) = self.0.reconciler.boots().acquire_spare().await else {
            return;
        };
        // The recipe may have changed during the wait for a slot.
        let is_wanted = self.state().current.as_ref() == Some(&(spec.clone(), recipe.clone()));
        if !is_wanted {
            return;
        }
        let stored = async {
            let row = self.new_row(booting.id.clone(), spec, recipe)?;
            let is_new = self.0.warm.insert(&row, self.target()).await?;
            Ok::<_, AppError>(is_new.then_some(row))
        };
        match stored.await {
            Ok(Some(row)) => self.boot(&row, slot).await,
            // Another process of this host was faster; the next pass sees its boot.
            Ok(None) => {
                let next = Instant::now() + self.0.policy.warm.interval;
                self.state().next_boot_at = Some(next);
            }
            Err(error) => self.record_failure(&error),
        }
    }

    /// Continues the boot of an earlier or another process.
    pub(super) async fn continue_boot(self, booting: BootGuard, row: WarmSandbox) {
        if let Some(slot) = self.0.reconciler.boots().acquire_spare().await {
            self.boot(&row, slot).await;
        }
        drop(booting);
    }

    fn new_row(
        &self,
        id: SandboxId,
        spec: SpecId,
        recipe: String,
    ) -> Result<WarmSandbox, AppError> {
        let now = self.0.clock.now();
        let keys = self.0.factory.generate_keys(id)?;
        Ok(WarmSandbox {
            spec_id: spec,
            host: self.0.policy.host.clone(),
            recipe,
            state: WarmState::Booting,
            key_hash: keys.key_hash,
            session_key: keys.session_key,
            secret_key: keys.secret_key,
            endpoints: None,
            created_at: now,
            updated_at: now,
            id: keys.id,
        })
    }

    async fn boot(&self, row: &WarmSandbox, mut slot: SpareBootSlot<'_>) {
        let began = Instant::now();
        let outcome = tokio::select! {
            outcome = self.boot_dormant(row) => outcome,
            () = slot.wait_for_demand() => Ok(BootOutcome::Aborted),
        };
        // Before slow steps: a start may wait for the slot.
        drop(slot);
        match outcome {
            Ok(BootOutcome::Dormant(endpoints)) => self.record_ready(row, &endpoints, began).await,
            Ok(BootOutcome::Awake) => {
                self.refuse_recipe(&row.recipe);
                self.remove(row, "it cannot boot dormant").await;
            }
            Ok(BootOutcome::Aborted) => {
                self.state().counts.gave_way += 1;
                self.remove(row, "a start waits for its boot slot").await;
            }
            Err(error) => {
                self.record_failure(&error);
                self.remove(row, "its boot failed").await;
            }
        }
    }

    async fn boot_dormant(&self, row: &WarmSandbox) -> Result<BootOutcome, AppError> {
        let endpoints = self.0.reconciler.boot_spare(row).await?;
        let agents = &self.0.agents;
        let is_dormant = agents.is_dormant(&row.id, &endpoints.agent_url).await?;
        if !is_dormant {
            return Ok(BootOutcome::Awake);
        }
        // Work done now does not delay a start later.
        agents.prewarm(&row.id, &endpoints.agent_url).await;
        Ok(BootOutcome::Dormant(endpoints))
    }

    async fn record_ready(&self, row: &WarmSandbox, endpoints: &SandboxEndpoints, began: Instant) {
        let (warm, now) = (&self.0.warm, self.0.clock.now());
        match warm.mark_ready(&row.id, endpoints, now).await {
            Ok(is_ready) => {
                let mut state = self.state();
                state.demand.record_boot(began.elapsed());
                (state.failures, state.next_boot_at) = (0, None);
                if is_ready {
                    state.ready.insert(row.id.clone());
                    tracing::info!(sandbox.id = %row.id, took = ?began.elapsed(), "a warm sandbox is ready");
                }
            }
            // The row stays BOOTING; the next pass continues.
            Err(error) => self.record_failure(&error.into()),
        }
    }

    fn record_failure(&self, error: &AppError) {
        let mut state = self.state();
        state.counts.failed_boots += 1;
        let now = Instant::now();
        // One backoff for all parallel boots, which fail for the same cause.
        if state.next_boot_at.is_none_or(|at| at <= now) {
            state.failures = state.failures.saturating_add(1);
            state.next_boot_at = Some(now + boot_backoff(state.failures));
        }
        let pause = state.next_boot_at.map(|at| at - now);
        let cause = error.public().lines().next().unwrap_or_default().to_owned();
        tracing::warn!(
            cause,
            ?pause,
            "cannot boot a warm sandbox; trying again later"
        );
    }

    fn refuse_recipe(&self, recipe: &str) {
        let mut state = self.state();
        if state.refused.as_deref() != Some(recipe) {
            state.refused = Some(recipe.to_owned());
            state.counts.refused_recipes += 1;
            tracing::warn!(
                "this agent server cannot boot dormant: no sandboxes are kept warm, and every start is a cold one; \
                 set WORKSPACE_SANDBOX__WARM=0 to turn the pool off"
            );
        }
    }

    /// Removes a warm sandbox unless a start has claimed it. After a crash in between the relist removes it as an
    /// orphan.
    pub(super) async fn remove(&self, row: &WarmSandbox, why: &str) {
        let ended = async {
            if self.0.warm.dismiss(&row.id).await? {
                self.state().ready.remove(&row.id);
                self.state().counts.ended += 1;
                tracing::info!(sandbox.id = %row.id, why, "removing a warm sandbox");
                self.0.lifecycle.remove(&row.id).await?;
            }
            Ok::<_, AppError>(())
        };
        if let Err(error) = ended.await {
            tracing::warn!(sandbox.id = %row.id, error = %chain(&error), "cannot remove a warm sandbox yet; trying again");
        }
    }
}
