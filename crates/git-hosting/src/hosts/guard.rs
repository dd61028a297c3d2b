//! Checks hosts by their addresses and not only by their names, against server-side request forgery (SSRF).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use domain::conversation::GitProvider;
use domain::git::GitError;
use url::{Host, Url};

use crate::hosts::private_hosts::PrivateHosts;
use crate::http::request_slots::RequestSlots;

/// Timeout of a DNS look-up.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent DNS look-ups in total and per name. Each occupies a thread that cannot be cancelled.
const MAX_CONCURRENT_LOOKUPS: usize = 16;
const MAX_CONCURRENT_LOOKUPS_PER_NAME: usize = 4;

/// Asks the system's resolver.
type ResolveFn = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}

/// Decides which hosts may be called.
#[derive(Debug, Clone)]
pub(crate) struct HostGuard {
    private: Arc<PrivateHosts>,
    look_up: ResolveFn,
    look_ups: RequestSlots,
}

/// The reason why a host must not be called. Omits the addresses of the name, which would reveal a private network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForbiddenHost(pub(crate) &'static str);

impl fmt::Display for ForbiddenHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ForbiddenHost {}

const PRIVATE_ADDRESS: ForbiddenHost = ForbiddenHost(
    "it is in a private network. The operator of this service can allow it by git.allow_private_hosts",
);
const PLAIN_HTTP: ForbiddenHost = ForbiddenHost(
    "it is not called over http://. Use https://, or the operator of this service can allow the host by \
     git.allow_private_hosts",
);
const NO_HOST: ForbiddenHost = ForbiddenHost("its address is no http(s) URL with a host name");

impl HostGuard {
    pub(crate) fn new(private: PrivateHosts) -> Self {
        Self {
            private: Arc::new(private),
            look_up,
            look_ups: RequestSlots::new(MAX_CONCURRENT_LOOKUPS, MAX_CONCURRENT_LOOKUPS_PER_NAME),
        }
    }

    /// What can be said without resolving: scheme, shape, and addresses that stand in the URL itself (which no resolver sees).
    pub(crate) fn check(&self, url: &Url) -> Result<(), ForbiddenHost> {
        let (Some(host), Some(text)) = (url.host(), url.host_str()) else {
            return Err(NO_HOST);
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NO_HOST);
        }
        match url.scheme() {
            "https" => {}
            "http" if self.private.permits_plain(text) => {}
            "http" => return Err(PLAIN_HTTP),
            _ => return Err(NO_HOST),
        }
        match host {
            Host::Domain(_) => Ok(()),
            Host::Ipv4(v4) => self.permit(text, IpAddr::V4(v4)),
            Host::Ipv6(v6) => self.permit(text, IpAddr::V6(v6)),
        }
    }

    fn permit(&self, name: &str, address: IpAddr) -> Result<(), ForbiddenHost> {
        if self.private.permits(name, address) {
            Ok(())
        } else {
            Err(PRIVATE_ADDRESS)
        }
    }

    /// Resolves a name. All its addresses must be allowed: a name with a private address beside public ones is an attack.
    pub(crate) async fn resolve(
        &self,
        name: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, HostError> {
        let found = tokio::time::timeout(RESOLVE_TIMEOUT, self.look_up(name, port)).await;
        let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let found = found.map_err(HostError::NotResolved)?;
        for address in &found {
            let permitted = self.permit(name, address.ip());
            permitted.map_err(HostError::ForbiddenHost)?;
        }
        Ok(found)
    }

    /// The slot ends with the thread and not with the caller, so threads that hang in the resolver cannot pile up.
    async fn look_up(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let slot = self.look_ups.take(name).await;
        let slot = slot.map_err(|busy| io::Error::new(io::ErrorKind::ResourceBusy, busy))?;
        let (name, look_up) = (name.to_owned(), self.look_up);
        let asked = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            look_up(&name, port)
        });
        asked.await.map_err(io::Error::other)?
    }

    /// Checks a URL that other code is going to call.
    pub(crate) async fn admit(&self, provider: GitProvider, url: &Url) -> Result<(), GitError> {
        match self.addresses(url).await {
            Ok(_) => Ok(()),
            Err(HostError::ForbiddenHost(refused)) => Err(refused.into_error(provider)),
            Err(HostError::NotResolved(error)) => Err(GitError::Unavailable {
                provider,
                source: error.into(),
            }),
        }
    }

    /// The addresses of the host in an address, if all of them may be called.
    pub(crate) async fn addresses(&self, url: &Url) -> Result<Vec<IpAddr>, HostError> {
        self.check(url).map_err(HostError::ForbiddenHost)?;
        match url.host() {
            Some(Host::Ipv4(v4)) => Ok(vec![IpAddr::V4(v4)]),
            Some(Host::Ipv6(v6)) => Ok(vec![IpAddr::V6(v6)]),
            Some(Host::Domain(name)) => {
                let port = url.port_or_known_default().unwrap_or(443);
                let found = self.resolve(name, port).await?;
                Ok(found.iter().map(SocketAddr::ip).collect())
            }
            None => Err(HostError::ForbiddenHost(NO_HOST)),
        }
    }
}

impl ForbiddenHost {
    pub(crate) fn into_error(self, provider: GitProvider) -> GitError {
        GitError::Forbidden {
            provider,
            reason: self.0.to_owned(),
        }
    }
}

/// Error of resolving a host.
#[derive(Debug)]
pub(crate) enum HostError {
    /// They may not be called.
    ForbiddenHost(ForbiddenHost),
    /// There are none.
    NotResolved(io::Error),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForbiddenHost(refused) => refused.fmt(f),
            Self::NotResolved(_) => f.write_str("its name cannot be resolved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Instant;

    use futures::future::join_all;

    use super::*;
    use crate::hosts::private_hosts::AllowedHost;

    fn guard(entries: &[&str]) -> HostGuard {
        let list: Vec<AllowedHost> = entries.iter().map(|e| e.parse().unwrap()).collect();
        HostGuard::new(PrivateHosts::Listed(list))
    }

    #[test]
    fn hosts_are_judged_before_they_are_resolved() {
        for (url, expected) in [
            ("https://github.com", Ok(())),
            ("http://github.com", Err(PLAIN_HTTP)),
            ("ftp://github.com", Err(NO_HOST)),
            ("https://u:p@github.com", Err(NO_HOST)),
            ("data:x", Err(NO_HOST)),
            ("https://127.0.0.1", Err(PRIVATE_ADDRESS)),
            // What browsers and `inet_aton` take for the same address; `Url` has already made it one.
            ("https://2130706433", Err(PRIVATE_ADDRESS)),
            ("https://0x7f.1", Err(PRIVATE_ADDRESS)),
            ("https://[::ffff:127.0.0.1]", Err(PRIVATE_ADDRESS)),
            ("https://169.254.169.254", Err(PRIVATE_ADDRESS)),
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
            matches!(refused, Err(HostError::ForbiddenHost(PRIVATE_ADDRESS))),
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

    #[tokio::test]
    async fn addresses_are_told_to_whoever_calls() {
        let addresses = async |entries: &[&str], url: &str| {
            guard(entries).addresses(&url.parse().unwrap()).await
        };
        let public = addresses(&[], "https://192.0.1.9/x").await.unwrap();
        assert_eq!(public, ["192.0.1.9".parse::<IpAddr>().unwrap()]);
        let own = addresses(&["localhost"], "http://localhost:8080/x").await;
        assert!(own.is_ok_and(|found| found.iter().all(IpAddr::is_loopback)));
        for url in [
            "https://localhost/x",
            "http://github.com/x",
            "https://127.0.0.1/x",
            "https://u:p@github.com/x",
        ] {
            let refused = addresses(&[], url).await;
            assert!(matches!(refused, Err(HostError::ForbiddenHost(_))), "{url}");
        }
        let unknown = addresses(&[], "https://no-such-host.invalid/").await;
        assert!(
            matches!(unknown, Err(HostError::NotResolved(_))),
            "{unknown:?}"
        );
    }

    /// Look-ups that hang until the test lets go.
    static HUNG_LOOKUPS: AtomicUsize = AtomicUsize::new(0);
    static GATE_CLOSED: AtomicBool = AtomicBool::new(true);

    fn hang(_: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        HUNG_LOOKUPS.fetch_add(1, Ordering::SeqCst);
        let until = Instant::now() + Duration::from_secs(60);
        while GATE_CLOSED.load(Ordering::SeqCst) {
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        HUNG_LOOKUPS.fetch_sub(1, Ordering::SeqCst);
        Ok(vec![([192, 0, 2, 1], port).into()])
    }

    async fn hung(expected: usize) -> bool {
        for _ in 0..1_000 {
            if HUNG_LOOKUPS.load(Ordering::SeqCst) == expected {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    #[tokio::test]
    async fn a_resolver_that_hangs_costs_a_bounded_number_of_threads() {
        let mut guard = guard(&["192.0.2.0/24"]);
        guard.look_up = hang;
        for (names, expected) in [
            (1, MAX_CONCURRENT_LOOKUPS_PER_NAME),
            (50, MAX_CONCURRENT_LOOKUPS),
        ] {
            let names: Vec<_> = (0..50).map(|n| format!("h{}.example", n % names)).collect();
            let all = join_all(names.iter().map(|name| guard.resolve(name, 443)));
            // Their callers are gone, and the look-ups still run.
            let given_up = tokio::time::timeout(Duration::from_millis(200), all).await;
            assert!(given_up.is_err());
            assert!(
                hung(expected).await,
                "{}",
                HUNG_LOOKUPS.load(Ordering::SeqCst)
            );
        }
        GATE_CLOSED.store(false, Ordering::SeqCst);
        assert!(hung(0).await);
        let found = guard.resolve("h.example", 443).await;
        assert!(found.is_ok_and(|found| found.len() == 1));
    }
}
