//! Which hosts may be called, checked on their addresses and not only on their names (SSRF).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use domain::conversation::GitProvider;
use domain::git::GitError;
use url::{Host, Url};

use crate::address::PrivateHosts;

/// How long a name may take to resolve.
const RESOLVE: Duration = Duration::from_secs(5);

/// Decides.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    private: Arc<PrivateHosts>,
}

/// A host that may not be called, and why. Says nothing of the addresses that its name has: it would tell a user about a
/// network that is not theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) &'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Refused {}

const PRIVATE: Refused = Refused(
    "it is in a private network. Whoever runs this service can allow it by git.allow_private_hosts",
);
const PLAIN: Refused = Refused(
    "tokens are not sent over http://. Use https://, or whoever runs this service can allow the host by \
     git.allow_private_hosts",
);
const NO_HOST: Refused = Refused("its address is no http(s) URL with a host name");

impl Guard {
    pub(crate) fn new(private: PrivateHosts) -> Self {
        Self {
            private: Arc::new(private),
        }
    }

    /// What can be said without resolving: scheme, shape, and addresses that stand in the URL itself (which no resolver sees).
    pub(crate) fn check(&self, url: &Url) -> Result<(), Refused> {
        let (Some(host), Some(text)) = (url.host(), url.host_str()) else {
            return Err(NO_HOST);
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NO_HOST);
        }
        match url.scheme() {
            "https" => {}
            "http" if self.private.permits_plain(text) => {}
            "http" => return Err(PLAIN),
            _ => return Err(NO_HOST),
        }
        match host {
            Host::Domain(_) => Ok(()),
            Host::Ipv4(v4) => self.permit(text, IpAddr::V4(v4)),
            Host::Ipv6(v6) => self.permit(text, IpAddr::V6(v6)),
        }
    }

    fn permit(&self, name: &str, address: IpAddr) -> Result<(), Refused> {
        if self.private.permits(name, address) {
            Ok(())
        } else {
            Err(PRIVATE)
        }
    }

    /// The addresses of a name, if all of them may be called: a name that also has a private one is a trick.
    pub(crate) async fn resolve(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, Failed> {
        let look_up = tokio::net::lookup_host((name.to_owned(), port));
        let found = tokio::time::timeout(RESOLVE, look_up).await;
        let found: Vec<SocketAddr> = match found {
            Ok(found) => found.map_err(Failed::NotResolved)?.collect(),
            Err(_) => return Err(Failed::NotResolved(std::io::ErrorKind::TimedOut.into())),
        };
        for address in &found {
            let permitted = self.permit(name, address.ip());
            permitted.map_err(Failed::Refused)?;
        }
        Ok(found)
    }

    /// Checks an address that something else than this crate is going to call.
    pub(crate) async fn admit(&self, provider: GitProvider, url: &Url) -> Result<(), GitError> {
        self.check(url)
            .map_err(|refused| refused.into_error(provider))?;
        let Some(Host::Domain(name)) = url.host() else {
            return Ok(());
        };
        let port = url.port_or_known_default().unwrap_or(443);
        match self.resolve(name, port).await {
            Ok(_) => Ok(()),
            Err(Failed::Refused(refused)) => Err(refused.into_error(provider)),
            Err(Failed::NotResolved(error)) => Err(GitError::Unavailable {
                provider,
                source: error.into(),
            }),
        }
    }
}

impl Refused {
    pub(crate) fn into_error(self, provider: GitProvider) -> GitError {
        GitError::Forbidden {
            provider,
            reason: self.0.to_owned(),
        }
    }
}

/// A name without usable addresses.
#[derive(Debug)]
pub(crate) enum Failed {
    /// They may not be called.
    Refused(Refused),
    /// There are none.
    NotResolved(std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AllowedHost;

    fn guard(entries: &[&str]) -> Guard {
        let list: Vec<AllowedHost> = entries.iter().map(|e| e.parse().unwrap()).collect();
        Guard::new(PrivateHosts::Listed(list))
    }

    #[test]
    fn hosts_are_judged_before_they_are_resolved() {
        for (url, expected) in [
            ("https://github.com", Ok(())),
            ("http://github.com", Err(PLAIN)),
            ("ftp://github.com", Err(NO_HOST)),
            ("https://u:p@github.com", Err(NO_HOST)),
            ("data:x", Err(NO_HOST)),
            ("https://127.0.0.1", Err(PRIVATE)),
            // What browsers and `inet_aton` take for the same address; `Url` has already made it one.
            ("https://2130706433", Err(PRIVATE)),
            ("https://0x7f.1", Err(PRIVATE)),
            ("https://[::ffff:127.0.0.1]", Err(PRIVATE)),
            ("https://169.254.169.254", Err(PRIVATE)),
            ("https://10.0.0.1", Ok(())),
            ("http://10.0.0.1", Ok(())),
            ("http://git.corp", Ok(())),
        ] {
            let checked = guard(&["10.0.0.0/8", "git.corp"]).check(&url.parse().unwrap());
            assert_eq!(checked, expected, "{url}");
        }
    }

    #[tokio::test]
    async fn names_are_judged_by_all_their_addresses() {
        let refused = guard(&[]).resolve("localhost", 443).await;
        assert!(
            matches!(refused, Err(Failed::Refused(PRIVATE))),
            "{refused:?}"
        );
        let allowed = guard(&["localhost"]).resolve("localhost", 443).await;
        assert!(allowed.is_ok_and(|found| !found.is_empty()));
        let url = "https://localhost/x".parse().unwrap();
        let refused = guard(&[]).admit(GitProvider::Gitlab, &url).await;
        assert!(
            matches!(refused, Err(GitError::Forbidden { .. })),
            "{refused:?}"
        );
    }
}
