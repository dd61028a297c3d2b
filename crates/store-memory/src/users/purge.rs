//! Deletes the rows of owners.

use domain::clock::Timestamp;
use domain::id::{ConversationId, OrganizationId, OwnerId, UserId};
use domain::sandbox::DesiredState;
use domain::start_task::StartStatus;
use domain::user::identity::PurgeCounts;
use domain::user::settings::SettingsOwner;

use crate::MemoryStore;
use crate::state::MemoryState;

/// Detail of a start task whose owner was deleted; clients can read it.
const DELETED_DURING_START: &str = "The user was deleted before the start had ended.";

/// The owners whose rows are changed or deleted.
#[derive(Debug, Clone)]
pub(crate) enum OwnerSet {
    /// All memberships of a user.
    User(UserId),
    /// All memberships of a shared organization.
    Organization(OrganizationId),
    Membership(OwnerId),
}

impl OwnerSet {
    pub(crate) fn contains(&self, owner: &OwnerId) -> bool {
        match self {
            Self::User(user) => owner.user() == *user,
            Self::Organization(id) => owner.shared_organization() == Some(*id),
            Self::Membership(membership) => owner == membership,
        }
    }

    /// Whether these settings are of one of the owners, or are those of the whole organization.
    fn contains_settings(&self, owner: &SettingsOwner) -> bool {
        match owner {
            SettingsOwner::Member(owner) => self.contains(owner),
            SettingsOwner::Organization(of) => {
                matches!(self, Self::Organization(id) if id == of)
            }
        }
    }
}

impl MemoryState {
    /// Whether the owners have more than sandboxes marked for removal.
    pub(crate) fn has_owned_rows(&self, of: &OwnerSet) -> bool {
        let is_owner = |owner: &OwnerId| of.contains(owner);
        self.settings.keys().any(|it| of.contains_settings(it))
            || self.secrets.keys().any(|(owner, _)| is_owner(owner))
            || self
                .conversations
                .values()
                .any(|row| is_owner(&row.conversation.owner))
            || self.tasks.values().any(|it| is_owner(&it.task.owner))
            || self.pending.iter().any(|it| is_owner(&it.owner))
            || self.egress_requests.values().any(|it| is_owner(&it.owner))
            || self
                .idempotent_responses
                .keys()
                .any(|(owner, _)| is_owner(owner))
            || self.spending.keys().any(|it| is_owner(&it.owner))
            || self.reservations.values().any(|it| is_owner(&it.key.owner))
            || self
                .sandboxes
                .values()
                .any(|it| is_owner(&it.owner) && it.desired != DesiredState::Deleted)
    }

    pub(crate) fn has_sandboxes(&self, of: &OwnerSet) -> bool {
        self.sandboxes.values().any(|it| of.contains(&it.owner))
    }

    /// Deletes settings and secrets, ends unfinished starts and marks sandboxes for removal.
    pub(crate) fn erase_secrets(&mut self, of: &OwnerSet, at: Timestamp) -> PurgeCounts {
        let (settings, secrets) = (self.settings.len(), self.secrets.len());
        self.settings
            .retain(|owner, _| !of.contains_settings(owner));
        self.secrets.retain(|(owner, _), _| !of.contains(owner));
        let mut purged = PurgeCounts {
            settings: (settings - self.settings.len()) as u64,
            secrets: (secrets - self.secrets.len()) as u64,
            ..PurgeCounts::default()
        };
        self.fail_starts(of, DELETED_DURING_START, at);
        for sandbox in self.sandboxes.values_mut() {
            if of.contains(&sandbox.owner) && sandbox.desired != DesiredState::Deleted {
                sandbox.desired = DesiredState::Deleted;
                sandbox.updated_at = at;
                purged.sandboxes += 1;
            }
        }
        purged
    }

    /// Ends unfinished starts in ERROR without their secrets.
    pub(crate) fn fail_starts(&mut self, of: &OwnerSet, detail: &str, at: Timestamp) {
        for row in self.tasks.values_mut() {
            if of.contains(&row.task.owner) && !row.task.status.is_terminal() {
                row.task.status = StartStatus::Error;
                row.task.detail = Some(detail.to_owned());
                row.task.sealed_secrets = None;
                row.task.updated_at = at;
                row.lease_until = None;
                row.fence += 1;
            }
        }
    }

    /// Deletes about `limit` of the other rows.
    pub(crate) fn purge_owned(&mut self, of: &OwnerSet, limit: usize) -> PurgeCounts {
        let mut budget = limit.max(1);
        let mut purged = PurgeCounts {
            others: self.purge_others(of, &mut budget),
            start_tasks: self.purge_starts(of, &mut budget),
            ..PurgeCounts::default()
        };
        (purged.conversations, purged.events) = self.purge_conversations(of, &mut budget);
        purged.more = budget == 0;
        purged
    }

    /// Deletes stored responses, pending messages, requests of sandboxes and records of deleted conversations.
    fn purge_others(&mut self, of: &OwnerSet, budget: &mut usize) -> u64 {
        let responses = self
            .idempotent_responses
            .keys()
            .filter(|(owner, _)| of.contains(owner));
        let responses: Vec<_> = responses.take(*budget).cloned().collect();
        for key in &responses {
            self.idempotent_responses.remove(key);
        }
        *budget -= responses.len();
        let spending = self.purge_spending(of, *budget);
        *budget -= spending;
        let pending = self.purge_pending(of, *budget);
        *budget -= pending;
        let egress = self.egress_requests.values();
        let egress = egress.filter(|it| of.contains(&it.owner)).map(|it| it.id);
        let egress: Vec<_> = egress.take(*budget).collect();
        for id in &egress {
            self.egress_requests.remove(id);
        }
        *budget -= egress.len();
        let theirs = |id| {
            let sandbox = self.sandboxes.get(id);
            sandbox.is_some_and(|it| of.contains(&it.owner))
        };
        let deletions = self.deleted.iter().filter(|(_, it)| theirs(&it.sandbox));
        let deletions: Vec<_> = deletions.map(|(id, _)| *id).take(*budget).collect();
        for id in &deletions {
            self.deleted.remove(id);
        }
        *budget -= deletions.len();
        (responses.len() + spending + pending + egress.len() + deletions.len()) as u64
    }

    fn purge_spending(&mut self, of: &OwnerSet, limit: usize) -> usize {
        let open = self.reservations.iter();
        let open = open.filter(|(_, it)| of.contains(&it.key.owner));
        let open: Vec<_> = open.map(|(id, _)| *id).take(limit).collect();
        for id in &open {
            self.reservations.remove(id);
        }
        let rows = self.spending.keys().filter(|key| of.contains(&key.owner));
        let rows: Vec<_> = rows.take(limit - open.len()).cloned().collect();
        for key in &rows {
            self.spending.remove(key);
        }
        open.len() + rows.len()
    }

    fn purge_starts(&mut self, of: &OwnerSet, budget: &mut usize) -> u64 {
        let starts = self.tasks.values().map(|row| &row.task);
        let starts = starts.filter(|it| of.contains(&it.owner)).map(|it| it.id);
        let starts: Vec<_> = starts.take(*budget).collect();
        for id in &starts {
            self.tasks.remove(id);
        }
        *budget -= starts.len();
        starts.len() as u64
    }

    /// Deletes conversations; returns the numbers of conversations and events.
    fn purge_conversations(&mut self, of: &OwnerSet, budget: &mut usize) -> (u64, u64) {
        let theirs = self.conversations.values().map(|row| &row.conversation);
        let theirs = theirs.filter(|it| of.contains(&it.owner)).map(|it| it.id);
        let theirs: Vec<ConversationId> = theirs.take(*budget).collect();
        let (mut conversations, mut events) = (0, 0);
        for id in theirs {
            let log = self.events.entry(id).or_default();
            let part = log.len().min(*budget);
            log.drain(..part);
            *budget -= part;
            events += part as u64;
            if *budget == 0 {
                break;
            }
            self.events.remove(&id);
            self.conversations.remove(&id);
            *budget -= 1;
            conversations += 1;
        }
        (conversations, events)
    }
}

impl MemoryStore {
    /// Publishes the change of all sandboxes of these owners.
    pub(crate) fn publish_sandboxes(&self, state: &MemoryState, of: &OwnerSet) {
        for sandbox in state.sandboxes.values().filter(|it| of.contains(&it.owner)) {
            self.publish_sandbox(sandbox);
        }
    }
}
