//! URLs and user names with which git clones.

use domain::git::GitProvider;
use domain::git::{CloneSource, GitAccess, GitError};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::repository_url::{join_segments, segments, web_base};

/// URL and credentials of a clone. Does not check whether the host is allowed.
pub(crate) fn source(access: &GitAccess, repository: &str) -> Result<CloneSource, GitError> {
    let (username, token) = credentials(access);
    Ok(CloneSource {
        url: address(access, repository)?,
        username,
        token: Some(token),
    })
}

/// The base of all repositories of the host, and the credentials.
pub(crate) fn host(access: &GitAccess) -> Result<CloneSource, GitError> {
    let (username, token) = credentials(access);
    let has_token = !token.expose_secret().is_empty();
    Ok(CloneSource {
        url: web_base(access)?,
        username,
        token: has_token.then_some(token),
    })
}

/// The URL of the repository, without credentials.
pub(crate) fn address(access: &GitAccess, repository: &str) -> Result<Url, GitError> {
    let provider = access.provider;
    let base = web_base(access)?;
    let parts = segments(provider, repository)?;
    let with_git = |name: &str| format!("{name}.git");
    match (provider, parts.as_slice()) {
        (GitProvider::AzureDevops, [organization, project, name]) => {
            let base = azure_base(&base, organization)?;
            join_segments(provider, &base, &[project, "_git", name])
        }
        (GitProvider::BitbucketDataCenter, [project, name]) => {
            join_segments(provider, &base, &["scm", project, &with_git(name)])
        }
        (_, [groups @ .., name]) => {
            let base = join_segments(provider, &base, groups)?;
            join_segments(provider, &base, &[&with_git(name)])
        }
        (_, []) => Err(GitError::NotFound { provider }),
    }
}

/// The URL of an organisation of Azure DevOps (on Azure DevOps Server, a collection). The base may contain the name already:
/// `https://dev.azure.com/ORGANISATION`, `https://ORGANISATION.visualstudio.com`, `https://host/tfs/COLLECTION`.
pub(crate) fn azure_base(base: &Url, organization: &str) -> Result<Url, GitError> {
    let provider = GitProvider::AzureDevops;
    let host = base.host_str().unwrap_or_default();
    if host.ends_with(".visualstudio.com") {
        return Ok(base.clone());
    }
    let mut root = base.clone();
    if host == "dev.azure.com" {
        root.set_path("");
        return join_segments(provider, &root, &[organization]);
    }
    let last = base.path_segments().and_then(|mut path| path.next_back());
    if last.is_some_and(|last| last.eq_ignore_ascii_case(organization)) {
        Ok(root)
    } else {
        join_segments(provider, &root, &[organization])
    }
}

/// The user name and password that git sends.
fn credentials(access: &GitAccess) -> (String, SecretString) {
    let token = access.token.expose_secret();
    let whole = || access.token.clone();
    match (access.provider, token.split_once(':')) {
        (GitProvider::Github, _) => ("x-access-token".into(), whole()),
        // `e-mail address:API token`: for git, Bitbucket requires a fixed name instead of the address.
        (GitProvider::Bitbucket, Some((user, secret))) if user.contains('@') => {
            ("x-bitbucket-api-token-auth".into(), secret.into())
        }
        (GitProvider::Bitbucket | GitProvider::BitbucketDataCenter, Some((user, secret))) => {
            (user.into(), secret.into())
        }
        (GitProvider::Bitbucket, None) => ("x-token-auth".into(), whole()),
        // A personal token needs its user's name, a token of a project or repository this one.
        (GitProvider::BitbucketDataCenter, None) => {
            let user = access.user.clone().filter(|user| !user.is_empty());
            (user.unwrap_or_else(|| "x-token-auth".into()), whole())
        }
        // Azure DevOps ignores the name but requires one.
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
    fn clone_urls_of_all_providers() {
        for (provider, host, repository, expected) in ADDRESSES {
            let url = address(&access(*provider, *host, "t"), repository).unwrap();
            assert_eq!(url.as_str(), *expected);
        }
    }

    #[test]
    fn invalid_repository_names_are_refused() {
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
    fn each_kind_of_token_has_its_user_name() {
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
    fn providers_without_a_host_or_repositories_are_refused() {
        let no_host = address(&access(BitbucketDataCenter, None, "t"), "P/r");
        assert!(matches!(no_host, Err(GitError::Forbidden { .. })));
        let sso = address(&access(EnterpriseSso, Some("https://h"), "t"), "o/r");
        assert!(matches!(sso, Err(GitError::Unsupported { .. })));
    }
}
