//! The way in which each suite of the package `acceptance` reaches the service: through nginx with TLS, as clients do,
//! or at the service's own port.

use std::process::Command;

/// The way in which a suite reaches the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// `ACCEPTANCE_BEHIND=nginx`: through nginx with TLS and the documented configuration.
    Proxied,
    /// Once through nginx, and once at the service's own port.
    Both,
    /// Through nginx; in nightly runs also at the service's own port.
    BothNightly,
    /// Only at the service's own port, for this reason.
    Direct(&'static str),
}

/// All suites of `tests/tests`.
pub(crate) const SUITES: [(&str, Access); 26] = [
    (
        "architecture",
        Access::Direct("reads the sources; no service runs"),
    ),
    (
        "attack",
        Access::Direct("is about the service's own limits, which nginx would keep to itself"),
    ),
    (
        "automations",
        Access::Direct(
            "signs bodies as senders of webhooks do, and compares the address with the service's own",
        ),
    ),
    ("canaries", Access::Proxied),
    ("command_line", Access::Proxied),
    ("console", Access::Proxied),
    ("crash_points", Access::Proxied),
    ("docker", Access::Proxied),
    (
        "escape",
        Access::Direct("has a network of its own, and attacks the service's own port"),
    ),
    ("faults", Access::Proxied),
    ("git_hosts", Access::Proxied),
    (
        "hostile",
        Access::Direct("sends bytes that are no HTTP, which nginx answers itself"),
    ),
    (
        "kubernetes",
        Access::Direct("has a cluster of its own, whose pods call the service's own port"),
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
    // Covers every operation as clients see it, so it would show changes by a proxy.
    ("recordings", Access::Both),
    // Behind nginx a replica that does not listen is a 502; at its own port a client tries the next one.
    ("replicas", Access::BothNightly),
    ("schemathesis", Access::Proxied),
    (
        "sign_in",
        Access::Direct("sends the cookies and headers of a browser at the service's own address"),
    ),
    (
        "single_sign_on",
        Access::Direct("sends the cookies and headers of a browser at the service's own address"),
    ),
    // Many concurrent connections.
    ("settings", Access::Both),
    (
        "slow",
        Access::Direct(
            "is about the service's own limits of connections, which nginx would keep to itself",
        ),
    ),
    (
        "soak",
        Access::Direct("has a cluster of its own, whose pods call the service's own port"),
    ),
    ("telemetry", Access::Proxied),
    // The page compares the origin that the service writes into it with its own.
    ("web_app", Access::BothNightly),
];

/// The suites that match.
fn suites(wanted: impl Fn(Access) -> bool) -> Vec<&'static str> {
    let found = SUITES.iter().filter(|(_, access)| wanted(*access));
    found.map(|(name, _)| *name).collect()
}

/// The suites that run behind nginx.
pub(crate) fn proxied() -> Vec<&'static str> {
    suites(|access| !matches!(access, Access::Direct(_)))
}

/// The suites that do not run at the service's own port.
pub(crate) fn only_proxied(is_nightly: bool) -> Vec<&'static str> {
    suites(|access| match access {
        Access::Proxied => true,
        Access::BothNightly => !is_nightly,
        Access::Both | Access::Direct(_) => false,
    })
}

/// A nextest filter for these suites.
pub(crate) fn only(suites: &[&str]) -> String {
    format!("package(acceptance) & binary(/^({})$/)", suites.join("|"))
}

/// A nextest filter for everything else, including other packages.
pub(crate) fn all_but(suites: &[&str]) -> String {
    format!("not ({})", only(suites))
}

/// Makes suites use nginx.
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
