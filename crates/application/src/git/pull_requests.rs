//! Pull requests that agents and users open with the user's token, and the MCP server through which agents open them.

use std::time::Duration;

use domain::agent::McpServer;
use domain::encryption::cipher::Cipher;
use domain::error::{Classify as _, chain};
use domain::git::{GitError, GitProvider, NewPullRequest, OpenedPullRequest};
use domain::id::{ConversationId, OwnerId, SandboxId};
use domain::sandbox::Sandbox;
use domain::user::scope::Scope;
use url::Url;

use crate::AppError;
use crate::git::rights::working_branch;
use crate::git::{GitService, GitServiceError};
use crate::sandboxes::conversation_credential;
use crate::settings::{LaunchProfile, token_name};

/// Name of this service among an agent's MCP servers; front ends of the reference know it.
const SERVER_NAME: &str = "default";

/// Query parameter of the MCP server's URL that names the conversation.
pub const CONVERSATION_PARAMETER: &str = "conversation_id";

#[derive(Debug, Clone)]
pub struct PullRequestCaller {
    /// The user whose token is used.
    pub user: OwnerId,
    /// The calling sandbox, which acts only for its own conversations; `None` if the user calls.
    pub sandbox: Option<SandboxId>,
    pub conversation: Option<ConversationId>,
}

impl GitService {
    /// Opens a pull request with the user's token for this provider, and records its number in the conversation. Never
    /// retried.
    pub async fn open_pull_request(
        &self,
        caller: &PullRequestCaller,
        provider: GitProvider,
        request: &NewPullRequest,
    ) -> Result<OpenedPullRequest, GitServiceError> {
        let access = self.access(&caller.user, provider).await?;
        self.check_rights(caller, provider, request).await?;
        let answer = self.hosting.open_pull_request(&access, request).await?;
        if let (Some(id), Some(number)) = (caller.conversation, answer.number) {
            // The pull request is open even if this fails.
            match self.record_number(caller, id, number).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::info!(conversation.id = %id, "not recording a pull request: its conversation does not belong to the caller");
                }
                Err(error) => {
                    tracing::warn!(conversation.id = %id, error = %chain(&error), "cannot record the pull request in conversation {id}");
                }
            }
        }
        Ok(answer)
    }

    /// Holds an agent to the limits of its git calls. Users have none.
    async fn check_rights(
        &self,
        caller: &PullRequestCaller,
        provider: GitProvider,
        request: &NewPullRequest,
    ) -> Result<(), GitServiceError> {
        let Some(sandbox) = caller.sandbox.as_ref().filter(|_| self.policy.is_limited()) else {
            return Ok(());
        };
        let scope = Scope::Owner(caller.user.clone());
        let found = match caller.conversation {
            Some(id) => self.conversations.find(&scope, id).await,
            None => Ok(None),
        };
        let found = found.map_err(AppError::from)?.map(|it| it.conversation);
        let own = found.filter(|it| {
            let name = it.selected_repository.as_deref().unwrap_or_default();
            it.sandbox_id == *sandbox
                && it.git_provider == Some(provider)
                && name.eq_ignore_ascii_case(&request.repository)
        });
        let branch = own.map(|it| {
            let selected = it.selected_branch;
            selected.unwrap_or_else(|| working_branch(it.id))
        });
        let rights = self.policy.rights(branch.as_deref().as_slice());
        let branch = format!("refs/heads/{}", request.source_branch);
        if rights.has_token && rights.push.allows(&branch) {
            return Ok(());
        }
        Err(GitServiceError::Limited(format!(
            "agents may not open pull requests from {} in {}: the service limits the repositories and branches that they write to",
            request.source_branch, request.repository
        )))
    }

    /// Records the number. Returns `false` if the caller does not act for the conversation.
    async fn record_number(
        &self,
        caller: &PullRequestCaller,
        id: ConversationId,
        number: i64,
    ) -> Result<bool, AppError> {
        let scope = Scope::Owner(caller.user.clone());
        if let Some(sandbox) = &caller.sandbox {
            // A conversation never moves to another sandbox, so this stays true.
            let found = self.conversations.find(&scope, id).await?;
            if found.is_none_or(|it| it.conversation.sandbox_id != *sandbox) {
                return Ok(false);
            }
        }
        let now = self.clock.now();
        Ok(self
            .conversations
            .add_pull_request(&scope, id, number, now)
            .await?)
    }
}

/// Why no pull request was opened, and what to do: for the agent, which reports it to its user.
pub fn failure_advice(provider: GitProvider, failure: &GitServiceError) -> String {
    match failure {
        GitServiceError::NotConnected(_) => format!(
            "No token of {provider} is stored. The user can add one in the settings, among the git providers."
        ),
        GitServiceError::Provider(GitError::Denied { .. }) => format!(
            "{provider} does not accept the stored token. The user can store a new one in the settings, among the git \
             providers."
        ),
        GitServiceError::Provider(GitError::NotAllowed { .. }) => format!(
            "The token that is stored for {provider} may not open pull requests in this repository. It needs: {}.",
            required_token_scope(provider)
        ),
        GitServiceError::Provider(GitError::NotFound { .. }) => format!(
            "{provider} does not know this repository or branch, or does not show it to the stored token. Check the names, \
             and that the source branch was pushed."
        ),
        GitServiceError::Provider(error @ GitError::Limited { .. }) => {
            let wait = error.retry_after().unwrap_or(Duration::from_secs(60));
            format!(
                "{provider} limits requests. Try again in {} seconds.",
                wait.as_secs().max(1)
            )
        }
        GitServiceError::Provider(GitError::Unavailable { .. }) => format!(
            "{provider} did not respond, or its response is not valid. The pull request may exist: look there before you \
             try again."
        ),
        GitServiceError::App(_) => {
            "The service could not read the stored token. Nothing was sent; try again in a moment."
                .into()
        }
        other => {
            let text = other.public();
            format!("{}.", text.trim_end_matches('.'))
        }
    }
}

/// The permission that a token needs, in the provider's words.
fn required_token_scope(provider: GitProvider) -> &'static str {
    match provider {
        GitProvider::Github => {
            "scope repo, or for a fine-grained token \"Pull requests: read and write\""
        }
        GitProvider::Gitlab => "scope api, and the role Developer in the project",
        GitProvider::Bitbucket => "pull requests: write",
        GitProvider::BitbucketDataCenter => "repository write",
        GitProvider::Forgejo => "write:repository and write:issue",
        GitProvider::AzureDevops => "code: read and write",
        GitProvider::EnterpriseSso => "a git provider",
    }
}

/// This service as an MCP server of the agent in this sandbox, which authenticates with its callback token. `None` if the
/// user has no token of a git host. A user's own server with the same name takes precedence.
pub(crate) fn mcp_server(
    cipher: &dyn Cipher,
    webhook_url: &Url,
    profile: &LaunchProfile,
    sandbox: &Sandbox,
    conversation: ConversationId,
) -> Result<Option<McpServer>, AppError> {
    let opens = |provider: &GitProvider| {
        *provider != GitProvider::EnterpriseSso
            && profile.secrets.contains_key(&token_name(*provider))
    };
    let mut providers = GitProvider::ALL.iter().map(|(_, provider)| provider);
    let is_taken = profile.mcp.iter().any(|it| {
        let (McpServer::Remote { name, .. } | McpServer::Stdio { name, .. }) = it;
        name == SERVER_NAME
    });
    if is_taken || !providers.any(opens) {
        return Ok(None);
    }
    let key = conversation_credential(cipher, sandbox)?;
    Ok(Some(McpServer::Remote {
        name: SERVER_NAME.to_owned(),
        url: mcp_url(webhook_url, conversation).into(),
        api_key: Some(key),
        sse: false,
        timeout: None,
    }))
}

/// `…/mcp/mcp?conversation_id=…` for `…/api/v1/webhooks`.
fn mcp_url(webhook_url: &Url, conversation: ConversationId) -> Url {
    let mut url = webhook_url.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().pop().pop().pop().extend(["mcp", "mcp"]);
    }
    url.set_query(Some(&format!("{CONVERSATION_PARAMETER}={conversation}")));
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mcp_url_is_beside_the_webhooks() {
        for (webhooks, expected) in [
            (
                "http://10.0.0.1:3000/api/v1/webhooks",
                "http://10.0.0.1:3000/mcp/mcp?conversation_id=00000000000000000000000000000007",
            ),
            (
                "https://h/prefix/api/v1/webhooks/",
                "https://h/prefix/mcp/mcp?conversation_id=00000000000000000000000000000007",
            ),
        ] {
            let id = ConversationId::new(uuid::Uuid::from_u128(7));
            let url = mcp_url(&webhooks.parse().unwrap(), id);
            assert_eq!(url.as_str(), expected);
        }
    }

    #[test]
    fn every_failure_has_advice() {
        let provider = GitProvider::Github;
        let refused = GitError::Refused {
            provider,
            reason: "exists already".into(),
        };
        let source = "hush".into();
        for (failure, expected) in [
            (
                GitServiceError::NotConnected(Some(provider)),
                "add one in the settings",
            ),
            (GitError::Denied { provider }.into(), "store a new one"),
            (GitError::NotAllowed { provider }.into(), "scope repo"),
            (GitError::NotFound { provider }.into(), "was pushed"),
            (
                GitError::Limited {
                    provider,
                    retry_after: Some(7),
                }
                .into(),
                "in 7 seconds",
            ),
            (
                GitError::Unavailable { provider, source }.into(),
                "may exist",
            ),
            (refused.into(), "github refuses: exists already."),
            (AppError::invalid("hush").into(), "Nothing was sent"),
        ] {
            let text = failure_advice(provider, &failure);
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("hush"), "{text}");
        }
    }
}
