//! Choice of the sandbox of a start: the named one, one that the user's conversations share, or a new one.

use std::collections::BTreeMap;

use domain::conversation::ConversationView;
use domain::id::{ConversationId, OwnerId};
use domain::sandbox::{Sandbox, SandboxStatus};
use domain::start_task::StartRequest;
use domain::user::scope::Scope;

use super::StartService;
use crate::AppError;
use crate::sandboxes::{choose_spec, is_state_current, load_settings};

/// Tag with the directory of a conversation in the workspace, if the conversation has its own directory. Never sent to
/// agent servers.
const DIRECTORY_TAG: &str = "workspace_directory";

pub(super) enum SandboxChoice {
    Named(Sandbox),
    /// The first of `shared` that still has room at the commit, else a new one.
    New {
        /// Best first.
        shared: Vec<Sandbox>,
        /// Stored with the task.
        new: Sandbox,
    },
}

impl StartService {
    /// Chooses the sandbox, and sets the request's directory where sandboxes are shared. Nothing is reserved yet.
    pub(super) async fn choose_sandbox_and_directory(
        &self,
        scope: &Scope,
        owner: &OwnerId,
        id: ConversationId,
        request: &mut StartRequest,
        parent: Option<&ConversationView>,
    ) -> Result<SandboxChoice, AppError> {
        let settings = load_settings(&self.settings, owner, &self.factory).await?;
        let grouping = settings.as_ref().and_then(|it| it.sandbox_grouping);
        request.directory = match parent {
            // A sub-conversation works in its parent's directory, unless it has another sandbox.
            Some(parent)
                if request.sandbox_id.as_ref() == Some(&parent.conversation.sandbox_id) =>
            {
                directory_of(&parent.conversation.tags)
            }
            _ => grouping.map(|_| id.to_string()),
        };
        if let Some(named) = &request.sandbox_id {
            let unknown = || AppError::not_found(format!("Sandbox not found: {named}"));
            let row = self.sandboxes.find(scope, named).await?;
            let row = row.ok_or_else(unknown)?;
            if row.status == SandboxStatus::Missing {
                return Err(AppError::conflict(format!(
                    "Sandbox {named} is MISSING and cannot be used"
                )));
            }
            self.factory.hosts.check_alive(&row.host)?;
            if let Some(list) = &request.egress_allow
                && self.factory.own_list(Some(list), None)? != row.egress
            {
                return Err(AppError::conflict(format!(
                    "Sandbox {named} was created with another egress_allow: leave it out, or start in a new sandbox"
                )));
            }
            return Ok(SandboxChoice::Named(row));
        }
        let spec = choose_spec(&*self.specs, settings.as_ref(), None).await?.id;
        let requested = request.egress_allow.as_deref();
        let egress = self.factory.own_list(requested, settings.as_ref())?;
        let shared = match grouping {
            Some(grouping) if !self.factory.hosts.is_draining() => {
                let mut running = self.sandboxes.list_running(owner, &spec).await?;
                // Other hosts may not be served by any process, and a backend may be unreachable.
                running.retain(|it| {
                    let sandbox = &it.sandbox;
                    let is_usable = sandbox.host == self.host && is_state_current(sandbox);
                    is_usable && sandbox.egress == egress
                });
                grouping.rank(running)
            }
            _ => Vec::new(),
        };
        let row = self.factory.new_row(owner, spec)?;
        let new = Sandbox { egress, ..row };
        Ok(SandboxChoice::New { shared, new })
    }
}

/// The tag with a conversation's directory, for its sub-conversations: the start task, which also holds the directory, may
/// be deleted before the conversation.
pub(super) fn directory_tag(request: &StartRequest) -> Option<(String, String)> {
    let directory = request.directory.clone()?;
    Some((DIRECTORY_TAG.to_owned(), directory))
}

/// The directory of a conversation. Sandboxes report tags too, so only the form that this service writes is accepted:
/// a conversation id, never a path.
pub(super) fn directory_of(tags: &BTreeMap<String, String>) -> Option<String> {
    let named: ConversationId = tags.get(DIRECTORY_TAG)?.parse().ok()?;
    Some(named.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_tags_cannot_change_a_directory() {
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
