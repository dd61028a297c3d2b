//! What the providers' pull requests have in common.

use domain::conversation::GitProvider;
use domain::git::GitError;
use serde_json::Value;
use url::Url;

use crate::http::session::{text, unavailable};

/// The branch without the prefix that its full name has.
pub(crate) fn branch(name: &str) -> &str {
    name.strip_prefix("refs/heads/").unwrap_or(name)
}

/// The full name of a branch.
pub(crate) fn full(name: &str) -> String {
    format!("refs/heads/{}", branch(name))
}

/// The title of a draft, where a word in front of it is what makes one.
pub(crate) fn titled(title: &str, is_draft: bool, word: &str) -> String {
    let lower = title.trim_start().to_ascii_lowercase();
    let has_one = ["draft:", "[draft]", "(draft)", "wip:", "[wip]"]
        .iter()
        .any(|mark| lower.starts_with(mark));
    if is_draft && !has_one {
        format!("{word} {title}")
    } else {
        title.to_owned()
    }
}

/// The address for people, where the answer has it.
pub(crate) fn address(provider: GitProvider, answer: &Value, path: &str) -> Result<Url, GitError> {
    let url: Option<Url> = text(answer, path).and_then(|url| url.parse().ok());
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| unavailable(provider, "a pull request without an address".into()))
}

/// For providers whose pull requests have no labels.
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
            assert_eq!(titled(title, is_draft, "Draft:"), expected);
        }
    }

    #[test]
    fn branches_have_short_and_full_names() {
        for name in ["fix/it", "refs/heads/fix/it"] {
            assert_eq!(branch(name), "fix/it");
            assert_eq!(full(name), "refs/heads/fix/it");
        }
    }
}
