//! Section `broker`.

use application::git::{BranchRule, GitPolicy, GitPush, GitRepositories};
use application::{GitCaller, SecretExposure};
use broker::{PriceList, parse_price};
use domain::agent::spending::NanoUsd;
use settings::SettingReader;

/// Calls that the service makes for sandboxes. `compose/models.rs` interprets the hosts.
#[derive(Debug, Clone)]
pub(crate) struct BrokerSettings {
    pub(crate) models: bool,
    /// Whether sandboxes get placeholders of secrets that have hosts.
    pub(crate) secrets: bool,
    pub(crate) exposure: SecretExposure,
    pub(crate) git_caller: GitCaller,
    pub(crate) git: GitPolicy,
    /// Private hosts that may be called: names, networks, or `*`.
    pub(crate) private_hosts: Vec<String>,
    /// Of each user in each organization.
    pub(crate) month_budget: Option<NanoUsd>,
    /// Prices of models before the known ones.
    pub(crate) prices: PriceList,
}

impl BrokerSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        let git = GitPolicy {
            repositories: reader.choice(
                "broker.git_repositories",
                &[
                    ("all", GitRepositories::All),
                    ("conversations", GitRepositories::OfConversations),
                ],
            ),
            push: git_push(reader),
        };
        let git_caller = if reader.switch("broker.git") {
            GitCaller::Service
        } else {
            GitCaller::Sandbox
        };
        if git_caller == GitCaller::Sandbox && git.is_limited() {
            reader.problem(
                "broker.git",
                "must be true with broker.git_repositories and broker.git_push: the service limits only the calls that it makes",
            );
        }
        Self {
            models: reader.switch("broker.models"),
            secrets: sandbox_provider::sends_secrets(reader),
            exposure: reader.choice(
                "broker.exposed_secrets",
                &[
                    ("without_hosts", SecretExposure::WithoutHosts),
                    ("on_request", SecretExposure::OnRequest),
                ],
            ),
            git_caller,
            git,
            private_hosts: reader.list("broker.allow_private_hosts"),
            month_budget: sandbox_provider::budget(reader, "broker.monthly_budget"),
            prices: PriceList::new(reader.parsed_list(
                "broker.prices",
                "entries MODEL=INPUT/OUTPUT or MODEL=INPUT/CACHED_INPUT/CACHE_WRITE/OUTPUT",
                parse_price,
            )),
        }
    }
}

fn git_push(reader: &SettingReader<'_>) -> GitPush {
    let listed = reader.list("broker.git_push");
    match listed.as_slice() {
        [all] if all == "all" => GitPush::All,
        [none] if none == "none" => GitPush::Branches(Vec::new()),
        _ => GitPush::Branches(reader.parsed_list(
            "broker.git_push",
            "\"all\" or \"none\" alone, or \"working_branch\" and names of branches, which may end with *",
            branch_rule,
        )),
    }
}

fn branch_rule(text: &str) -> Option<BranchRule> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let is_name = !text.is_empty()
        && !["all", "none", "*"].contains(&text)
        && !name.starts_with("refs/")
        && !name
            .chars()
            .any(|c| c.is_whitespace() || c.is_control() || "*~^:?[\\".contains(c));
    is_name.then(|| match text {
        "working_branch" => BranchRule::Working,
        name => BranchRule::Named(name.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_a_name_or_its_beginning() {
        assert_eq!(branch_rule("working_branch"), Some(BranchRule::Working));
        for name in ["main", "agent/*", "release-1.2", "a*"] {
            assert_eq!(branch_rule(name), Some(BranchRule::Named(name.into())));
        }
        for bad in [
            "",
            "all",
            "none",
            "*",
            "a*b",
            "**",
            "a b",
            "refs/heads/a",
            "a~1",
            "a:b",
            "a?",
        ] {
            assert_eq!(branch_rule(bad), None, "{bad}");
        }
    }
}
