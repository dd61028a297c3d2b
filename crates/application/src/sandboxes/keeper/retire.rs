//! Sandboxes that nobody needs any more: paused when idle, deleted at the end of their life.
//!
//! The store decides, in one transaction with the change, so a run that begins at the same moment is never cut off. What
//! the store cannot see (somebody works in the sandbox directly: files, editor, shell) the agent server is asked.

use std::collections::HashMap;
use std::time::Duration;

use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::{Retirement, Sandbox, SandboxSpec};

use super::Keeper;
use crate::{AppError, Tasks};

/// How many are looked at in one pass.
const BATCH: usize = 500;

/// Limits of one template.
#[derive(Clone, Copy)]
struct Limits {
    idle: Option<Duration>,
    lifetime: Option<Duration>,
}

impl Keeper {
    /// One pass. Acting on what was retired is left to tasks: one slow sandbox keeps no other waiting.
    pub(crate) async fn retire(&self, tasks: &Tasks) -> Result<(), AppError> {
        let specs = self.0.ports.specs.list().await?;
        let known: HashMap<&SpecId, Limits> = specs.iter().map(|s| (&s.id, limits(s))).collect();
        // A sandbox whose template is gone (an upgrade) has the limits of the default.
        let Some(default) = specs.first().map(limits) else {
            return Ok(());
        };
        let of = |row: &Sandbox| known.get(&row.spec_id).copied().unwrap_or(default);
        let all = || known.values().copied();
        if let Some(idle) = all().filter_map(|l| l.idle).min() {
            for row in self.due(Retirement::IdleSince, idle).await? {
                if let Some(idle) = of(&row).idle
                    && !self.is_in_use(&row, idle).await
                {
                    self.end(&row, Retirement::IdleSince(self.before(idle)), tasks)
                        .await?;
                }
            }
        }
        if let Some(lifetime) = all().filter_map(|l| l.lifetime).min() {
            for row in self.due(Retirement::OlderThan, lifetime).await? {
                if let Some(lifetime) = of(&row).lifetime {
                    self.end(&row, Retirement::OlderThan(self.before(lifetime)), tasks)
                        .await?;
                }
            }
        }
        Ok(())
    }

    fn before(&self, age: Duration) -> Timestamp {
        self.0.ports.clock.now().minus(age)
    }

    async fn due(
        &self,
        why: fn(Timestamp) -> Retirement,
        age: Duration,
    ) -> Result<Vec<Sandbox>, AppError> {
        let (ports, host) = (&self.0.ports, &self.0.policy.host);
        let why = why(self.before(age));
        Ok(ports.sandboxes.retirable(host, why, BATCH).await?)
    }

    /// Whether somebody uses its agent server directly. One that does not answer, or does not say, is not in use.
    async fn is_in_use(&self, row: &Sandbox, limit: Duration) -> bool {
        let Some(url) = &row.agent_url else {
            return false;
        };
        let Ok(at) = self.endpoint(row, url) else {
            return false;
        };
        let idle = self.0.ports.agents.idle_time(&at).await;
        matches!(idle, Ok(Some(idle)) if idle < limit)
    }

    async fn end(&self, row: &Sandbox, why: Retirement, tasks: &Tasks) -> Result<(), AppError> {
        let ports = &self.0.ports;
        let retired = ports.sandboxes.retire(&row.id, why, ports.clock.now());
        if retired.await?.is_none() {
            return Ok(());
        }
        tracing::info!(sandbox.id = %row.id, ?why, "sandbox {} is not needed any more", row.id);
        self.not_wanted(&row.id);
        let (keeper, id) = (self.clone(), row.id.clone());
        tasks.spawn(async move {
            if let Err(error) = keeper.converge(&id).await {
                tracing::warn!(sandbox.id = %id, %error, "sandbox not retired yet; trying again later");
            }
        });
        Ok(())
    }
}

fn limits(spec: &SandboxSpec) -> Limits {
    Limits {
        idle: spec.idle_stop,
        lifetime: spec.lifetime,
    }
}
