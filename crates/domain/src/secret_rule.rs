//! Rules that say where a secret may go.

use std::fmt;
use std::str::FromStr;

use url::Host;

use crate::host_rule::{HostRule, HostRules, Rules};

const MAX_PATH_CHARS: usize = 1_000;

/// A host, or a part of its paths: `api.example.org`, `api.example.org:8443/repos/acme`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRule {
    host: HostRule,
    /// With a slash at its beginning and none at its end; empty: all paths.
    path: String,
}

/// Where a secret may go. Without any, sandboxes get its value.
pub type SecretRules = Rules<SecretRule>;

impl FromStr for SecretRule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let host = host.parse()?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.len() > MAX_PATH_CHARS {
            return Err("has a path of more than 1000 characters");
        }
        let is_valid = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%');
        if !path.bytes().all(is_valid) || !is_plain(path) || path.ends_with('/') {
            return Err(
                "has a path that is not plain: it has no escapes, no query, and no empty or dotted segments",
            );
        }
        Ok(Self {
            host,
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for SecretRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.host, self.path)
    }
}

impl SecretRule {
    /// Whether the path of a request is in this one.
    fn has_path(&self, path: &str) -> bool {
        if self.path.is_empty() {
            return true;
        }
        let rest = path.strip_prefix(&self.path);
        rest.is_some_and(|rest| (rest.is_empty() || rest.starts_with('/')) && is_plain(path))
    }
}

impl SecretRules {
    /// The hosts, without paths.
    pub fn hosts(self) -> HostRules {
        self.into_iter().map(|rule| rule.host).collect()
    }

    /// Whether a rule names this host, port and path. `usual_port` is the port of rules without one.
    pub fn match_request(
        &self,
        (host, port, usual_port): (&Host, u16, u16),
        path: &str,
    ) -> Result<(), SecretRefusal> {
        let mut of_host = self
            .iter()
            .filter(|rule| rule.host.matches(host, port, usual_port))
            .peekable();
        if of_host.peek().is_none() {
            return Err(SecretRefusal::OtherHost);
        }
        let is_path = of_host.any(|rule| rule.has_path(path));
        is_path.then_some(()).ok_or(SecretRefusal::OtherPath)
    }
}

/// Why a secret may not go with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretRefusal {
    /// To no path of this host.
    OtherHost,
    /// To other paths of this host.
    OtherPath,
}

/// What servers may take for a slash, a dot or the end of a segment: also escaped twice, or in too long a form of UTF-8.
const AMBIGUOUS: [&str; 10] = [
    "\\", ";", "%2e", "%2f", "%5c", "%25", "%c0", "%c1", "%e0%80", "%f0%80",
];

/// Whether every server takes the path as it is: without segments that are empty or dots, and without what is ambiguous.
fn is_plain(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let inner = path.strip_prefix('/').unwrap_or(path);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let mut segments = inner.split('/');
    !AMBIGUOUS.iter().any(|text| lower.contains(text))
        && (inner.is_empty() || segments.all(|segment| !matches!(segment, "" | "." | "..")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn rules_have_one_spelling() {
        for (text, spelling) in [
            ("API.example.org", "api.example.org"),
            ("api.example.org/", "api.example.org"),
            (
                "*.example.org:8443/Repos/acme/",
                "*.example.org:8443/Repos/acme",
            ),
            ("[2001:DB8::1]/a", "[2001:db8::1]/a"),
        ] {
            let rule: SecretRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), spelling);
        }
        let long = format!("example.org/{}", "a".repeat(MAX_PATH_CHARS));
        for text in [
            "/a",
            "https://example.org/a",
            "example.org//a",
            "example.org/a//",
            "example.org/a/../b",
            "example.org/./a",
            "example.org/%61",
            "example.org/a?b",
            "example.org/a#b",
            "example.org/a;b",
            "example.org/a\\b",
            "example.org/\u{e9}",
            &long,
        ] {
            assert!(text.parse::<SecretRule>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_secret_goes_to_its_paths_only() {
        let rules: SecretRules = "api.example.org/repos/acme example.net".parse().unwrap();
        let other = host("api.example.org");
        let at = |path: &str| rules.match_request((&other, 443, 443), path);
        for path in ["/repos/acme", "/repos/acme/", "/repos/acme/a%20b/%C3%A9"] {
            assert_eq!(at(path), Ok(()), "{path}");
        }
        for path in [
            "/",
            "/repos",
            "/repos/acmes",
            "/Repos/acme",
            "//repos/acme",
            "/repos/acme/../other",
            "/repos/acme/%2e%2E/other",
            "/repos/acme/..%2Fother",
            "/repos/acme/..;/other",
            "/repos/acme/%252e%252e/other",
            "/repos/acme/%C0%AE%C0%AE/other",
            "/repos/acme//../other",
            "/repos/acme/..\\other",
        ] {
            assert_eq!(at(path), Err(SecretRefusal::OtherPath), "{path}");
        }
        let free = host("example.net");
        assert_eq!(rules.match_request((&free, 443, 443), "/a/../b"), Ok(()));
        for (name, port) in [("example.org", 443), ("api.example.org", 8443)] {
            let found = rules.match_request((&host(name), port, 443), "/repos/acme");
            assert_eq!(found, Err(SecretRefusal::OtherHost), "{name}:{port}");
        }
    }

    proptest! {
        #[test]
        fn every_rule_is_read_as_it_is_written(text in "\\PC{0,30}|[a-z.]{1,9}(:[0-9]{1,6})?(/[a-z./%;]{0,9}){0,3}") {
            if let Ok(rule) = text.parse::<SecretRule>() {
                prop_assert_eq!(rule.to_string().parse(), Ok(rule));
            }
        }
    }
}
