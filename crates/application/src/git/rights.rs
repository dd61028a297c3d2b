//! What agents may do with git, beside what their owner's token permits.

use domain::conversation::Conversation;
use domain::git::{CloneSourceResolver, GitProvider};
use domain::git_rights::{PushRights, RepositoryRights};
use domain::id::ConversationId;
use domain::start_task::StartTask;
use url::{Position, Url};

use crate::settings::Settings;

/// The service's limits for agents (`broker.git_repositories`, `broker.git_push`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPolicy {
    pub repositories: GitRepositories,
    pub push: GitPush,
}

/// The repositories whose host gets the owner's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitRepositories {
    All,
    /// Those with which conversations of the sandbox began.
    OfConversations,
}

/// What agents may push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitPush {
    All,
    /// Branches; nothing if there is no rule.
    Branches(Vec<BranchRule>),
}

/// Branches that agents may push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BranchRule {
    /// The branches on which conversations of the sandbox began to work.
    Working,
    /// A name, or the beginning of names with `*` at its end.
    Named(String),
}

impl Default for GitPolicy {
    /// No limits.
    fn default() -> Self {
        Self {
            repositories: GitRepositories::All,
            push: GitPush::All,
        }
    }
}

impl GitPolicy {
    /// Whether it limits anything. Then sandboxes have no token of a host in any form, because the host's API knows no such
    /// limits.
    pub fn is_limited(&self) -> bool {
        *self != Self::default()
    }

    /// Whether agents may push something.
    pub(crate) fn allows_pushes(&self) -> bool {
        self.push != GitPush::Branches(Vec::new())
    }

    /// Whether it depends on where conversations of the sandbox work.
    pub(super) fn needs_branches(&self) -> bool {
        let is_working = |rules: &Vec<BranchRule>| rules.contains(&BranchRule::Working);
        self.repositories == GitRepositories::OfConversations
            || matches!(&self.push, GitPush::Branches(rules) if is_working(rules))
    }

    pub(super) fn rights_in(&self, repository: &str, own: &[OwnBranch]) -> RepositoryRights {
        // Hosts ignore the case of repository names.
        let own = own
            .iter()
            .filter(|own| own.repository().eq_ignore_ascii_case(repository));
        self.rights(&own.map(OwnBranch::branch).collect::<Vec<_>>())
    }

    /// The rights in a repository in which conversations work on these branches.
    pub(super) fn rights(&self, own: &[&str]) -> RepositoryRights {
        if self.repositories == GitRepositories::OfConversations && own.is_empty() {
            return RepositoryRights::NONE;
        }
        let push = match &self.push {
            GitPush::All => PushRights::All,
            GitPush::Branches(rules) => {
                let names = rules.iter().flat_map(|rule| match rule {
                    BranchRule::Working => own.to_vec(),
                    BranchRule::Named(name) => vec![name.as_str()],
                });
                PushRights::Branches(names.map(str::to_owned).collect())
            }
        };
        RepositoryRights {
            has_token: true,
            push,
        }
    }
}

/// Where a conversation began to work: the repository with its host, and the branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnBranch(String, String);

impl OwnBranch {
    fn new(address: &Url, branch: &str) -> Self {
        let place = place_of(address);
        let repository = place.strip_suffix(".git").unwrap_or(&place);
        Self(repository.to_owned(), branch.to_owned())
    }

    /// `None` without a repository, and without a token of its host.
    pub(super) fn of_conversation(
        sources: &dyn CloneSourceResolver,
        settings: &Settings,
        conversation: &Conversation,
    ) -> Option<Self> {
        let repository = (
            conversation.git_provider?,
            conversation.selected_repository.as_ref()?,
        );
        let branch = conversation.selected_branch.as_deref();
        Self::of(sources, settings, repository, (branch, conversation.id))
    }

    /// The same for a conversation that is not stored yet.
    pub(super) fn of_start(
        sources: &dyn CloneSourceResolver,
        settings: &Settings,
        task: &StartTask,
    ) -> Option<Self> {
        let request = &task.request;
        let provider = request.git_provider;
        let provider = provider.unwrap_or_else(|| default_provider(settings));
        let repository = (provider, request.selected_repository.as_ref()?);
        let branch = request.selected_branch.as_deref();
        Self::of(
            sources,
            settings,
            repository,
            (branch, task.conversation_id),
        )
    }

    fn of(
        sources: &dyn CloneSourceResolver,
        settings: &Settings,
        (provider, repository): (GitProvider, &String),
        (branch, id): (Option<&str>, ConversationId),
    ) -> Option<Self> {
        let token = settings.provider_tokens.get(&provider)?;
        let address = sources.address(&token.access(provider), repository).ok()?;
        let working = working_branch(id);
        Some(Self::new(&address, branch.unwrap_or(&working)))
    }

    fn repository(&self) -> &str {
        &self.0
    }

    fn branch(&self) -> &str {
        &self.1
    }
}

/// A host in the path of a call: its name, its port if it is not the usual one, and the path of its base.
pub(super) fn place_of(base: &Url) -> String {
    let name = &base[Position::BeforeHost..Position::AfterPath];
    name.trim_end_matches('/').to_owned()
}

/// The provider of a repository whose start names none: the only one with a stored token, else GitHub.
pub(crate) fn default_provider(settings: &Settings) -> GitProvider {
    let mut stored = settings.provider_tokens.keys();
    match (stored.next(), stored.next()) {
        (Some(only), None) => *only,
        _ => GitProvider::Github,
    }
}

/// The branch that a conversation works on if none is requested: `openhands-workspace-…`, as clients of the reference
/// know it.
pub(crate) fn working_branch(conversation: ConversationId) -> String {
    let id = conversation.to_string();
    let end = id.len().saturating_sub(16);
    format!("openhands-workspace-{}", &id[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branches(names: &[&str]) -> PushRights {
        PushRights::Branches(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rights_follow_from_the_policy_and_the_branches_of_the_sandbox() {
        let address = "https://git.acme.test/Acme/My%20tools.git".parse().unwrap();
        let own = [
            OwnBranch::new(&address, "main"),
            OwnBranch::new(&address, "fix"),
        ];
        let (mine, other) = ("git.acme.test/acme/my%20Tools", "git.acme.test/acme/other");
        let working = || GitPush::Branches(vec![BranchRule::Working]);
        let named = || GitPush::Branches(vec![BranchRule::Named("agent/*".into())]);
        let nothing = || GitPush::Branches(Vec::new());
        for (repositories, push, in_mine, in_other) in [
            (
                GitRepositories::All,
                GitPush::All,
                (true, PushRights::All),
                (true, PushRights::All),
            ),
            (
                GitRepositories::All,
                working(),
                (true, branches(&["main", "fix"])),
                (true, branches(&[])),
            ),
            (
                GitRepositories::OfConversations,
                GitPush::All,
                (true, PushRights::All),
                (false, branches(&[])),
            ),
            (
                GitRepositories::OfConversations,
                named(),
                (true, branches(&["agent/*"])),
                (false, branches(&[])),
            ),
            (
                GitRepositories::All,
                nothing(),
                (true, branches(&[])),
                (true, branches(&[])),
            ),
        ] {
            let policy = GitPolicy { repositories, push };
            for (repository, (has_token, push)) in [(mine, in_mine), (other, in_other)] {
                let expected = RepositoryRights { has_token, push };
                let found = policy.rights_in(repository, &own);
                assert_eq!(found, expected, "{policy:?} {repository}");
            }
        }
    }
}
