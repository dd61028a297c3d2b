//! Enforces the egress policy with the host's packet filter: containers reach the forward proxy and the service, and nothing else.
//!
//! ```text
//!   DOCKER-USER ──from the bridge──►┐                          replies  ─► back
//!                                   ├─► chain of the network ─► proxy, service ─► back
//!   INPUT ──────from the bridge──►──┘                          the rest ─► rejected
//! ```
//!
//! What the chain lets pass, other rules of the host may still refuse. Replies are those to connections that began outside:
//! of the service to an agent server, and of clients to a published port.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::packet_filter::{CHAIN, PacketFilter, with_rule};

const INPUT: &str = "INPUT";

/// What containers of a network reach beside replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReachablePorts {
    /// The forward proxy.
    pub(crate) proxy: Option<SocketAddr>,
    /// The ports of this machine at which sandboxes reach the service.
    pub(crate) services: BTreeSet<u16>,
}

impl PacketFilter<'_> {
    /// Lets containers of this bridge reach these ports only. Replaces all rules of the chain at once. The error is for a person.
    pub(crate) async fn confine(
        &self,
        bridge: &str,
        reachable: &ReachablePorts,
    ) -> Result<(), String> {
        self.check_chain().await?;
        self.restore(&rules(bridge, reachable)).await?;
        for jump in jumps(bridge) {
            // An older rule of an administrator must not come first.
            if !self.succeeds(&with_rule("-C", &jump)).await? {
                self.run(&with_rule("-I", &jump)).await?;
            }
        }
        Ok(())
    }

    /// Removes the rules. Idempotent.
    pub(crate) async fn release(&self, bridge: &str) -> Result<(), String> {
        if !self.succeeds(&["-S", bridge]).await? {
            return Ok(());
        }
        for jump in jumps(bridge) {
            while self.succeeds(&with_rule("-C", &jump)).await? {
                self.run(&with_rule("-D", &jump)).await?;
            }
        }
        self.run(&["-F", bridge]).await?;
        self.run(&["-X", bridge]).await
    }
}

/// The jumps to the chain, which has the name of the bridge.
fn jumps(bridge: &str) -> [Vec<String>; 2] {
    [CHAIN, INPUT].map(|chain| {
        let rule = [chain, "-i", bridge, "-j", bridge];
        rule.map(str::to_owned).into()
    })
}

/// The input of `iptables-restore --noflush`: it empties this chain and no other one.
fn rules(bridge: &str, reachable: &ReachablePorts) -> String {
    let mut lines = vec![
        "*filter".to_owned(),
        format!(":{bridge} - [0:0]"),
        // Not those of connections that a container began under another policy.
        format!("-A {bridge} -m conntrack --ctstate RELATED,ESTABLISHED --ctdir REPLY -j RETURN"),
    ];
    if let Some(proxy) = reachable.proxy
        && let IpAddr::V4(address) = proxy.ip()
    {
        let port = proxy.port();
        lines.push(format!(
            "-A {bridge} -d {address}/32 -p tcp -m tcp --dport {port} -j RETURN"
        ));
    }
    for port in &reachable.services {
        lines.push(format!(
            "-A {bridge} -p tcp -m addrtype --dst-type LOCAL -m tcp --dport {port} -j RETURN"
        ));
    }
    lines.push(format!(
        "-A {bridge} -p tcp -j REJECT --reject-with tcp-reset"
    ));
    lines.push(format!("-A {bridge} -j REJECT"));
    lines.push("COMMIT\n".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_else_is_rejected_last() {
        let proxy = Some("172.20.0.1:13128".parse().unwrap());
        let all = rules(
            "aw-1",
            &ReachablePorts {
                proxy,
                services: BTreeSet::from([3000]),
            },
        );
        let all: Vec<_> = all.lines().collect();
        assert_eq!(all.len(), 8, "{all:?}");
        assert!(all[3].contains("-d 172.20.0.1/32") && all[3].contains("--dport 13128 -j RETURN"));
        assert!(all[4].contains("--dst-type LOCAL") && all[4].contains("--dport 3000 -j RETURN"));
        assert_eq!(all[6..], ["-A aw-1 -j REJECT", "COMMIT"]);
        let none = rules(
            "aw-1",
            &ReachablePorts {
                proxy: None,
                services: BTreeSet::new(),
            },
        );
        assert_eq!(none.matches("RETURN").count(), 1, "{none}");
    }
}
