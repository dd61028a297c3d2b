//! The rules of the egress policy: which hosts and ports sandboxes reach.

use std::net::IpAddr;
use std::str::FromStr;

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

/// Hosts, with one port or the usual ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRule {
    pattern: HostPattern,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Name(String),
    /// All names that end with this text, which begins with a dot.
    Subdomains(String),
    Address(IpAddr),
}

impl FromStr for EgressRule {
    type Err = &'static str;

    /// Parses `example.org`, `*.example.org`, `192.0.2.1` or `[2001:db8::1]`, each with or without `:port`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const NO_HOST: &str =
            "is neither a host, such as example.org or *.example.org, nor a host with a port";
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (host, Some(port.ok_or("has an invalid port")?))
            }
            _ => (text, None),
        };
        let (is_wildcard, name) = match host.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, host),
        };
        let pattern = match (is_wildcard, parse_host(name).ok_or(NO_HOST)?) {
            (false, Host::Domain(name)) => HostPattern::Name(name),
            (true, Host::Domain(name)) => HostPattern::Subdomains(format!(".{name}")),
            (false, Host::Ipv4(address)) => HostPattern::Address(address.into()),
            (false, Host::Ipv6(address)) => HostPattern::Address(address.into()),
            (true, _) => return Err(NO_HOST),
        };
        Ok(Self { pattern, port })
    }
}

impl EgressRule {
    fn matches(&self, host: &Host, port: u16, usual_port: u16) -> bool {
        let is_host = match (&self.pattern, host) {
            (HostPattern::Name(name), Host::Domain(host)) => name == host,
            (HostPattern::Subdomains(suffix), Host::Domain(host)) => host.ends_with(suffix),
            (HostPattern::Address(address), Host::Ipv4(host)) => *address == IpAddr::V4(*host),
            (HostPattern::Address(address), Host::Ipv6(host)) => *address == IpAddr::V6(*host),
            _ => false,
        };
        is_host && port == self.port.unwrap_or(usual_port)
    }
}

/// All rules of a policy. Without rules, nothing is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressRules(Vec<EgressRule>);

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
                let rule = host.parse();
                rules.push(rule.map_err(|reason: &str| format!("{host:?} {reason}"))?);
            }
        }
        Ok(Self(rules))
    }

    /// Whether a rule allows this host and port. `usual_port` is the port of rules that name none.
    pub(super) fn allow(&self, host: &Host, port: u16, usual_port: u16) -> bool {
        self.0
            .iter()
            .any(|rule| rule.matches(host, port, usual_port))
    }

    /// Listed addresses are reachable, whatever kind they are. A listed name is not: it may resolve to anything.
    pub(super) fn listed_addresses(&self) -> PrivateHosts {
        let addresses = self.0.iter().filter_map(|rule| match rule.pattern {
            HostPattern::Address(address) => address.to_string().parse::<AllowedHost>().ok(),
            _ => None,
        });
        PrivateHosts::Listed(addresses.collect())
    }
}

/// A host in its one spelling: lower case, without a final dot, and addresses in any notation as addresses.
pub(super) fn parse_host(text: &str) -> Option<Host> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let host = Host::parse(text).ok()?;
    match &host {
        Host::Domain(name) if name.len() > 253 || name.split('.').any(|label| !is_label(label)) => {
            None
        }
        _ => Some(host),
    }
}

fn is_label(label: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&label.len()) && label.bytes().all(is_valid)
}
