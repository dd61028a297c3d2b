//! The rules of the egress policy: which hosts and ports sandboxes reach.

use domain::host_rule::{HostRule, HostRules};
use outbound_http::{AllowedHost, PrivateHosts};
use url::Host;

/// Package registries, and the hosts that serve their files.
const PACKAGES: &[&str] = &[
    "pypi.org",
    "files.pythonhosted.org",
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "nodejs.org",
    "crates.io",
    "index.crates.io",
    "static.crates.io",
    "static.rust-lang.org",
    "proxy.golang.org",
    "sum.golang.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    "rubygems.org",
    "index.rubygems.org",
    "deb.debian.org",
    "security.debian.org",
    "archive.ubuntu.com",
    "security.ubuntu.com",
    "ports.ubuntu.com",
];

/// Git providers, and the hosts to which they redirect for archives, releases and large files.
const GIT: &[&str] = &[
    "github.com",
    "api.github.com",
    "codeload.github.com",
    "*.githubusercontent.com",
    "github-cloud.s3.amazonaws.com",
    "gitlab.com",
    "bitbucket.org",
    "api.bitbucket.org",
];

const PRESETS: &[(&str, &[&str])] = &[("packages", PACKAGES), ("git", GIT)];

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
    Listed(HostRules),
}

impl EgressRules {
    /// Parses entries: rules, and the presets `packages` and `git`.
    ///
    /// # Errors
    /// The first entry that is neither, with the reason.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut rules = Vec::new();
        for entry in entries {
            let preset = PRESETS.iter().find(|(name, _)| *name == entry);
            let hosts = preset.map_or(std::slice::from_ref(&entry), |(_, hosts)| hosts);
            for host in hosts {
                let rule: Result<HostRule, _> = host.parse();
                rules.push(rule.map_err(|reason| format!("{host:?} {reason}"))?);
            }
        }
        Ok(Self::Listed(rules.into_iter().collect()))
    }

    /// Whether a rule allows this host and port. `usual_port` is the port of rules that name none.
    pub(super) fn allow(&self, host: &Host, port: u16, usual_port: u16) -> bool {
        match self {
            Self::Open { .. } => true,
            Self::Listed(rules) => rules.match_host(host, port, usual_port),
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
            Self::Listed(rules) => {
                let addresses = rules.iter().filter_map(HostRule::address);
                addresses
                    .filter_map(|address| address.to_string().parse().ok())
                    .collect()
            }
        })
    }
}
