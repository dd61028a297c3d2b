//! The host's packet filter.
//!
//! Knows: `iptables`, and Docker's chain `DOCKER-USER` for rules of administrators, which all traffic of containers passes.

use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use domain::crash_point;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Docker's chain for rules of administrators.
pub(super) const CHAIN: &str = "DOCKER-USER";
pub(super) const NO_CHAIN: &str =
    "the engine does not use the chain DOCKER-USER of this host's packet filter";
/// Time for one run, including the wait for the filter's lock (`-w`).
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_SECONDS: &str = "5";
/// The engine removes its jump to the chain and restores it at the front whenever it creates any network (libnetwork's
/// `EnsureJumpRule`). On a busy machine this takes a while.
pub(super) const MAX_ATTEMPTS: u32 = 10;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The exit code of `iptables` when another program modifies the tables or holds their lock.
const XTABLES_BUSY_EXIT_CODE: i32 = 4;
/// The search path of a service often lacks the administrator's programs.
const PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";

pub(crate) struct PacketFilter<'a> {
    pub(super) path: &'a str,
}

/// The host's.
pub(crate) const HOST: PacketFilter<'static> = PacketFilter { path: PATH };

impl PacketFilter<'_> {
    /// Whether rules can be set here, as far as that is known without a bridge.
    pub(crate) async fn check_chain(&self) -> Result<(), String> {
        for _ in 0..MAX_ATTEMPTS {
            if self.succeeds(&["-C", "FORWARD", "-j", CHAIN]).await? {
                return Ok(());
            }
            // An engine that does not use the filter creates no chain either.
            if !self.succeeds(&["-S", CHAIN]).await? {
                break;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        Err(NO_CHAIN.to_owned())
    }

    /// Whether a check (`-C`, `-S`) succeeds.
    pub(super) async fn succeeds(&self, check: &[&str]) -> Result<bool, String> {
        match self.run_with_retry(check).await? {
            (Some(0), _) => Ok(true),
            // No such rule or chain.
            (Some(1 | 2), stderr) if !is_denied(&stderr) => Ok(false),
            (_, stderr) => Err(stderr),
        }
    }

    pub(super) async fn run(&self, command: &[&str]) -> Result<(), String> {
        match self.run_with_retry(command).await? {
            (Some(0), _) => Ok(()),
            (_, stderr) => Err(stderr),
        }
    }

    /// Repeats a command once if another program holds the lock.
    async fn run_with_retry(&self, arguments: &[&str]) -> Result<(Option<i32>, String), String> {
        let (code, stderr) = self.iptables(arguments).await?;
        if code != Some(XTABLES_BUSY_EXIT_CODE) || is_denied(&stderr) {
            return Ok((code, stderr));
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
        self.iptables(arguments).await
    }

    /// Applies rules in the format of `iptables-save`, all or none.
    pub(super) async fn restore(&self, rules: &str) -> Result<(), String> {
        let arguments = ["-w", LOCK_SECONDS, "--noflush"];
        match self.program("iptables-restore", &arguments, rules).await? {
            (Some(0), _) => Ok(()),
            (_, stderr) => Err(stderr),
        }
    }

    /// The exit code, and the output on one line.
    async fn iptables(&self, arguments: &[&str]) -> Result<(Option<i32>, String), String> {
        let arguments = [&["-w", LOCK_SECONDS], arguments].concat();
        self.program("iptables", &arguments, "").await
    }

    async fn program(
        &self,
        name: &str,
        arguments: &[&str],
        input: &str,
    ) -> Result<(Option<i32>, String), String> {
        crash_point::before("running iptables");
        let output =
            tokio::time::timeout(COMMAND_TIMEOUT, self.output(name, arguments, input)).await;
        crash_point::after("running iptables");
        let output = match output {
            Ok(Ok(output)) => output,
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Err(format!("the program {name} is not installed"));
            }
            Ok(Err(error)) => return Err(format!("cannot run {name}: {error}")),
            Err(_) => return Err(format!("{name} did not end within 10 s")),
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok((output.status.code(), stderr.chars().take(300).collect()))
    }

    async fn output(&self, name: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // A program that reads nothing may have ended already.
            let _ = pipe.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    }
}

pub(super) fn with_rule<'a>(command: &'a str, rule: &'a [String]) -> Vec<&'a str> {
    let rule = rule.iter().map(String::as_str);
    std::iter::once(command).chain(rule).collect()
}

fn is_denied(stderr: &str) -> bool {
    stderr.contains("ermission denied") || stderr.contains("not permitted")
}
