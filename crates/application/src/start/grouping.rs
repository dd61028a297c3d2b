//! Which sandbox a start gets: the one that it names, one that the user's conversations share, or a new one.

use domain::conversation::ConversationView;
use domain::id::{ConversationId, UserId};
use domain::page::PageRequest;
use domain::sandbox::{Grouping, Sandbox, SandboxStatus};
use domain::scope::Scope;
use domain::start_task::{StartRequest, StartTaskFilter, StartTaskOrder};

use super::Starts;
use crate::AppError;
use crate::sandboxes::{choose_spec, reserve};

/// Where a conversation may run.
pub(super) enum Chosen {
    /// In the sandbox that was named.
    Named(Sandbox),
    /// In the first of `shared` that still has room when the start is committed, else in a new one.
    Ours {
        /// Best first.
        shared: Vec<Sandbox>,
        /// To be stored with the task.
        new: Sandbox,
    },
}

/// The user's strategy; `None`: each conversation has a sandbox of its own.
fn strategy(name: &str) -> Option<Grouping> {
    match name {
        "ADD_TO_ANY" => Some(Grouping::Any),
        "GROUP_BY_NEWEST" => Some(Grouping::Newest),
        "LEAST_RECENTLY_USED" => Some(Grouping::LeastRecentlyUsed),
        "FEWEST_CONVERSATIONS" => Some(Grouping::FewestConversations),
        _ => None,
    }
}

impl Starts {
    /// Chooses, and gives the conversation a directory of its own where it shares the sandbox. Nothing is reserved yet.
    pub(super) async fn choose_sandbox(
        &self,
        scope: &Scope,
        owner: &UserId,
        id: ConversationId,
        request: &mut StartRequest,
        parent: Option<&ConversationView>,
    ) -> Result<Chosen, AppError> {
        let (ports, policy) = (&self.inner.ports, &self.inner.policy);
        let grouping = self.grouping(owner).await;
        request.directory = match parent {
            // A part works where its parent does, unless it was sent elsewhere.
            Some(parent)
                if request.sandbox_id.as_ref() == Some(&parent.conversation.sandbox_id) =>
            {
                self.directory_of(scope, parent.conversation.id).await?
            }
            _ => grouping.map(|_| id.to_string()),
        };
        if let Some(named) = &request.sandbox_id {
            let unknown = || AppError::not_found(format!("Sandbox not found: {named}"));
            let row = ports.sandboxes.find(scope, named).await?;
            let row = row.ok_or_else(unknown)?;
            if row.status == SandboxStatus::Missing {
                return Err(AppError::conflict(format!(
                    "Sandbox {named} is MISSING and cannot be used"
                )));
            }
            return Ok(Chosen::Named(row));
        }
        let spec = choose_spec(ports, &self.settings, owner, None).await?.id;
        let shared = match grouping {
            Some(grouping) => grouping.order(ports.sandboxes.running(owner, &spec).await?),
            None => Vec::new(),
        };
        let new = reserve(ports, policy, owner, spec)?;
        Ok(Chosen::Ours { shared, new })
    }

    /// Settings that cannot be read are no reason to refuse a start here.
    async fn grouping(&self, owner: &UserId) -> Option<Grouping> {
        let settings = self.settings.load(owner).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "settings not readable; the conversation gets a sandbox of its own");
            None
        });
        strategy(&settings?.sandbox_grouping_strategy)
    }

    /// The directory that the start of a conversation was given. One whose start task is old enough to be gone counts as
    /// having none.
    async fn directory_of(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<Option<String>, AppError> {
        let filter = StartTaskFilter {
            conversation_id: Some(id),
            ..StartTaskFilter::default()
        };
        let page = PageRequest::default();
        let tasks = &self.inner.ports.start_tasks;
        let found = tasks.search(scope, &filter, StartTaskOrder::default(), &page);
        let task = found.await?.items.pop();
        Ok(task.and_then(|task| task.request.directory))
    }
}
