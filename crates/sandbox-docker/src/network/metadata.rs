//! Blocks the cloud's metadata addresses for sandboxes with the host's packet filter.

use std::path::Path;

use super::packet_filter::{CHAIN, HOST, PacketFilter, with_rule};

/// Credentials of the machine (AWS, Google, Azure and compatible clouds), and of its tasks (ECS, unless the host redirects
/// the address before the filter).
const ADDRESSES: [&str; 2] = ["169.254.169.254/32", "169.254.170.2/32"];

/// Blocks the addresses for this bridge. The error is for a person.
pub(crate) async fn block(bridge: &str, instance: &str) -> Result<(), String> {
    // A bridge that does not exist here is in another network namespace (a rootless or remote engine, a service in a
    // container): rules set here would have no effect.
    if !Path::new("/sys/class/net").join(bridge).exists() {
        return Err("the bridge of the sandboxes' network is not on this host".to_owned());
    }
    HOST.block(bridge, instance).await
}

impl PacketFilter<'_> {
    async fn block(&self, bridge: &str, instance: &str) -> Result<(), String> {
        self.check_chain().await?;
        for address in ADDRESSES {
            let rule = rule(bridge, instance, address);
            if !self.succeeds(&with_rule("-C", &rule)).await? {
                self.run(&with_rule("-I", &rule)).await?;
            }
        }
        Ok(())
    }

    /// Removes the rules. Idempotent.
    pub(crate) async fn unblock(&self, bridge: &str, instance: &str) -> Result<(), String> {
        for address in ADDRESSES {
            let rule = rule(bridge, instance, address);
            while self.succeeds(&with_rule("-C", &rule)).await? {
                self.run(&with_rule("-D", &rule)).await?;
            }
        }
        Ok(())
    }
}

/// Reject rather than drop, so that requests fail at once. Only TCP, which serves credentials, and not port 53: on one
/// cloud the address is also the machine's resolver.
fn rule(bridge: &str, instance: &str, address: &str) -> Vec<String> {
    let comment = format!("agent-workspace {instance}: no metadata");
    let matches = [
        CHAIN, "-i", bridge, "-d", address, "-p", "tcp", "!", "--dport", "53",
    ];
    let rule = ["-m", "comment", "--comment", &comment, "-j", "REJECT"];
    let words = matches.iter().chain(&rule);
    words.map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::super::packet_filter::{MAX_ATTEMPTS, NO_CHAIN};
    use super::*;

    /// A fake `iptables` with the cases of a shell script over its arguments; `$n` is the number of the run. Without a
    /// matching case, checks fail and other commands succeed. `succeeded` records the successful commands.
    struct FakeIptables(TempDir);

    impl FakeIptables {
        fn new(cases: &str) -> Self {
            let folder = TempDir::new().unwrap();
            let program = folder.path().join("iptables");
            let home = folder.path().display();
            let script = format!(
                "#!/bin/sh\nshift 2; cd {home}; echo >> runs; n=$(wc -l < runs)\ncase \"$*\" in\n{cases}\n\
                 -C*) exit 1;;\nesac\necho \"$*\" >> succeeded\n"
            );
            fs::write(&program, script).unwrap();
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
            Self(folder)
        }

        async fn block(&self) -> Result<(), String> {
            let path = format!("{}:/usr/bin:/bin", self.0.path().display());
            PacketFilter { path: &path }.block("aw-here", "here").await
        }

        /// The number of successful commands.
        fn rules(&self) -> usize {
            let succeeded = fs::read_to_string(self.0.path().join("succeeded")).unwrap_or_default();
            succeeded
                .lines()
                .filter(|command| command.starts_with("-I"))
                .count()
        }
    }

    #[tokio::test]
    async fn a_bridge_of_another_host_cannot_be_blocked() {
        let cause = block("aw-nowhere", "here").await.unwrap_err();
        assert!(cause.contains("is not on this host"), "{cause}");
    }

    #[tokio::test]
    async fn blocking_waits_until_the_engine_restores_its_jump() {
        let fake = FakeIptables::new("'-C FORWARD'*) test $n -ge 5; exit $?;;");
        fake.block().await.unwrap();
        assert_eq!(fake.rules(), 2);
    }

    #[tokio::test]
    async fn a_missing_chain_fails_at_once_and_a_missing_jump_after_retries() {
        for (cases, runs) in [("-S*) exit 1;;", 2), ("", 2 * MAX_ATTEMPTS as usize)] {
            let fake = FakeIptables::new(cases);
            assert_eq!(fake.block().await.unwrap_err(), NO_CHAIN);
            let runs_made = fs::read_to_string(fake.0.path().join("runs")).unwrap();
            assert_eq!(
                (runs_made.lines().count(), fake.rules()),
                (runs, 0),
                "{cases}"
            );
        }
    }

    #[tokio::test]
    async fn a_busy_lock_is_retried_once_and_a_denied_permission_is_not() {
        let jump = "'-C FORWARD'*) exit 0;;";
        let fake = FakeIptables::new(&format!("{jump}\n-I*) test $n -ne 3 || exit 4;;"));
        fake.block().await.unwrap();
        assert_eq!(fake.rules(), 2);

        let fake = FakeIptables::new(&format!("{jump}\n-I*) echo no >&2; exit 4;;"));
        assert_eq!(fake.block().await.unwrap_err(), "no");
        let fake = FakeIptables::new("-C*) echo Permission denied >&2; test $n -gt 1 || exit 4;;");
        assert_eq!(fake.block().await.unwrap_err(), "Permission denied");
    }
}
