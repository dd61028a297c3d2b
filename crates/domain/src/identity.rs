//! Users, what they may do, and their API keys. Only hashes of keys are stored.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::audit::{AuditActor, AuditEntry};
use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{ApiKeyId, InvalidId, UserId};

/// SHA-256 of a key's text, written as 64 lower-case hex digits. Looking a key up by its hash makes the comparison constant in
/// time as far as the key is concerned. Used for users' API keys and for sandboxes' session keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of any key's text: a user's API key, a bootstrap key that the operator made up, a sandbox's session key.
    /// No salt and no slow hash: keys are random, not chosen like passwords, and the hash is what they are looked up by.
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

    /// Of its hex digits.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = InvalidId {
            kind: "KeyHash",
            expected: "64 lower-case hex digits",
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let Ok(pairs) = <&[[u8; 2]; 32]>::try_from(pairs) else {
            return Err(invalid);
        };
        let mut wrong = !rest.is_empty();
        // Every row of a sandbox has one: without a branch for each digit.
        let bytes = pairs.map(|pair| {
            let [high, low] = pair.map(|digit| DIGITS[usize::from(digit)]);
            wrong |= (high | low) > 15;
            high << 4 | low
        });
        if wrong { Err(invalid) } else { Ok(Self(bytes)) }
    }
}

/// What each byte stands for as one of the digits that [`KeyHash`] is written with; 255: it is none.
const DIGITS: [u8; 256] = {
    let mut values = [255; 256];
    let (digits, mut value) = (b"0123456789abcdef", 0);
    while value < 16 {
        values[digits[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// A user's API key, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Id of the record (for `keys revoke`).
    pub id: ApiKeyId,
    /// Whose key it is.
    pub user: UserId,
    /// Hash of the text.
    pub hash: KeyHash,
    /// The first characters of the text (`aw_` and a few more), to recognise it by.
    pub prefix: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is refused; `None` never.
    pub expires_at: Option<Timestamp>,
    /// When it was last seen, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// What its owner calls it.
    pub name: Option<String>,
    /// Who made it, as the audit log writes actors ([`crate::audit::AuditActor`]); unknown for keys of earlier versions.
    pub made_by: Option<String>,
}

/// Longest name of a key, in characters.
pub const MAX_KEY_NAME_CHARS: usize = 100;

/// Most keys of one user that have not expired. One that takes the place of another may be one more.
pub const MAX_KEYS_PER_USER: usize = 100;

/// The key that the operator configured (`auth.bootstrap_key`): always this one, so that another configured key replaces
/// it. What it opens is changed in the configuration; each start stores it again.
pub const BOOTSTRAP_KEY_ID: ApiKeyId =
    ApiKeyId::new(Uuid::from_u128(0x6177_0000_0000_4000_8000_0000_0000_0001));

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Everything with what is their own.
    #[default]
    User,
    /// That, and to administer users, keys and the audit log. Other users' objects stay out of reach.
    Admin,
}

impl Role {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::User, Self::Admin];

    /// The word that stands for it on the wire, in the store and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Admin => "admin",
        }
    }
}

/// The text is no role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a role is `user` or `admin`")]
pub struct InvalidRole;

impl FromStr for Role {
    type Err = InvalidRole;

    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        let known = Self::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or(InvalidRole)
    }
}

/// A key, and what its user may do: one look-up for both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyWithRole {
    /// The key.
    pub key: ApiKey,
    /// The role of its user.
    pub role: Role,
}

/// The text of a new key: for its owner, once.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    /// The text.
    pub text: SecretString,
    /// Its first characters, to recognise it by.
    pub prefix: String,
}

impl ApiKey {
    /// Whether the key is past its end.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Keys and the users they stand for. A user exists from the first key on.
#[async_trait]
pub trait ApiKeyRepository: Send + Sync + 'static {
    /// Stores a key, and its user ([`Role::User`]) when that is new. `Conflict` if the hash (or id) is taken, and with the entity
    /// [`DELETED_USER_ENTITY`] if a user of this name was deleted and something of them is left, or it was less than
    /// [`USER_NAME_REUSE_GRACE`] before `key.created_at`; after that the name is a new user's.
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError>;
    /// The key with this hash, also when it is expired (the caller decides). None of a user whose deletion has begun.
    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<ApiKeyWithRole>, StoreError>;
    /// All keys, of one user when named, oldest first.
    async fn list(&self, user: Option<&UserId>) -> Result<Vec<ApiKey>, StoreError>;
    /// Deletes the key: nobody finds it from then on. `false` if there is none.
    async fn revoke(&self, id: ApiKeyId) -> Result<bool, StoreError>;
    /// Notes a use. Does nothing if the key is gone.
    async fn touch(&self, id: ApiKeyId, at: Timestamp) -> Result<(), StoreError>;
    /// Deletes keys that expired before; how many. At most `limit`.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// How long the name of a deleted user stays taken: longer than any request that came with one of their keys, so that
/// nothing of it ends up with another user of that name.
pub const USER_NAME_REUSE_GRACE: Duration = Duration::from_secs(10 * 60);

/// What [`StoreError`] calls a user who was deleted.
pub const DELETED_USER_ENTITY: &str = "deleted user";

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub id: UserId,
    /// What they may do.
    pub role: Role,
    /// Since when they are known.
    pub created_at: Timestamp,
    /// When their deletion began. The rest goes by and by; the row stays until nothing is left and the name has rested.
    pub deleted_at: Option<Timestamp>,
}

/// What one call of [`UserRepository::purge`] did, in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgeCounts {
    /// API keys deleted.
    pub api_keys: u64,
    /// Documents of settings deleted: one or none.
    pub settings: u64,
    /// Custom secrets deleted.
    pub secrets: u64,
    /// Sandboxes that are to be removed from now on.
    pub sandboxes: u64,
    /// Start tasks deleted.
    pub start_tasks: u64,
    /// Conversations deleted.
    pub conversations: u64,
    /// Their events.
    pub events: u64,
    /// Answers to requests with a key, and memory of conversations deleted before.
    pub others: u64,
    /// Whether there may be more: the call is to be repeated.
    pub more: bool,
}

impl AddAssign for PurgeCounts {
    /// Sums up; `more` is that of the later call.
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

/// Users, and their end.
///
/// ```text
///   first key ──► (created) ──purge──► deleted_at, nothing can be used or made ──purge…──► nothing left but sandboxes
///                     ▲                                                                     to be removed
///                     └── a key, once all is gone and the name has rested ◄── prune: no row ◄──┘
/// ```
///
/// Owners without a row (the local user, where requests need no key) are users, too; they get theirs with the deletion.
#[async_trait]
pub trait UserRepository: Send + Sync + 'static {
    /// Users by name, after `after`, at most `limit`.
    async fn list(&self, after: Option<&UserId>, limit: usize) -> Result<Vec<User>, StoreError>;
    /// The user who was made first, of those whose deletion has not begun.
    async fn find_oldest(&self) -> Result<Option<User>, StoreError>;
    /// The user of this name, also when their deletion has begun.
    async fn find(&self, user: &UserId) -> Result<Option<User>, StoreError>;
    /// Deletes what there is of a user: about `limit` rows in one call, so that no transaction is huge. To be repeated while
    /// there is more. `None` if there is no such user and nothing of such a one.
    ///
    /// All at once with the first call: `deleted_at` is set, API keys, settings and secrets go, unfinished starts end in
    /// ERROR without their secrets (a worker's next write is `Stale`), and all sandboxes become `DesiredState::Deleted`, so that
    /// their keys open nothing and whoever serves their host removes them. From then on nothing of this user can be stored:
    /// sandboxes, starts, settings and secrets are refused (`NotFound` of a [`DELETED_USER_ENTITY`]), and so are keys
    /// ([`ApiKeyRepository::insert`]). With the further ones go answers, start tasks, and conversations with their events;
    /// they are not remembered as deleted, for without a sandbox nobody can report about them.
    async fn purge(
        &self,
        user: &UserId,
        at: Timestamp,
        limit: usize,
    ) -> Result<Option<PurgeCounts>, StoreError>;
    /// Deleted users of whom more than sandboxes to be removed is left: whoever deleted them did not come to the end. At
    /// most `limit`, the one deleted first first.
    async fn list_partially_deleted(&self, limit: usize) -> Result<Vec<UserId>, StoreError>;
    /// Deletes the rows of users who were deleted before and of whom nothing is left, sandboxes included; how many there
    /// were. At most `limit`.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// What an administrator, or somebody about their own keys, changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminChange {
    /// A user who has no key yet. `Conflict` as with [`ApiKeyRepository::insert`], and of a `user` that there is.
    CreateUser {
        /// The name.
        user: UserId,
        /// What they may do.
        role: Role,
    },
    /// What a user may do. `NotFound` if there is none, or their deletion has begun.
    SetRole {
        /// Whose.
        user: UserId,
        /// What from now on.
        role: Role,
    },
    /// A deletion begins: all that goes at once with the first [`UserRepository::purge`], which goes on. `NotFound` if there
    /// is no such user and nothing of such a one.
    DeleteUser {
        /// Whose.
        user: UserId,
    },
    /// A key. `Conflict` as with [`ApiKeyRepository::insert`].
    CreateKey {
        /// The key.
        key: ApiKey,
        /// What its user may do if they are made with it. `None`: there must be such a user, else `NotFound`.
        new_user: Option<Role>,
    },
    /// A key in the place of another one of the same user, which ends at `until` at the latest. `NotFound` if there is no
    /// such key of this user, or it has expired by `new.created_at`.
    RotateKey {
        /// The former key.
        old: ApiKeyId,
        /// The new one.
        new: ApiKey,
        /// The end of the former.
        until: Timestamp,
    },
    /// The end of a key of this user. `NotFound` if there is none.
    RevokeKey {
        /// Which.
        id: ApiKeyId,
        /// Whose.
        user: UserId,
    },
}

/// What [`StoreError`] calls whoever asks for a change with a key that opens nothing any more.
pub const CALLER_ENTITY: &str = "caller";

/// What [`StoreError`] calls whoever asks for a change that takes an administrator, and is none any more.
pub const ADMINISTRATOR_ENTITY: &str = "administrator";

impl AdminChange {
    /// The key that has to be looked at before the change is made: the one that a user asks with. Whoever needs no key (the
    /// command line, the service, everybody in open mode) is not asked for one.
    pub fn caller_key(entry: &AuditEntry) -> Option<ApiKeyId> {
        match entry.actor {
            AuditActor::User(_) => entry.key,
            _ => None,
        }
    }

    /// Whether the change may be made by the user of `entry`, as their key is found in the transaction that makes it.
    /// `NotFound` of a [`CALLER_ENTITY`] or an [`ADMINISTRATOR_ENTITY`] if not.
    pub fn authorize(
        &self,
        entry: &AuditEntry,
        found: Option<&ApiKeyWithRole>,
    ) -> Result<(), StoreError> {
        let good = found.filter(|it| {
            entry.actor == AuditActor::User(it.key.user.clone()) && !it.key.is_expired(entry.at)
        });
        let Some(known) = good else {
            return Err(StoreError::NotFound { entity: CALLER_ENTITY });
        };
        let user = &known.key.user;
        let is_own = match self {
            Self::CreateKey { key, .. } => key.user == *user,
            Self::RotateKey { new, .. } => new.user == *user,
            Self::RevokeKey { user: whose, .. } => whose == user,
            Self::CreateUser { .. } | Self::SetRole { .. } | Self::DeleteUser { .. } => false,
        };
        if is_own || known.role == Role::Admin {
            return Ok(());
        }
        Err(StoreError::NotFound {
            entity: ADMINISTRATOR_ENTITY,
        })
    }
}

/// Changes of users and keys that are never made without a line in the audit log.
#[async_trait]
pub trait AdministrationRepository: Send + Sync + 'static {
    /// Makes the change and stores the entry: both or neither, in one transaction, which also looks whether whoever asks
    /// still may ([`AdminChange::authorize`]): a request may have begun before their key was revoked, or their role
    /// taken. When it happened is `entry.at`. What a deletion took away: of everything else nothing.
    async fn administer(
        &self,
        change: &AdminChange,
        entry: &AuditEntry,
    ) -> Result<PurgeCounts, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_its_word() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert_eq!("Admin".parse::<Role>(), Err(InvalidRole));
    }

    #[test]
    fn the_hash_is_sha_256_in_hex() {
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
