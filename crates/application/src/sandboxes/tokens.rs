//! Tokens that stand inside a sandbox for what its owner may do outside, such as model calls.
//!
//! A token has the form `PREFIX<sandbox>.<sealed text>`. It is sealed for one sandbox and purpose with the installation
//! secret, which a rotation of the master key does not change. It is good only while its sandbox runs or starts.

use std::sync::Arc;

use domain::encryption::cipher::CipherError;
use domain::encryption::vault::Fingerprints;
use domain::id::SandboxId;
use domain::sandbox::{Sandbox, SandboxRepository};
use domain::user::identity::KeyHash;
use domain::user::scope::Scope;
use secrecy::SecretString;
use url::Url;

use crate::identity::key_cache::KeyCache;
use crate::secrets::may_read_secrets;
use crate::{AppError, Ports};

/// Purpose of the fingerprints that name cached sandboxes.
const CACHE_PURPOSE: &str = "sandbox tokens";
/// Longest token that is opened. A key has at most a few kilobytes.
const MAX_TOKEN_BYTES: usize = 100_000;

/// What a token is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenKind {
    /// Begins every token.
    pub(crate) prefix: &'static str,
    /// Part of the seal's context.
    pub(crate) purpose: &'static str,
}

impl TokenKind {
    fn context(self, sandbox: &SandboxId) -> String {
        format!("sandbox/{sandbox}/{}", self.purpose)
    }
}

/// Why a call with a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxTokenRefusal {
    /// No token of this service, or one of a sandbox that is gone.
    Unknown,
    /// The sandbox neither runs nor starts.
    NotRunning,
}

/// Where sandboxes call the service: `…/<name>` for the webhooks' `…/api/v1/webhooks`.
pub(crate) fn service_url(webhook_url: &Url, name: &str) -> Url {
    let mut url = webhook_url.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().pop().pop().pop().push(name);
    }
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Makes tokens, and opens them.
#[derive(Clone)]
pub(crate) struct SandboxTokens {
    fingerprints: Arc<dyn Fingerprints>,
    sandboxes: Arc<dyn SandboxRepository>,
    /// Shared with reports, so that a changed intent clears it.
    cache: KeyCache<Sandbox>,
}

impl SandboxTokens {
    pub(crate) fn new(ports: &Ports, cache: KeyCache<Sandbox>) -> Self {
        Self {
            fingerprints: Arc::clone(&ports.fingerprints),
            sandboxes: Arc::clone(&ports.sandboxes),
            cache,
        }
    }

    /// Equal contents give equal tokens.
    pub(crate) fn seal(
        &self,
        kind: TokenKind,
        sandbox: &SandboxId,
        content: &SecretString,
    ) -> Result<SecretString, CipherError> {
        let sealed = self
            .fingerprints
            .seal_token(&kind.context(sandbox), content)?;
        Ok(format!("{}{sandbox}.{sealed}", kind.prefix).into())
    }

    /// The sandbox of a token and the token's content, if the sandbox runs or starts. Costs at most one query.
    pub(crate) async fn open(
        &self,
        kind: TokenKind,
        token: &str,
    ) -> Result<Result<(Arc<Sandbox>, SecretString), SandboxTokenRefusal>, AppError> {
        let Some((id, content)) = self.content(kind, token) else {
            return Ok(Err(SandboxTokenRefusal::Unknown));
        };
        let Some(sandbox) = self.sandbox(&id).await? else {
            return Ok(Err(SandboxTokenRefusal::Unknown));
        };
        if !may_read_secrets(&sandbox) {
            return Ok(Err(SandboxTokenRefusal::NotRunning));
        }
        Ok(Ok((sandbox, content)))
    }

    /// The sandbox, if it runs or starts.
    pub(crate) async fn active(&self, id: &SandboxId) -> Result<Option<Arc<Sandbox>>, AppError> {
        let found = self.sandbox(id).await?;
        Ok(found.filter(|sandbox| may_read_secrets(sandbox)))
    }

    fn content(&self, kind: TokenKind, token: &str) -> Option<(SandboxId, SecretString)> {
        let text = token.strip_prefix(kind.prefix)?;
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (sandbox, sealed) = text.split_once('.')?;
        let sandbox = SandboxId::parse(sandbox).ok()?;
        let bound_to = kind.context(&sandbox);
        let content = self.fingerprints.open_token(&bound_to, sealed).ok()?;
        Some((sandbox, content))
    }

    /// The sandbox, possibly from the cache. A cached row never causes a refusal.
    async fn sandbox(&self, id: &SandboxId) -> Result<Option<Arc<Sandbox>>, AppError> {
        // The cache also finds session keys, so the entry must be none that a caller could present as one.
        let secret = self
            .fingerprints
            .fingerprint(CACHE_PURPOSE, id.as_str().as_bytes());
        let hash = KeyHash::of(&secret);
        let query = || self.sandboxes.find(&Scope::System, id);
        let answer = self.cache.find(&hash, query).await?;
        let is_usable = answer.found.as_deref().is_some_and(may_read_secrets);
        if is_usable || !answer.is_cached {
            return Ok(answer.found);
        }
        Ok(query().await?.map(Arc::new))
    }
}
