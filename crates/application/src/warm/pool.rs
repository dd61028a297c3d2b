//! The loop of the pool: one pass at a time over all warm sandboxes of this host.

use std::collections::{BTreeSet, HashMap};

use domain::error::chain;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{BackendState, WarmSandbox, WarmState};
use domain::user::identity::KeyHash;
use futures::StreamExt;
use futures::stream;
use tokio::time::Instant;

use super::WarmSandboxPool;
use super::boot::BootGuard;
use super::demand::REPLICA_GRACE;
use crate::AppError;
use crate::runtime::ticker;

/// Parallel health checks, and consecutive unanswered checks before a removal.
const MAX_PARALLEL_CHECKS: usize = 8;
const MAX_UNANSWERED_CHECKS: u32 = 2;

#[derive(Default)]
struct PoolSnapshot {
    /// Ready and up to date, oldest first.
    ready: Vec<WarmSandbox>,
    /// Sandboxes of other processes of this host: booting, or up to date for them.
    elsewhere: usize,
    claimed: usize,
}

enum EvictionReason {
    /// No process can use the sandbox.
    Unusable(&'static str),
    /// This process would not boot the sandbox now.
    Outdated(&'static str),
}

impl WarmSandboxPool {
    /// Runs until the service stops; where the pool is off, until earlier warm sandboxes are removed.
    pub(crate) async fn run(self) {
        let mut facts = self.0.lifecycle.watch().fuse();
        let mut tick = ticker(self.0.policy.warm.interval);
        // What happened while this process did not run is no fact. Health checks find what facts do not tell.
        let mut must_list = true;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.0.wake.notified() => {}
                Some(fact) = facts.next() => if self.state().ready.contains(&fact.id) {
                    must_list = true;
                } else {
                    continue;
                },
            }
            if self.0.reconciler.is_out_of_contact() {
                continue;
            }
            match self.run_pass(must_list).await {
                Ok(0) if !self.is_configured() => return,
                Ok(_) => must_list = false,
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "cannot run a pass of the warm pool; trying again");
                }
            }
        }
    }

    /// Runs one pass: removes unusable sandboxes, boots missing ones. `must_list`: whether the backend lists its sandboxes, which
    /// may be many. Returns the number of rows.
    async fn run_pass(&self, must_list: bool) -> Result<usize, AppError> {
        let before = self.state().booting.clone();
        let rows = self.0.warm.list_on_host(&self.0.policy.host).await?;
        let count = rows.len();
        let looked_up = if self.is_on() {
            self.load_recipe().await
        } else {
            Ok(())
        };
        if count > 0 || self.is_on() {
            let mut states = None;
            if must_list && count > 0 {
                // After the rows: a sandbox exists before its row says READY.
                let facts = self.0.lifecycle.list().await?.into_iter();
                states = Some(facts.map(|fact| (fact.id, fact.state)).collect());
            }
            let is_known = looked_up.is_ok();
            let mut found = self
                .classify(rows, &before, states.as_ref(), is_known)
                .await;
            self.check(&mut found).await;
            self.resize(found);
        }
        looked_up?;
        Ok(count)
    }

    /// Loads the recipe of a cold start of the default spec.
    pub(super) async fn load_recipe(&self) -> Result<(), AppError> {
        let policy = &self.0.policy;
        let current = async {
            let specs = self.0.specs.list().await?;
            let Some(spec) = specs.first() else {
                return Ok(None);
            };
            let made_of = self.0.backend.recipe(&spec.id).await?;
            // Includes the webhook URL and the CORS origins: backends may use the URL for more than a variable, and an
            // agent server reads the origins when it boots.
            let (webhooks, origins) = (&policy.webhook_url, &policy.cors_origins);
            let text = format!("{made_of} {webhooks} {origins:?}");
            Ok::<_, AppError>(Some((spec.id.clone(), KeyHash::of(&text).to_string())))
        };
        let current = current.await;
        let mut state = self.state();
        state.has_loaded_recipe = true;
        // Sandboxes that cannot be compared with a recipe are not claimed.
        state.current = None;
        state.current = current?;
        Ok(())
    }

    /// Classifies the rows. `states`: those of the backend, if it was asked. `is_known`: whether the recipe could be loaded.
    async fn classify(
        &self,
        rows: Vec<WarmSandbox>,
        before: &BTreeSet<SandboxId>,
        states: Option<&HashMap<SandboxId, BackendState>>,
        is_known: bool,
    ) -> PoolSnapshot {
        let mut found = PoolSnapshot::default();
        for row in rows {
            match row.state {
                WarmState::Claimed => {
                    found.claimed += 1;
                    let claimed_for = self.0.clock.now().since(row.updated_at);
                    // Its start has used the sandbox or failed.
                    if claimed_for > self.0.policy.warm.claim_grace
                        && let Err(error) = self.abandon_claim(&row.id).await
                    {
                        tracing::debug!(sandbox.id = %row.id, error = %chain(&error), "cannot abandon an old claim yet; trying again");
                    }
                }
                WarmState::Booting
                    if before.contains(&row.id) || self.state().booting.contains(&row.id) => {}
                WarmState::Booting if self.boots_elsewhere(&row) => found.elsewhere += 1,
                // Decided once the recipe can be loaded.
                WarmState::Booting if !is_known => found.elsewhere += 1,
                WarmState::Booting => self.resume_boot(row),
                WarmState::Ready => {
                    let runs = states.is_none_or(|states| {
                        matches!(states.get(&row.id), Some(BackendState::Running(_)))
                    });
                    match self.eviction_reason(&row, runs) {
                        None => found.ready.push(row),
                        Some(EvictionReason::Outdated(_)) if !is_known => found.ready.push(row),
                        Some(EvictionReason::Outdated(_))
                            if self.is_reserved_for_replicas(&row) =>
                        {
                            found.elsewhere += 1;
                        }
                        Some(EvictionReason::Outdated(why) | EvictionReason::Unusable(why)) => {
                            self.remove_soon(row, why);
                        }
                    }
                }
            }
        }
        found
    }

    /// Whether another process of this host may still be booting the sandbox.
    fn boots_elsewhere(&self, row: &WarmSandbox) -> bool {
        let (now, policy) = (self.0.clock.now(), &self.0.policy);
        policy.is_host_shared && now.since(row.updated_at) <= policy.sandbox_start_timeout * 2
    }

    /// Continues the boot of a process that died, if the sandbox is still needed.
    fn resume_boot(&self, row: WarmSandbox) {
        if self.eviction_reason(&row, true).is_some() {
            return self.remove_soon(row, "it is outdated");
        }
        let booting = BootGuard::new(self, row.id.clone());
        self.0.tasks.spawn(self.clone().continue_boot(booting, row));
    }

    /// Whether other processes of this host may need the sandbox, even if this process would not boot it.
    fn is_reserved_for_replicas(&self, row: &WarmSandbox) -> bool {
        let (now, policy) = (self.0.clock.now(), &self.0.policy);
        policy.is_host_shared && now.since(row.updated_at) <= REPLICA_GRACE
    }

    /// Why the sandbox must be removed; `None` if it need not be.
    fn eviction_reason(&self, row: &WarmSandbox, runs: bool) -> Option<EvictionReason> {
        let age = self.0.clock.now().since(row.created_at);
        let state = self.state();
        let current = state.current.as_ref();
        let fits =
            |(spec, recipe): &(SpecId, String)| *spec == row.spec_id && *recipe == row.recipe;
        if !runs {
            Some(EvictionReason::Unusable("it stopped running"))
        } else if age > self.0.policy.warm.max_age {
            Some(EvictionReason::Unusable("it is too old"))
        } else if !self.is_on() {
            Some(EvictionReason::Outdated("the pool is off"))
        } else if !current.is_some_and(fits) {
            Some(EvictionReason::Outdated("it is outdated"))
        } else {
            None
        }
    }

    /// Checks the health of ready sandboxes at each interval.
    async fn check(&self, found: &mut PoolSnapshot) {
        let now = Instant::now();
        {
            let mut state = self.state();
            let interval = self.0.policy.warm.interval;
            if state.checked_at.is_some_and(|at| now - at < interval) {
                return;
            }
            state.checked_at = Some(now);
        }
        let rows = std::mem::take(&mut found.ready);
        let asked = stream::iter(rows).map(|row| async move {
            let is_healthy = self.is_healthy(&row).await;
            (row, is_healthy)
        });
        let asked: Vec<_> = asked.buffered(MAX_PARALLEL_CHECKS).collect().await;
        for (row, is_healthy) in asked {
            if is_healthy {
                found.ready.push(row);
            } else {
                self.remove_soon(row, "it fails its health check");
            }
        }
    }

    async fn is_healthy(&self, row: &WarmSandbox) -> bool {
        let Some(endpoints) = &row.endpoints else {
            return false;
        };
        let agents = &self.0.agents;
        let asked = agents.is_dormant(&row.id, &endpoints.agent_url).await;
        let mut state = self.state();
        if let Ok(is_dormant) = asked {
            state.unanswered.remove(&row.id);
            return is_dormant;
        }
        // The machine may be busy.
        let silent = state.unanswered.entry(row.id.clone()).or_default();
        *silent += 1;
        *silent < MAX_UNANSWERED_CHECKS
    }

    /// Removes surplus sandboxes and boots missing ones.
    fn resize(&self, mut found: PoolSnapshot) {
        let target = self.target() as usize;
        let booting = self.state().booting.len() + found.elsewhere;
        let there = found.ready.len() + booting;
        // Other processes may see more demand, but not more room.
        let is_room_short = target < self.0.policy.warm.target_count as usize;
        let may_remove = |row: &WarmSandbox| is_room_short || !self.is_reserved_for_replicas(row);
        let surplus = there.saturating_sub(target).min(found.ready.len());
        let surplus: Vec<_> = found
            .ready
            .extract_if(..surplus, |row| may_remove(row))
            .collect();
        for row in surplus {
            self.remove_soon(row, "it is surplus");
        }
        self.record_counts(&found, booting);
        let Some((spec, recipe)) = self.next_boot() else {
            return;
        };
        for _ in there..target {
            self.boot_soon(spec.clone(), recipe.clone());
        }
    }

    fn record_counts(&self, found: &PoolSnapshot, booting: usize) {
        let size = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut state = self.state();
        let ready: BTreeSet<_> = found.ready.iter().map(|row| row.id.clone()).collect();
        state.unanswered.retain(|id, _| ready.contains(id));
        state.counts.ready = size(ready.len());
        state.counts.booting = size(booting);
        state.counts.claimed = size(found.claimed);
        state.ready = ready;
    }

    /// Spec and recipe to boot, if a boot is allowed now.
    fn next_boot(&self) -> Option<(SpecId, String)> {
        let state = self.state();
        let (spec, recipe) = state.current.clone()?;
        let is_refused = state.refused.as_ref() == Some(&recipe);
        let is_due = state.next_boot_at.is_none_or(|at| at <= Instant::now());
        (self.is_on() && !is_refused && is_due).then_some((spec, recipe))
    }

    fn boot_soon(&self, spec: SpecId, recipe: String) {
        let booting = BootGuard::new(self, self.0.factory.new_id());
        let boot = self.clone().boot_new(booting, spec, recipe);
        self.0.tasks.spawn(boot);
    }

    /// Removes a sandbox in the background, because it may take seconds.
    fn remove_soon(&self, row: WarmSandbox, why: &'static str) {
        let warm = self.clone();
        self.0
            .tasks
            .spawn(async move { warm.remove(&row, why).await });
    }
}
