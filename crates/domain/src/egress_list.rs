//! Lists of the hosts that a sandbox may reach: rules, and presets with the rules of many services.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use url::Host;

use crate::host_rule::{HostRule, HostRules};

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
/// The preset with every public host.
const PUBLIC: &str = "public";
/// Alone, it names no host: for lists of which none at all means something else.
const NONE: &str = "none";

/// Most entries of a list that a user makes.
pub const MAX_EGRESS_ENTRIES: usize = 100;
/// Longest entry: a name has at most 253 characters.
const MAX_ENTRY_BYTES: usize = 270;

/// The hosts that a sandbox may reach. An empty list names none. Cheap to clone. As text, spaces separate the entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressList(Arc<Entries>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Entries {
    /// As they were given.
    texts: Vec<String>,
    rules: HostRules,
    /// Whether every host is named, at the usual ports.
    is_public: bool,
}

impl EgressList {
    /// Parses entries: rules, and the presets `packages`, `git` and `public`; or `none` alone.
    ///
    /// # Errors
    /// The first entry that is neither, with the reason.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut all = Entries::default();
        let mut rules = Vec::new();
        for entry in entries {
            if entry.len() > MAX_ENTRY_BYTES {
                return Err(format!(
                    "an entry has more than {MAX_ENTRY_BYTES} characters"
                ));
            }
            all.texts.push(entry.to_owned());
            if entry == PUBLIC {
                all.is_public = true;
                continue;
            }
            if entry == NONE {
                continue;
            }
            let preset = PRESETS.iter().find(|(name, _)| *name == entry);
            let hosts = preset.map_or(std::slice::from_ref(&entry), |(_, hosts)| hosts);
            for host in hosts {
                let rule: Result<HostRule, _> = host.parse();
                rules.push(rule.map_err(|reason| format!("{host:?} {reason}"))?);
            }
        }
        if all.texts.len() > 1 && all.texts.iter().any(|entry| entry == NONE) {
            return Err(format!(
                "{NONE:?} stands for no host, so it is the only entry"
            ));
        }
        all.rules = rules.into_iter().collect();
        Ok(Self(Arc::new(all)))
    }

    /// The entries as they were given.
    pub fn entries(&self) -> &[String] {
        &self.0.texts
    }

    /// The rules of all entries but `public`.
    pub fn rules(&self) -> &HostRules {
        &self.0.rules
    }

    /// Whether an entry names this host and port. `usual_port` is the port of entries without one.
    pub fn names(&self, host: &Host, port: u16, usual_port: u16) -> bool {
        let is_public = self.0.is_public && port == usual_port;
        is_public || self.0.rules.match_host(host, port, usual_port)
    }
}

/// The lists that hold for one sandbox. It reaches what all of them name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxEgress {
    /// The operator's list for its template, in place of that of the service.
    pub template: Option<EgressList>,
    /// Its owner's list.
    pub own: Option<EgressList>,
}

impl FromStr for EgressList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text.split_whitespace())
    }
}

impl fmt::Display for EgressList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.texts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str, host: &str, port: u16) -> bool {
        let list: EgressList = list.parse().unwrap();
        list.names(&Host::parse(host).unwrap(), port, 443)
    }

    #[test]
    fn presets_stand_for_many_hosts() {
        assert!(names("packages", "pypi.org", 443));
        assert!(names(
            "git example.org:8443",
            "raw.githubusercontent.com",
            443
        ));
        assert!(names("git example.org:8443", "example.org", 8443));
        assert!(!names("packages", "github.com", 443));
        assert!(!names("", "pypi.org", 443));
    }

    #[test]
    fn public_names_every_host_at_the_usual_port() {
        assert!(names("public", "example.org", 443));
        assert!(names("public", "203.0.113.7", 443));
        assert!(!names("public", "example.org", 22));
        assert!(names("public example.org:22", "example.org", 22));
    }

    #[test]
    fn none_names_no_host_and_stands_alone() {
        assert!(!names("none", "none", 443));
        let error = "none pypi.org".parse::<EgressList>().unwrap_err();
        assert!(error.contains("only entry"), "{error}");
    }

    #[test]
    fn the_text_of_a_list_is_read_again() {
        for text in ["", "none", "git", "public example.org:22 *.example.net"] {
            let list: EgressList = text.parse().unwrap();
            assert_eq!(list.to_string(), text);
            assert_eq!(list.to_string().parse(), Ok(list));
        }
    }

    #[test]
    fn an_invalid_entry_is_named() {
        for (entry, part) in [
            ("https://example.org", "https://example.org"),
            ("example.org:0", "port"),
            ("*", "\"*\""),
            (&*"a".repeat(300), "270"),
        ] {
            let error = EgressList::parse([entry]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
