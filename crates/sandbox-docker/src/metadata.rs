//! The cloud's metadata addresses, kept from sandboxes by the host's packet filter.
//!
//! Knows: `iptables`, and that Docker passes what containers send through its chain `DOCKER-USER`, which is there for
//! rules like ours.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use domain::crash_point;
use tokio::process::Command;

/// Credentials of the machine (AWS, Google, Azure and those who do as they do), and of its tasks (ECS, where the host does not
/// redirect the address to a program of its own before the filter sees it).
const ADDRESSES: [&str; 2] = ["169.254.169.254/32", "169.254.170.2/32"];
/// Docker's chain for rules of others.
const CHAIN: &str = "DOCKER-USER";
const NO_CHAIN: &str = "the engine does not use the packet filter's chain DOCKER-USER here";
/// How long one run may take, waiting for the filter's lock (`-w`) included.
const LIMIT: Duration = Duration::from_secs(10);
const LOCK_SECONDS: &str = "5";
/// A service's own search path often leaves the administrator's programs out.
const PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";

/// Whether rules could be set here, as far as that can be known before there is a bridge.
pub(crate) async fn outlook() -> Result<(), String> {
    if is_there(&["-C", "FORWARD", "-j", CHAIN]).await? {
        return Ok(());
    }
    Err(NO_CHAIN.to_owned())
}

/// Makes sure that nothing from this bridge reaches the addresses. The error is for a person.
pub(crate) async fn block(bridge: &str, instance: &str) -> Result<(), String> {
    // A bridge that is not here is in another network (a rootless or remote engine, a service inside a container): rules
    // made here would look right and do nothing.
    if !Path::new("/sys/class/net").join(bridge).exists() {
        return Err("the engine's network is not this host's".to_owned());
    }
    outlook().await?;
    for address in ADDRESSES {
        let rule = rule(bridge, instance, address);
        if !is_there(&with("-C", &rule)).await? {
            run(&with("-I", &rule)).await?;
        }
    }
    Ok(())
}

/// Takes our rules away again. Idempotent.
pub(crate) async fn unblock(bridge: &str, instance: &str) -> Result<(), String> {
    for address in ADDRESSES {
        let rule = rule(bridge, instance, address);
        while is_there(&with("-C", &rule)).await? {
            run(&with("-D", &rule)).await?;
        }
    }
    Ok(())
}

/// Refused rather than dropped, so that a program that asks fails at once. Only TCP, by which credentials are asked for, and
/// not the port of name servers: on one cloud the address is also the machine's resolver.
fn rule(bridge: &str, instance: &str, address: &str) -> Vec<String> {
    let comment = format!("agent-workspace {instance}: no metadata");
    [
        CHAIN,
        "-i",
        bridge,
        "-d",
        address,
        "-p",
        "tcp",
        "!",
        "--dport",
        "53",
        "-m",
        "comment",
        "--comment",
        &comment,
        "-j",
        "REJECT",
    ]
    .map(str::to_owned)
    .into()
}

fn with<'a>(command: &'a str, rule: &'a [String]) -> Vec<&'a str> {
    let rule = rule.iter().map(String::as_str);
    std::iter::once(command).chain(rule).collect()
}

/// Whether a check (`-C`) finds its rule.
async fn is_there(check: &[&str]) -> Result<bool, String> {
    match iptables(check).await? {
        (Some(0), _) => Ok(true),
        // No such rule; no such chain.
        (Some(1 | 2), said) if !is_denied(&said) => Ok(false),
        (_, said) => Err(said),
    }
}

async fn run(command: &[&str]) -> Result<(), String> {
    match iptables(command).await? {
        (Some(0), _) => Ok(()),
        (_, said) => Err(said),
    }
}

fn is_denied(said: &str) -> bool {
    said.contains("ermission denied") || said.contains("not permitted")
}

/// Exit code and what it said, on one line.
async fn iptables(arguments: &[&str]) -> Result<(Option<i32>, String), String> {
    let mut command = Command::new("iptables");
    command
        .args(["-w", LOCK_SECONDS])
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    crash_point::before("running iptables");
    let done = tokio::time::timeout(LIMIT, command.output()).await;
    crash_point::after("running iptables");
    let output = match done {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err("there is no program iptables".to_owned());
        }
        Ok(Err(error)) => return Err(format!("iptables cannot be run: {error}")),
        Err(_) => return Err("iptables did not end in time".to_owned()),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok((output.status.code(), said.chars().take(300).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bridge_of_another_network_is_not_taken_for_blocked() {
        let cause = block("aw-nowhere", "here").await.unwrap_err();
        assert!(cause.contains("not this host's"), "{cause}");
    }
}
