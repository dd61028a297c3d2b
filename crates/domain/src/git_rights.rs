//! What git in a sandbox may do in a repository.

const BRANCHES: &str = "refs/heads/";

/// The rights in one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryRights {
    /// Whether the host gets the owner's token. Without it, git reads public repositories only, and pushes nothing.
    pub has_token: bool,
    pub push: PushRights,
}

impl RepositoryRights {
    /// Whatever the owner's token permits.
    pub const ALL: Self = Self {
        has_token: true,
        push: PushRights::All,
    };
    /// No token, no push.
    pub const NONE: Self = Self {
        has_token: false,
        push: PushRights::Branches(Vec::new()),
    };

    /// Whether nothing can be pushed.
    pub fn is_read_only(&self) -> bool {
        !self.has_token || self.push == PushRights::Branches(Vec::new())
    }
}

/// The references that a push may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushRights {
    All,
    /// Names of branches. One that ends with `*` stands for all that begin like it.
    Branches(Vec<String>),
}

impl PushRights {
    /// Whether a push may create, change or delete this reference (`refs/heads/main`).
    pub fn allows(&self, reference: &str) -> bool {
        let Self::Branches(patterns) = self else {
            return true;
        };
        let Some(branch) = reference.strip_prefix(BRANCHES) else {
            return false;
        };
        patterns
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => branch.starts_with(beginning),
                None => branch == pattern,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_changes_the_named_branches_only() {
        let rights = PushRights::Branches(vec!["main".into(), "agent/*".into()]);
        for (reference, is_allowed) in [
            ("refs/heads/main", true),
            ("refs/heads/agent/x", true),
            ("refs/heads/agent/x/y", true),
            ("refs/heads/agent", false),
            ("refs/heads/Main", false),
            ("refs/heads/main2", false),
            ("refs/heads/x/main", false),
            ("refs/tags/main", false),
            ("refs/remotes/main", false),
            ("main", false),
            ("", false),
        ] {
            assert_eq!(rights.allows(reference), is_allowed, "{reference}");
            assert!(PushRights::All.allows(reference));
            assert!(!RepositoryRights::NONE.push.allows(reference));
        }
    }

    #[test]
    fn without_a_token_or_a_branch_a_repository_is_read_only() {
        let branches = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string);
            PushRights::Branches(names.collect())
        };
        for (has_token, push, expected) in [
            (true, PushRights::All, false),
            (true, branches(&["a"]), false),
            (true, branches(&[]), true),
            (false, PushRights::All, true),
        ] {
            let rights = RepositoryRights { has_token, push };
            assert_eq!(rights.is_read_only(), expected);
        }
    }
}
