//! Git tokens on the wire. Requests contain them, responses never do.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use application::settings::{
    GitProvidersInput, Issue, McpConfig, TokenInput, TokenRefusal, UpdateError,
};
use domain::git::GitProvider;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::decode::{Choice, ErrorFormat, FieldError, FieldErrors, Path, model};
use crate::dto::configuration::mcp::McpConfigDto;
use crate::problem::Problem;

/// The providers that the legacy operation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LegacyProviderKey(GitProvider);

impl Choice for LegacyProviderKey {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("github", Self(GitProvider::Github)),
        ("gitlab", Self(GitProvider::Gitlab)),
        ("bitbucket", Self(GitProvider::Bitbucket)),
        ("forgejo", Self(GitProvider::Forgejo)),
        ("azure_devops", Self(GitProvider::AzureDevops)),
        ("enterprise_sso", Self(GitProvider::EnterpriseSso)),
    ];
}

/// A provider's token.
#[model(body = ProviderToken, into = TokenInput)]
pub(crate) struct ProviderTokenDto {
    /// The token. If blank or absent, the stored one stays.
    token: Option<SecretString>,
    /// The user's id at the provider.
    user_id: Option<String>,
    /// Host, or http(s) URL. Changing the stored host requires the token again.
    host: Option<String>,
}

impl From<LegacyProviderKey> for GitProvider {
    fn from(key: LegacyProviderKey) -> Self {
        key.0
    }
}

fn token_inputs<K: Into<GitProvider>>(
    tokens: BTreeMap<K, ProviderTokenDto>,
) -> Vec<(GitProvider, TokenInput)> {
    let tokens = tokens.into_iter();
    tokens
        .map(|(key, token)| (key.into(), token.into()))
        .collect()
}

/// Git tokens, and MCP servers.
#[model(body = POSTProviderModel, into = GitProvidersInput)]
pub(crate) struct AddGitProvidersDto {
    /// Replaces the stored configuration; null or absent keeps it.
    #[into(mcp_config.map(McpConfig::from))]
    mcp_config: Option<McpConfigDto>,
    /// Tokens by provider (github, gitlab, bitbucket, forgejo, `azure_devops`, `enterprise_sso`). Other tokens stay.
    #[decode(default)]
    #[schema(value_type = BTreeMap<String, ProviderTokenDto>)]
    #[into(token_inputs(provider_tokens))]
    provider_tokens: BTreeMap<LegacyProviderKey, ProviderTokenDto>,
}

/// Tokens that were stored.
#[model(response = GitProvidersStored)]
pub(crate) struct TokensStoredDto {
    message: String,
    /// One text per token that was stored without a check, because its provider did not answer. Absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl TokensStoredDto {
    pub(crate) fn new(unverified: &[GitProvider]) -> Self {
        let note = |provider| {
            format!("{provider} did not answer, so its token is stored without a check.")
        };
        Self {
            message: "Git providers stored".to_owned(),
            notes: unverified.iter().map(note).collect(),
        }
    }
}

/// Tokens that their providers reject; nothing was stored.
#[model(response = TokensRejected)]
pub(crate) struct TokensRejectedDto {
    /// A text about the first of them.
    error: String,
    /// One item per token, at `["body", "provider_tokens", <provider>, "token"]`, with `type` `invalid_token`.
    #[schema(value_type = Vec<Object>)]
    detail: Value,
}

/// The error response when no token was stored, in the form of the route.
pub(crate) fn tokens_problem(
    error: UpdateError<TokenRefusal>,
    error_format: ErrorFormat,
) -> Problem {
    match error {
        UpdateError::Refused(TokenRefusal::Invalid(issues)) => {
            Problem::invalid(&errors_of(&issues), error_format)
        }
        UpdateError::Refused(TokenRefusal::Rejected(providers)) => {
            rejected(&providers, error_format)
        }
        UpdateError::Failed(error) => error.into(),
    }
}

fn rejected(providers: &[GitProvider], error_format: ErrorFormat) -> Problem {
    let text = |provider: &GitProvider| {
        format!("Invalid token. Please make sure it is a valid {provider} token.")
    };
    let mut errors = FieldErrors::new();
    for provider in providers {
        let at = ["provider_tokens", provider.as_str(), "token"].map(str::to_owned);
        let fault = FieldError::new("invalid_token", text(provider));
        push_issue(&mut errors, &Path::body(true), &at, fault);
    }
    let body = TokensRejectedDto {
        error: providers.first().map(text).unwrap_or_default(),
        detail: errors.detail(error_format),
    };
    Problem::with_body(StatusCode::UNAUTHORIZED, json!(body))
}

/// Converts issues of the application into errors of the body.
pub(crate) fn errors_of(issues: &[Issue]) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for issue in issues {
        let fault = FieldError::new(issue.kind.code(), issue.kind.to_string());
        push_issue(&mut errors, &Path::body(true), &issue.at, fault);
    }
    errors
}

fn push_issue(errors: &mut FieldErrors, at: &Path<'_>, rest: &[String], fault: FieldError) {
    match rest.split_first() {
        Some((key, rest)) => push_issue(errors, &at.key(key), rest, fault),
        None => errors.push_silent(at, fault),
    }
}

/// Git tokens. An `mcp_config` in the body is ignored: V1 has another operation for it.
#[model(body = GitProvidersUpdate, into_default = GitProvidersInput)]
pub(crate) struct GitProvidersDto {
    /// Tokens by provider (those of the legacy operation, and `bitbucket_data_center`). Other tokens stay.
    #[decode(default)]
    #[schema(value_type = BTreeMap<String, ProviderTokenDto>)]
    #[into(token_inputs(provider_tokens))]
    provider_tokens: BTreeMap<GitProvider, ProviderTokenDto>,
}
