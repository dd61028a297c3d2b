//! Checks of `doctor`: the other hosts that share the store.

use domain::clock::Timestamp;
use domain::coordination::host::{Host, HostRepository, HostStatus};
use domain::error::chain;
use domain::id::HostId;

use super::DoctorReport;

const WHAT: &str = "hosts";

/// `own`: the host of this machine, whose service may be stopped.
pub(super) async fn examine(
    hosts: &dyn HostRepository,
    own: Option<&HostId>,
    now: Timestamp,
    report: &mut DoctorReport,
) {
    match hosts.list().await {
        Ok(mut all) => {
            all.retain(|host| Some(&host.id) != own);
            check(&all, now, report);
        }
        Err(error) => report.problem(WHAT, chain(&error)),
    }
}

fn check(others: &[Host], now: Timestamp, report: &mut DoctorReport) {
    if others.is_empty() {
        return;
    }
    let lost: Vec<&Host> = others
        .iter()
        .filter(|host| host.status(now) == HostStatus::Lost)
        .collect();
    for host in &lost {
        let seen = host.seen_at.map(|at| at.to_string()).unwrap_or_default();
        let text = format!(
            "{} is lost, last seen at {seen}, with {} sandboxes and {} starts: start its service again, or remove it by \
             `agent-workspace hosts remove {}`",
            host.id, host.sandboxes, host.open_starts, host.id
        );
        report.warn(WHAT, text);
    }
    if lost.is_empty() {
        report.ok(WHAT, format!("{} others, none of them lost", others.len()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lost_hosts_are_named_with_what_to_do() {
        let now = Timestamp::from_micros(1_000_000_000);
        let host = |name: &str, seen_at| Host {
            id: HostId::parse(name).unwrap(),
            registered_at: Timestamp::from_micros(0),
            seen_at,
            is_draining: false,
            sandboxes: 2,
            open_starts: 1,
        };
        let here = || host("here", Some(now));
        let long_ago = now.minus(Duration::from_secs(60));
        for (others, expected) in [
            (vec![], ""),
            (vec![here()], "ok       hosts: 1 others, none of them lost"),
            (
                vec![here(), host("gone", Some(long_ago))],
                "warning  hosts: gone is lost, last seen at ",
            ),
            // Only an earlier release has served it.
            (vec![host("old", None)], "ok       hosts: 1 others"),
        ] {
            let mut report = DoctorReport::default();
            check(&others, now, &mut report);
            let shown = report.render(false);
            assert!(shown.starts_with(expected), "{shown}");
            let is_warning = expected.starts_with("warning");
            assert_eq!(shown.contains("hosts remove gone"), is_warning, "{shown}");
        }
    }
}
