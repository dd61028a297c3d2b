//! Helpers for pull requests that several providers share.

use domain::conversation::GitProvider;
use domain::git::GitError;
use serde_json::Value;
use url::Url;

use crate::http::session::{text, unavailable};

/// The name of a branch without `refs/heads/`.
pub(crate) fn short_branch_name(name: &str) -> &str {
    name.strip_prefix("refs/heads/").unwrap_or(name)
}

/// The name of a branch with `refs/heads/`.
pub(crate) fn full_branch_name(name: &str) -> String {
    format!("refs/heads/{}", short_branch_name(name))
}

/// Prefixes the title of a draft, for providers that recognise drafts by their titles.
pub(crate) fn with_draft_prefix(title: &str, is_draft: bool, prefix: &str) -> String {
    let lower = title.trim_start().to_ascii_lowercase();
    let has_prefix = ["draft:", "[draft]", "(draft)", "wip:", "[wip]"]
        .iter()
        .any(|mark| lower.starts_with(mark));
    if is_draft && !has_prefix {
        format!("{prefix} {title}")
    } else {
        title.to_owned()
    }
}

/// The URL of the pull request's web page, read from the response.
pub(crate) fn web_url(provider: GitProvider, answer: &Value, path: &str) -> Result<Url, GitError> {
    let url: Option<Url> = text(answer, path).and_then(|url| url.parse().ok());
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| {
        unavailable(
            provider,
            "the response names no URL of the pull request".into(),
        )
    })
}

/// The error for labels where this crate cannot set them.
pub(crate) fn no_labels(provider: GitProvider) -> Result<(), GitError> {
    let what = "labels here";
    Err(GitError::Unsupported { provider, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_marked_once() {
        for (title, is_draft, expected) in [
            ("Add it", true, "Draft: Add it"),
            ("Add it", false, "Add it"),
            ("draft: Add it", true, "draft: Add it"),
            ("WIP: Add it", true, "WIP: Add it"),
            ("Drafty", true, "Draft: Drafty"),
        ] {
            assert_eq!(with_draft_prefix(title, is_draft, "Draft:"), expected);
        }
    }

    #[test]
    fn branches_have_short_and_full_names() {
        for name in ["fix/it", "refs/heads/fix/it"] {
            assert_eq!(short_branch_name(name), "fix/it");
            assert_eq!(full_branch_name(name), "refs/heads/fix/it");
        }
    }
}
