//! Access tokens: what stands for one provider's token inside one sandbox.
//!
//! A program in the sandbox (a git credential helper) holds the access token and gets the provider's token for it, again
//! and again (`GET /api/v1/webhooks/secrets`). So the provider's token lies on no disk of the sandbox, and a rotated one
//! is used at once. An access token is opaque, opens one provider's token of one user, only while the sandbox it was made
//! for is at work, and not after its end. Whoever asks has fixed beforehand where the provider's token will be sent: when
//! another host's has been stored meanwhile, it is refused.

use std::sync::Arc;
use std::time::Duration;

use domain::cipher::{Cipher, Sealed};
use domain::clock::{Clock, Timestamp};
use domain::conversation::GitProvider;
use domain::id::{SandboxId, UserId};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::AppError;
use crate::settings::ProviderToken;

/// Associated data: nothing else that is sealed opens as a token, and no token as anything else.
const SEAL_CONTEXT: &str = "access-token";
/// No token of ours is longer; a longer text is refused unopened.
const MAX_TOKEN_BYTES: usize = 4_096;
/// The reference's tokens live for 14 days.
const MAX_TOKEN_TTL: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// What decides how a stored token may be used: where it goes, and how it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    /// The host, normalised; `None` is the provider's own.
    host: Option<String>,
    /// It is `user:secret`, of which git sends the halves separately.
    is_pair: bool,
}

impl TokenUse {
    /// How the token that is stored now may be used.
    pub fn of(provider: GitProvider, stored: &ProviderToken) -> Self {
        Self {
            host: stored.access(provider).host.map(String::from),
            is_pair: stored.token.expose_secret().contains(':'),
        }
    }
}

/// What an access token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AccessGrant {
    pub(super) owner: UserId,
    pub(super) sandbox: SandboxId,
    pub(super) provider: GitProvider,
    /// What the stored token must still be like.
    pub(super) usage: TokenUse,
    expires_at: Timestamp,
}

/// Makes access tokens, and reads them.
#[derive(Clone)]
pub struct AccessTokens {
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
}

impl AccessTokens {
    /// Over these ports.
    pub fn new(cipher: Arc<dyn Cipher>, clock: Arc<dyn Clock>) -> Self {
        Self { cipher, clock }
    }

    /// A token that opens this user's token of `provider` from inside `sandbox` for the time `ttl` (at most 14 days), as long
    /// as the one that is stored may be used in the same way.
    /// URL-safe text of a few hundred characters, for the header `X-Access-Token`.
    pub fn mint(
        &self,
        owner: &UserId,
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
            .map_err(|error| domain::cipher::CipherError::Other(error.into()))?;
        let sealed = self.cipher.seal(SEAL_CONTEXT, &SecretString::from(text))?;
        Ok(SecretString::from(sealed.as_text().to_owned()))
    }

    /// What the token says; `None` if it is not ours, was changed, or is past its end.
    pub(super) fn read(&self, token: &SecretString) -> Option<AccessGrant> {
        let text = token.expose_secret();
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let opened = self.cipher.open(SEAL_CONTEXT, &Sealed::from_text(text)).ok()?;
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
        let (owner, sandbox) = (UserId::parse("alice"), SandboxId::parse("S"));
        let (owner, sandbox) = (owner.unwrap(), sandbox.unwrap());
        let usage = TokenUse::of(GitProvider::Gitlab, &stored("t", None));
        tokens()
            .mint(&owner, &sandbox, GitProvider::Gitlab, &usage, ttl)
            .unwrap()
    }

    #[test]
    fn a_token_says_what_it_was_made_for_until_its_end() {
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
    fn whatever_else_comes_is_no_token() {
        let long = format!("access-token|{}", " ".repeat(MAX_TOKEN_BYTES));
        for text in ["", "garbage", "é\0", "access-token|{}", "x|{}", &long] {
            assert_eq!(tokens().read(&SecretString::from(text)), None, "{text:.40}");
        }
    }
}
