//! Which sandbox a start gets: the one that it names, one that the user's conversations share, or a new one.

use std::collections::BTreeMap;

use domain::conversation::ConversationView;
use domain::error::chain;
use domain::id::{ConversationId, UserId};
use domain::sandbox::{SandboxGrouping, Sandbox, SandboxStatus};
use domain::scope::Scope;
use domain::start_task::StartRequest;

use super::StartService;
use crate::AppError;
use crate::sandboxes::{choose_spec, is_known, reserve};

/// The tag that names the directory of a conversation in the workspace, where it has one of its own. Never sent to agent
/// servers.
const DIRECTORY_TAG: &str = "workspace_directory";

/// Where a conversation may run.
pub(super) enum SandboxChoice {
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
fn strategy(name: &str) -> Option<SandboxGrouping> {
    match name {
        "ADD_TO_ANY" => Some(SandboxGrouping::Any),
        "GROUP_BY_NEWEST" => Some(SandboxGrouping::Newest),
        "LEAST_RECENTLY_USED" => Some(SandboxGrouping::LeastRecentlyUsed),
        "FEWEST_CONVERSATIONS" => Some(SandboxGrouping::FewestConversations),
        _ => None,
    }
}

impl StartService {
    /// Chooses, and gives the conversation a directory of its own where it shares the sandbox. Nothing is reserved yet.
    pub(super) async fn choose_sandbox(
        &self,
        scope: &Scope,
        owner: &UserId,
        id: ConversationId,
        request: &mut StartRequest,
        parent: Option<&ConversationView>,
    ) -> Result<SandboxChoice, AppError> {
        let (ports, policy) = (&self.inner.ports, &self.inner.policy);
        let grouping = self.grouping(owner).await;
        request.directory = match parent {
            // A part works where its parent does, unless it was sent elsewhere.
            Some(parent)
                if request.sandbox_id.as_ref() == Some(&parent.conversation.sandbox_id) =>
            {
                directory_of(&parent.conversation.tags)
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
            return Ok(SandboxChoice::Named(row));
        }
        let spec = choose_spec(ports, &self.settings, owner, None).await?.id;
        let shared = match grouping {
            Some(grouping) => {
                let mut running = ports.sandboxes.list_running(owner, &spec).await?;
                // Of other hosts it is not known whether anybody serves them, nor of an engine that is out of reach.
                running.retain(|it| it.sandbox.host == policy.host && is_known(&it.sandbox));
                grouping.rank(running)
            }
            None => Vec::new(),
        };
        let new = reserve(ports, policy, owner, spec)?;
        Ok(SandboxChoice::Ours { shared, new })
    }

    /// Settings that cannot be read are no reason to refuse a start here.
    async fn grouping(&self, owner: &UserId) -> Option<SandboxGrouping> {
        let settings = self.settings.load(owner).await.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "settings not readable; the conversation gets a sandbox of its own");
            None
        });
        strategy(&settings?.sandbox_grouping_strategy)
    }
}

/// What a conversation says about the directory that its start was given, for its parts: the start itself is forgotten
/// earlier.
pub(super) fn directory_tag(request: &StartRequest) -> Option<(String, String)> {
    let directory = request.directory.clone()?;
    Some((DIRECTORY_TAG.to_owned(), directory))
}

/// The directory of a conversation. Sandboxes report tags, too, so it is only taken for what we give: the name of a
/// conversation, and no path.
pub(super) fn directory_of(tags: &BTreeMap<String, String>) -> Option<String> {
    let named: ConversationId = tags.get(DIRECTORY_TAG)?.parse().ok()?;
    Some(named.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_led_nowhere_else_by_what_a_sandbox_reports() {
        let id = "0123456789abcdef0123456789abcdef";
        for (tag, expected) in [
            (Some(id), Some(id)),
            (Some("01234567-89ab-cdef-0123-456789abcdef"), Some(id)),
            (Some("../elsewhere"), None),
            (Some("/etc"), None),
            (Some(""), None),
            (None, None),
        ] {
            let tags = tag.map(|tag| (DIRECTORY_TAG.to_owned(), tag.to_owned()));
            let found = directory_of(&tags.into_iter().collect());
            assert_eq!(found.as_deref(), expected, "{tag:?}");
        }
    }
}
