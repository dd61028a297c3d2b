//! Changes of users, organizations and sign-in: each is committed in one transaction with its audit entry.

use domain::audit::{AuditActor, AuditEntry, AuditOutcome, sanitize_text};
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{ApiKeyId, IdGenerator, SessionId, UserId};
use domain::sandbox::Sandbox;
use domain::user::administration::{AdminChange, AdministrationRepository};
use domain::user::identity::{ApiKeyWithRole, PurgeCounts};
use domain::user::sign_in::SessionWithRole;
use uuid::Uuid;

use super::key_cache::KeyCache;
use super::organizations::texts as organization_texts;
use super::sign_in::texts as sign_in_texts;
use crate::AppError;

/// The caller of an operation, as the audit entry records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub actor: AuditActor,
    pub key: Option<ApiKeyId>,
    pub session: Option<SessionId>,
    /// Method and route, or the command.
    pub action: String,
    pub source: Option<String>,
    pub request_id: Option<String>,
    /// Status of the response if the operation succeeds.
    pub status: Option<u16>,
}

impl Origin {
    /// A command (`users delete`) of the command line.
    pub fn command(words: &str) -> Self {
        Self::of(AuditActor::Cli, format!("cli {words}"))
    }

    pub fn service(action: &str) -> Self {
        Self::of(AuditActor::Service, action.to_owned())
    }

    fn of(actor: AuditActor, action: String) -> Self {
        Self {
            actor,
            key: None,
            session: None,
            action,
            source: None,
            request_id: None,
            status: None,
        }
    }

    pub fn entry(&self, ids: &dyn IdGenerator, at: Timestamp, change: &AdminChange) -> AuditEntry {
        let (object, detail) = describe_change(change);
        AuditEntry {
            action: sanitize_text(&self.action),
            object: Some(sanitize_text(&object)),
            detail: detail.map(|detail| sanitize_text(&detail)),
            ..self.clone().into_entry(ids.uuid(), at, AuditOutcome::Ok)
        }
    }

    /// An entry without an object.
    pub(super) fn into_entry(self, id: Uuid, at: Timestamp, outcome: AuditOutcome) -> AuditEntry {
        AuditEntry {
            id,
            at,
            actor: self.actor,
            key: self.key,
            session: self.session,
            action: self.action,
            object: None,
            detail: None,
            source: self.source,
            outcome,
            status: self.status,
            request_id: self.request_id,
            count: 1,
        }
    }
}

fn describe_change(change: &AdminChange) -> (String, Option<String>) {
    match change {
        AdminChange::CreateUser { user, role } | AdminChange::SetRole { user, role } => (
            format!("user:{user}"),
            Some(format!("role:{}", role.as_str())),
        ),
        AdminChange::DeleteUser { user } => (format!("user:{user}"), None),
        AdminChange::CreateKey { key, .. } => (
            format!("key:{}", key.id),
            Some(format!("user:{}", key.user)),
        ),
        AdminChange::RotateKey { old, new, .. } => (
            format!("key:{old}"),
            Some(format!("new:{} user:{}", new.id, new.user)),
        ),
        AdminChange::RevokeKey { id, user } => (format!("key:{id}"), Some(format!("user:{user}"))),
        AdminChange::SetDisabled { user, disabled } => {
            let detail = if *disabled { "disabled" } else { "enabled" };
            (format!("user:{user}"), Some(detail.to_owned()))
        }
        AdminChange::SignIn(change) => sign_in_texts::describe(change),
        AdminChange::Organization(change) => organization_texts::describe(change),
    }
}

/// Cached callers, which a change may affect.
#[derive(Clone)]
pub(crate) struct CallerCaches {
    pub(crate) api_keys: KeyCache<ApiKeyWithRole>,
    pub(crate) sessions: KeyCache<SessionWithRole>,
    pub(crate) reporters: KeyCache<Sandbox>,
}

impl CallerCaches {
    pub(super) fn clear_users(&self) {
        self.api_keys.clear();
        self.sessions.clear();
    }

    pub(super) fn clear_all(&self) {
        self.clear_users();
        self.reporters.clear();
    }
}

/// Commits a change with its audit entry, also for programs that only have the store. Returns what the first step of a
/// deletion removed.
pub async fn administer(
    store: &dyn AdministrationRepository,
    origin: &Origin,
    ids: &dyn IdGenerator,
    now: Timestamp,
    change: &AdminChange,
) -> Result<PurgeCounts, AppError> {
    let entry = origin.entry(ids, now, change);
    let done = store.administer(change, &entry).await;
    done.map_err(|error| match (error, change) {
        (
            StoreError::NotFound {
                entity: Entity::Organization,
            },
            AdminChange::CreateKey { key, .. },
        ) => AppError::not_found(format!("{} is no member of this organization", key.user)),
        (StoreError::NotFound { .. }, AdminChange::CreateKey { key, .. }) => {
            user_not_found(&key.user)
        }
        (
            StoreError::NotFound { .. },
            AdminChange::SetRole { user, .. }
            | AdminChange::SetDisabled { user, .. }
            | AdminChange::DeleteUser { user },
        ) => user_not_found(user),
        (error, AdminChange::Organization(change)) => organization_texts::refusal(error, change),
        (StoreError::NotFound { .. }, AdminChange::SignIn(change)) => {
            sign_in_texts::not_found(change)
        }
        (StoreError::NotFound { .. }, _) => key_not_found(),
        (StoreError::Conflict { .. }, AdminChange::CreateUser { user, .. }) => {
            AppError::conflict(format!("User {user} already exists: choose another name"))
        }
        (error, _) => error.into(),
    })
}

pub(super) fn user_not_found(user: &UserId) -> AppError {
    AppError::not_found(format!("There is no user {user}"))
}

pub(super) fn key_not_found() -> AppError {
    AppError::not_found("There is no such key")
}
