//! Rechecks the access of forwarded responses and sockets.

use application::AppError;
use application::gateway::AgentRoute;
use domain::id::{ConversationId, SandboxId};
use domain::user::scope::Scope;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use secrecy::{ExposeSecret as _, SecretString};

use crate::access_recheck::{AccessRecheck, poll_until_refused};
use crate::extract::{Actor, Application};
use crate::state::HttpState;

/// What a socket or response was opened with, as far as it is rechecked.
pub(crate) enum RouteRecheck {
    /// Opened with the key of this sandbox.
    Sandbox {
        key: SecretString,
        /// The sandbox that the key belonged to.
        sandbox: SandboxId,
    },
    /// Opened by a user who may see this conversation.
    User {
        actor: Actor,
        access: AccessRecheck,
        conversation: ConversationId,
        sandbox: SandboxId,
    },
    /// Opened by an unknown caller, for a conversation that ran in this sandbox.
    Unchecked {
        conversation: ConversationId,
        sandbox: SandboxId,
    },
}

impl RouteRecheck {
    /// Returns when the socket or response must end. Boxed: thousands of sockets wait, and few of them poll.
    pub(crate) fn until_refused(
        self,
        app: Application,
        state: &HttpState,
    ) -> LocalBoxFuture<'static, ()> {
        let interval = state.limits.access_recheck_interval;
        let recheck = async move {
            poll_until_refused(interval, || self.is_refused(&app).boxed_local()).await;
        };
        recheck.boxed_local()
    }

    async fn is_refused(&self, app: &Application) -> bool {
        match self {
            Self::Sandbox { key, sandbox } => match app.gateway.by_key(key.expose_secret()).await {
                Ok(agent_route) => {
                    agent_route.is_none_or(|agent_route| agent_route.sandbox != *sandbox)
                }
                Err(error) => is_refusal(&error),
            },
            Self::User {
                actor,
                access,
                conversation,
                sandbox,
            } => {
                access.is_refused(actor).await
                    || leads_to_other_sandbox(app, &actor.scope(), *conversation, sandbox).await
            }
            Self::Unchecked {
                conversation,
                sandbox,
            } => leads_to_other_sandbox(app, &Scope::System, *conversation, sandbox).await,
        }
    }
}

async fn leads_to_other_sandbox(
    app: &Application,
    scope: &Scope,
    conversation: ConversationId,
    sandbox: &SandboxId,
) -> bool {
    let found = app.gateway.by_conversation(scope, conversation).await;
    match found {
        Ok(AgentRoute { sandbox: now, .. }) => now != *sandbox,
        Err(error) => is_refusal(&error),
    }
}

/// Whether the application refused access, rather than the store being unavailable.
fn is_refusal(error: &AppError) -> bool {
    matches!(error, AppError::Refused { .. })
}
