//! Which way the suites of the package `acceptance` reach the service: through nginx with TLS, as its clients do, or at its own
//! port.

use std::process::Command;

/// How a suite gets at the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// `ACCEPTANCE_BEHIND=nginx`: through nginx, over TLS, with the configuration that operators are given.
    Proxied,
    /// Once so, and once at its own port.
    Both,
    /// At its own port only, for this reason.
    Direct(&'static str),
}

/// Every suite of `tests/tests`.
pub(crate) const SUITES: [(&str, Access); 21] = [
    (
        "architecture",
        Access::Direct("reads the sources; no service runs"),
    ),
    (
        "attack",
        Access::Direct("is about the service's own limits, which nginx would keep to itself"),
    ),
    (
        "benchmarks",
        Access::Direct("checks the programs that measure, which measure the service alone"),
    ),
    ("canaries", Access::Proxied),
    ("command_line", Access::Proxied),
    ("console", Access::Proxied),
    ("crash_points", Access::Proxied),
    ("docker", Access::Proxied),
    ("faults", Access::Proxied),
    ("git_hosts", Access::Proxied),
    (
        "hostile",
        Access::Direct("sends bytes that are no HTTP, which nginx answers itself"),
    ),
    (
        "packaging",
        Access::Direct(
            "starts what is installed by its own means, at the address that it is given",
        ),
    ),
    (
        "proxies",
        Access::Direct("has nginx and HAProxy of its own, and compares with what goes past them"),
    ),
    ("real_agent", Access::Proxied),
    // Every operation as clients know it: what a proxy changes would show.
    ("recordings", Access::Both),
    // Behind nginx a replica that does not listen is a 502; at its own port a client goes to the next one.
    ("replicas", Access::Both),
    ("schemathesis", Access::Proxied),
    // Many at once.
    ("settings", Access::Both),
    (
        "slow",
        Access::Direct(
            "is about the service's own limits of connections, which nginx would keep to itself",
        ),
    ),
    ("soak", Access::Proxied),
    ("telemetry", Access::Proxied),
];

/// The suites of which this is true.
pub(crate) fn suites(wanted: impl Fn(Access) -> bool) -> Vec<&'static str> {
    let found = SUITES.iter().filter(|(_, access)| wanted(*access));
    found.map(|(name, _)| *name).collect()
}

/// Those that run behind nginx.
pub(crate) fn proxied() -> Vec<&'static str> {
    suites(|access| !matches!(access, Access::Direct(_)))
}

/// A filter of nextest for all that runs at the service's own port, other packages included.
pub(crate) fn direct_filter() -> String {
    let only = suites(|access| access == Access::Proxied).join("|");
    format!("not (package(acceptance) & binary(/^({only})$/))")
}

/// Has suites go through nginx.
pub(crate) fn behind_nginx(command: &mut Command) -> &mut Command {
    command.env("ACCEPTANCE_BEHIND", "nginx")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run::root;

    #[test]
    fn every_suite_is_listed_and_every_exception_has_a_reason() {
        let folder = root().join("tests").join("tests");
        let entries = std::fs::read_dir(folder).unwrap();
        let there: BTreeSet<String> = entries
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .collect();
        let listed: BTreeSet<String> = SUITES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed, there);
        assert_eq!(listed.len(), SUITES.len(), "one is listed twice");
        let reasons = SUITES.iter().filter_map(|(_, access)| match access {
            Access::Direct(reason) => Some(*reason),
            _ => None,
        });
        assert!(reasons.into_iter().all(|reason| !reason.is_empty()));
    }
}
