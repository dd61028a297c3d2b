//! What is old enough goes: nothing that the service keeps grows without bound.
//!
//! One pass per interval, however many processes share the store: whoever takes the lease `housekeeping` has it for that
//! long. Everything here may be done twice, or half, by anybody.

use std::time::Duration;

use domain::error::{StoreError, chain};
use domain::identity::USER_NAME_REUSE_GRACE;

use crate::ports::{Policy, Ports};
use crate::repeat::KEPT_FOR;
use crate::{AppError, users};

/// Rows of one transaction.
const BATCH: usize = 500;

/// Between start-up, when there is enough to do, and the first pass.
const DELAY: Duration = Duration::from_secs(20);

/// How long ended leases, and what a silent process said, stay: long enough that no clock of another machine thinks they have not ended.
const LEASES_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an expired key is still listed.
const EXPIRED_KEYS_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The name of the lease.
const LEASE: &str = "housekeeping";

/// What there is of one kind that may go.
#[derive(Debug, Clone, Copy)]
enum Kind {
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

impl Kind {
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

/// Does the passes.
pub(crate) struct Housekeeping {
    ports: Ports,
    policy: Policy,
    /// Who we are in the lease.
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

    /// Until the service stops.
    pub(crate) async fn run(self) {
        tokio::time::sleep(DELAY.min(self.policy.housekeeping_interval)).await;
        let mut tick = tokio::time::interval(self.policy.housekeeping_interval);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if !self.is_our_turn().await {
                continue;
            }
            if let Err(error) = self.finish_deletions().await {
                tracing::warn!(error = %chain(&error), "deleted users are not gone yet; trying again later");
            }
            for kind in Kind::ALL {
                if let Err(error) = self.prune_all(kind).await {
                    tracing::warn!(?kind, error = %chain(&error), "cannot tidy up the store; trying again later");
                }
            }
        }
    }

    /// Users whose deletion was cut off.
    async fn finish_deletions(&self) -> Result<(), AppError> {
        let (users, clock) = (self.ports.users.as_ref(), self.ports.clock.as_ref());
        for user in users.list_partially_deleted(BATCH).await? {
            users::purge(users, clock, &user).await?;
        }
        Ok(())
    }

    async fn prune_all(&self, kind: Kind) -> Result<(), StoreError> {
        let mut total = 0;
        while self.is_our_turn().await {
            let count = self.prune(kind).await?;
            total += count;
            if count < BATCH as u64 {
                break;
            }
            // Whoever waits for the store comes first.
            tokio::task::yield_now().await;
        }
        if total > 0 {
            tracing::info!(?kind, total, "what was old enough is gone");
        }
        Ok(())
    }

    /// Takes or prolongs the lease. It is not given back: until it ends there is nothing to do for anybody else.
    async fn is_our_turn(&self) -> bool {
        let now = self.ports.clock.now();
        let until = now.plus(self.policy.housekeeping_interval);
        let taken = self.ports.leases.acquire(LEASE, &self.holder, now, until);
        taken.await.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "cannot tell whose turn it is to tidy up; trying again later");
            false
        })
    }

    /// One batch; how many rows it had.
    async fn prune(&self, kind: Kind) -> Result<u64, StoreError> {
        let (ports, retention) = (&self.ports, self.policy.retention.get());
        let before = |age: Duration| ports.clock.now().minus(age);
        let kept = |age: Option<Duration>| age.map(before);
        match kind {
            Kind::StartTasks => match kept(retention.start_tasks) {
                Some(before) => ports.start_tasks.prune(before, BATCH).await,
                None => Ok(0),
            },
            Kind::DeletedConversations => match kept(retention.deleted_conversations) {
                Some(before) => ports.conversations.prune_deleted(before, BATCH).await,
                None => Ok(0),
            },
            Kind::PendingMessages => match kept(retention.pending_messages) {
                Some(before) => ports.pending.prune(before, BATCH).await,
                None => Ok(0),
            },
            Kind::Answers => ports.answers.prune(before(KEPT_FOR), BATCH).await,
            Kind::Leases => ports.leases.prune(before(LEASES_FOR), BATCH).await,
            Kind::DeletedUsers => ports.users.prune(before(USER_NAME_REUSE_GRACE), BATCH).await,
            Kind::KeyHolders => ports.vault.prune_holders(before(LEASES_FOR), BATCH).await,
            Kind::ExpiredKeys => {
                let before = before(EXPIRED_KEYS_FOR);
                ports.api_keys.prune(before, BATCH).await
            }
            Kind::Audit => match kept(retention.audit) {
                Some(before) => ports.audit.prune(before, BATCH).await,
                None => Ok(0),
            },
        }
    }
}
