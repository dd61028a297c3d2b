//! Helpers for pull requests that several providers share.

use domain::git::GitError;
use serde_json::Value;
use url::Url;

use crate::http::client::unavailable;
use crate::http::session::{ProviderSession, number, text};
use crate::providers::ParsedPullRequest;

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

/// Opens a pull request by one request. `url_at` and `number_at` point to its web page and number in the response.
pub(crate) async fn open(
    session: &ProviderSession,
    path: &[&str],
    body: &Value,
    (url_at, number_at): (&str, &str),
) -> Result<ParsedPullRequest, GitError> {
    let url = session.url(path, &[])?;
    let opened = session.create(url, body).await?.body;
    let url: Option<Url> = text(&opened, url_at).and_then(|url| url.parse().ok());
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    let what = "the response names no URL of the pull request";
    Ok(ParsedPullRequest {
        url: url.ok_or_else(|| unavailable(session.spec.provider, what))?,
        number: number(&opened, number_at),
    })
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
