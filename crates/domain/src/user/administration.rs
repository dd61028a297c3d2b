//! Changes of users, keys, organizations and sign-in, and who may make them.

use async_trait::async_trait;

use crate::audit::{AuditActor, AuditEntry};
use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{ApiKeyId, OrganizationId, UserId};
use crate::user::identity::{ApiKey, CallerCredential, CallerIdentity, PurgeCounts, Role};
use crate::user::organization::OrganizationChange;
use crate::user::permission::MemberRole;
use crate::user::sign_in::SignInChange;

/// A change to users or keys, by an administrator or by a user to their own keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminChange {
    /// Creates a user without a key. `Conflict` as for [`ApiKeyRepository::insert`](super::identity::ApiKeyRepository::insert), and if the user exists.
    CreateUser { user: UserId, role: Role },
    /// Changes the role of a user. `NotFound` if the user does not exist or their deletion has begun.
    SetRole { user: UserId, role: Role },
    /// Begins the deletion of a user: does what the first [`UserRepository::purge`](super::identity::UserRepository::purge) does; later calls of `purge`
    /// complete it. `NotFound` if neither the user nor rows of that name exist.
    DeleteUser { user: UserId },
    /// Creates a key. `Conflict` as for [`ApiKeyRepository::insert`](super::identity::ApiKeyRepository::insert).
    CreateKey {
        key: ApiKey,
        /// The role of the user that is created with the key. `None`: the user must exist, else `NotFound`.
        new_user: Option<Role>,
    },
    /// Replaces a key by a new one of the same user; the old key expires at `until` at the latest. `NotFound` if the
    /// user has no such key, or it has expired by `new.created_at`.
    RotateKey {
        old: ApiKeyId,
        new: ApiKey,
        /// Latest expiry of the old key.
        until: Timestamp,
    },
    /// Deletes a key of this user. `NotFound` if there is none.
    RevokeKey { id: ApiKeyId, user: UserId },
    /// Disables a user, or enables them again. A disabled user cannot sign in or use a key: sessions and one-time links end,
    /// unfinished starts fail and sandboxes pause. `NotFound` if the user does not exist or their deletion has begun.
    SetDisabled { user: UserId, disabled: bool },
    /// Changes how a user signs in.
    SignIn(SignInChange),
    /// Changes a shared organization.
    Organization(OrganizationChange),
}

impl AdminChange {
    /// The credential that must be verified in the transaction of the change: the one that a user authenticated with.
    /// `None` for callers without one: the command line, the service, users who sign in or redeem a link, and every
    /// caller in open mode.
    pub fn caller(entry: &AuditEntry) -> Option<CallerCredential> {
        match entry.actor {
            AuditActor::User(_) => entry
                .key
                .map(CallerCredential::ApiKey)
                .or(entry.session.map(CallerCredential::Session)),
            _ => None,
        }
    }

    /// The organization in which the caller needs a role.
    pub const fn organization(&self) -> Option<OrganizationId> {
        match self {
            Self::Organization(change) => Some(change.organization()),
            _ => None,
        }
    }

    /// Checks that the user of `entry` may make the change, given their credential and their role in
    /// [`Self::organization`] as the transaction finds them. If not, returns the reason, such as
    /// [`StoreError::CallerRevoked`] or [`StoreError::CallerNotAdministrator`].
    pub fn authorize(
        &self,
        entry: &AuditEntry,
        found: Option<&CallerIdentity>,
        member_role: Option<MemberRole>,
    ) -> Result<(), StoreError> {
        let valid = found.filter(|it| {
            entry.actor == AuditActor::User(it.user.clone())
                && it.expires_at.is_none_or(|end| end > entry.at)
        });
        let Some(known) = valid else {
            return Err(StoreError::CallerRevoked);
        };
        if let Self::Organization(change) = self {
            let is_elsewhere = |bound| bound != change.organization();
            let role = member_role.filter(|_| !known.bound_to.is_some_and(is_elsewhere));
            return change.authorize(known, role);
        }
        if let Some(bound) = known.bound_to {
            return self.authorize_bound_key(known, bound);
        }
        let user = &known.user;
        let is_own = match self {
            Self::SignIn(change) => change.is_own(user),
            Self::CreateKey { key, .. } => key.user == *user,
            Self::RotateKey { new, .. } => new.user == *user,
            Self::RevokeKey { user: owner, .. } => owner == user,
            Self::Organization(_)
            | Self::CreateUser { .. }
            | Self::SetRole { .. }
            | Self::SetDisabled { .. }
            | Self::DeleteUser { .. } => false,
        };
        if is_own || known.role == Role::Admin {
            return Ok(());
        }
        Err(StoreError::CallerNotAdministrator)
    }

    /// A bound key makes and rotates keys of its user that are bound to the same organization, and nothing else.
    fn authorize_bound_key(
        &self,
        known: &CallerIdentity,
        bound: OrganizationId,
    ) -> Result<(), StoreError> {
        match self {
            Self::CreateKey { key, .. } | Self::RotateKey { new: key, .. }
                if key.user == known.user && key.organization == Some(bound) =>
            {
                Ok(())
            }
            _ => Err(StoreError::KeyBoundElsewhere),
        }
    }
}

/// Changes of users and keys. Each is stored together with its entry in the audit log.
#[async_trait]
pub trait AdministrationRepository: Send + Sync + 'static {
    /// Makes the change and stores the entry in one transaction, at the time `entry.at`. The transaction authorizes the
    /// caller again ([`AdminChange::authorize`]), because their key may have been revoked or their role changed since
    /// the request began. Returns the counts of a deletion, and zeros for other changes.
    async fn administer(
        &self,
        change: &AdminChange,
        entry: &AuditEntry,
    ) -> Result<PurgeCounts, StoreError>;
}
