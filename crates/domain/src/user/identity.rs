//! Users, their roles and their API keys. Only hashes of keys are stored.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{ApiKeyId, InvalidId, OrganizationId, SessionId, UserId};
use crate::user::permission::ActiveMembership;
use crate::wire_enum::wire_enum;

/// The SHA-256 of a key, written as 64 lower-case hex digits. A look-up by hash does not leak the key through its
/// timing. Users' API keys and sandboxes' session keys are stored this way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a key: a user's API key, the bootstrap key of the operator, or a sandbox's session key. Keys are random,
    /// not chosen like passwords, so they need neither a salt nor a slow hash.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({self})")
    }
}

impl FromStr for KeyHash {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = InvalidId {
            kind: "KeyHash",
            expected: "64 lower-case hex digits",
        };
        let is_hex = |digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 64 || !text.bytes().all(is_hex) {
            return Err(invalid);
        }
        let mut hash = [0; 32];
        for (at, byte) in hash.iter_mut().enumerate() {
            let digits = &text[2 * at..2 * at + 2];
            *byte = u8::from_str_radix(digits, 16).map_err(|_| invalid.clone())?;
        }
        Ok(Self(hash))
    }
}

/// A stored API key. The text of the key is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Id of the record (for `keys revoke`).
    pub id: ApiKeyId,
    pub user: UserId,
    pub hash: KeyHash,
    /// The first characters of the key (`aw_` and a few more), to recognise it by.
    pub prefix: String,
    pub created_at: Timestamp,
    /// The service refuses the key from this time on; `None` means that it never expires.
    pub expires_at: Option<Timestamp>,
    /// Time of the last use, to the minute.
    pub last_used_at: Option<Timestamp>,
    pub name: Option<String>,
    /// The only organization in which the key acts; `None` means that requests choose one.
    pub organization: Option<OrganizationId>,
    /// The creator, in the form of [`crate::audit::AuditActor`]. `None` for keys of versions that did not store it.
    pub made_by: Option<String>,
    /// Whether the key is for the automations service, which acts with it for the user. Such a key opens only what that
    /// service needs, and does not count as one of the user's own.
    pub is_automation: bool,
}

/// Maximum length of a key's name, in characters.
pub const MAX_KEY_NAME_CHARS: usize = 100;

/// Maximum number of unexpired keys of one user. A rotation may exceed it by one.
pub const MAX_KEYS_PER_USER: usize = 100;

/// Id of the key that the operator configures (`auth.bootstrap_key`). The id is fixed, so that a new configured key
/// replaces the old one. Every start stores the key again as it is configured.
pub const BOOTSTRAP_KEY_ID: ApiKeyId =
    ApiKeyId::new(Uuid::from_u128(0x6177_0000_0000_4000_8000_0000_0000_0001));

wire_enum! {
    #[derive(Default)]
    Role {
        /// Full access to the user's own objects.
        #[default]
        User = "user",
        /// The rights of a user, and the administration of users, keys and the audit log. Other users' objects stay
        /// invisible.
        Admin = "admin",
    }
}

/// A key and the role of its user, read in one look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyWithRole {
    pub key: ApiKey,
    pub role: Role,
    /// The membership in the shared organization of the key, while it lasts.
    pub membership: Option<ActiveMembership>,
}

impl ApiKey {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// API keys and their users. A user exists from the first key on.
#[async_trait]
pub trait ApiKeyRepository: Send + Sync + 'static {
    /// Stores a key, and its user ([`Role::User`]) if the user is new. Returns `Conflict` if the hash or id is taken.
    /// Returns `UserNameReserved` while rows of a deleted user of this name remain, or less than
    /// [`USER_NAME_REUSE_GRACE`] before `key.created_at`. Later the name belongs to a new user.
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError>;
    /// The key with this hash, also if it has expired (the caller decides). Keys of users whose deletion has begun are
    /// not found.
    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<ApiKeyWithRole>, StoreError>;
    /// All keys, or those of one user, oldest first.
    async fn list(&self, user: Option<&UserId>) -> Result<Vec<ApiKey>, StoreError>;
    /// Deletes the key. `false` if there is none.
    async fn revoke(&self, id: ApiKeyId) -> Result<bool, StoreError>;
    /// Records a use. Does nothing if the key is gone.
    async fn touch(&self, id: ApiKeyId, at: Timestamp) -> Result<(), StoreError>;
    /// Deletes at most `limit` keys that expired before `before`; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// How long the name of a deleted user stays reserved. It is longer than any request that began with one of the user's
/// keys, so that no late write reaches a new user of that name.
pub const USER_NAME_REUSE_GRACE: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub role: Role,
    pub created_at: Timestamp,
    /// When the deletion began. The user's rows go in batches; this row stays until none is left and
    /// [`USER_NAME_REUSE_GRACE`] has passed.
    pub deleted_at: Option<Timestamp>,
    /// Since when the user cannot sign in or use a key.
    pub disabled_at: Option<Timestamp>,
}

impl User {
    /// Whether the user can sign in and use keys.
    pub const fn is_active(&self) -> bool {
        self.deleted_at.is_none() && self.disabled_at.is_none()
    }
}

/// The rows that one call of [`UserRepository::purge`] changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgeCounts {
    pub api_keys: u64,
    /// Settings documents deleted.
    pub settings: u64,
    pub secrets: u64,
    /// Sandboxes marked for removal.
    pub sandboxes: u64,
    pub start_tasks: u64,
    pub conversations: u64,
    pub events: u64,
    /// Other rows deleted: stored responses, pending messages and records of deleted conversations.
    pub others: u64,
    /// Whether rows may remain, so that the caller must repeat the call.
    pub more: bool,
}

impl AddAssign for PurgeCounts {
    /// Adds the counts; `more` is that of the later call.
    fn add_assign(&mut self, later: Self) {
        self.api_keys += later.api_keys;
        self.settings += later.settings;
        self.secrets += later.secrets;
        self.sandboxes += later.sandboxes;
        self.start_tasks += later.start_tasks;
        self.conversations += later.conversations;
        self.events += later.events;
        self.others += later.others;
        self.more = later.more;
    }
}

/// Users and their deletion.
///
/// ```text
///   first key ──► (created) ──purge──► deleted_at, nothing can be used or made ──purge…──► nothing left but sandboxes
///                     ▲                                                                     to be removed
///                     └── a key, once all is gone and the name is free again ◄── prune: no row ◄──┘
/// ```
///
/// Owners without a row (the local user of open mode) are users, too; the deletion creates their row.
#[async_trait]
pub trait UserRepository: Send + Sync + 'static {
    /// Users by name, after `after`, at most `limit`.
    async fn list(&self, after: Option<&UserId>, limit: usize) -> Result<Vec<User>, StoreError>;
    /// The user with the earliest creation time, without those whose deletion has begun.
    async fn find_oldest(&self) -> Result<Option<User>, StoreError>;
    /// The user of this name, also if the deletion has begun.
    async fn find(&self, user: &UserId) -> Result<Option<User>, StoreError>;
    /// Deletes about `limit` rows of a user; the caller repeats the call while `more` is set. The bound keeps each
    /// transaction small. `None` if neither the user nor rows of that name exist.
    ///
    /// The first call sets `deleted_at`, deletes API keys, settings and secrets, and ends unfinished start tasks in
    /// ERROR without their secrets (a worker's next write is `Stale`). It sets all sandboxes to
    /// `DesiredState::Deleted`: their keys are refused from then on, and the reconciler of their host removes them.
    /// After it nothing of this user can be stored: sandboxes, start tasks, settings and secrets are refused with
    /// `NotFound` of `Entity::DeletedUser`, and keys as [`ApiKeyRepository::insert`] says.
    ///
    /// Later calls delete stored responses, start tasks, and conversations with their events. They keep no record of
    /// deleted conversations, because without a sandbox no report about them can arrive.
    async fn purge(
        &self,
        user: &UserId,
        at: Timestamp,
        limit: usize,
    ) -> Result<Option<PurgeCounts>, StoreError>;
    /// Deleted users of whom more than sandboxes to be removed is left, because the deletion was interrupted. At most
    /// `limit`, earliest deletion first.
    async fn list_partially_deleted(&self, limit: usize) -> Result<Vec<UserId>, StoreError>;
    /// Deletes at most `limit` rows of users that were deleted before `before` and of whom nothing is left, sandboxes
    /// included; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// What identified the user who makes a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerCredential {
    ApiKey(ApiKeyId),
    Session(SessionId),
}

/// The user and role behind a [`CallerCredential`], as the transaction of a change finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerIdentity {
    pub user: UserId,
    pub role: Role,
    /// The end of the credential; `None` means that it never expires.
    pub expires_at: Option<Timestamp>,
    /// The organization to which the API key is bound.
    pub bound_to: Option<OrganizationId>,
}

impl From<ApiKeyWithRole> for CallerIdentity {
    fn from(found: ApiKeyWithRole) -> Self {
        Self {
            user: found.key.user,
            role: found.role,
            expires_at: found.key.expires_at,
            bound_to: found.key.organization,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_fixed_spellings() {
        for (text, role) in [("user", Role::User), ("admin", Role::Admin)] {
            assert_eq!((text.parse(), role.as_str()), (Ok(role), text));
        }
        assert!("Admin".parse::<Role>().is_err());
    }

    #[test]
    fn a_key_hash_is_sha_256_in_hex() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let hash = KeyHash::of("abc");
        assert_eq!(hash.to_string(), text);
        assert_eq!(text.parse(), Ok(hash));
        for wrong in [
            "",
            &text[1..],
            &text.to_uppercase(),
            &text.replace('b', "é"),
        ] {
            assert!(wrong.parse::<KeyHash>().is_err(), "{wrong}");
        }
    }
}
