//! Names of repositories, and URLs of hosts and repositories.

use domain::git::GitProvider;
use domain::git::{GitAccess, GitError};
use url::Url;

use crate::http::client::unavailable;

/// Longest name of a repository with all its groups.
const MAX_NAME_BYTES: usize = 1024;

/// Splits `owner/name` and checks that no segment can lead to another path or host.
pub(crate) fn segments(provider: GitProvider, repository: &str) -> Result<Vec<&str>, GitError> {
    let (depth, expected) = match provider {
        GitProvider::Gitlab => (2..=21, "group/project or group/subgroup/project"),
        GitProvider::AzureDevops => (3..=3, "organization/project/repository"),
        GitProvider::BitbucketDataCenter => (2..=2, "PROJECT/repository"),
        GitProvider::Bitbucket => (2..=2, "workspace/repository"),
        _ => (2..=2, "owner/repository"),
    };
    let trimmed = repository.strip_suffix(".git").unwrap_or(repository);
    let parts: Vec<&str> = trimmed.split('/').collect();
    let is_valid = trimmed.len() <= MAX_NAME_BYTES
        && depth.contains(&parts.len())
        && parts.iter().all(|part| is_segment(part));
    let parts = is_valid.then_some(parts);
    parts.ok_or(GitError::InvalidRepository { provider, expected })
}

pub(crate) fn is_segment(part: &str) -> bool {
    // A percent sign could be decoded to one of the other characters later.
    let is_forbidden = |c: char| {
        c.is_control()
            || matches!(
                c,
                '\\' | '?' | '#' | '%' | ':' | '@' | '"' | '<' | '>' | '|' | '*'
            )
    };
    let is_dots = part.chars().all(|c| c == '.');
    !part.is_empty()
        && !is_dots
        // The clone's directory would have the name of git's own directory.
        && !part.eq_ignore_ascii_case(".git")
        // Git could read a leading dash as an option.
        && !part.starts_with('-')
        && part.trim() == part
        && !part.contains(is_forbidden)
}

/// The URL of the provider's public host, if it has one.
pub(crate) fn public_host(provider: GitProvider) -> Result<Url, GitError> {
    let text = match provider {
        GitProvider::Github => "https://github.com",
        GitProvider::Gitlab => "https://gitlab.com",
        GitProvider::Bitbucket => "https://bitbucket.org",
        GitProvider::Forgejo => "https://codeberg.org",
        GitProvider::AzureDevops => "https://dev.azure.com",
        GitProvider::BitbucketDataCenter => {
            return Err(GitError::Forbidden {
                provider,
                reason: "the provider has no public host; store the URL of your server as the token's host".into(),
            });
        }
        GitProvider::EnterpriseSso => {
            return Err(GitError::Unsupported {
                provider,
                what: "repositories",
            });
        }
    };
    text.parse()
        .map_err(|error: url::ParseError| unavailable(provider, error))
}

/// The URL for users and git: the user's host without an API path, or the provider's public host.
pub(crate) fn web_base(access: &GitAccess) -> Result<Url, GitError> {
    let provider = access.provider;
    let own = public_host(provider);
    let Some(mut url) = access.host.clone() else {
        return own;
    };
    if provider == GitProvider::EnterpriseSso {
        return own;
    }
    // A host without a dot is the name of an Azure DevOps organisation.
    let is_bare = url.path() == "/" && url.port().is_none() && url.scheme() == "https";
    if let (GitProvider::AzureDevops, Some(url::Host::Domain(name)), true) =
        (provider, url.host(), is_bare)
        && !name.contains('.')
    {
        let name = name.to_owned();
        return join_segments(provider, &own?, &[&name]);
    }
    // Users store the URL of the API or that of the web pages.
    let is_api = matches!(url.host_str(), Some("api.github.com" | "api.bitbucket.org"));
    if is_api
        || own.as_ref().is_ok_and(|own| {
            own.host() == url.host()
                && url.scheme() == "https"
                && url.port().is_none()
                && provider != GitProvider::AzureDevops
        })
    {
        return own;
    }
    let path = url.path().trim_end_matches('/').to_owned();
    let api_paths = [
        "/api/v3",
        "/api/v4",
        "/api/v1",
        "/api/graphql",
        "/rest/api/1.0",
    ];
    let web_path = api_paths
        .iter()
        .find_map(|api_path| path.strip_suffix(api_path))
        .unwrap_or(&path);
    url.set_path(web_path);
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// Appends path segments to `base` and percent-encodes each of them.
pub(crate) fn join_segments(
    provider: GitProvider,
    base: &Url,
    segments: &[&str],
) -> Result<Url, GitError> {
    let mut url = base.clone();
    let path = url.path_segments_mut().map_err(|()| GitError::Forbidden {
        provider,
        reason: "its URL cannot have a path; use a URL such as https://git.example.com".into(),
    });
    path?.pop_if_empty().extend(segments);
    Ok(url)
}

/// Decodes a percent-encoded text, in which `+` is a plus sign.
pub(crate) fn percent_decoded(text: &str) -> String {
    let decoded = percent_encoding::percent_decode_str(text);
    decoded.decode_utf8_lossy().into_owned()
}
