//! Where a request of a sandbox goes: the check of the rules, the look-up, and the connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use domain::egress_list::EgressList;
use domain::error::BoxError;
use domain::host_rule::parse_host;
use domain::id::SandboxId;
use outbound_http::{HostError, HostGuard, PrivateHosts};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Host;

use super::approvals::EgressApprovals;
use super::rules::EgressRules;

/// The port at which a tunnel must contain TLS.
pub(super) const TLS_PORT: u16 = 443;
/// An address that no machine has (RFC 5737), so that only the default route leads to it.
const INTERNET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PORT: u16 = 9;
/// For all addresses of a host together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which addresses sandboxes reach.
#[derive(Debug)]
struct AddressGuard {
    /// Public and listed ones.
    listed: HostGuard,
    /// All private ones, of which those behind the default route are open.
    wide: Option<HostGuard>,
}

impl AddressGuard {
    fn new(rules: &EgressRules) -> Self {
        let wide = rules.is_default_route_open();
        Self {
            listed: HostGuard::new(rules.private_hosts()),
            wide: wide.then(|| HostGuard::new(PrivateHosts::Allowed)),
        }
    }

    /// Whether an address of an open host is reached.
    fn permits(&self, address: SocketAddr) -> bool {
        let ip = address.ip();
        self.listed.is_listed(ip)
            || !is_own(address)
                && (self.listed.permits_address(ip)
                    || self.wide.is_some() && is_behind_default_route(ip))
    }
}

/// Rules, and the addresses that they open.
#[derive(Debug)]
pub(super) struct RuleSet {
    rules: EgressRules,
    guard: Arc<AddressGuard>,
}

impl RuleSet {
    pub(super) fn new(rules: EgressRules) -> Self {
        let guard = Arc::new(AddressGuard::new(&rules));
        Self { rules, guard }
    }
}

/// A host and port that a rule allows.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub(super) host: Host,
    pub(super) port: u16,
    /// Whether no rule names it, because sandboxes reach all public hosts.
    is_open: bool,
    guard: Arc<AddressGuard>,
}

/// Why a request with a placeholder is refused. The texts are for the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlaceholderRefusal {
    #[error("the secret of this placeholder may not go to {0}; its owner can add the host")]
    OtherHost(String),
    #[error(
        "the secret of this placeholder may not go to this path of {0}; its owner can change its paths"
    )]
    OtherPath(String),
    #[error("this placeholder is not one of this sandbox, or its secret is gone")]
    Unknown,
    #[error("a placeholder is replaced in headers only, and not in a URL")]
    InUrl,
    #[error("a placeholder is replaced in headers only, and not in a body")]
    InBody,
    /// A host answers `TRACE` with the headers that it got.
    #[error("TRACE and CONNECT are not possible at hosts that get secrets")]
    Method,
    #[error("a placeholder is replaced over https only")]
    PlainHttp,
    #[error("a header has too many placeholders")]
    TooMany,
    #[error("the value of this secret is not valid in a header")]
    NoHeader,
}

/// Why a sandbox does not reach a host. The texts are for the agent.
#[derive(Debug, thiserror::Error)]
pub(super) enum EgressError {
    #[error("the request is not valid: {0}")]
    Invalid(&'static str),
    #[error(
        "the egress policy does not allow {host}:{port}. The operator of the service can list it in egress.allow"
    )]
    NotListed { host: String, port: u16 },
    #[error(
        "the owner of this sandbox limited it to certain hosts, and {host}:{port} is none of them. They can list it when they \
         create a sandbox"
    )]
    NotInOwnList { host: String, port: u16 },
    #[error(
        "the egress policy does not allow {host}:{port}. The owner of the conversation is asked: tell them to approve the host \
         in the console under Network, and try again then"
    )]
    NotApproved { host: String, port: u16 },
    #[error("the service cannot look up which hosts this sandbox may reach")]
    Limits(#[source] BoxError),
    #[error("the service cannot look up what the owner of the sandbox approved")]
    Approvals(#[source] BoxError),
    #[error(
        "{0} has an address in a private network or of the machine of the service, which sandboxes do not reach. The operator \
         of the service can list the address in egress.allow, or in reachable_networks of the backend if the egress policy is open"
    )]
    PrivateAddress(String),
    #[error("the name {0} cannot be resolved")]
    NotResolved(String),
    #[error("cannot connect to {0}")]
    NotConnected(String),
    #[error("{0} sent no response")]
    NoResponse(String),
    #[error("the service cannot establish TLS with {0}: {1}")]
    NotTrusted(String, #[source] io::Error),
    #[error(transparent)]
    Placeholder(#[from] PlaceholderRefusal),
    #[error("the service cannot look up the secrets of the sandbox")]
    Secrets(#[source] BoxError),
}

impl EgressError {
    /// Whether the policy refuses the request, so that a repetition does not help.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NotListed { .. }
                | Self::NotInOwnList { .. }
                | Self::NotApproved { .. }
                | Self::PrivateAddress(_)
                | Self::Placeholder(_)
        )
    }
}

impl Destination {
    /// Checks the rules, which needs no look-up.
    pub(super) fn new(
        RuleSet { rules, guard }: &RuleSet,
        own: Option<&EgressList>,
        (host, port): (&str, u16),
        usual_port: u16,
    ) -> Result<Self, EgressError> {
        let host = parse_host(host).ok_or(EgressError::Invalid("its host is not valid"))?;
        if !rules.allow(&host, port, usual_port) {
            let host = host.to_string();
            return Err(EgressError::NotListed { host, port });
        }
        if own.is_some_and(|own| !own.names(&host, port, usual_port)) {
            let host = host.to_string();
            return Err(EgressError::NotInOwnList { host, port });
        }
        let is_open = matches!(rules, EgressRules::Open { .. });
        Ok(Self {
            host,
            port,
            is_open,
            guard: Arc::clone(guard),
        })
    }

    /// A host and port that the owner of the sandbox approved, although no list names it. If the owner did not, the owner is asked.
    /// A private address cannot be approved.
    pub(super) async fn approved(
        approvals: &dyn EgressApprovals,
        RuleSet { guard, .. }: &RuleSet,
        (sandbox, host, port): (&SandboxId, &str, u16),
    ) -> Result<Self, EgressError> {
        let host = parse_host(host).ok_or(EgressError::Invalid("its host is not valid"))?;
        let literal = match &host {
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
            Host::Domain(_) => None,
        };
        if literal.is_some_and(|address| !guard.listed.permits_address(address)) {
            return Err(EgressError::PrivateAddress(host.to_string()));
        }
        let name = host.to_string();
        let is_approved = approvals.is_approved(sandbox, &name, port).await;
        if !is_approved.map_err(EgressError::Approvals)? {
            return Err(EgressError::NotApproved { host: name, port });
        }
        Ok(Self {
            host,
            port,
            is_open: false,
            guard: Arc::clone(guard),
        })
    }

    /// Whether a tunnel must contain TLS that asks for this host. Where all hosts are open, nothing would be gained.
    pub(super) fn must_be_tls(&self) -> bool {
        !self.is_open && self.port == TLS_PORT
    }

    /// Looks the name up once, checks all its addresses, and connects to one of these.
    pub(super) async fn connect(&self) -> Result<TcpStream, EgressError> {
        let guard = &self.guard;
        let forbidden = || EgressError::PrivateAddress(self.host.to_string());
        let literal = match &self.host {
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
            Host::Domain(_) => None,
        };
        let lookups = guard.wide.as_ref().unwrap_or(&guard.listed);
        let addresses = match (literal, &self.host) {
            (Some(address), _) if lookups.permits_address(address) => {
                vec![SocketAddr::from((address, self.port))]
            }
            (None, Host::Domain(name)) => {
                let found = lookups.resolve(name, self.port).await;
                found.map_err(|error| match error {
                    HostError::ForbiddenHost(_) => forbidden(),
                    HostError::NotResolved(_) => EgressError::NotResolved(name.clone()),
                })?
            }
            _ => return Err(forbidden()),
        };
        // A listed network is open at all ports, a rule with an address only as it is written.
        let is_reached = |address: &SocketAddr| {
            if self.is_open {
                guard.permits(*address)
            } else {
                literal.is_some() || !is_own(*address)
            }
        };
        if !addresses.iter().all(is_reached) {
            return Err(forbidden());
        }
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(&addresses[..])).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = connected.map_err(|_| EgressError::NotConnected(self.host.to_string()))?;
        // Interactive protocols inside a tunnel send small packets; without it they are only slower.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

/// Whether this machine has the address: the kernel then chooses it as the source as well.
fn is_own(address: SocketAddr) -> bool {
    source(address).is_some_and(|source| source == address.ip())
}

/// Whether the kernel chooses the same source as for the internet, and so the same device.
fn is_behind_default_route(address: IpAddr) -> bool {
    let behind = source(SocketAddr::new(address, PORT));
    address.is_ipv4() && behind.is_some() && behind == source((INTERNET, PORT).into())
}

/// The address from which this machine connects to another one. Sends nothing.
fn source(address: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    source.ok().map(|source| source.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_recognized() {
        assert!(is_own(([127, 0, 0, 1], 5432).into()));
        assert!(!is_own(([192, 0, 2, 1], 5432).into()));
    }

    #[test]
    fn loopback_addresses_are_not_behind_the_default_route() {
        for address in [[127, 0, 0, 1], [127, 8, 8, 8]] {
            assert!(!is_behind_default_route(address.into()), "{address:?}");
        }
        let rules = EgressRules::Open {
            listed: Vec::new(),
            by_default_route: true,
        };
        let guard = AddressGuard::new(&rules);
        assert!(!guard.permits(([127, 8, 8, 8], 80).into()));
        assert!(guard.permits(([1, 1, 1, 1], 80).into()));
        // Behind the default route, if this machine has one.
        let far = [10, 255, 255, 254];
        let expected = is_behind_default_route(far.into());
        assert_eq!(guard.permits((far, 80).into()), expected);
        let strict = EgressRules::Open {
            listed: Vec::new(),
            by_default_route: false,
        };
        assert!(!AddressGuard::new(&strict).permits((far, 80).into()));
    }
}
