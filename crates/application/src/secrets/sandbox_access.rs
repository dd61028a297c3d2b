//! Access of sandboxes to their owner's secrets, and the URLs where their agent servers look them up.
//!
//! Names: a custom secret has its own name. A provider's token has the name of its environment variable
//! (`GITHUB_TOKEN`) or the one in lists (`github_token`). A custom secret of the same name takes precedence, because
//! its owner created it on purpose.

use std::collections::{BTreeMap, BTreeSet};

use domain::agent::LaunchSecret;
use domain::git::GitProvider;
use domain::sandbox::{DesiredState, Sandbox};
use domain::secret_rule::SecretRules;
use secrecy::SecretString;
use url::Url;

use super::SecretsService;
use crate::AppError;
use crate::sandboxes::conversation_credential;
use crate::settings::{ProviderToken, token_name};

pub(crate) type ProviderTokens = BTreeMap<GitProvider, ProviderToken>;

/// Header with the session key.
const KEY_HEADER: &str = "X-Session-API-Key";

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    pub name: String,
    pub description: Option<String>,
    pub hosts: SecretRules,
}

/// Names of custom secrets whose values agents of a sandbox get.
#[derive(Debug, Default)]
pub(crate) struct ReadableSecrets {
    /// Those without hosts.
    pub(crate) exposed: Vec<String>,
    /// Those with hosts, because the sandbox has no placeholders.
    pub(crate) with_hosts: Vec<String>,
}

impl SecretsService {
    /// Lists the secrets of a sandbox: custom ones, oldest first, then tokens of git providers (as `github_token`).
    pub async fn visible(&self, to: &Sandbox) -> Result<Vec<SecretInfo>, AppError> {
        let mut found: Vec<_> = self
            .list(&to.owner)
            .await?
            .into_iter()
            .map(|secret| SecretInfo {
                name: secret.name,
                description: Some(secret.description).filter(|text| !text.is_empty()),
                hosts: secret.hosts,
            })
            .collect();
        let own: BTreeSet<_> = found.iter().map(|secret| secret.name.clone()).collect();
        for provider in self.tokens_of(to).await?.into_keys() {
            let name = listed_name(provider);
            if !own.contains(&name) {
                found.push(SecretInfo {
                    name,
                    description: Some(description_of(provider)),
                    hosts: SecretRules::default(),
                });
            }
        }
        Ok(found)
    }

    /// The value of a secret of the sandbox's owner, or its placeholder.
    pub async fn reveal(&self, to: &Sandbox, name: &str) -> Result<SecretString, AppError> {
        self.reveal_with(to, name, None).await
    }

    /// The same; `tokens` are the owner's provider tokens, if they are loaded already.
    pub(crate) async fn reveal_with(
        &self,
        to: &Sandbox,
        name: &str,
        tokens: Option<&ProviderTokens>,
    ) -> Result<SecretString, AppError> {
        let secret = self.bound(to, name, tokens).await?;
        self.for_sandbox(to, name, secret)
    }

    /// URLs where the agent server of this sandbox looks up the owner's secrets, by environment variable, so that a
    /// changed value reaches a running sandbox. Secrets without a value are left out. Also the names of those whose values
    /// agents get.
    pub(crate) async fn launch_secrets(
        &self,
        sandbox: &Sandbox,
        tokens: &ProviderTokens,
    ) -> Result<(BTreeMap<String, LaunchSecret>, ReadableSecrets), AppError> {
        let key = conversation_credential(&*self.cipher, sandbox)?;
        let look_up = |name: &str, description: Option<String>| LaunchSecret::LookUp {
            url: self.lookup_url(sandbox, name),
            headers: BTreeMap::from([(KEY_HEADER.to_owned(), key.clone())]),
            description,
        };
        let of_provider = |provider: &GitProvider| {
            let name = token_name(*provider);
            let secret = look_up(&name, Some(description_of(*provider)));
            (name, secret)
        };
        let tokens = tokens.keys().filter(|_| self.shows_git_tokens);
        let mut found: BTreeMap<_, _> = tokens.map(of_provider).collect();
        let mut readable = ReadableSecrets::default();
        for secret in self.list(&sandbox.owner).await? {
            if self.is_empty(&sandbox.owner, &secret)? {
                continue;
            }
            if secret.hosts.is_empty() {
                readable.exposed.push(secret.name.clone());
            } else if !self.has_placeholders(sandbox) {
                readable.with_hosts.push(secret.name.clone());
            }
            let description = Some(secret.description).filter(|text| !text.is_empty());
            let look_up = look_up(&secret.name, description);
            found.insert(secret.name, look_up);
        }
        Ok((found, readable))
    }

    fn lookup_url(&self, sandbox: &Sandbox, name: &str) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend([
                "sandboxes",
                sandbox.id.as_str(),
                "settings",
                "secrets",
                name,
            ]);
        }
        url
    }

    /// The tokens of git hosts that the sandbox may use outside of git.
    pub(super) async fn tokens_of(&self, sandbox: &Sandbox) -> Result<ProviderTokens, AppError> {
        if !self.shows_git_tokens {
            return Ok(ProviderTokens::new());
        }
        let settings = self.settings.load(&sandbox.owner).await?;
        Ok(settings.unwrap_or_default().provider_tokens)
    }
}

/// Whether a sandbox may read secrets: it runs or starts, and its owner wants it to. Unlike for late reports there is
/// no grace after a pause: a stopped agent needs no secrets.
pub fn may_read_secrets(sandbox: &Sandbox) -> bool {
    sandbox.status.is_up() && sandbox.desired == DesiredState::Running
}

/// `…/api/v1` for `…/api/v1/webhooks`.
pub(super) fn base_of(webhook_url: &Url) -> Url {
    let mut base = webhook_url.clone();
    if let Ok(mut path) = base.path_segments_mut() {
        path.pop_if_empty().pop();
    }
    base.set_query(None);
    base.set_fragment(None);
    base
}

fn listed_name(provider: GitProvider) -> String {
    format!("{provider}_token")
}

fn description_of(provider: GitProvider) -> String {
    format!("{provider} authentication token")
}

pub(super) fn provider_of(name: &str) -> Option<GitProvider> {
    let all = GitProvider::ALL.iter().map(|(_, provider)| *provider);
    all.into_iter()
        .find(|provider| name == token_name(*provider) || name == listed_name(*provider))
}
