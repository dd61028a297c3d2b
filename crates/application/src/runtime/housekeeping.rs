//! Housekeeping: deletes expired data, so that nothing the service stores grows without bound.
//!
//! One pass per interval for all processes on a store: the process that takes the lease `housekeeping` has it for that
//! long. All steps may run twice or half, by any process.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::spending::SpendingRepository;
use domain::audit::AuditLog;
use domain::clock::{Clock, Timestamp};
use domain::conversation::ConversationDeletionRepository;
use domain::conversation::pending::PendingMessageRepository;
use domain::coordination::idempotency::IdempotencyRepository;
use domain::coordination::lease::LeaseRepository;
use domain::encryption::vault::VaultRepository;
use domain::error::{StoreError, chain};
use domain::start_task::StartTaskQueue;
use domain::user::device_login::DeviceLoginRepository;
use domain::user::egress::EgressRequestRepository;
use domain::user::identity::{ApiKeyRepository, USER_NAME_REUSE_GRACE, UserRepository};
use domain::user::organization::OrganizationDeletionRepository;
use domain::user::sign_in::{PasswordRepository, SessionRepository};
use futures::future::BoxFuture;

use crate::idempotency::RESPONSE_TTL;
use crate::policy::{Policy, Retention};
use crate::ports::Ports;
use crate::runtime::ticker;
use crate::{AppError, LiveSetting, users};

const MAX_BATCH_ROWS: usize = 500;

/// Delay of the first pass, because a process has enough to do when it starts.
const START_DELAY: Duration = Duration::from_secs(20);

/// Time after which ended leases and announcements of silent processes are deleted. It is longer than the clocks of
/// machines differ.
const ENDED_LEASE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Time for which an expired key is still listed.
const EXPIRED_KEY_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A call that is not settled after this time has lost its process: an answer begins within 20 minutes, and none takes hours.
const MAX_CALL_DURATION: Duration = Duration::from_secs(6 * 60 * 60);

/// Time for which the record of what models cost is kept: last year's months can be compared with this year's.
const SPENDING_TTL: Duration = Duration::from_secs(800 * 24 * 60 * 60);

const LEASE_NAME: &str = "housekeeping";

/// Deletes one batch of what is older; returns its number of rows.
type Prune = for<'a> fn(&'a Housekeeping, Timestamp) -> BoxFuture<'a, Result<u64, StoreError>>;

/// What expires: its name in the log, the age at which it is deleted (`None`: never), and its deletion.
fn expiring_data(kept: Retention) -> [(&'static str, Option<Duration>, Prune); 16] {
    const N: usize = MAX_BATCH_ROWS;
    [
        ("StartTasks", kept.start_tasks, |p, at| {
            p.start_queue.prune(at, N)
        }),
        (
            "DeletedConversations",
            kept.deleted_conversations,
            |p, at| p.conversations.prune_deleted(at, N),
        ),
        ("PendingMessages", kept.pending_messages, |p, at| {
            p.pending.prune(at, N)
        }),
        ("Answers", Some(RESPONSE_TTL), |p, at| {
            p.idempotent_responses.prune(at, N)
        }),
        ("Leases", Some(ENDED_LEASE_TTL), |p, at| {
            p.leases.prune(at, N)
        }),
        ("DeletedUsers", Some(USER_NAME_REUSE_GRACE), |p, at| {
            p.users.prune(at, N)
        }),
        ("KeyHolders", Some(ENDED_LEASE_TTL), |p, at| {
            p.vault.prune_holders(at, N)
        }),
        ("ExpiredKeys", Some(EXPIRED_KEY_TTL), |p, at| {
            p.api_keys.prune(at, N)
        }),
        ("ExpiredSessions", Some(Duration::ZERO), |p, at| {
            p.sessions.prune(at, N)
        }),
        ("ExpiredLinks", Some(Duration::ZERO), |p, at| {
            p.passwords.prune_links(at, N)
        }),
        ("ExpiredDeviceLogins", Some(Duration::ZERO), |p, at| {
            p.device_logins.prune(at, N)
        }),
        ("RequestsOfGoneSandboxes", Some(Duration::ZERO), |p, _| {
            p.egress_requests.prune(N)
        }),
        ("ExpiredInvitations", Some(Duration::ZERO), |p, at| {
            p.organizations.prune_invitations(at, N)
        }),
        ("AbandonedReservations", Some(MAX_CALL_DURATION), |p, at| {
            p.spending.settle_abandoned(at, N)
        }),
        ("Spending", Some(SPENDING_TTL), |p, at| {
            p.spending.prune(at, N)
        }),
        ("Audit", kept.audit, |p, at| p.audit.prune(at, N)),
    ]
}

#[derive(Clone)]
pub(crate) struct Housekeeping {
    start_queue: Arc<dyn StartTaskQueue>,
    conversations: Arc<dyn ConversationDeletionRepository>,
    pending: Arc<dyn PendingMessageRepository>,
    idempotent_responses: Arc<dyn IdempotencyRepository>,
    leases: Arc<dyn LeaseRepository>,
    users: Arc<dyn UserRepository>,
    vault: Arc<dyn VaultRepository>,
    api_keys: Arc<dyn ApiKeyRepository>,
    sessions: Arc<dyn SessionRepository>,
    passwords: Arc<dyn PasswordRepository>,
    device_logins: Arc<dyn DeviceLoginRepository>,
    egress_requests: Arc<dyn EgressRequestRepository>,
    organizations: Arc<dyn OrganizationDeletionRepository>,
    spending: Arc<dyn SpendingRepository>,
    audit: Arc<dyn AuditLog>,
    clock: Arc<dyn Clock>,
    interval: Duration,
    retention: LiveSetting<Retention>,
    holder: String,
}

impl Housekeeping {
    pub(crate) fn new(ports: &Ports, policy: &Policy) -> Self {
        Self {
            start_queue: Arc::clone(&ports.start_queue),
            conversations: Arc::clone(&ports.conversation_deletions),
            pending: Arc::clone(&ports.pending),
            idempotent_responses: Arc::clone(&ports.idempotent_responses),
            leases: Arc::clone(&ports.leases),
            users: Arc::clone(&ports.users),
            vault: Arc::clone(&ports.vault),
            api_keys: Arc::clone(&ports.api_keys),
            sessions: Arc::clone(&ports.sessions),
            passwords: Arc::clone(&ports.passwords),
            device_logins: Arc::clone(&ports.device_logins),
            egress_requests: Arc::clone(&ports.egress_requests),
            organizations: Arc::clone(&ports.organization_deletions),
            spending: Arc::clone(&ports.spending),
            audit: Arc::clone(&ports.audit),
            clock: Arc::clone(&ports.clock),
            interval: policy.housekeeping_interval,
            retention: policy.retention.clone(),
            holder: ports.ids.uuid().simple().to_string(),
        }
    }

    /// Runs until the service stops.
    pub(crate) async fn run(self) {
        tokio::time::sleep(START_DELAY.min(self.interval)).await;
        let mut tick = ticker(self.interval);
        loop {
            tick.tick().await;
            if !self.take_lease().await {
                continue;
            }
            if let Err(error) = self.finish_deletions().await {
                tracing::warn!(error = %chain(&error), "cannot complete the deletion of users; trying again later");
            }
            for (kind, age, prune) in expiring_data(self.retention.get()) {
                if let Some(age) = age
                    && let Err(error) = self.prune_all(kind, age, prune).await
                {
                    tracing::warn!(kind, error = %chain(&error), "cannot delete expired data; trying again later");
                }
            }
        }
    }

    /// Completes deletions of users and organizations that were interrupted.
    async fn finish_deletions(&self) -> Result<(), AppError> {
        let (users, clock) = (self.users.as_ref(), self.clock.as_ref());
        for user in users.list_partially_deleted(MAX_BATCH_ROWS).await? {
            users::purge(users, clock, &user).await?;
        }
        let organizations = self.organizations.as_ref();
        for id in organizations.list_partially_deleted(MAX_BATCH_ROWS).await? {
            users::purge_organization(organizations, clock, id).await?;
        }
        Ok(())
    }

    async fn prune_all(&self, kind: &str, age: Duration, prune: Prune) -> Result<(), StoreError> {
        let mut total = 0;
        while self.take_lease().await {
            let count = prune(self, self.clock.now().minus(age)).await?;
            total += count;
            if count < MAX_BATCH_ROWS as u64 {
                break;
            }
            // Other users of the store come first.
            tokio::task::yield_now().await;
        }
        if total > 0 {
            tracing::info!(kind, total, "expired data deleted");
        }
        Ok(())
    }

    /// Takes or renews the lease. The lease is not given back: no other process has work to do before it ends.
    async fn take_lease(&self) -> bool {
        let now = self.clock.now();
        let until = now.plus(self.interval);
        let taken = self.leases.acquire(LEASE_NAME, &self.holder, now, until);
        taken.await.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "cannot take the housekeeping lease; trying again later");
            false
        })
    }
}
