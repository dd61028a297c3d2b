//! Placeholders: what a sandbox has in place of secrets that go to their hosts only.
//!
//! ```text
//!   program ──header with a placeholder──► forward proxy of the service ──header with the value──► host of the secret
//! ```
//!
//! A placeholder is sealed for one sandbox and names a secret, so nothing about it is stored. The value is looked up for
//! each request, so a replaced one takes effect at once.

use domain::agent::McpServer;
use domain::error::{Classify as _, ErrorClass};
use domain::git::GitProvider;
use domain::host_rule::HostRules;
use domain::id::{OwnerId, SandboxId};
use domain::sandbox::Sandbox;
use domain::secret_rule::SecretRules;
use domain::user::secret::PLACEHOLDER_PREFIX;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::{Host, Url};

use super::SecretsService;
use super::sandbox_access::{ProviderTokens, provider_of};
use super::validation::is_valid_name;
use crate::sandboxes::{SandboxTokenRefusal, TokenKind};
use crate::settings::{McpConfig, ProviderToken, SecretVisibility, Settings, token_name};
use crate::{AppError, SecretForm};

/// Contains the name of a secret, or hosts, a line break and a value.
const SECRET: TokenKind = TokenKind {
    prefix: PLACEHOLDER_PREFIX,
    purpose: "secret",
};

/// Purpose of the fingerprint from which the key of a sandbox's certificate authority is derived.
const AUTHORITY_PURPOSE: &str = "certificate authority of a sandbox";

/// Hosts of the REST interface, and of uploads, where they are not the host of the website.
const API_HOSTS: [(&str, &str); 2] = [
    ("github.com", "api.github.com uploads.github.com"),
    ("bitbucket.org", "api.bitbucket.org"),
];

/// A value, and the hosts to which the service sends it. Without any, sandboxes get the value.
#[derive(Debug)]
pub struct BoundSecret {
    pub value: SecretString,
    pub hosts: SecretRules,
}

impl SecretsService {
    /// What a sandbox gets for a secret.
    pub(super) fn for_sandbox(
        &self,
        sandbox: &Sandbox,
        name: &str,
        secret: BoundSecret,
    ) -> Result<SecretString, AppError> {
        if self.has_placeholders(sandbox) && !secret.hosts.is_empty() {
            return Ok(self.tokens.seal(SECRET, &sandbox.id, &name.into())?);
        }
        Ok(secret.value)
    }

    /// What a sandbox gets for a token of a git host.
    pub(crate) fn git_token(
        &self,
        sandbox: &Sandbox,
        provider: GitProvider,
        token: &ProviderToken,
    ) -> Result<SecretString, AppError> {
        let secret = BoundSecret {
            hosts: self.hosts_of(provider, token),
            value: token.token.clone(),
        };
        self.for_sandbox(sandbox, &token_name(provider), secret)
    }

    /// Whether the sandbox gets placeholders: its requests pass the proxy, which replaces them.
    pub(super) fn has_placeholders(&self, sandbox: &Sandbox) -> bool {
        self.form == SecretForm::Placeholder && sandbox.has_proxy
    }

    /// The servers with placeholders in place of keys. A placeholder contains the key itself: a conversation keeps its
    /// servers when its owner changes the settings.
    pub(crate) fn without_keys(
        &self,
        sandbox: &Sandbox,
        mut servers: Vec<McpServer>,
    ) -> Result<Vec<McpServer>, AppError> {
        let has_placeholders = self.has_placeholders(sandbox);
        for server in servers.iter_mut().filter(|_| has_placeholders) {
            let Some(BoundSecret { value, hosts }) = bound_key(server) else {
                continue;
            };
            let content = format!("{hosts}\n{}", value.expose_secret()).into();
            let placeholder = self.tokens.seal(SECRET, &sandbox.id, &content)?;
            if let McpServer::Remote { api_key, .. } = server {
                *api_key = Some(placeholder);
            }
        }
        Ok(servers)
    }

    /// The MCP servers of the settings as a run of an automation reads them, which starts its conversation itself.
    pub fn mcp_of_run(&self, sandbox: &Sandbox, settings: &Settings) -> Result<Value, AppError> {
        let servers = self.without_keys(sandbox, settings.mcp_servers().0)?;
        Ok(McpConfig::of_servers(servers).to_json(SecretVisibility::Clear))
    }

    /// All hosts to which secrets of the sandbox's owner may go, while the sandbox runs or starts. Costs at most three
    /// queries.
    pub async fn hosts(&self, sandbox: &SandboxId) -> Result<HostRules, AppError> {
        let Some(sandbox) = self.tokens.active(sandbox).await? else {
            return Ok(HostRules::default());
        };
        let own = self.list(&sandbox.owner).await?;
        let settings = self.settings.load(&sandbox.owner).await?;
        let settings = settings.unwrap_or_default();
        let tokens = settings.provider_tokens.iter();
        let of_providers = tokens.map(|(provider, token)| self.hosts_of(*provider, token));
        let (servers, _) = settings.mcp_servers();
        let of_servers = servers
            .iter()
            .filter_map(|server| Some(bound_key(server)?.hosts));
        let all = own
            .into_iter()
            .map(|secret| secret.hosts)
            .chain(of_providers)
            .chain(of_servers);
        Ok(all.flat_map(SecretRules::hosts).collect())
    }

    /// The secret of a placeholder. `None`: it is none of this sandbox, the sandbox neither runs nor starts, or the secret is
    /// gone.
    pub async fn open_placeholder(
        &self,
        sandbox: &SandboxId,
        placeholder: &str,
    ) -> Result<Option<BoundSecret>, AppError> {
        let (owner, content) = match self.tokens.open(SECRET, placeholder).await? {
            Ok((found, content)) if found.id == *sandbox => (found, content),
            Ok(_) | Err(SandboxTokenRefusal::Unknown | SandboxTokenRefusal::NotRunning) => {
                return Ok(None);
            }
        };
        if let Some((hosts, value)) = content.expose_secret().split_once('\n') {
            let hosts = hosts.parse().unwrap_or_default();
            let value = value.into();
            return Ok(Some(BoundSecret { value, hosts }));
        }
        match self.bound(&owner, content.expose_secret(), None).await {
            Ok(secret) => Ok(Some(secret)),
            Err(error) if error.class() == ErrorClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Secret text from which the key of a sandbox's certificate authority is derived. It does not change.
    pub fn authority_seed(&self, sandbox: &SandboxId) -> SecretString {
        let id = sandbox.as_str().as_bytes();
        let seed = self.fingerprints.fingerprint(AUTHORITY_PURPOSE, id);
        seed.into()
    }

    /// A secret of the sandbox's owner; `tokens` are the owner's provider tokens, if they are loaded already.
    pub(super) async fn bound(
        &self,
        to: &Sandbox,
        name: &str,
        tokens: Option<&ProviderTokens>,
    ) -> Result<BoundSecret, AppError> {
        let not_found = || AppError::not_found("Secret not found");
        if !is_valid_name(name) {
            return Err(not_found());
        }
        let secret = if let Some(secret) = self.custom(&to.owner, name).await? {
            secret
        } else {
            let provider = provider_of(name).ok_or_else(not_found)?;
            let token = match tokens {
                Some(tokens) if self.shows_git_tokens => tokens.get(&provider).cloned(),
                Some(_) => None,
                None => self.tokens_of(to).await?.remove(&provider),
            };
            let token = token.ok_or_else(not_found)?;
            BoundSecret {
                hosts: self.hosts_of(provider, &token),
                value: token.token,
            }
        };
        if secret.value.expose_secret().is_empty() {
            return Err(AppError::not_found("Secret has no value"));
        }
        Ok(secret)
    }

    async fn custom(&self, owner: &OwnerId, name: &str) -> Result<Option<BoundSecret>, AppError> {
        let Some(secret) = self.secrets.find(owner, name).await? else {
            return Ok(None);
        };
        let value = self.open(&secret)?;
        let hosts = secret.hosts;
        Ok(Some(BoundSecret { value, hosts }))
    }

    /// The host of a git token's website, and those of its interfaces. None for a host with `http://`.
    fn hosts_of(&self, provider: GitProvider, token: &ProviderToken) -> SecretRules {
        let Ok(source) = self.sources.host(&token.access(provider)) else {
            return SecretRules::default();
        };
        let Some((host, own)) = https_host(&source.url) else {
            return SecretRules::default();
        };
        let known = API_HOSTS.iter().find(|(name, _)| *name == host);
        let of_enterprise = host.ends_with(".ghe.com").then(|| format!("api.{host}"));
        let more = known.map_or(of_enterprise, |(_, hosts)| Some((*hosts).to_owned()));
        let all = format!("{own} {}", more.unwrap_or_default());
        all.parse().unwrap_or_default()
    }
}

/// The host of an https URL, alone and with its port if it is not the usual one.
fn https_host(url: &Url) -> Option<(&str, String)> {
    let host = url.host_str().filter(|_| url.scheme() == "https")?;
    let port = url.port();
    let whole = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    Some((host, whole))
}

/// The key of a remote MCP server. None for one inside the sandbox, which no proxy sees.
fn bound_key(server: &McpServer) -> Option<BoundSecret> {
    let McpServer::Remote { url, api_key, .. } = server else {
        return None;
    };
    let (value, url) = (api_key.clone()?, Url::parse(url).ok()?);
    let is_inside = match url.host()? {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback() || address.is_unspecified(),
        Host::Ipv6(address) => address.is_loopback() || address.is_unspecified(),
    };
    let (_, host) = https_host(&url).filter(|_| !is_inside)?;
    let hosts = host.parse().ok()?;
    Some(BoundSecret { value, hosts })
}
