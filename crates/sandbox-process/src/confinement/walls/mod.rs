//! The walls around a sandbox, apart from its namespaces.
//!
//! | wall | holds | module |
//! |---|---|---|
//! | seccomp | system calls with which sandboxes were left, and those no agent needs | [`seccomp`] |
//! | Landlock | paths, again; abstract unix sockets and signals, again | [`landlock`] |
//! | capabilities | everything that root may do | [`capabilities`] |
//! | rlimits | open files, processes, the size of a file; memory of a process | [`limits`] |
//! | cgroups | memory, processes and processor time of the whole sandbox | [`cgroups`] |
//!
//! [`probe`] shows that each of them holds on this machine.

pub(crate) mod attempts;
pub(crate) mod capabilities;
pub(crate) mod cgroups;
pub(crate) mod landlock;
pub(crate) mod limits;
mod namespace_refusal;
pub(crate) mod probe;
pub(crate) mod seccomp;

use std::io;
use std::path::PathBuf;

use rustix::thread::set_no_new_privs;
use serde::{Deserialize, Serialize};

pub(crate) use cgroups::{Cgroup, CgroupParent};
pub(crate) use landlock::landlock_ruleset;
pub use limits::ProcessLimits;
pub(crate) use probe::probe;
pub(crate) use seccomp::seccomp_filter;

/// What a sandbox's init needs to raise the walls on itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WallPlan {
    /// Files and directories that the sandbox may read and execute, as it sees them.
    pub(crate) readable: Vec<PathBuf>,
    /// Files and directories that it may also change: its workspace, HOME and `/tmp`, and `/dev`, `/proc` and `/run`, whose
    /// files have owners.
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) limits: ProcessLimits,
    /// Whether a cgroup limits the memory of the whole sandbox.
    pub(crate) has_memory_cgroup: bool,
}

/// Raises all walls on the calling process, which must have one thread, in the sandbox's namespaces and under its final ids;
/// all that it creates inherits them. From here on the process can neither create a namespace nor change a mount.
///
/// The seccomp filter is part of it. `bwrap --seccomp` would come too early for an init that creates its user namespace itself.
pub(crate) fn raise(plan: &WallPlan) -> io::Result<()> {
    raise_limits(plan)?;
    landlock::restrict(plan)?;
    seccomp::install()
}

/// The same for an init whose agent server is forked under a Landlock ruleset of its own: under Landlock, init could not signal
/// it.
pub(crate) fn raise_without_landlock(plan: &WallPlan) -> io::Result<()> {
    raise_limits(plan)?;
    seccomp::install()
}

/// Completes [`raise_without_landlock`] when no agent server was forked.
pub(crate) fn restrict_files(plan: &WallPlan) -> io::Result<()> {
    landlock::restrict(plan).map(drop)
}

fn raise_limits(plan: &WallPlan) -> io::Result<()> {
    limits::set(&plan.limits, plan.has_memory_cgroup)?;
    capabilities::drop_all()?;
    set_no_new_privs(true)?;
    Ok(())
}
