//! The rules of the egress policy: which hosts and ports sandboxes reach.

use domain::egress_list::EgressList;
use domain::host_rule::HostRule;
use outbound_http::{AllowedHost, PrivateHosts};
use url::Host;

/// Which hosts sandboxes reach through the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressRules {
    /// Public hosts, and these private addresses.
    Open {
        /// Private networks and addresses, also of this machine.
        listed: Vec<AllowedHost>,
        /// Whether private IPv4 addresses that this machine reaches by its default route are open too, because sandboxes reach them
        /// without the proxy. Networks of its bridges, as those of other containers, are not behind that route.
        by_default_route: bool,
    },
    /// Listed hosts. Without any, nothing.
    Listed(EgressList),
}

impl EgressRules {
    /// Parses the entries of a list.
    ///
    /// # Errors
    /// The first entry that is neither, with the reason.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        EgressList::parse(entries).map(Self::Listed)
    }

    /// Whether a rule allows this host and port. `usual_port` is the port of rules that name none.
    pub(super) fn allow(&self, host: &Host, port: u16, usual_port: u16) -> bool {
        match self {
            Self::Open { .. } => true,
            Self::Listed(list) => list.names(host, port, usual_port),
        }
    }

    /// Whether private addresses behind the default route are open.
    pub(super) fn is_default_route_open(&self) -> bool {
        matches!(
            self,
            Self::Open {
                by_default_route: true,
                ..
            }
        )
    }

    /// The private addresses that sandboxes reach. A listed name is none: it may resolve to anything.
    pub(super) fn private_hosts(&self) -> PrivateHosts {
        PrivateHosts::Listed(match self {
            Self::Open { listed, .. } => listed.clone(),
            Self::Listed(list) => {
                let addresses = list.rules().iter().filter_map(HostRule::address);
                addresses
                    .filter_map(|address| address.to_string().parse().ok())
                    .collect()
            }
        })
    }
}
