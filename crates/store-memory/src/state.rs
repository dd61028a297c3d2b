//! The store and its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::agent::spending::{Reservation, SpendingKey, Spent};
use domain::audit::AuditEntry;
use domain::clock::Timestamp;
use domain::conversation::pending::PendingMessage;
use domain::conversation::{Conversation, ConversationView};
use domain::coordination::change::StoreChange;
use domain::coordination::host::Host;
use domain::coordination::idempotency::IdempotentResponse;
use domain::encryption::cipher::Sealed;
use domain::encryption::vault::KeyHolder;
use domain::event::Event;
use domain::id::{
    ApiKeyId, ConversationId, EgressRequestId, HostId, IdentityId, InvitationId, OrganizationId,
    OwnerId, SandboxId, SessionId, StartTaskId, UserId,
};
use domain::sandbox::{DesiredState, Sandbox, WarmSandbox};
use domain::start_task::StartTask;
use domain::user::device_login::DeviceLogin;
use domain::user::egress::EgressRequest;
use domain::user::identity::{ApiKey, KeyHash, User};
use domain::user::organization::{Invitation, Membership, Organization};
use domain::user::scope::Scope;
use domain::user::secret::CustomSecret;
use domain::user::settings::{SettingsOwner, StoredSettings};
use domain::user::sign_in::{OneTimeLink, PasswordHash, Session, UserEmail};
use domain::user::single_sign_on::LinkedIdentity;
use tokio::sync::broadcast;
use uuid::Uuid;

/// All repository ports, in memory. Each method takes the lock once, which makes it one transaction, and checks everything before
/// it changes anything.
pub struct MemoryStore {
    state: Mutex<MemoryState>,
    changes: broadcast::Sender<StoreChange>,
}

/// Number of changes that are buffered for a slow subscriber. If it falls further behind, it gets a gap.
const CHANGE_BUFFER_LEN: usize = 256;

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changes: broadcast::channel(CHANGE_BUFFER_LEN).0,
        }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Publishes a change; there may be no subscribers.
    pub(crate) fn publish(&self, change: StoreChange) {
        let _ = self.changes.send(change);
    }

    /// The changes from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<StoreChange> {
        self.changes.subscribe()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, MemoryState> {
        // A panic in another test thread must not fail this one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tables of the store.
#[derive(Default)]
pub(crate) struct MemoryState {
    pub(crate) conversations: BTreeMap<ConversationId, ConversationRow>,
    pub(crate) deleted: BTreeMap<ConversationId, DeletedConversation>,
    /// In order of arrival.
    pub(crate) events: BTreeMap<ConversationId, Vec<Event>>,
    pub(crate) tasks: BTreeMap<StartTaskId, TaskRow>,
    /// In order of arrival.
    pub(crate) pending: Vec<PendingRow>,
    pub(crate) sandboxes: BTreeMap<SandboxId, Sandbox>,
    pub(crate) warm: BTreeMap<SandboxId, WarmSandbox>,
    pub(crate) settings: BTreeMap<SettingsOwner, StoredSettings>,
    pub(crate) secrets: BTreeMap<(OwnerId, String), CustomSecret>,
    pub(crate) keys: BTreeMap<ApiKeyId, ApiKey>,
    pub(crate) users: BTreeMap<UserId, User>,
    pub(crate) passwords: BTreeMap<UserId, PasswordHash>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) links: BTreeMap<KeyHash, OneTimeLink>,
    pub(crate) device_logins: BTreeMap<KeyHash, DeviceLogin>,
    pub(crate) egress_requests: BTreeMap<EgressRequestId, EgressRequest>,
    pub(crate) organizations: BTreeMap<OrganizationId, OrganizationRow>,
    pub(crate) memberships: BTreeMap<(OrganizationId, UserId), Membership>,
    pub(crate) invitations: BTreeMap<InvitationId, Invitation>,
    /// The organizations in which the sessions of users act; absent for personal ones.
    pub(crate) current_organizations: BTreeMap<UserId, OrganizationId>,
    pub(crate) identities: BTreeMap<IdentityId, LinkedIdentity>,
    pub(crate) emails: BTreeMap<UserId, UserEmail>,
    pub(crate) audit: BTreeMap<Uuid, AuditEntry>,
    /// Stored responses, by owner and idempotency key.
    pub(crate) idempotent_responses: BTreeMap<(OwnerId, String), IdempotentResponse>,
    pub(crate) spending: BTreeMap<SpendingKey, Spent>,
    pub(crate) reservations: BTreeMap<Uuid, Reservation>,
    pub(crate) hosts: BTreeMap<HostId, Host>,
    /// Sandboxes that are MISSING because their host is lost.
    pub(crate) lost_with_host: BTreeSet<SandboxId>,
    /// Holder and expiry, by name.
    pub(crate) leases: BTreeMap<String, (String, Timestamp)>,
    /// The installation secret.
    pub(crate) vault: Option<Sealed>,
    /// Processes that seal and open, with their master keys, by the id of the process.
    pub(crate) key_holders: BTreeMap<String, KeyHolder>,
}

pub(crate) struct OrganizationRow {
    pub(crate) organization: Organization,
    pub(crate) deleted_at: Option<Timestamp>,
}

pub(crate) struct PendingRow {
    pub(crate) message: PendingMessage,
    pub(crate) owner: OwnerId,
    pub(crate) conversation_id: ConversationId,
    pub(crate) created_at: Timestamp,
}

pub(crate) struct ConversationRow {
    pub(crate) conversation: Conversation,
    /// Time of the status; `None` if it is unknown.
    pub(crate) status_at: Option<Timestamp>,
    /// Number of events of which only the short form is left.
    pub(crate) shortened_events: u64,
}

/// The record of a deleted conversation.
pub(crate) struct DeletedConversation {
    pub(crate) sandbox: SandboxId,
    pub(crate) at: Timestamp,
    /// Whether its agent server still has the conversation.
    pub(crate) pending: bool,
}

/// A start task and its lease.
pub(crate) struct TaskRow {
    pub(crate) task: StartTask,
    pub(crate) fence: i64,
    pub(crate) lease_until: Option<Timestamp>,
    /// Whether the task has stored its conversation.
    pub(crate) begun: bool,
}

impl MemoryState {
    /// The conversation, if the scope sees it.
    pub(crate) fn view(&self, scope: &Scope, id: ConversationId) -> Option<ConversationView> {
        let row = self.conversations.get(&id)?;
        scope
            .sees(&row.conversation.owner)
            .then(|| ConversationView {
                conversation: row.conversation.clone(),
                sandbox: self
                    .undeleted_sandbox(&row.conversation.sandbox_id)
                    .cloned(),
                children: self.children(scope, id),
            })
    }

    fn children(&self, scope: &Scope, parent: ConversationId) -> Vec<ConversationId> {
        let sorted: BTreeSet<_> = self
            .conversations
            .values()
            .filter(|row| {
                row.conversation.parent == Some(parent) && scope.sees(&row.conversation.owner)
            })
            .map(|row| (row.conversation.created_at, row.conversation.id))
            .collect();
        sorted.into_iter().map(|(_, id)| id).collect()
    }

    /// A sandbox that exists and is not marked for deletion.
    pub(crate) fn undeleted_sandbox(&self, id: &SandboxId) -> Option<&Sandbox> {
        self.sandboxes
            .get(id)
            .filter(|sandbox| sandbox.desired != DesiredState::Deleted)
    }

    /// Whether a conversation or an unfinished start needs the sandbox.
    pub(crate) fn is_needed(&self, sandbox: &SandboxId) -> bool {
        self.conversations
            .values()
            .any(|row| row.conversation.sandbox_id == *sandbox)
            || self
                .tasks
                .values()
                .any(|row| row.task.sandbox_id == *sandbox && !row.task.status.is_terminal())
    }

    /// Marks a sandbox for deletion unless something needs it; returns whether it is marked.
    pub(crate) fn delete_unless_needed(&mut self, id: &SandboxId, at: Timestamp) -> bool {
        if self.is_needed(id) {
            return false;
        }
        if let Some(sandbox) = self.sandboxes.get_mut(id)
            && sandbox.desired != DesiredState::Deleted
        {
            sandbox.desired = DesiredState::Deleted;
            sandbox.updated_at = at;
        }
        true
    }
}
