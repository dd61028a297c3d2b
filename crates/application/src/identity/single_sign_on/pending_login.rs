//! A login that has begun: what the browser keeps of it, sealed, until the provider sends the browser back.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::clock::Timestamp;
use domain::encryption::cipher::{Cipher, Sealed};
use domain::id::{ProviderName, SessionId};
use domain::user::identity::KeyHash;
use domain::user::single_sign_on::AuthorizationSecrets;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::AppError;

/// How long a person may take at the provider.
pub const PENDING_LOGIN_TTL: Duration = Duration::from_secs(10 * 60);
/// Longest address to return to. A longer one is left out: browsers refuse cookies of more than 4096 bytes.
const MAX_RETURN_TO_BYTES: usize = 1024;
/// Binds the sealed text to its purpose.
const CONTEXT: &str = "single sign-on";
const MAX_USED_STATES: usize = 20_000;

/// A login that has begun in this browser.
#[derive(Debug, Clone)]
pub struct PendingLogin {
    pub(super) provider: ProviderName,
    pub(super) secrets: AuthorizationSecrets,
    /// The address to open afterwards.
    pub return_to: Option<String>,
    /// The session whose user links the identity; `None` for a login.
    pub(super) link_for: Option<SessionId>,
    pub(super) expires_at: Timestamp,
}

/// Its form in the cookie, before it is sealed.
#[derive(Serialize, Deserialize)]
struct PendingLoginRecord {
    provider: ProviderName,
    state: String,
    nonce: String,
    verifier: String,
    return_to: Option<String>,
    link_for: Option<SessionId>,
    expires_at: i64,
}

impl PendingLogin {
    pub(super) fn new(
        provider: ProviderName,
        secrets: AuthorizationSecrets,
        return_to: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let return_to = return_to.filter(|text| text.len() <= MAX_RETURN_TO_BYTES);
        Self {
            provider,
            secrets,
            return_to: return_to.map(str::to_owned),
            link_for: None,
            expires_at: now.plus(PENDING_LOGIN_TTL),
        }
    }

    /// Whether the login links an identity to a user who is signed in.
    pub fn is_link(&self) -> bool {
        self.link_for.is_some()
    }

    pub(super) fn seal(&self, cipher: &dyn Cipher) -> Result<SecretString, AppError> {
        let text = |secret: &SecretString| secret.expose_secret().to_owned();
        let record = PendingLoginRecord {
            provider: self.provider.clone(),
            state: text(&self.secrets.state),
            nonce: text(&self.secrets.nonce),
            verifier: text(&self.secrets.verifier),
            return_to: self.return_to.clone(),
            link_for: self.link_for,
            expires_at: self.expires_at.micros(),
        };
        let plain = serde_json::to_string(&record).unwrap_or_default();
        let sealed = cipher.seal(CONTEXT, &plain.into())?;
        Ok(sealed.as_text().to_owned().into())
    }

    /// `None` for a text that this service did not seal.
    pub(super) fn open(cipher: &dyn Cipher, text: &SecretString) -> Option<Self> {
        let sealed = Sealed::from_text(text.expose_secret());
        let plain = cipher.open(CONTEXT, &sealed).ok()?;
        let record: PendingLoginRecord = serde_json::from_str(plain.expose_secret()).ok()?;
        Some(Self {
            provider: record.provider,
            secrets: AuthorizationSecrets {
                state: record.state.into(),
                nonce: record.nonce.into(),
                verifier: record.verifier.into(),
            },
            return_to: record.return_to,
            link_for: record.link_for,
            expires_at: Timestamp::from_micros(record.expires_at),
        })
    }

    /// Whether this is the `state` of the login. Compares hashes, so that the time says nothing.
    pub(super) fn has_state(&self, state: &str) -> bool {
        KeyHash::of(state) == KeyHash::of(self.secrets.state.expose_secret())
    }
}

/// Logins that have come back, so that each comes back once. Other processes do not see them; there the provider refuses the
/// second use of its code.
#[derive(Debug, Default)]
pub(super) struct UsedStates(Mutex<HashMap<KeyHash, Timestamp>>);

impl UsedStates {
    /// Uses a state until its login expires. `false` if it was used before, or if there is no memory for it.
    pub(super) fn take(&self, login: &PendingLogin, now: Timestamp) -> bool {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= MAX_USED_STATES {
            used.retain(|_, end| *end > now);
        }
        let hash = KeyHash::of(login.secrets.state.expose_secret());
        used.len() < MAX_USED_STATES && used.insert(hash, login.expires_at).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(state: &str) -> PendingLogin {
        let secrets = AuthorizationSecrets {
            state: state.into(),
            nonce: "n".into(),
            verifier: "v".into(),
        };
        let provider = ProviderName::parse("corp").unwrap();
        PendingLogin::new(provider, secrets, None, Timestamp::from_micros(0))
    }

    #[test]
    fn each_state_is_used_once_and_memory_is_bounded() {
        let used = UsedStates::default();
        let now = Timestamp::from_micros(0);
        assert!(used.take(&login("a"), now) && !used.take(&login("a"), now));
        for n in 0..MAX_USED_STATES {
            used.take(&login(&n.to_string()), now);
        }
        assert!(!used.take(&login("b"), now), "full");
        assert!(!used.take(&login("a"), now));
        assert!(used.take(&login("b"), now.plus(PENDING_LOGIN_TTL)));
        assert_eq!(used.0.lock().unwrap().len(), 1);
    }
}
