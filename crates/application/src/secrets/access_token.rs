//! Access tokens: stand-ins for a provider's token inside one sandbox.
//!
//! A program in the sandbox (a git credential helper) holds an access token and exchanges it for the provider's token
//! on each use (`GET /api/v1/webhooks/secrets`). So the provider's token is on no disk of the sandbox, and a replaced
//! one takes effect at once. An access token is opaque. It opens one provider's token of one user, only while its
//! sandbox runs, and not after its expiry. It fixes the host that the provider's token is sent to: if a token for
//! another host has been stored meanwhile, it is refused.

use std::sync::Arc;
use std::time::Duration;

use domain::clock::{Clock, Timestamp};
use domain::encryption::cipher::{Cipher, Sealed};
use domain::git::GitProvider;
use domain::id::{OwnerId, SandboxId};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::AppError;
use crate::settings::ProviderToken;

/// Context of the seal: no other sealed value opens as an access token, and no access token as another value.
const SEAL_CONTEXT: &str = "access-token";
/// Longest token in bytes; longer texts are refused unopened.
const MAX_TOKEN_BYTES: usize = 4_096;
/// Longest lifetime, as in the reference: 14 days.
const MAX_TOKEN_TTL: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// How a stored token may be used: its host and its form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    /// The normalised host; `None` is the provider's own.
    host: Option<String>,
    /// Whether it is `user:secret`, of which git sends the halves separately.
    is_pair: bool,
}

impl TokenUse {
    pub fn of(provider: GitProvider, stored: &ProviderToken) -> Self {
        Self {
            host: stored.access(provider).host.map(String::from),
            is_pair: stored.token.expose_secret().contains(':'),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AccessGrant {
    pub(super) owner: OwnerId,
    pub(super) sandbox: SandboxId,
    pub(super) provider: GitProvider,
    /// The use that the stored token must still allow.
    pub(super) usage: TokenUse,
    expires_at: Timestamp,
}

#[derive(Clone)]
pub struct AccessTokens {
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
}

impl AccessTokens {
    pub fn new(cipher: Arc<dyn Cipher>, clock: Arc<dyn Clock>) -> Self {
        Self { cipher, clock }
    }

    /// Mints a token for this user's token of `provider` inside `sandbox`, for `ttl` (at most 14 days), as long as the
    /// stored token has the same use.
    pub fn mint(
        &self,
        owner: &OwnerId,
        sandbox: &SandboxId,
        provider: GitProvider,
        usage: &TokenUse,
        ttl: Duration,
    ) -> Result<SecretString, AppError> {
        let grant = AccessGrant {
            owner: owner.clone(),
            sandbox: sandbox.clone(),
            provider,
            usage: usage.clone(),
            expires_at: self.clock.now().plus(ttl.min(MAX_TOKEN_TTL)),
        };
        let text = serde_json::to_string(&grant)
            .map_err(|error| domain::encryption::cipher::CipherError::Other(error.into()))?;
        let sealed = self.cipher.seal(SEAL_CONTEXT, &SecretString::from(text))?;
        Ok(SecretString::from(sealed.as_text().to_owned()))
    }

    /// The content of the token; `None` if it is foreign, changed or expired.
    pub(super) fn read(&self, token: &SecretString) -> Option<AccessGrant> {
        let text = token.expose_secret();
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let opened = self
            .cipher
            .open(SEAL_CONTEXT, &Sealed::from_text(text))
            .ok()?;
        let grant: AccessGrant = serde_json::from_str(opened.expose_secret()).ok()?;
        (self.clock.now() < grant.expires_at).then_some(grant)
    }
}

#[cfg(test)]
mod tests {
    use domain::clock::SystemClock;
    use store_memory::MarkerCipher;

    use super::*;

    fn tokens() -> AccessTokens {
        AccessTokens::new(Arc::new(MarkerCipher), Arc::new(SystemClock))
    }

    fn stored(token: &str, host: Option<&str>) -> ProviderToken {
        ProviderToken {
            token: token.into(),
            user_id: None,
            host: host.map(str::to_owned),
        }
    }

    #[test]
    fn a_token_is_used_alike_when_it_goes_to_the_same_host_in_the_same_form() {
        let usage = |token, host| TokenUse::of(GitProvider::Gitlab, &stored(token, host));
        let planned = usage("one", None);
        for (token, host, is_alike) in [
            ("two", None, true),
            ("two", Some("gitlab.com"), true),
            ("two", Some("https://GITLAB.com/"), true),
            ("two", Some("git.acme.test"), false),
            ("two", Some("http://gitlab.com"), false),
            ("me:two", None, false),
        ] {
            assert_eq!(usage(token, host) == planned, is_alike, "{token} {host:?}");
        }
    }

    fn minted(ttl: Duration) -> SecretString {
        let (owner, sandbox) = (OwnerId::parse("alice"), SandboxId::parse("S"));
        let (owner, sandbox) = (owner.unwrap(), sandbox.unwrap());
        let usage = TokenUse::of(GitProvider::Gitlab, &stored("t", None));
        tokens()
            .mint(&owner, &sandbox, GitProvider::Gitlab, &usage, ttl)
            .unwrap()
    }

    #[test]
    fn a_token_keeps_its_content_until_it_expires() {
        let grant = tokens().read(&minted(Duration::from_secs(600))).unwrap();
        assert_eq!(
            (grant.owner.as_str(), grant.sandbox.as_str()),
            ("alice", "S")
        );
        assert_eq!(grant.provider, GitProvider::Gitlab);
        assert_eq!(tokens().read(&minted(Duration::ZERO)), None);
    }

    #[test]
    fn no_token_lives_for_ever() {
        let grant = tokens().read(&minted(Duration::MAX)).unwrap();
        let end = SystemClock.now().plus(MAX_TOKEN_TTL);
        assert!(grant.expires_at <= end);
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let long = format!("access-token|{}", " ".repeat(MAX_TOKEN_BYTES));
        for text in ["", "garbage", "é\0", "access-token|{}", "x|{}", &long] {
            assert_eq!(tokens().read(&SecretString::from(text)), None, "{text:.40}");
        }
    }
}
