//! What the machine must have for confined sandboxes. Each error names the remedy.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::PathBuf;

use crate::confinement::Confinement;
use crate::confinement::plan::NetworkPolicy;
use crate::lifecycle::start::find_program;

/// How an operator who accepts the risk goes on.
const ALTERNATIVE: &str = "or run sandboxes in containers (WORKSPACE_SANDBOX__BACKEND=docker), or without any isolation \
                           (WORKSPACE_PROCESS__ISOLATION=none)";

#[derive(Debug)]
pub(crate) struct ConfinementPrograms {
    pub(crate) bubblewrap: PathBuf,
    pub(crate) slirp4netns: Option<PathBuf>,
}

/// Finds the programs. Blocks.
pub(crate) fn programs(confinement: &Confinement) -> Result<ConfinementPrograms, String> {
    let find = |program: &str, package: &str| {
        find_program(OsStr::new(program), &confinement.search_path).map_err(|_| {
            format!(
                "sandboxes cannot be confined: the program `{program}` is not on the service's PATH. Install the package \
                 `{package}`, {ALTERNATIVE}"
            )
        })
    };
    Ok(ConfinementPrograms {
        bubblewrap: find("bwrap", "bubblewrap")?,
        slirp4netns: match confinement.network {
            NetworkPolicy::Open => Some(find("slirp4netns", "slirp4netns")?),
            NetworkPolicy::None => None,
        },
    })
}

/// Checks the machine, without starting anything. Blocks.
pub(crate) fn check(confinement: &Confinement) -> Result<(), String> {
    let programs = programs(confinement)?;
    let refused = |cause: &str, remedy: &str| {
        Err(format!(
            "sandboxes cannot be confined: {cause}. {remedy}, {ALTERNATIVE}"
        ))
    };
    if programs.slirp4netns.is_some()
        && let Err(error) = File::options().read(true).write(true).open("/dev/net/tun")
    {
        let cause = format!("the service cannot open /dev/net/tun ({})", error.kind());
        let remedy = "Load the module (`modprobe tun`) and run `chmod 0666 /dev/net/tun` as root; in a container, add the \
                      device";
        return refused(&cause, remedy);
    }
    if sysctl("user/max_user_namespaces") == Some(0) {
        let remedy = "Run `sysctl -w user.max_user_namespaces=15000` as root";
        return refused("user.max_user_namespaces is 0", remedy);
    }
    if sysctl("kernel/unprivileged_userns_clone") == Some(0) {
        let remedy = "Run `sysctl -w kernel.unprivileged_userns_clone=1` as root";
        return refused("kernel.unprivileged_userns_clone is 0", remedy);
    }
    Ok(())
}

fn sysctl(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}
