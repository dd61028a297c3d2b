//! Names of repositories, and the addresses that they and a host make.

use domain::conversation::GitProvider;
use domain::git::{GitAccess, GitError};
use url::Url;

/// Longest name of a repository with all its groups.
const MAX_NAME_BYTES: usize = 1024;

/// The segments of `owner/name`, checked: nothing in them can lead to another path or host.
pub(crate) fn segments(provider: GitProvider, repository: &str) -> Result<Vec<&str>, GitError> {
    let invalid = || GitError::InvalidRepository {
        provider,
        expected: expected(provider),
    };
    let trimmed = repository.strip_suffix(".git").unwrap_or(repository);
    let parts: Vec<&str> = trimmed.split('/').collect();
    let depth = match provider {
        GitProvider::Gitlab => 2..=21,
        GitProvider::AzureDevops => 3..=3,
        _ => 2..=2,
    };
    if trimmed.len() > MAX_NAME_BYTES || !depth.contains(&parts.len()) {
        return Err(invalid());
    }
    if parts.iter().all(|part| is_segment(part)) {
        Ok(parts)
    } else {
        Err(invalid())
    }
}

fn expected(provider: GitProvider) -> &'static str {
    match provider {
        GitProvider::Gitlab => "group/project or group/subgroup/project",
        GitProvider::AzureDevops => "organization/project/repository",
        GitProvider::BitbucketDataCenter => "PROJECT/repository",
        GitProvider::Bitbucket => "workspace/repository",
        _ => "owner/repository",
    }
}

pub(crate) fn is_segment(part: &str) -> bool {
    // Percent signs could decode to any of the others further on; a leading dash could be taken for an option.
    let odd = |c: char| {
        c.is_control()
            || matches!(
                c,
                '\\' | '?' | '#' | '%' | ':' | '@' | '"' | '<' | '>' | '|' | '*'
            )
    };
    let dots = part.chars().all(|c| c == '.');
    !part.is_empty()
        && !dots
        // A clone of it would be called like the inside of a repository.
        && !part.eq_ignore_ascii_case(".git")
        && !part.starts_with('-')
        && part.trim() == part
        && !part.contains(odd)
}

/// The provider's own address, where it has one.
pub(crate) fn own(provider: GitProvider) -> Result<Url, GitError> {
    let text = match provider {
        GitProvider::Github => "https://github.com",
        GitProvider::Gitlab => "https://gitlab.com",
        GitProvider::Bitbucket => "https://bitbucket.org",
        GitProvider::Forgejo => "https://codeberg.org",
        GitProvider::AzureDevops => "https://dev.azure.com",
        GitProvider::BitbucketDataCenter => {
            return Err(GitError::Forbidden {
                provider,
                reason: "it has no host of its own: name yours together with the token".into(),
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
        .map_err(|error: url::ParseError| GitError::Unavailable {
            provider,
            source: error.into(),
        })
}

/// URL for users and git: the configured host without its API path, or the provider's public host.
pub(crate) fn web_base(access: &GitAccess) -> Result<Url, GitError> {
    let provider = access.provider;
    let own = own(provider);
    let Some(mut url) = access.host.clone() else {
        return own;
    };
    if provider == GitProvider::EnterpriseSso {
        return own;
    }
    // An organisation of Azure DevOps alone, without the host.
    let is_bare = url.path() == "/" && url.port().is_none() && url.scheme() == "https";
    if let (GitProvider::AzureDevops, Some(url::Host::Domain(name)), true) =
        (provider, url.host(), is_bare)
        && !name.contains('.')
    {
        let name = name.to_owned();
        return below(provider, &own?, &[&name]);
    }
    // Users configure the URL of the API or that of the web pages.
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
    let api = [
        "/api/v3",
        "/api/v4",
        "/api/v1",
        "/api/graphql",
        "/rest/api/1.0",
    ];
    let kept = api
        .iter()
        .find_map(|end| path.strip_suffix(end))
        .unwrap_or(&path);
    url.set_path(kept);
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// `base` with further path segments, percent-encoded each.
pub(crate) fn below(provider: GitProvider, base: &Url, segments: &[&str]) -> Result<Url, GitError> {
    let mut url = base.clone();
    match url.path_segments_mut() {
        Ok(mut path) => {
            path.pop_if_empty().extend(segments);
        }
        Err(()) => {
            return Err(GitError::Forbidden {
                provider,
                reason: "it is no address of a server".into(),
            });
        }
    }
    Ok(url)
}
