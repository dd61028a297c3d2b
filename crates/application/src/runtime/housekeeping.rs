//! Housekeeping: deletes expired data, so that nothing the service stores grows without bound.
//!
//! One pass per interval for all processes on a store: the process that takes the lease `housekeeping` has it for that
//! long. All steps may run twice or half, by any process.

use std::time::Duration;

use domain::error::{StoreError, chain};
use domain::user::identity::USER_NAME_REUSE_GRACE;

use crate::idempotency::RESPONSE_TTL;
use crate::ports::{Policy, Ports};
use crate::{AppError, users};

/// Maximum number of rows that one transaction deletes.
const MAX_BATCH_ROWS: usize = 500;

/// Delay of the first pass, because a process has enough to do when it starts.
const START_DELAY: Duration = Duration::from_secs(20);

/// Time after which ended leases and announcements of silent processes are deleted. It is longer than the clocks of
/// machines differ.
const ENDED_LEASE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Time for which an expired key is still listed.
const EXPIRED_KEY_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const LEASE_NAME: &str = "housekeeping";

#[derive(Debug, Clone, Copy)]
enum PruneKind {
    StartTasks,
    DeletedConversations,
    PendingMessages,
    Answers,
    Leases,
    DeletedUsers,
    KeyHolders,
    ExpiredKeys,
    Audit,
}

impl PruneKind {
    const ALL: [Self; 9] = [
        Self::StartTasks,
        Self::DeletedConversations,
        Self::PendingMessages,
        Self::Answers,
        Self::Leases,
        Self::DeletedUsers,
        Self::KeyHolders,
        Self::ExpiredKeys,
        Self::Audit,
    ];
}

pub(crate) struct Housekeeping {
    ports: Ports,
    policy: Policy,
    holder: String,
}

impl Housekeeping {
    pub(crate) fn new(ports: Ports, policy: Policy) -> Self {
        let holder = ports.ids.uuid().simple().to_string();
        Self {
            ports,
            policy,
            holder,
        }
    }

    /// Runs until the service stops.
    pub(crate) async fn run(self) {
        tokio::time::sleep(START_DELAY.min(self.policy.housekeeping_interval)).await;
        let mut tick = tokio::time::interval(self.policy.housekeeping_interval);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if !self.take_lease().await {
                continue;
            }
            if let Err(error) = self.finish_deletions().await {
                tracing::warn!(error = %chain(&error), "cannot complete the deletion of users; trying again later");
            }
            for kind in PruneKind::ALL {
                if let Err(error) = self.prune_all(kind).await {
                    tracing::warn!(?kind, error = %chain(&error), "cannot delete expired data; trying again later");
                }
            }
        }
    }

    /// Completes deletions of users that were interrupted.
    async fn finish_deletions(&self) -> Result<(), AppError> {
        let (users, clock) = (self.ports.users.as_ref(), self.ports.clock.as_ref());
        for user in users.list_partially_deleted(MAX_BATCH_ROWS).await? {
            users::purge(users, clock, &user).await?;
        }
        Ok(())
    }

    async fn prune_all(&self, kind: PruneKind) -> Result<(), StoreError> {
        let mut total = 0;
        while self.take_lease().await {
            let count = self.prune(kind).await?;
            total += count;
            if count < MAX_BATCH_ROWS as u64 {
                break;
            }
            // Other users of the store come first.
            tokio::task::yield_now().await;
        }
        if total > 0 {
            tracing::info!(?kind, total, "expired data deleted");
        }
        Ok(())
    }

    /// Takes or renews the lease. The lease is not given back: no other process has work to do before it ends.
    async fn take_lease(&self) -> bool {
        let now = self.ports.clock.now();
        let until = now.plus(self.policy.housekeeping_interval);
        let taken = self
            .ports
            .leases
            .acquire(LEASE_NAME, &self.holder, now, until);
        taken.await.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "cannot take the housekeeping lease; trying again later");
            false
        })
    }

    /// Deletes one batch; returns its number of rows.
    async fn prune(&self, kind: PruneKind) -> Result<u64, StoreError> {
        let (ports, retention) = (&self.ports, self.policy.retention.get());
        let before = |age: Duration| ports.clock.now().minus(age);
        let kept = |age: Option<Duration>| age.map(before);
        match kind {
            PruneKind::StartTasks => match kept(retention.start_tasks) {
                Some(before) => ports.start_tasks.prune(before, MAX_BATCH_ROWS).await,
                None => Ok(0),
            },
            PruneKind::DeletedConversations => match kept(retention.deleted_conversations) {
                Some(before) => {
                    ports
                        .conversations
                        .prune_deleted(before, MAX_BATCH_ROWS)
                        .await
                }
                None => Ok(0),
            },
            PruneKind::PendingMessages => match kept(retention.pending_messages) {
                Some(before) => ports.pending.prune(before, MAX_BATCH_ROWS).await,
                None => Ok(0),
            },
            PruneKind::Answers => {
                ports
                    .answers
                    .prune(before(RESPONSE_TTL), MAX_BATCH_ROWS)
                    .await
            }
            PruneKind::Leases => {
                ports
                    .leases
                    .prune(before(ENDED_LEASE_TTL), MAX_BATCH_ROWS)
                    .await
            }
            PruneKind::DeletedUsers => {
                ports
                    .users
                    .prune(before(USER_NAME_REUSE_GRACE), MAX_BATCH_ROWS)
                    .await
            }
            PruneKind::KeyHolders => {
                ports
                    .vault
                    .prune_holders(before(ENDED_LEASE_TTL), MAX_BATCH_ROWS)
                    .await
            }
            PruneKind::ExpiredKeys => {
                let before = before(EXPIRED_KEY_TTL);
                ports.api_keys.prune(before, MAX_BATCH_ROWS).await
            }
            PruneKind::Audit => match kept(retention.audit) {
                Some(before) => ports.audit.prune(before, MAX_BATCH_ROWS).await,
                None => Ok(0),
            },
        }
    }
}
