//! Rules that name hosts: those that a sandbox may reach, and those to which a [secret](crate::secret_rule) may go.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

/// Hosts, with one port or the usual one: `example.org`, `*.example.org`, `192.0.2.1:8443`, `[2001:db8::1]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
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

impl FromStr for HostRule {
    type Err = &'static str;

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

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            HostPattern::Name(name) => f.write_str(name)?,
            HostPattern::Subdomains(suffix) => write!(f, "*{suffix}")?,
            HostPattern::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            HostPattern::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl HostRule {
    /// Whether it names this host and port. `usual_port` is the port of a rule without one.
    pub fn matches(&self, host: &Host, port: u16, usual_port: u16) -> bool {
        let is_host = match (&self.pattern, host) {
            (HostPattern::Name(name), Host::Domain(host)) => name == host,
            (HostPattern::Subdomains(suffix), Host::Domain(host)) => host.ends_with(suffix),
            (HostPattern::Address(address), Host::Ipv4(host)) => *address == IpAddr::V4(*host),
            (HostPattern::Address(address), Host::Ipv6(host)) => *address == IpAddr::V6(*host),
            _ => false,
        };
        is_host && port == self.port.unwrap_or(usual_port)
    }

    /// The address, if it names one.
    pub fn address(&self) -> Option<IpAddr> {
        match self.pattern {
            HostPattern::Address(address) => Some(address),
            _ => None,
        }
    }
}

/// A list of rules. An empty one matches nothing. As text, spaces separate the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules<T>(Vec<T>);

/// Hosts.
pub type HostRules = Rules<HostRule>;

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Rules<T> {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All rules, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.iter()
    }
}

impl HostRules {
    /// Whether a rule names this host and port. `usual_port` is the port of rules without one.
    pub fn match_host(&self, host: &Host, port: u16, usual_port: u16) -> bool {
        self.0
            .iter()
            .any(|rule| rule.matches(host, port, usual_port))
    }
}

impl<T> IntoIterator for Rules<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<T> FromIterator<T> for Rules<T> {
    fn from_iter<I: IntoIterator<Item = T>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl<T: FromStr> FromStr for Rules<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_whitespace().map(str::parse).collect()
    }
}

impl<T: fmt::Display> fmt::Display for Rules<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { " " };
            write!(f, "{separator}{rule}")?;
        }
        Ok(())
    }
}

/// A host in its one spelling: lower case, without a final dot, and addresses in any notation as addresses.
pub fn parse_host(text: &str) -> Option<Host> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rules_have_one_spelling() {
        for (text, spelling) in [
            ("Example.ORG.", "example.org"),
            ("*.Example.org:8443", "*.example.org:8443"),
            ("0x7f.1", "127.0.0.1"),
            ("[2001:DB8::1]:22", "[2001:db8::1]:22"),
        ] {
            let rule: HostRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), spelling);
        }
    }

    #[test]
    fn lists_are_read_as_they_are_written() {
        let rules: HostRules = " api.example.org  *.example.net:81 ".parse().unwrap();
        assert_eq!(rules.to_string(), "api.example.org *.example.net:81");
        assert_eq!(rules.to_string().parse(), Ok(rules));
        assert_eq!("".parse(), Ok(HostRules::default()));
    }

    proptest! {
        #[test]
        fn every_rule_is_read_as_it_is_written(text in "\\PC{0,30}|(\\*\\.)?[a-z.]{1,20}(:[0-9]{1,6})?") {
            if let Ok(rule) = text.parse::<HostRule>() {
                prop_assert_eq!(rule.to_string().parse(), Ok(rule));
            }
        }
    }
}
