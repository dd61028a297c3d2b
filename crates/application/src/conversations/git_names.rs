//! Checks of the names of repositories and branches that clients send.

use domain::conversation::ConversationChange;
use domain::patch::Patch;

/// Checks repository and branch of a change (`docs/reference/wire/conversations.md`).
pub fn check_change(change: &ConversationChange) -> Result<(), String> {
    if let Patch::Set(repository) = &change.selected_repository {
        check_repository(repository)?;
    }
    if let Patch::Set(branch) = &change.selected_branch {
        check_branch(branch)?;
    }
    let has_branch_or_provider = matches!(change.selected_branch, Patch::Set(_))
        || matches!(change.git_provider, Patch::Set(_));
    if change.selected_repository == Patch::Clear && has_branch_or_provider {
        return Err(
            "selected_repository cannot be removed while selected_branch or git_provider is set"
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks for `owner/repo`, with optional groups in between and no tricks for shells or paths. Projects and
/// repositories of Azure DevOps may have blanks in their names. A trailing `.git` is not part of the name.
pub fn check_repository(repository: &str) -> Result<(), String> {
    let name = repository.strip_suffix(".git").unwrap_or(repository);
    let parts: Vec<_> = name.split('/').collect();
    let is_deep = parts.len() > 2;
    let is_valid_part = |p: &str| {
        !p.is_empty()
            && p != "."
            && p != ".."
            // The last part becomes a directory of the workspace.
            && !p.eq_ignore_ascii_case(".git")
            && p.trim() == p
            && p.chars()
                .all(|c| c.is_alphanumeric() || "-_.~".contains(c) || (c == ' ' && is_deep))
    };
    let is_valid_length = repository.len() <= 512 && parts.len() >= 2;
    if is_valid_length && parts.iter().all(|p| is_valid_part(p)) {
        Ok(())
    } else {
        Err("selected_repository must look like owner/repo".to_owned())
    }
}

/// Checks a branch name, roughly as `git check-ref-format` does.
pub fn check_branch(branch: &str) -> Result<(), String> {
    let is_forbidden =
        |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\;&|$`\"'<>".contains(c);
    let is_valid = !branch.is_empty()
        && branch.len() <= 255
        && !branch.contains(is_forbidden)
        && !branch.contains("..")
        && !branch.contains("//")
        && !branch.contains("@{")
        && !branch.starts_with(['-', '/', '.'])
        && !branch.ends_with(['/', '.'])
        && branch.strip_suffix(".lock").is_none();
    if is_valid {
        Ok(())
    } else {
        Err("selected_branch is not a valid branch name".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_and_branches() {
        for good in [
            "a/b",
            "group/sub/repo",
            "OpenHands/agent-sdk.rs",
            "org/My Project/my repo",
            "org/.github",
            "org/repo.git",
        ] {
            assert!(check_repository(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a",
            "/a",
            "a/",
            "a/..",
            "a/b;rm",
            "a/b\n",
            "a b/c",
            "$(x)/y",
            "a//b",
            "a/.git",
            "a/b/ c",
            "a/.git.git",
            "a/.GIT.git",
            "a/.git/c",
            "a/..git",
            "a/...git",
        ] {
            assert!(check_repository(bad).is_err(), "{bad:?}");
        }
        for good in ["main", "feature/x-1", "v1.2"] {
            assert!(check_branch(good).is_ok(), "{good}");
        }
        for bad in [
            "", "-x", "a..b", "a b", "x.lock", "a;b", "a\nb", "x/", "a@{b",
        ] {
            assert!(check_branch(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_repository_cannot_be_cleared_while_a_branch_is_set() {
        let change = ConversationChange {
            selected_repository: Patch::Clear,
            selected_branch: Patch::Set("main".to_owned()),
            ..ConversationChange::default()
        };
        assert!(check_change(&change).is_err());
    }
}
