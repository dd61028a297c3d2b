//! Git tokens: one entry per provider, changed one by one.
//!
//! A token is never kept for another host than its own; otherwise a changed host could receive the token. Tokens are
//! stored unverified, unless the service verifies them. Then a new token is sent to its own provider at its own host
//! only, and only a clear rejection refuses it: an unreachable provider may be up again when the token is used.

use std::time::Duration;

use domain::error::chain;
use domain::git::{GitAccess, GitError, GitHosting, GitProvider};
use domain::id::OwnerId;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::issues::{Issue, IssueKind};
use super::mcp::McpConfig;
use super::model::{ProviderToken, Settings};
use super::secret::SecretInput;
use super::service::{SettingsService, UpdateError};
use crate::error::AppError;

#[derive(Debug, Clone, Default)]
pub struct TokenInput {
    /// The token; blank, absent or the mask keeps the stored one.
    pub token: Option<SecretString>,
    /// The user's id at the provider.
    pub user_id: Option<String>,
    /// Host or URL; blank or absent means the provider's own, or the stored one.
    pub host: Option<String>,
}

/// Body of the two operations that store tokens.
#[derive(Debug, Clone, Default)]
pub struct GitProvidersInput {
    /// Tokens by provider. Other providers keep theirs.
    pub provider_tokens: Vec<(GitProvider, TokenInput)>,
    /// Replaces the stored configuration; `None` keeps it.
    pub mcp_config: Option<McpConfig>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TokenRefusal {
    Invalid(Vec<Issue>),
    /// These providers rejected their token.
    Rejected(Vec<GitProvider>),
}

/// Timeout of the verification by all providers together.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(5);

const PROVIDER_TOKENS_KEY: &str = "provider_tokens";

impl SettingsService {
    /// Stores git tokens and an MCP configuration, or nothing if one of them is invalid or rejected. Returns the providers
    /// that did not answer the verification of their token.
    pub async fn add_git_providers(
        &self,
        owner: &OwnerId,
        input: &GitProvidersInput,
    ) -> Result<Vec<GitProvider>, UpdateError<TokenRefusal>> {
        let mut unverified = Vec::new();
        let invalid = |issues| UpdateError::Refused(TokenRefusal::Invalid(issues));
        if let Some(providers) = &self.verifier {
            // Check the request before any provider is called.
            let settings = self.load(owner).await?.unwrap_or_default();
            let wanted = merge(settings, input).map_err(invalid)?;
            let verified = verify(providers.as_ref(), &wanted, input).await;
            unverified = verified.map_err(UpdateError::Refused)?;
        }
        let saved = self.update(owner, |settings| {
            merge(settings, input).map_err(TokenRefusal::Invalid)
        });
        saved.await.map(|_| unverified)
    }

    /// Deletes all git tokens. Stores nothing if there are none.
    pub async fn unset_git_providers(&self, owner: &OwnerId) -> Result<(), AppError> {
        let nothing_there = self.load(owner).await?.is_none_or(|settings| {
            settings.provider_tokens.is_empty()
                && !settings.unread.contains_key(PROVIDER_TOKENS_KEY)
        });
        if nothing_there {
            return Ok(());
        }
        let cleared = self.update(owner, |mut settings| {
            settings.provider_tokens.clear();
            // Tokens of unknown providers too.
            settings.unread.shift_remove(PROVIDER_TOKENS_KEY);
            Ok::<_, std::convert::Infallible>(settings)
        });
        cleared.await?;
        Ok(())
    }
}

/// Sends every new token to its provider, in parallel. Returns the providers that did not answer.
async fn verify(
    providers: &dyn GitHosting,
    wanted: &Settings,
    input: &GitProvidersInput,
) -> Result<Vec<GitProvider>, TokenRefusal> {
    let asked = input
        .provider_tokens
        .iter()
        .filter_map(|(provider, token)| {
            let text = token.token.as_ref()?.expose_secret();
            matches!(SecretInput::from_text(text), SecretInput::Set(_)).then_some(())?;
            let access = wanted.provider_tokens.get(provider)?.access(*provider);
            Some(async move {
                let answer = tokio::time::timeout(VERIFY_TIMEOUT, providers.user(&access)).await;
                (access.provider, answer)
            })
        });
    let (mut rejected, mut issues, mut unverified) = (Vec::new(), Vec::new(), Vec::new());
    for (provider, answer) in futures::future::join_all(asked).await {
        match answer {
            Ok(Ok(_)) => {}
            Ok(Err(GitError::Denied { .. })) => rejected.push(provider),
            Ok(Err(GitError::Forbidden { reason, .. })) => issues.push(Issue::at(
                &[PROVIDER_TOKENS_KEY, provider.as_str(), "host"],
                IssueKind::Other(format!("the host may not be called: {reason}")),
            )),
            Ok(Err(error)) => {
                tracing::info!(%provider, error = %chain(&error), "git token stored unverified");
                unverified.push(provider);
            }
            Err(_) => {
                tracing::info!(%provider, "git token stored unverified: no answer in time");
                unverified.push(provider);
            }
        }
    }
    if !issues.is_empty() {
        return Err(TokenRefusal::Invalid(issues));
    }
    if !rejected.is_empty() {
        return Err(TokenRefusal::Rejected(rejected));
    }
    Ok(unverified)
}

impl ProviderToken {
    pub fn access(&self, provider: GitProvider) -> GitAccess {
        let host = identity(provider, self.host.as_deref());
        GitAccess {
            provider,
            host: host.and_then(|text| Url::parse(&text).ok()),
            token: self.token.clone(),
            user: self.user_id.clone(),
        }
    }
}

fn merge(mut settings: Settings, input: &GitProvidersInput) -> Result<Settings, Vec<Issue>> {
    let mut issues = Vec::new();
    for (provider, token) in &input.provider_tokens {
        if let Err((field, why)) = merge_one(&mut settings, *provider, token) {
            issues.push(Issue::at(
                &["provider_tokens", provider.as_str(), field],
                IssueKind::Other(why.to_owned()),
            ));
        }
    }
    if let Some(mcp) = &input.mcp_config {
        settings.mcp = Some(mcp.clone().with_stored_secrets(settings.mcp.as_ref()));
    }
    if issues.is_empty() {
        Ok(settings)
    } else {
        Err(issues)
    }
}

fn merge_one(
    settings: &mut Settings,
    provider: GitProvider,
    input: &TokenInput,
) -> Result<(), (&'static str, &'static str)> {
    let host = normal_host(input.host.as_deref()).map_err(|why| ("host", why))?;
    let text = input.token.as_ref().map_or("", |t| t.expose_secret());
    let token = match SecretInput::from_text(text) {
        SecretInput::Set(token) => token,
        SecretInput::Keep | SecretInput::Clear => {
            let Some(stored) = settings.provider_tokens.get_mut(&provider) else {
                return Ok(());
            };
            let Some(host) = host else { return Ok(()) };
            if identity(provider, Some(&host)) != identity(provider, stored.host.as_deref()) {
                return Err(("token", "the host changed, so the token must be sent again"));
            }
            stored.host = Some(host);
            return Ok(());
        }
    };
    if token
        .expose_secret()
        .chars()
        .any(|c| c.is_control() || c.is_whitespace())
    {
        return Err((
            "token",
            "the token must not contain blanks or control characters",
        ));
    }
    let user_id = input.user_id.clone();
    settings.provider_tokens.insert(
        provider,
        ProviderToken {
            token,
            user_id,
            host,
        },
    );
    Ok(())
}

const HOST_RULE: &str = "host must be a host name with optional port, or an http(s) URL without user, query or fragment";

/// The host without surrounding blanks and trailing slashes; `None` if blank.
fn normal_host(host: Option<&str>) -> Result<Option<String>, &'static str> {
    let Some(host) = host.map(str::trim).filter(|h| !h.is_empty()) else {
        return Ok(None);
    };
    let odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '\\' | '@' | '?' | '#');
    if host.len() > 255
        || host.starts_with('/')
        || host.contains(odd)
        || host.split('/').any(|part| part == "..")
    {
        return Err(HOST_RULE);
    }
    let url = as_url(host).ok_or(HOST_RULE)?;
    let named = url.host_str().is_some_and(|h| !h.is_empty());
    if named && matches!(url.scheme(), "http" | "https") {
        Ok(Some(host.trim_end_matches('/').to_owned()))
    } else {
        Err(HOST_RULE)
    }
}

fn as_url(host: &str) -> Option<Url> {
    let lower = host.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        Url::parse(host).ok()
    } else if lower.contains("://") {
        None
    } else {
        Url::parse(&format!("https://{host}")).ok()
    }
}

/// The identity of a host, whatever its spelling: scheme, host, port and path. A provider's own host is `None`.
fn identity(provider: GitProvider, host: Option<&str>) -> Option<String> {
    let url = as_url(host?)?;
    let text = url.as_str().trim_end_matches('/').to_owned();
    let own = match provider {
        GitProvider::Github => "https://github.com",
        GitProvider::Gitlab => "https://gitlab.com",
        GitProvider::Bitbucket => "https://bitbucket.org",
        GitProvider::AzureDevops => "https://dev.azure.com",
        GitProvider::Forgejo => "https://codeberg.org",
        GitProvider::BitbucketDataCenter | GitProvider::EnterpriseSso => return Some(text),
    };
    (text != own).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(
        settings: Settings,
        provider: GitProvider,
        token: &str,
        host: Option<&str>,
    ) -> Result<Settings, Vec<Issue>> {
        let token = TokenInput {
            token: Some(token.into()),
            user_id: Some("u".into()),
            host: host.map(str::to_owned),
        };
        merge(
            settings,
            &GitProvidersInput {
                provider_tokens: vec![(provider, token)],
                mcp_config: None,
            },
        )
    }

    fn shown(settings: &Settings) -> Vec<(&str, &str, Option<&str>)> {
        settings
            .provider_tokens
            .iter()
            .map(|(p, t)| (p.as_str(), t.token.expose_secret(), t.host.as_deref()))
            .collect()
    }

    use GitProvider::{Github, Gitlab};

    #[test]
    fn providers_are_changed_one_by_one() {
        let s = post(Settings::default(), Github, "gh", None).unwrap();
        let s = post(s, Gitlab, " gl ", Some("http://127.0.0.1:3290/")).unwrap();
        let both = vec![
            ("github", "gh", None),
            ("gitlab", "gl", Some("http://127.0.0.1:3290")),
        ];
        assert_eq!(shown(&s), both);
        let s = merge(s, &GitProvidersInput::default()).unwrap();
        assert_eq!(shown(&s), both);
        let s = post(s, Github, "new", Some("ghe.example.com")).unwrap();
        assert_eq!(shown(&s)[0], ("github", "new", Some("ghe.example.com")));
        let none = post(Settings::default(), Github, "", Some("github.com")).unwrap();
        assert!(none.provider_tokens.is_empty());
    }

    #[test]
    fn a_blank_token_is_kept_for_the_same_place_only() {
        for (stored, sent, kept) in [
            (None, None, true),
            (None, Some(""), true),
            (None, Some("github.com"), true),
            (None, Some("https://GitHub.com/"), true),
            (None, Some("http://github.com"), false),
            (None, Some("github.com.evil.example"), false),
            (Some("ghe.example.com"), None, true),
            (Some("ghe.example.com"), Some(" "), true),
            (
                Some("ghe.example.com"),
                Some("https://ghe.example.com:443"),
                true,
            ),
            (
                Some("ghe.example.com"),
                Some("http://ghe.example.com"),
                false,
            ),
            (Some("ghe.example.com"), Some("ghe.example.com:8443"), false),
            (Some("ghe.example.com"), Some("github.com"), false),
            (Some("http://h/a"), Some("http://h/b"), false),
        ] {
            for blank in ["", "  ", "**********"] {
                let s = post(Settings::default(), Github, "gh", stored).unwrap();
                let after = post(s, Github, blank, sent);
                assert_eq!(after.is_ok(), kept, "{stored:?} -> {sent:?}");
                match after {
                    Ok(s) => assert_eq!(shown(&s)[0].1, "gh"),
                    Err(issues) => {
                        assert_eq!(issues[0].at, ["provider_tokens", "github", "token"]);
                    }
                }
            }
        }
    }

    #[test]
    fn hosts_are_checked() {
        for good in [
            "h",
            "h:80",
            "127.0.0.1:3290",
            "https://h/x/",
            "[::1]:80",
            "dev.azure.com/org",
            "HTTP://h",
        ] {
            assert!(normal_host(Some(good)).is_ok(), "{good}");
        }
        for bad in [
            "http://u:p@h",
            "u@h",
            "h?x",
            "h#x",
            "h/../x",
            "ftp://h",
            "file:///etc",
            "a b",
            "h\\x",
            "http://",
            "h:99999",
            "//",
            "javascript:alert(1)",
            "h\u{0}",
            &"h".repeat(300),
        ] {
            assert!(normal_host(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refused_entry_stores_nothing_of_the_others() {
        let input = GitProvidersInput {
            provider_tokens: vec![
                (
                    Github,
                    TokenInput {
                        token: Some("ok".into()),
                        ..TokenInput::default()
                    },
                ),
                (
                    Gitlab,
                    TokenInput {
                        token: Some("a\nb".into()),
                        ..TokenInput::default()
                    },
                ),
            ],
            mcp_config: None,
        };
        let issues = merge(Settings::default(), &input).unwrap_err();
        assert_eq!(issues.len(), 1);
        assert_eq!(issues[0].at, ["provider_tokens", "gitlab", "token"]);
    }
}
