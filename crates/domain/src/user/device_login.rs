//! Device login: a program without a browser shows a short code, a person who is signed in confirms it, and the program gets an
//! API key of that person. If the person denies the code, the program gets nothing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{InvalidId, UserId};
use crate::user::identity::KeyHash;

/// How long the person has to confirm, and the program to fetch its key.
pub const DEVICE_LOGIN_TTL: Duration = Duration::from_secs(10 * 60);

/// How long the key of a program is valid.
pub const DEVICE_KEY_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum number of device logins that have not expired.
pub const MAX_DEVICE_LOGINS: usize = 1_000;

/// Letters of a code: no vowels, so that no code is a word, and none that look alike.
const CODE_LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const CODE_CHARS: usize = 8;

/// The code that a person confirms: `WDJB-MJHT`. It is no credential without a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserCode(String);

impl UserCode {
    /// The code of a random UUID.
    pub fn of(random: Uuid) -> Self {
        // The version and the variant of a UUID are in other bits.
        let mut rest = random.as_u128() & ((1 << 60) - 1);
        let mut text = String::with_capacity(CODE_CHARS + 1);
        for n in 0..CODE_CHARS {
            if n == CODE_CHARS / 2 {
                text.push('-');
            }
            let letters = CODE_LETTERS.len() as u128;
            let letter = usize::try_from(rest % letters).unwrap_or_default();
            text.push(char::from(CODE_LETTERS[letter]));
            rest /= letters;
        }
        Self(text)
    }

    /// A code as a person types it, in any case and with any separators.
    fn read(text: &str) -> Option<Self> {
        let letters = text.chars().filter(|c| !c.is_whitespace() && *c != '-');
        let mut letters: String = letters.take(CODE_CHARS + 1).collect();
        letters.make_ascii_uppercase();
        let is_code =
            letters.len() == CODE_CHARS && letters.bytes().all(|b| CODE_LETTERS.contains(&b));
        if !is_code {
            return None;
        }
        letters.insert(CODE_CHARS / 2, '-');
        Some(Self(letters))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for UserCode {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::read(text).ok_or(InvalidId {
            kind: "UserCode",
            expected: "8 consonants, like WDJB-MJHT",
        })
    }
}

/// A program that waits for a person. The store has only the hash of the program's own code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLogin {
    pub hash: KeyHash,
    pub code: UserCode,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// Who confirmed it.
    pub user: Option<UserId>,
    /// Whether a person denied it. It is then without a user, and stays so.
    pub is_denied: bool,
}

/// Device logins. [`AdministrationRepository`](crate::user::administration::AdministrationRepository) confirms, denies and ends them.
#[async_trait]
pub trait DeviceLoginRepository: Send + Sync + 'static {
    /// Stores a device login. `Conflict` if the code is taken, `Full` above [`MAX_DEVICE_LOGINS`] that have not expired at
    /// `created_at`.
    async fn begin(&self, login: &DeviceLogin) -> Result<(), StoreError>;
    /// The device login with this hash, also if it has expired. Those that a user confirmed who cannot sign in any more are not
    /// found.
    async fn find(&self, hash: &KeyHash) -> Result<Option<DeviceLogin>, StoreError>;
    /// Deletes at most `limit` device logins that expired before `before`; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_people_type_them() {
        let code = UserCode::of(Uuid::from_u128(0x1234_5678_9abc_4def_8123_4567_89ab_cdef));
        assert_eq!(code.as_str().len(), 9);
        let typed = code.as_str().to_lowercase();
        for text in [
            code.as_str(),
            &typed,
            &typed.replace('-', ""),
            &format!(" {} ", typed.replace('-', " ")),
        ] {
            assert_eq!(text.parse().as_ref(), Ok(&code), "{text:?}");
        }
        for bad in [
            "",
            "WDJB",
            "WDJB-MJHA",
            "WDJB-MJHTT",
            "ÄDJB-MJHT",
            &"W".repeat(10_000),
        ] {
            assert!(bad.parse::<UserCode>().is_err(), "{bad:?}");
        }
        assert_ne!(
            UserCode::of(Uuid::from_u128(1)),
            UserCode::of(Uuid::from_u128(2))
        );
    }
}
