//! Starts the agent server in init, behind the walls: by the fork server, or by its command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::Pid;

use crate::confinement::descriptors::memory_file;
use crate::confinement::init_plan::{ForkPlan, InitPlan};
use crate::confinement::view::{ALLOCATOR_VARIABLE, INNER_ID};
use crate::confinement::walls::{self, WallPlan};
use crate::fork_server::client::{self, ForkRequest, ForkWalls};
use crate::processes::marker;

/// The connection to the fork server, and the walls that the forked process raises.
pub(super) struct ForkConnection {
    connection: OwnedFd,
    landlock: Option<OwnedFd>,
    seccomp: OwnedFd,
}

impl ForkConnection {
    /// Call it before the walls are raised, under the sandbox's final ids.
    pub(super) fn new(connection: OwnedFd, walls: &WallPlan) -> io::Result<Self> {
        let filter = walls::seccomp_filter().map_err(io::Error::other)?;
        Ok(Self {
            connection,
            landlock: walls::landlock_ruleset(walls)?,
            seccomp: memory_file("seccomp", &filter)?,
        })
    }

    /// `None`: the fork server refused.
    fn start(&self, plan: &InitPlan, fork: &ForkPlan) -> io::Result<Option<Pid>> {
        let arguments = plan.command.iter().skip(1);
        let environment = own_environment();
        let marker = environment.get(marker::VARIABLE).cloned();
        let marker = marker.unwrap_or_default();
        let request = ForkRequest {
            arguments: arguments
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            environment,
            directory: fork.directory.clone(),
            uid: INNER_ID,
            gid: INNER_ID,
            marker: format!("{}={marker}", marker::VARIABLE),
            cgroups: fork.cgroups.clone(),
        };
        let walls = ForkWalls {
            landlock: self.landlock.as_ref().map(OwnedFd::as_fd),
            seccomp: Some(self.seccomp.as_fd()),
        };
        match client::fork_agent(&self.connection, &request, &walls) {
            Ok(pid) => Ok(Some(pid)),
            // A second agent server would take the first one's port.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::InvalidData
                ) =>
            {
                let cause =
                    format!("the fork server did not respond: {error}; start the sandbox again");
                Err(io::Error::other(cause))
            }
            Err(error) => {
                // The log of the sandbox has this line; the service restarts a fork server that has ended.
                let _ = writeln!(
                    io::stderr(),
                    "the fork server refused, so the agent server boots more slowly: {error}"
                );
                Ok(None)
            }
        }
    }
}

/// The sandbox's environment, which init has from the service through the launcher.
fn own_environment() -> BTreeMap<String, String> {
    let text = |value: OsString| value.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .filter(|(name, _)| name != ALLOCATOR_VARIABLE)
        .collect()
}

/// Starts the agent server.
pub(super) fn start(plan: &InitPlan, fork_server: Option<&ForkConnection>) -> io::Result<Pid> {
    if let (Some(connection), Some(fork)) = (fork_server, &plan.fork)
        && let Some(pid) = connection.start(plan, fork)?
    {
        return Ok(pid);
    }
    if fork_server.is_some() {
        walls::restrict_files(&plan.walls)?;
    }
    let (program, arguments) = plan
        .command
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    let child = Command::new(program)
        .args(arguments)
        .env_remove(ALLOCATOR_VARIABLE)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("invalid pid"))
}
