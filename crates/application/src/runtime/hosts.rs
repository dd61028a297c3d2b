//! The hosts that share a store: which of them live, and what happens to the work of one that does not.
//!
//! Every process stores a sign of life of its host. A host without one for [`HOST_TIMEOUT`] is lost: other hosts take its
//! starts over, and its running sandboxes are MISSING until it returns.

use std::time::Duration;

use domain::clock::Timestamp;
use domain::coordination::host::{HOST_TIMEOUT, Host, HostStatus};
use domain::error::chain;
use tokio::time::Instant;

use crate::AppError;
use crate::policy::Policy;
use crate::runtime::known_hosts::{KnownHosts, silence};
use crate::runtime::ticker;
use crate::start::StartService;

/// Interval of signs of life.
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Stores signs of life, and acts for lost hosts.
#[derive(Clone)]
pub(crate) struct HostWatch {
    hosts: KnownHosts,
    starts: StartService,
    max_parallel_starts: usize,
}

impl HostWatch {
    pub(crate) fn new(hosts: KnownHosts, starts: StartService, policy: &Policy) -> Self {
        Self {
            hosts,
            starts,
            max_parallel_starts: policy.max_parallel_starts,
        }
    }

    /// Runs until the service stops.
    pub(crate) async fn run(self) {
        let mut tick = ticker(ALIVE_INTERVAL);
        // After an outage of the store all hosts look lost, so this process must have seen it work for a while.
        let mut works_since: Option<Instant> = None;
        loop {
            tick.tick().await;
            match self.note_alive().await {
                Ok(hosts) => {
                    let since = *works_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > HOST_TIMEOUT {
                        self.act_for_lost(&hosts).await;
                    }
                }
                Err(error) => {
                    works_since = None;
                    tracing::debug!(error = %chain(&error), "cannot store a sign of life of this host; trying again");
                }
            }
        }
    }

    async fn note_alive(&self) -> Result<Vec<Host>, AppError> {
        let KnownHosts {
            repository, own, ..
        } = &self.hosts;
        repository.note_alive(own, self.hosts.clock.now()).await?;
        Ok(self.hosts.look().await?.0)
    }

    /// Takes over the starts of lost hosts, as many of each as this process runs at a time, so that living hosts share
    /// them.
    pub(crate) async fn act_for_lost(&self, hosts: &[Host]) {
        let now = self.hosts.clock.now();
        let is_other =
            |host: &&Host| host.id != self.hosts.own && host.status(now) == HostStatus::Lost;
        for lost in hosts.iter().filter(is_other) {
            if let Err(error) = self.act_for(lost, now).await {
                tracing::warn!(host = %lost.id, error = %chain(&error), "cannot take over the starts of a lost host; trying again");
            }
        }
    }

    async fn act_for(&self, lost: &Host, now: Timestamp) -> Result<(), AppError> {
        let KnownHosts {
            repository, own, ..
        } = &self.hosts;
        if !self.hosts.is_draining() {
            let limit = self.max_parallel_starts;
            let starts = repository.adopt_starts(lost, own, now, limit).await?;
            if starts > 0 {
                tracing::warn!(host = %lost.id, starts, "took over starts of a host that does not answer");
                self.starts.wake();
            }
        }
        let detail = format!(
            "{}; the sandbox comes back when the host does",
            silence(lost)
        );
        let sandboxes = repository.mark_lost(lost, &detail).await?;
        if sandboxes > 0 {
            tracing::warn!(host = %lost.id, sandboxes, "sandboxes are MISSING because their host does not answer");
        }
        Ok(())
    }
}
