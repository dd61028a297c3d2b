//! Signing in: passwords, browser sessions, and one-time links that set a password. Only hashes are stored.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{IdentityId, SessionId, UserId};
use crate::user::device_login::UserCode;
pub use crate::user::email::{MAX_EMAIL_BYTES, UserEmail};
use crate::user::identity::{ApiKey, CallerIdentity, KeyHash, Role};
use crate::user::permission::ActiveMembership;
use crate::user::single_sign_on::LinkedIdentity;

/// Length of a password, in characters.
pub const MIN_PASSWORD_CHARS: usize = 12;
pub const MAX_PASSWORD_CHARS: usize = 200;

/// Maximum number of sessions of one user. A new session beyond it ends the oldest one.
pub const MAX_SESSIONS_PER_USER: usize = 50;

/// Maximum number of one-time links of one user. A new link beyond it invalidates the oldest one.
pub const MAX_LINKS_PER_USER: usize = 5;

/// How long a one-time link is valid.
pub const ONE_TIME_LINK_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A salted, slow hash of a password, in the PHC string format (`$argon2id$…`).
#[derive(Clone)]
pub struct PasswordHash(SecretString);

impl PasswordHash {
    /// Wraps a text that a [`PasswordHasher`] made.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// The text, for the store and the hasher.
    pub fn as_text(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for PasswordHash {
    fn eq(&self, other: &Self) -> bool {
        self.as_text() == other.as_text()
    }
}

impl Eq for PasswordHash {}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

/// Hashes and verifies passwords. Both take tens of milliseconds of a core and block.
pub trait PasswordHasher: Send + Sync + 'static {
    /// Hashes a password with a new salt.
    fn hash(&self, password: &SecretString) -> PasswordHash;
    /// Whether the password belongs to the hash. Without a hash, takes as long as with one and returns false.
    fn verify(&self, password: &SecretString, hash: Option<&PasswordHash>) -> bool;
}

/// A browser session. Its cookie holds a random token, of which the store has the hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub user: UserId,
    pub hash: KeyHash,
    pub created_at: Timestamp,
    /// Time of the last use, to the minute.
    pub last_seen_at: Timestamp,
    /// The session ends at this time, however much it is used.
    pub expires_at: Timestamp,
    /// The client's address at the login.
    pub address: Option<String>,
    /// The browser's description of itself at the login.
    pub user_agent: Option<String>,
}

impl Session {
    /// Whether the session has ended: by its age, or because it was not used for `idle`.
    pub fn is_expired(&self, now: Timestamp, idle: Duration) -> bool {
        self.expires_at <= now || self.last_seen_at.plus(idle) <= now
    }
}

/// A session and the role of its user, read in one look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionWithRole {
    pub session: Session,
    pub role: Role,
    /// The membership in the user's current organization, unless that is the personal one.
    pub membership: Option<ActiveMembership>,
}

/// A link by which its holder sets the password of a user, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneTimeLink {
    pub hash: KeyHash,
    pub user: UserId,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

impl From<SessionWithRole> for CallerIdentity {
    fn from(found: SessionWithRole) -> Self {
        Self {
            user: found.session.user,
            role: found.role,
            expires_at: Some(found.session.expires_at),
            bound_to: None,
        }
    }
}

/// A change of how a user signs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignInChange {
    /// Begins a session of a user who proved this password. `NotFound` if the user does not exist or now has another
    /// password. Ends the oldest sessions beyond [`MAX_SESSIONS_PER_USER`].
    BeginSession {
        session: Session,
        password: PasswordHash,
    },
    /// Ends a session of this user. `NotFound` if there is none.
    EndSession { id: SessionId, user: UserId },
    /// Changes the password of a user from `before`. Ends all sessions but `keep` and invalidates all links. `NotFound`
    /// if the user does not exist or has another password than `before`.
    ChangePassword {
        user: UserId,
        before: PasswordHash,
        password: PasswordHash,
        keep: Option<SessionId>,
    },
    /// Stores a link by which the user sets a password. Invalidates the oldest links beyond
    /// [`MAX_LINKS_PER_USER`].
    CreateLink {
        link: OneTimeLink,
        /// The role of the user that is created with the link. `None`: the user must exist, else `NotFound`.
        new_user: Option<Role>,
    },
    /// Sets the password of the user of this link, ends all sessions and invalidates all links of the user. `NotFound`
    /// if the user has no such link, or it has expired.
    RedeemLink {
        link: KeyHash,
        user: UserId,
        password: PasswordHash,
    },
    /// Begins a session of a user by this identity. `NotFound` if it is not linked to the user, or the user is
    /// disabled. Ends the oldest sessions as `BeginSession` does.
    BeginIdentitySession {
        session: Session,
        identity: IdentityId,
        /// The address that the provider named. A verified one becomes that of the user.
        email: Option<UserEmail>,
        /// The role that the provider decides; `None` keeps the present one.
        role: Option<Role>,
    },
    /// Links an identity. `Conflict` of `Entity::Identity` if it is linked already, `Full` above
    /// [`crate::user::single_sign_on::MAX_IDENTITIES_PER_USER`].
    LinkIdentity {
        identity: LinkedIdentity,
        /// The role of the user that is created with the link; `Conflict` of another entity if the name is taken. `None`: the
        /// user must exist, else `NotFound`.
        new_user: Option<Role>,
    },
    /// Removes the link of an identity, and ends the user's other sessions than `keep`. `NotFound` if the user has no such
    /// identity, `Conflict` if the user has neither another identity nor a password.
    UnlinkIdentity {
        id: IdentityId,
        user: UserId,
        keep: Option<SessionId>,
    },
    /// Confirms a device login for this user. `NotFound` if there is none with this code, if it has expired, or if someone has
    /// confirmed or denied it already.
    ConfirmDevice { code: UserCode, user: UserId },
    /// Denies a device login, as this user. `NotFound` as above.
    DenyDevice { code: UserCode, user: UserId },
    /// Ends a device login that the user of the key has confirmed, and stores the key. `NotFound` if there is none, it has
    /// expired, or the user cannot sign in any more.
    RedeemDevice { hash: KeyHash, key: ApiKey },
    /// Sets or removes the e-mail address of a user. `NotFound` if the user does not exist.
    SetEmail {
        user: UserId,
        email: Option<UserEmail>,
    },
}

impl SignInChange {
    /// Whether `user` may make the change without being an administrator, after they have been identified.
    pub fn is_own(&self, user: &UserId) -> bool {
        match self {
            Self::EndSession { user: owner, .. }
            | Self::ChangePassword { user: owner, .. }
            | Self::ConfirmDevice { user: owner, .. }
            | Self::DenyDevice { user: owner, .. }
            | Self::UnlinkIdentity { user: owner, .. } => owner == user,
            Self::LinkIdentity { identity, new_user } => {
                identity.user == *user && new_user.is_none()
            }
            Self::SetEmail { user: owner, email } => {
                owner == user && !email.as_ref().is_some_and(|email| email.is_verified)
            }
            Self::BeginSession { .. }
            | Self::BeginIdentitySession { .. }
            | Self::CreateLink { .. }
            | Self::RedeemDevice { .. }
            | Self::RedeemLink { .. } => false,
        }
    }
}

/// Sessions. [`crate::user::administration::AdministrationRepository`] begins and ends them.
#[async_trait]
pub trait SessionRepository: Send + Sync + 'static {
    /// The session with this hash, also if it has expired (the caller decides). Sessions of users whose deletion has
    /// begun are not found.
    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<SessionWithRole>, StoreError>;
    /// The sessions of a user, oldest first, including expired ones.
    async fn list(&self, user: &UserId) -> Result<Vec<Session>, StoreError>;
    /// Records a use. Does nothing if the session has ended.
    async fn touch(&self, id: SessionId, at: Timestamp) -> Result<(), StoreError>;
    /// Deletes at most `limit` sessions whose `expires_at` is before `before`; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// Passwords and the links that set them. [`crate::user::administration::AdministrationRepository`] changes them.
#[async_trait]
pub trait PasswordRepository: Send + Sync + 'static {
    /// The password of a user. `None` without one, and for users whose deletion has begun.
    async fn find(&self, user: &UserId) -> Result<Option<PasswordHash>, StoreError>;
    /// The link with this hash, also if it has expired. Links of users whose deletion has begun are not found.
    async fn find_link(&self, hash: &KeyHash) -> Result<Option<OneTimeLink>, StoreError>;
    /// Deletes at most `limit` links that expired before `before`; returns how many.
    async fn prune_links(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn sessions_end_by_age_and_by_idleness() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let session = Session {
            id: SessionId::new(Uuid::nil()),
            user: UserId::parse("ada").unwrap(),
            hash: KeyHash::of("token"),
            created_at: at(0),
            last_seen_at: at(50),
            expires_at: at(100),
            address: None,
            user_agent: None,
        };
        let idle = Duration::from_secs(20);
        for (now, expired) in [(0, false), (69, false), (70, true)] {
            assert_eq!(session.is_expired(at(now), idle), expired, "{now}");
        }
        let long = Duration::from_secs(1_000);
        assert!(!session.is_expired(at(99), long));
        assert!(session.is_expired(at(100), long));
    }

    #[test]
    fn addresses_have_a_local_part_and_a_domain() {
        for good in [
            "ada@example.org",
            "A+B@X.example",
            "ä@münchen.example",
            " ada@example.org ",
        ] {
            let expected = good.trim().to_lowercase();
            assert_eq!(UserEmail::parse_address(good), Some(expected), "{good}");
        }
        let long = format!("{}@example.org", "a".repeat(MAX_EMAIL_BYTES));
        for bad in [
            "",
            "ada",
            "@example.org",
            "ada@",
            "a@b@example.org",
            "ada@example.org\r\nBcc: x@y.example",
            "ada\n@example.org",
            "<ada@example.org>",
            "ada@exa mple.org",
            "ada@example.org,eve@example.org",
            long.as_str(),
        ] {
            assert_eq!(UserEmail::parse_address(bad), None, "{bad:?}");
        }
        let email = UserEmail {
            address: "ada@example.org".to_owned(),
            is_verified: true,
        };
        assert_eq!(email.domain(), "example.org");
    }

    #[test]
    fn the_debug_text_hides_the_hash() {
        let hash = PasswordHash::from_text("$argon2id$secret");
        assert!(!format!("{hash:?}").contains("secret"));
    }
}
