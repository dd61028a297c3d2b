//! Checks hosts by their addresses and not only by their names, against server-side request forgery (SSRF).

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use url::{Host, Url};

use crate::private_hosts::PrivateHosts;
use crate::request_slots::RequestSlots;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent DNS look-ups in total and per name. Each occupies a thread that cannot be cancelled.
const MAX_CONCURRENT_LOOKUPS: usize = 16;
const MAX_CONCURRENT_LOOKUPS_PER_NAME: usize = 4;

type ResolveFn = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Calls the system's resolver, which blocks.
fn system_look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}

/// Decides which hosts may be called.
#[derive(Debug, Clone)]
pub struct HostGuard {
    private_hosts: Arc<PrivateHosts>,
    resolve_fn: ResolveFn,
    lookup_slots: RequestSlots,
}

/// The reason why a host must not be called. The text omits the addresses of the host, which would reveal a private network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ForbiddenHost(&'static str);

const PRIVATE_ADDRESS: ForbiddenHost = ForbiddenHost(
    "it has an address in a private network. The operator of this service can allow the host in git.allow_private_hosts",
);
const PLAIN_HTTP: ForbiddenHost = ForbiddenHost(
    "its URL begins with http://. Use https://, or ask the operator of this service to allow the host in \
     git.allow_private_hosts",
);
const NO_HOST: ForbiddenHost = ForbiddenHost(
    "its URL needs the scheme http or https and a host name, and must contain no user name or password",
);

impl HostGuard {
    /// Allows these hosts beside public ones.
    pub fn new(private_hosts: PrivateHosts) -> Self {
        Self {
            private_hosts: Arc::new(private_hosts),
            resolve_fn: system_look_up,
            lookup_slots: RequestSlots::new(
                MAX_CONCURRENT_LOOKUPS,
                MAX_CONCURRENT_LOOKUPS_PER_NAME,
            ),
        }
    }

    /// Checks everything that needs no look-up: scheme, credentials, and IP addresses in the URL, which no resolver sees.
    ///
    /// # Errors
    /// The URL must not be called.
    pub fn check(&self, url: &Url) -> Result<(), ForbiddenHost> {
        let (Some(host), Some(text)) = (url.host(), url.host_str()) else {
            return Err(NO_HOST);
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NO_HOST);
        }
        match url.scheme() {
            "https" => {}
            "http" if self.private_hosts.permits_plain(text) => {}
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
        let is_permitted = self.private_hosts.permits(name, address);
        is_permitted.then_some(()).ok_or(PRIVATE_ADDRESS)
    }

    /// Whether an address that is written as such may be called.
    pub fn permits_address(&self, address: IpAddr) -> bool {
        self.private_hosts.permits("", address)
    }

    /// Whether the operator listed the address, or a network with it.
    pub fn is_listed(&self, address: IpAddr) -> bool {
        self.private_hosts.contains(address)
    }

    /// Resolves a name. All its addresses must be allowed, because a name with a private address beside public ones may be an
    /// attack.
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn resolve(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, HostError> {
        let addresses = tokio::time::timeout(RESOLVE_TIMEOUT, self.look_up(name, port)).await;
        let addresses = addresses.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let addresses = addresses.map_err(HostError::NotResolved)?;
        for address in &addresses {
            self.permit(name, address.ip())?;
        }
        Ok(addresses)
    }

    /// The thread holds the slot, also after the caller's timeout, so that threads that hang in the resolver cannot pile up.
    async fn look_up(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let slot = self.lookup_slots.take(name).await;
        let slot =
            slot.map_err(|exhausted| io::Error::new(io::ErrorKind::ResourceBusy, exhausted))?;
        let (name, resolve_fn) = (name.to_owned(), self.resolve_fn);
        let thread = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            resolve_fn(&name, port)
        });
        thread.await.map_err(io::Error::other)?
    }

    /// The addresses of a URL's host, if all of them may be called.
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn addresses(&self, url: &Url) -> Result<Vec<IpAddr>, HostError> {
        self.check(url)?;
        match url.host() {
            Some(Host::Ipv4(v4)) => Ok(vec![IpAddr::V4(v4)]),
            Some(Host::Ipv6(v6)) => Ok(vec![IpAddr::V6(v6)]),
            Some(Host::Domain(name)) => {
                let port = url.port_or_known_default().unwrap_or(443);
                let addresses = self.resolve(name, port).await?;
                Ok(addresses.iter().map(SocketAddr::ip).collect())
            }
            None => Err(NO_HOST.into()),
        }
    }
}

/// The reason why a host has no address that may be called.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The policy forbids it.
    #[error(transparent)]
    ForbiddenHost(#[from] ForbiddenHost),
    /// Its name does not resolve.
    #[error("the host name cannot be resolved")]
    NotResolved(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Instant;

    use futures::future::join_all;

    use super::*;
    use crate::private_hosts::AllowedHost;

    fn guard(entries: &[&str]) -> HostGuard {
        let list: Vec<AllowedHost> = entries.iter().map(|e| e.parse().unwrap()).collect();
        HostGuard::new(PrivateHosts::Listed(list))
    }

    #[test]
    fn a_url_is_checked_without_a_look_up() {
        for (url, expected) in [
            ("https://github.com", Ok(())),
            ("http://github.com", Err(PLAIN_HTTP)),
            ("ftp://github.com", Err(NO_HOST)),
            ("https://u:p@github.com", Err(NO_HOST)),
            ("data:x", Err(NO_HOST)),
            ("https://127.0.0.1", Err(PRIVATE_ADDRESS)),
            // Other notations of an IPv4 address: `Url` has already converted them.
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
    async fn a_name_needs_permitted_addresses() {
        let refused = guard(&[]).resolve("localhost", 443).await;
        assert!(
            matches!(refused, Err(HostError::ForbiddenHost(PRIVATE_ADDRESS))),
            "{refused:?}"
        );
        let allowed = guard(&["localhost"]).resolve("localhost", 443).await;
        assert!(allowed.is_ok_and(|found| !found.is_empty()));
    }

    #[tokio::test]
    async fn permitted_urls_return_their_addresses() {
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

    /// Look-ups that hang until the test sets `GATE_CLOSED` to false.
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

    async fn reaches_hung_lookups(expected: usize) -> bool {
        for _ in 0..1_000 {
            if HUNG_LOOKUPS.load(Ordering::SeqCst) == expected {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    #[tokio::test]
    async fn a_hanging_resolver_occupies_a_bounded_number_of_threads() {
        let mut guard = guard(&["192.0.2.0/24"]);
        guard.resolve_fn = hang;
        for (names, expected) in [
            (1, MAX_CONCURRENT_LOOKUPS_PER_NAME),
            (50, MAX_CONCURRENT_LOOKUPS),
        ] {
            let names: Vec<_> = (0..50).map(|n| format!("h{}.example", n % names)).collect();
            let all = join_all(names.iter().map(|name| guard.resolve(name, 443)));
            let result = tokio::time::timeout(Duration::from_millis(200), all).await;
            assert!(result.is_err());
            // The look-ups outlive their callers.
            assert!(
                reaches_hung_lookups(expected).await,
                "{}",
                HUNG_LOOKUPS.load(Ordering::SeqCst)
            );
        }
        GATE_CLOSED.store(false, Ordering::SeqCst);
        assert!(reaches_hung_lookups(0).await);
        let found = guard.resolve("h.example", 443).await;
        assert!(found.is_ok_and(|found| found.len() == 1));
    }
}
