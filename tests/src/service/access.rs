//! The way in which each suite reaches the service: through nginx with TLS, as clients do, or at the service's own port.

use std::env::current_exe;

use crate::agent_server::variable_of;
use crate::proxy::ProxyKind;

/// Through nginx, or for this reason at the service's own port.
type Access = Result<(), &'static str>;

const NGINX: Access = Ok(());

/// All suites of `tests/tests`.
const SUITES: [(&str, Access); 26] = [
    ("architecture", Err("reads the sources; no service runs")),
    (
        "attack",
        Err("is about the service's own limits, which nginx would keep to itself"),
    ),
    (
        "automations",
        Err(
            "signs bodies as senders of webhooks do, and compares the address with the service's own",
        ),
    ),
    ("canaries", NGINX),
    ("command_line", NGINX),
    ("console", NGINX),
    ("crash_points", NGINX),
    ("docker", NGINX),
    (
        "escape",
        Err("has a network of its own, and attacks the service's own port"),
    ),
    ("faults", NGINX),
    ("git_hosts", NGINX),
    (
        "hostile",
        Err("sends bytes that are no HTTP, which nginx answers itself"),
    ),
    (
        "kubernetes",
        Err("has a cluster of its own, whose pods call the service's own port"),
    ),
    (
        "packaging",
        Err("starts what is installed by its own means, at the address that it is given"),
    ),
    (
        "proxies",
        Err("has nginx and HAProxy of its own, and compares with what goes past them"),
    ),
    ("real_agent", NGINX),
    ("recordings", NGINX),
    ("replicas", NGINX),
    ("schemathesis", NGINX),
    ("settings", NGINX),
    (
        "sign_in",
        Err("sends the cookies and headers of a browser at the service's own address"),
    ),
    (
        "single_sign_on",
        Err("sends the cookies and headers of a browser at the service's own address"),
    ),
    (
        "slow",
        Err("is about the service's own limits of connections, which nginx would keep to itself"),
    ),
    (
        "soak",
        Err("has a cluster of its own, whose pods call the service's own port"),
    ),
    ("telemetry", NGINX),
    ("web_app", NGINX),
];

/// The proxy in front of the service in the program that runs. `ACCEPTANCE_BEHIND` names another one, or `none`.
pub(super) fn proxy_kind() -> Option<ProxyKind> {
    match variable_of("ACCEPTANCE_BEHIND").as_deref() {
        Some("none") => None,
        Some(name) => Some(ProxyKind::named(name)),
        None => is_proxied(&suite()).then_some(ProxyKind::Nginx),
    }
}

/// Programs that are no suite, such as benchmarks, use the service's own port.
fn is_proxied(name: &str) -> bool {
    SUITES.contains(&(name, NGINX))
}

/// The name of the suite that runs, whose program is `<name>-<hash>`.
fn suite() -> String {
    let program = current_exe().ok();
    let name = program.as_deref().and_then(|it| it.file_stem()?.to_str());
    let suite = name.and_then(|it| Some(it.rsplit_once('-')?.0));
    suite.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_suite_is_listed_and_every_exception_has_a_reason() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let entries = std::fs::read_dir(folder).unwrap();
        let there: BTreeSet<String> = entries
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .collect();
        let listed: BTreeSet<String> = SUITES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed, there);
        assert_eq!(listed.len(), SUITES.len(), "one is listed twice");
        let mut reasons = SUITES.iter().filter_map(|(_, access)| access.err());
        assert!(reasons.all(|reason| !reason.is_empty()));
    }

    #[test]
    fn the_program_that_runs_belongs_to_a_suite() {
        assert_eq!(suite(), env!("CARGO_PKG_NAME"));
        assert!(!is_proxied(&suite()));
    }
}
