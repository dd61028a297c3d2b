//! Addresses and user names for git itself.

use domain::conversation::GitProvider;
use domain::git::{CloneSource, GitAccess, GitError};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::repository_url::{below, segments, web_base};

/// How to clone with this access. The host is not checked yet.
pub(crate) fn source(access: &GitAccess, repository: &str) -> Result<CloneSource, GitError> {
    let (username, token) = credentials(access);
    Ok(CloneSource {
        url: address(access, repository)?,
        username,
        token: Some(token),
    })
}

/// The address of the repository, without credentials.
pub(crate) fn address(access: &GitAccess, repository: &str) -> Result<Url, GitError> {
    let provider = access.provider;
    let base = web_base(access)?;
    let parts = segments(provider, repository)?;
    let with_git = |name: &str| format!("{name}.git");
    match (provider, parts.as_slice()) {
        (GitProvider::AzureDevops, [organization, project, name]) => {
            let base = azure_base(&base, organization)?;
            below(provider, &base, &[project, "_git", name])
        }
        // Paths below /scm are the same in any case; the keys of projects are shown in capitals.
        (GitProvider::BitbucketDataCenter, [project, name]) => {
            below(provider, &base, &["scm", project, &with_git(name)])
        }
        (_, [groups @ .., name]) => {
            let base = below(provider, &base, groups)?;
            below(provider, &base, &[&with_git(name)])
        }
        (_, []) => Err(GitError::NotFound { provider }),
    }
}

/// The address of an organisation of Azure DevOps (or a collection of a server of one's own), which the host may name
/// already: `https://dev.azure.com/ORGANISATION`, `https://ORGANISATION.visualstudio.com`, `https://host/tfs/COLLECTION`.
pub(crate) fn azure_base(base: &Url, organization: &str) -> Result<Url, GitError> {
    let provider = GitProvider::AzureDevops;
    let host = base.host_str().unwrap_or_default();
    if host.ends_with(".visualstudio.com") {
        return Ok(base.clone());
    }
    let mut root = base.clone();
    if host == "dev.azure.com" {
        root.set_path("");
        return below(provider, &root, &[organization]);
    }
    let last = base.path_segments().and_then(|mut path| path.next_back());
    if last.is_some_and(|last| last.eq_ignore_ascii_case(organization)) {
        Ok(root)
    } else {
        below(provider, &root, &[organization])
    }
}

/// The user name that git sends, and the token.
fn credentials(access: &GitAccess) -> (String, SecretString) {
    let token = access.token.expose_secret();
    let whole = || access.token.clone();
    match (access.provider, token.split_once(':')) {
        (GitProvider::Github, _) => ("x-access-token".into(), whole()),
        // `address:API token`: git wants a fixed name instead of the address.
        (GitProvider::Bitbucket, Some((user, secret))) if user.contains('@') => {
            ("x-bitbucket-api-token-auth".into(), secret.into())
        }
        (GitProvider::Bitbucket | GitProvider::BitbucketDataCenter, Some((user, secret))) => {
            (user.into(), secret.into())
        }
        (GitProvider::Bitbucket, None) => ("x-token-auth".into(), whole()),
        // A personal token goes with its user's name, one of a project or repository with this.
        (GitProvider::BitbucketDataCenter, None) => {
            let user = access.user.clone().filter(|user| !user.is_empty());
            (user.unwrap_or_else(|| "x-token-auth".into()), whole())
        }
        // Any name will do, but there must be one.
        (GitProvider::AzureDevops, _) => ("azure".into(), whole()),
        (GitProvider::Gitlab | GitProvider::Forgejo | GitProvider::EnterpriseSso, _) => {
            ("oauth2".into(), whole())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GitProvider::{
        AzureDevops, Bitbucket, BitbucketDataCenter, EnterpriseSso, Forgejo, Github, Gitlab,
    };

    fn access(provider: GitProvider, host: Option<&str>, token: &str) -> GitAccess {
        GitAccess {
            provider,
            host: host.map(|host| host.parse().unwrap()),
            token: token.into(),
            user: None,
        }
    }

    /// Provider, host, repository, address.
    const ADDRESSES: &[(GitProvider, Option<&str>, &str, &str)] = &[
        (Github, None, "o/r", "https://github.com/o/r.git"),
        (
            Github,
            Some("https://github.com"),
            "o/r.git",
            "https://github.com/o/r.git",
        ),
        (
            Github,
            Some("https://api.github.com"),
            "o/r",
            "https://github.com/o/r.git",
        ),
        (
            Github,
            Some("https://ghe.example.com/api/v3"),
            "o/r",
            "https://ghe.example.com/o/r.git",
        ),
        (Gitlab, None, "a/b/c/d", "https://gitlab.com/a/b/c/d.git"),
        (
            Gitlab,
            Some("https://gl.example.com:8443/x/"),
            "a/b",
            "https://gl.example.com:8443/x/a/b.git",
        ),
        (Bitbucket, None, "w/r", "https://bitbucket.org/w/r.git"),
        (
            BitbucketDataCenter,
            Some("https://bb.example.com/ctx"),
            "PROJ/r",
            "https://bb.example.com/ctx/scm/PROJ/r.git",
        ),
        (
            BitbucketDataCenter,
            Some("https://bb.example.com"),
            "~me/r",
            "https://bb.example.com/scm/~me/r.git",
        ),
        (Forgejo, None, "o/r", "https://codeberg.org/o/r.git"),
        (
            Forgejo,
            Some("http://h:3000/forgejo"),
            "o/r.js",
            "http://h:3000/forgejo/o/r.js.git",
        ),
        (
            AzureDevops,
            None,
            "org/My project/r",
            "https://dev.azure.com/org/My%20project/_git/r",
        ),
        (
            AzureDevops,
            Some("https://dev.azure.com/org"),
            "org/p/r",
            "https://dev.azure.com/org/p/_git/r",
        ),
        (
            AzureDevops,
            Some("https://org.visualstudio.com"),
            "org/p/r",
            "https://org.visualstudio.com/p/_git/r",
        ),
        (
            AzureDevops,
            Some("https://tfs.example.com/tfs/Coll"),
            "Coll/p/r",
            "https://tfs.example.com/tfs/Coll/p/_git/r",
        ),
    ];

    #[test]
    fn addresses() {
        for (provider, host, repository, expected) in ADDRESSES {
            let url = address(&access(*provider, *host, "t"), repository).unwrap();
            assert_eq!(url.as_str(), *expected);
        }
    }

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        let long = format!("o/{}", "r".repeat(2000));
        for name in [
            "",
            "r",
            "/r",
            "o/",
            "o//r",
            "o/r/x",
            "../r",
            "o/..",
            "o/.",
            "o/r?x",
            "o/r#x",
            "o\\r/x",
            "o/%2e%2e",
            "u@h/r",
            "o:p/r",
            "o/\nr",
            "o/ r",
            "-o/r",
            "o/-r",
            "https://h/r",
            "o/.git",
            "o/.git.git",
            "o/.GIT",
            &long,
        ] {
            let refused = address(&access(Github, None, "t"), name);
            assert!(
                matches!(refused, Err(GitError::InvalidRepository { .. })),
                "{name}: {refused:?}"
            );
        }
        let two = address(&access(AzureDevops, None, "t"), "p/r");
        assert!(matches!(two, Err(GitError::InvalidRepository { .. })));
    }

    #[test]
    fn user_names_that_go_with_tokens() {
        for (provider, token, user, expected) in [
            (Github, "t", None, ("x-access-token", "t")),
            (Gitlab, "t", Some("me"), ("oauth2", "t")),
            (Bitbucket, "t", None, ("x-token-auth", "t")),
            (Bitbucket, "me:app", None, ("me", "app")),
            (
                Bitbucket,
                "me@example.com:api",
                None,
                ("x-bitbucket-api-token-auth", "api"),
            ),
            (BitbucketDataCenter, "t", None, ("x-token-auth", "t")),
            (BitbucketDataCenter, "t", Some("me"), ("me", "t")),
            (BitbucketDataCenter, "me:p:w", None, ("me", "p:w")),
            (Forgejo, "t", None, ("oauth2", "t")),
            (AzureDevops, "t", None, ("azure", "t")),
        ] {
            let host = (provider == BitbucketDataCenter).then_some("https://bb.example.com");
            let mut access = access(provider, host, token);
            access.user = user.map(str::to_owned);
            let repository = if provider == AzureDevops {
                "o/p/r"
            } else {
                "o/r"
            };
            let source = source(&access, repository).unwrap();
            let token = source.token.unwrap();
            assert_eq!((source.username.as_str(), token.expose_secret()), expected);
            assert!(source.url.username().is_empty() && source.url.password().is_none());
        }
    }

    #[test]
    fn no_host_and_no_repositories() {
        let homeless = address(&access(BitbucketDataCenter, None, "t"), "P/r");
        assert!(matches!(homeless, Err(GitError::Forbidden { .. })));
        let sso = address(&access(EnterpriseSso, Some("https://h"), "t"), "o/r");
        assert!(matches!(sso, Err(GitError::Unsupported { .. })));
    }
}
