//! The repository ports of one store, with helpers for conformance tests.

use std::sync::Arc;

use domain::agent::spending::SpendingRepository;
use domain::audit::AuditLog;
use domain::conversation::pending::PendingMessageRepository;
use domain::conversation::{
    Conversation, ConversationDeletionRepository, ConversationReportRepository,
    ConversationRepository, ConversationView,
};
use domain::coordination::host::HostRepository;
use domain::coordination::idempotency::IdempotencyRepository;
use domain::coordination::lease::LeaseRepository;
use domain::encryption::sealed::SealedRecordRepository;
use domain::encryption::vault::VaultRepository;
use domain::event::{AppendOutcome, EventStore};
use domain::id::{ConversationId, SandboxId};
use domain::sandbox::{
    HostSandboxRepository, Sandbox, SandboxKeyRepository, SandboxRepository, WarmRepository,
};
use domain::start_task::{
    ClaimLimit, LeasedStartTask, NewStartTask, StartTaskInsertOutcome, StartTaskQueue,
    StartTaskRepository,
};
use domain::user::administration::AdministrationRepository;
use domain::user::device_login::DeviceLoginRepository;
use domain::user::egress::EgressRequestRepository;
use domain::user::identity::{ApiKeyRepository, UserRepository};
use domain::user::organization::{OrganizationDeletionRepository, OrganizationRepository};
use domain::user::scope::Scope;
use domain::user::secret::SecretRepository;
use domain::user::settings::SettingsRepository;
use domain::user::sign_in::{PasswordRepository, SessionRepository};
use domain::user::single_sign_on::IdentityRepository;
use domain::user::usage::UsageRepository;

use crate::fixtures::{self, AMPLE_CAPS, at, host};

/// Every repository port of one store. They see each other's writes.
#[derive(Clone)]
pub struct StorePorts {
    /// Conversations.
    pub conversations: Arc<dyn ConversationRepository>,
    /// Reports about conversations.
    pub conversation_reports: Arc<dyn ConversationReportRepository>,
    /// Deleted conversations.
    pub conversation_deletions: Arc<dyn ConversationDeletionRepository>,
    /// Events.
    pub events: Arc<dyn EventStore>,
    /// Start tasks.
    pub tasks: Arc<dyn StartTaskRepository>,
    /// Start tasks, for workers.
    pub start_queue: Arc<dyn StartTaskQueue>,
    /// Sandboxes.
    pub sandboxes: Arc<dyn SandboxRepository>,
    /// Sandboxes by their keys.
    pub sandbox_keys: Arc<dyn SandboxKeyRepository>,
    /// Sandboxes of a host.
    pub host_sandboxes: Arc<dyn HostSandboxRepository>,
    /// Warm sandboxes.
    pub warm: Arc<dyn WarmRepository>,
    /// Settings.
    pub settings: Arc<dyn SettingsRepository>,
    /// Custom secrets.
    pub secrets: Arc<dyn SecretRepository>,
    /// Pending messages.
    pub pending: Arc<dyn PendingMessageRepository>,
    /// API keys.
    pub keys: Arc<dyn ApiKeyRepository>,
    /// Stored responses of repeatable requests.
    pub idempotency: Arc<dyn IdempotencyRepository>,
    /// Hosts.
    pub hosts: Arc<dyn HostRepository>,
    /// Leases.
    pub leases: Arc<dyn LeaseRepository>,
    /// The vault.
    pub vault: Arc<dyn VaultRepository>,
    /// Sealed records.
    pub sealed: Arc<dyn SealedRecordRepository>,
    /// Users.
    pub users: Arc<dyn UserRepository>,
    /// Sessions.
    pub sessions: Arc<dyn SessionRepository>,
    /// Passwords and one-time links.
    pub passwords: Arc<dyn PasswordRepository>,
    /// Shared organizations.
    pub organizations: Arc<dyn OrganizationRepository>,
    /// Deletion of organizations.
    pub organization_deletions: Arc<dyn OrganizationDeletionRepository>,
    /// Programs that wait for a person.
    pub device_logins: Arc<dyn DeviceLoginRepository>,
    /// Hosts that sandboxes asked for.
    pub egress_requests: Arc<dyn EgressRequestRepository>,
    /// Identities and e-mail addresses.
    pub identities: Arc<dyn IdentityRepository>,
    /// Changes of users and keys.
    pub administration: Arc<dyn AdministrationRepository>,
    /// The audit log.
    pub audit: Arc<dyn AuditLog>,
    /// Usage by users.
    pub usage: Arc<dyn UsageRepository>,
    /// What model calls cost.
    pub spending: Arc<dyn SpendingRepository>,
}

impl StorePorts {
    /// All ports of a store that implements them all.
    pub fn of<S>(store: Arc<S>) -> Self
    where
        S: ConversationRepository
            + ConversationReportRepository
            + ConversationDeletionRepository
            + EventStore
            + StartTaskRepository
            + StartTaskQueue
            + SandboxRepository
            + SandboxKeyRepository
            + HostSandboxRepository
            + WarmRepository
            + SettingsRepository
            + SecretRepository
            + PendingMessageRepository
            + ApiKeyRepository
            + IdempotencyRepository
            + HostRepository
            + LeaseRepository
            + VaultRepository
            + SealedRecordRepository
            + UserRepository
            + SessionRepository
            + PasswordRepository
            + OrganizationRepository
            + OrganizationDeletionRepository
            + DeviceLoginRepository
            + EgressRequestRepository
            + IdentityRepository
            + AdministrationRepository
            + AuditLog
            + UsageRepository
            + SpendingRepository,
    {
        Self {
            conversations: store.clone(),
            conversation_reports: store.clone(),
            conversation_deletions: store.clone(),
            events: store.clone(),
            tasks: store.clone(),
            start_queue: store.clone(),
            sandboxes: store.clone(),
            sandbox_keys: store.clone(),
            host_sandboxes: store.clone(),
            warm: store.clone(),
            settings: store.clone(),
            secrets: store.clone(),
            pending: store.clone(),
            keys: store.clone(),
            idempotency: store.clone(),
            hosts: store.clone(),
            leases: store.clone(),
            vault: store.clone(),
            sealed: store.clone(),
            users: store.clone(),
            sessions: store.clone(),
            passwords: store.clone(),
            organizations: store.clone(),
            organization_deletions: store.clone(),
            identities: store.clone(),
            device_logins: store.clone(),
            egress_requests: store.clone(),
            administration: store.clone(),
            audit: store.clone(),
            usage: store.clone(),
            spending: store,
        }
    }

    /// Stores a sandbox of `owner`, STARTING.
    pub async fn insert_sandbox(&self, id: &str, owner: &str) -> Sandbox {
        let sandbox = fixtures::sandbox(id, owner, at(0));
        self.sandboxes
            .insert(&sandbox, &AMPLE_CAPS)
            .await
            .expect("insert a sandbox");
        sandbox
    }

    /// Stores a conversation in an existing sandbox.
    pub async fn insert_conversation(&self, conversation: &Conversation) -> ConversationId {
        let stored = self
            .conversation_reports
            .adopt(conversation)
            .await
            .expect("adopt");
        assert_eq!(stored, AppendOutcome::Stored { new: 1 });
        conversation.id
    }

    /// Stores the sandbox `s` of `alice` and a conversation in it.
    pub async fn insert_sandbox_and_conversation(&self) -> ConversationId {
        self.insert_sandbox("s", "alice").await;
        self.insert_conversation(&fixtures::conversation(1, "alice", "s", at(0)))
            .await
    }

    /// The conversation, in the scope of the system.
    pub async fn view(&self, id: ConversationId) -> Option<ConversationView> {
        self.conversations
            .find(&Scope::System, id)
            .await
            .expect("find a conversation")
    }

    /// The sandbox, in the scope of the system.
    pub async fn sandbox_row(&self, id: &SandboxId) -> Option<Sandbox> {
        self.sandboxes
            .find(&Scope::System, id)
            .await
            .expect("find a sandbox")
    }

    /// Commits a new start.
    pub async fn insert_start(&self, start: &NewStartTask) {
        let inserted = self.tasks.insert(start, &AMPLE_CAPS).await.expect("insert");
        assert_eq!(inserted, StartTaskInsertOutcome::New);
    }

    /// Commits a new start and leases it. No other task may be waiting for a lease.
    pub async fn insert_and_claim_start(&self, start: &NewStartTask) -> LeasedStartTask {
        self.insert_start(start).await;
        let mut claimed = self
            .start_queue
            .claim(&host(), at(1), at(60), ClaimLimit::tasks(10))
            .await
            .expect("claim");
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        claimed.remove(0)
    }
}
