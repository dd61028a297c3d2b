//! Pull requests that agents, and users, have opened with the user's own token; and how an agent is told where to ask.

use std::time::Duration;

use domain::agent::McpServer;
use domain::conversation::GitProvider;
use domain::error::{Classify as _, chain};
use domain::git::{GitError, OpenedPullRequest, NewPullRequest};
use domain::id::{ConversationId, SandboxId, UserId};
use domain::sandbox::Sandbox;
use domain::scope::Scope;
use url::Url;

use crate::git::{GitServiceError, GitService};
use crate::settings::{LaunchProfile, token_name};
use crate::{AppError, Inner};

/// The name that this service has among an agent's MCP servers; front ends of the reference know it.
const SERVER_NAME: &str = "default";

/// The parameter of the MCP server's address that names the conversation.
pub const CONVERSATION_PARAMETER: &str = "conversation_id";

/// Who opens pull requests.
#[derive(Debug, Clone)]
pub struct PullRequestCaller {
    /// With whose token.
    pub user: UserId,
    /// The sandbox that asks, which speaks for its own conversations only; `None` for the user in person.
    pub sandbox: Option<SandboxId>,
    /// For which conversation.
    pub conversation: Option<ConversationId>,
}

impl GitService {
    /// Opens a pull request with the user's token for this provider, and notes its number in the conversation. Never
    /// repeated.
    pub async fn open_pull_request(
        &self,
        opener: &PullRequestCaller,
        provider: GitProvider,
        request: &NewPullRequest,
    ) -> Result<OpenedPullRequest, GitServiceError> {
        let access = self.access(&opener.user, provider).await?;
        let answer = self.hosting().open_pull_request(&access, request).await?;
        if let (Some(id), Some(number)) = (opener.conversation, answer.number) {
            // It is open, whatever becomes of this.
            match self.note(opener, id, number).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::info!(conversation.id = %id, "a pull request for no conversation of the caller's");
                }
                Err(error) => {
                    tracing::warn!(conversation.id = %id, error = %chain(&error), "the pull request is not noted in conversation {id}");
                }
            }
        }
        Ok(answer)
    }

    /// `false` if the conversation is none that the opener speaks for.
    async fn note(
        &self,
        opener: &PullRequestCaller,
        id: ConversationId,
        number: i64,
    ) -> Result<bool, AppError> {
        let (ports, scope) = (self.ports(), Scope::User(opener.user.clone()));
        if let Some(sandbox) = &opener.sandbox {
            // It never moves to another sandbox, so this stays true.
            let found = ports.conversations.find(&scope, id).await?;
            if found.is_none_or(|it| it.conversation.sandbox_id != *sandbox) {
                return Ok(false);
            }
        }
        let (conversations, now) = (&ports.conversations, ports.clock.now());
        Ok(conversations
            .add_pull_request(&scope, id, number, now)
            .await?)
    }
}

/// Why there is no pull request, and what to do: for the agent that asked, which tells its user.
pub fn failure_advice(provider: GitProvider, failure: &GitServiceError) -> String {
    match failure {
        GitServiceError::NotConnected(_) => format!(
            "No token of {provider} is stored. The user can add one in the settings, among the git providers."
        ),
        GitServiceError::Provider(GitError::Denied { .. }) => format!(
            "{provider} does not accept the token that is stored for it (any more). The user can store a new one in the \
             settings, among the git providers."
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
            "{provider} did not answer, or nothing that could be understood. The pull request may be open all the same: \
             look there before you try again."
        ),
        GitServiceError::App(_) => {
            "The service could not look the token up. Nothing was sent; try again in a moment."
                .into()
        }
        other => {
            let text = other.public();
            format!("{}.", text.trim_end_matches('.'))
        }
    }
}

/// What a token must be allowed to do, in the provider's own words.
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

/// This service as an MCP server of the agent in this sandbox, for which its key speaks. `None` where nothing could come of
/// it: the user has no token of a git host. A server of the user's with its name takes its place.
pub(crate) fn server(
    inner: &Inner,
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
    if !inner.policy.mcp_in_conversations || is_taken || !providers.any(opens) {
        return Ok(None);
    }
    let context = Sandbox::key_context(&sandbox.id);
    let key = inner.ports.cipher.open(&context, &sandbox.session_key)?;
    Ok(Some(McpServer::Remote {
        name: SERVER_NAME.to_owned(),
        url: address(&inner.policy.webhook_url, conversation).into(),
        api_key: Some(key),
        sse: false,
        timeout: None,
    }))
}

/// `…/mcp/mcp?conversation_id=…` of `…/api/v1/webhooks`.
fn address(webhook_url: &Url, conversation: ConversationId) -> Url {
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
    fn it_is_beside_the_webhooks() {
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
            let url = address(&webhooks.parse().unwrap(), id);
            assert_eq!(url.as_str(), expected);
        }
    }

    #[test]
    fn every_refusal_says_what_to_do() {
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
                "may be open all the same",
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
