//! Working directories of conversations in their sandboxes.

use domain::conversation::{Conversation, ConversationView};
use domain::git::GitProvider;

use super::sandbox_choice::directory_of;

/// Tag with a conversation's repository (`docs/reference/wire/conversations.md`).
pub(super) const REPOSITORY_TAG: &str = "repo_name";

/// The working directory of the agent: the repository, or the workspace itself. With grouping each conversation has
/// its own directory in the sandbox's workspace `root`.
pub(super) fn working_dir(
    root: &str,
    directory: Option<&str>,
    repository: Option<&str>,
) -> (String, String) {
    let root = root.trim_end_matches('/');
    let workspace = match directory {
        Some(directory) => format!("{root}/{directory}"),
        None => root.to_owned(),
    };
    let working_dir = match repository {
        Some(repository) => format!("{workspace}/{repository}"),
        None => workspace.clone(),
    };
    (workspace, working_dir)
}

/// The last part of the name.
pub(super) fn directory_of_repository(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.strip_suffix(".git")
        .filter(|name| !name.is_empty())
        .unwrap_or(last)
}

/// The working directory of an existing conversation. Its tags have the values of the start; the repository that is
/// shown can change, and is only used without a tag.
pub(crate) fn project_of(conversation: &Conversation, root: &str) -> String {
    let named = conversation.tags.get(REPOSITORY_TAG);
    let repository = named.or(conversation.selected_repository.as_ref());
    let repository = repository.map(|name| directory_of_repository(name));
    let directory = directory_of(&conversation.tags);
    working_dir(root, directory.as_deref(), repository).1
}

/// The directory in its sandbox in which the agent of a conversation works; `None` if the sandbox is deleted or has not
/// started yet.
pub fn agent_directory(view: &ConversationView) -> Option<String> {
    let root = view.sandbox.as_ref()?.workspace.as_deref()?;
    Some(project_of(&view.conversation, root))
}

/// The document of a planning agent, where front ends look for it. Some providers reject names that begin with a dot.
pub(crate) fn plan_path(working_dir: &str, provider: Option<GitProvider>) -> String {
    let directory = match provider {
        Some(GitProvider::Gitlab | GitProvider::AzureDevops) => "agents-tmp-config",
        _ => ".agents_tmp",
    };
    format!("{}/{directory}/PLAN.md", working_dir.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_where_front_ends_look_for_it() {
        for (provider, expected) in [
            (None, "/w/.agents_tmp/PLAN.md"),
            (Some(GitProvider::Github), "/w/.agents_tmp/PLAN.md"),
            (Some(GitProvider::Gitlab), "/w/agents-tmp-config/PLAN.md"),
            (
                Some(GitProvider::AzureDevops),
                "/w/agents-tmp-config/PLAN.md",
            ),
        ] {
            assert_eq!(plan_path("/w/", provider), expected);
        }
    }

    #[test]
    fn a_conversation_works_in_its_repository_and_its_own_directory() {
        for (directory, repository, expected) in [
            (None, None, "/w"),
            (Some("d"), None, "/w/d"),
            (None, Some("r"), "/w/r"),
            (Some("d"), Some("r"), "/w/d/r"),
        ] {
            assert_eq!(working_dir("/w/", directory, repository).1, expected);
        }
    }
}
