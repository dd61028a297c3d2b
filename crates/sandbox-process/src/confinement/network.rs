//! The user-mode network of a sandbox: slirp4netns, which runs outside.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustix::process::geteuid;
use rustix::thread::UnshareFlags;
use serde::Deserialize;

use crate::confinement::descriptors::{inherit, number, pipe};
use crate::confinement::plan::ConfinementPlan;
use crate::processes::marker;

pub(crate) const SUBCOMMAND: &str = "__network";

/// The interface inside.
pub(crate) const INTERFACE: &str = "tap0";

/// The ends of the pipes to slirp4netns that bubblewrap and init have.
pub(crate) struct NetworkPipes {
    /// Bubblewrap writes init's pid here.
    pub(crate) info: OwnedFd,
    /// Init writes here when bubblewrap has set up the loopback interface, which slirp4netns would also do.
    pub(crate) start: OwnedFd,
    /// Readable when the network works.
    pub(crate) ready: OwnedFd,
    /// Ends when slirp4netns has exited.
    pub(crate) alive: OwnedFd,
    /// slirp4netns exits when no process has this open.
    pub(crate) exit: OwnedFd,
}

impl NetworkPipes {
    /// Spawns the process that becomes slirp4netns when bubblewrap tells it the pid. It also keeps the port from other
    /// sandboxes, because it lives as long as this one and never runs the agent's code.
    pub(crate) fn spawn(slirp4netns: &Path, plan: &ConfinementPlan) -> io::Result<Self> {
        let (info, info_in) = pipe()?;
        let (start, start_in) = pipe()?;
        let (ready, ready_in) = pipe()?;
        let (alive, alive_in) = pipe()?;
        let (exit_out, exit) = pipe()?;
        for fd in [&info, &start, &ready_in, &alive_in, &exit_out] {
            inherit(fd.as_fd())?;
        }
        let mut command = Command::new("/proc/self/exe");
        command.arg(SUBCOMMAND).arg(slirp4netns);
        command.args([&info, &start, &ready_in, &exit_out].map(number));
        // The marker makes it a process of the sandbox, which ends with it.
        command.env_clear();
        command.env(marker::VARIABLE, own_marker()).current_dir("/");
        let log = File::create(plan.control_socket.with_extension("network.log"))?;
        command
            .stdin(reserve(plan.port)?)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self {
            info: info_in,
            start: start_in,
            ready,
            alive,
            exit,
        })
    }
}

/// The marker of the sandbox.
#[expect(
    clippy::disallowed_methods,
    reason = "the launcher has the environment of its sandbox"
)]
fn own_marker() -> OsString {
    std::env::var_os(marker::VARIABLE).unwrap_or_default()
}

/// Reserves the port like the service does while it starts the sandbox (`PortReservation`).
fn reserve(port: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

/// Becomes slirp4netns. Arguments: its program and the descriptors `info`, `start`, `ready` and `exit`. Returns only on failure.
pub(crate) fn main(arguments: &[OsString]) -> io::Error {
    let [program, info, start, ready, exit] = arguments else {
        return io::Error::new(io::ErrorKind::InvalidInput, "expected five arguments");
    };
    let started = read_pid(info).and_then(|pid| reopen(start)?.read_exact(&mut [0]).map(|()| pid));
    let pid = match started {
        Ok(pid) => pid,
        Err(error) => return error,
    };
    if let Err(error) = leave_mounts_of_machine() {
        return error;
    }
    let mut command = Command::new(program);
    command.args([
        "--configure",
        "--mtu=65520",
        "--disable-host-loopback",
        "--enable-sandbox",
        "--enable-seccomp",
    ]);
    command
        .arg("--ready-fd")
        .arg(ready)
        .arg("--exit-fd")
        .arg(exit);
    command.arg(pid.to_string()).arg(INTERFACE).exec()
}

/// As root, enters a mount namespace that shares nothing with the machine. `--enable-sandbox` unmounts the tree that it
/// leaves, and makes only its root private before: on a machine with shared mounts that would unmount them everywhere, for
/// example the file systems of Docker's containers. In the user namespace of another account the kernel prevents it.
fn leave_mounts_of_machine() -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    #[expect(
        deprecated,
        reason = "the successor is `unsafe` for the sake of descriptor tables, which stay as they are"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", private)?)
}

/// The pid of init, as bubblewrap reports it.
fn read_pid(info: &OsString) -> io::Result<i32> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct BubblewrapInfo {
        child_pid: i32,
    }
    let mut text = String::new();
    reopen(info)?.read_to_string(&mut text)?;
    let info: BubblewrapInfo = serde_json::from_str(&text)?;
    Ok(info.child_pid)
}

/// A new descriptor of an inherited pipe, which closes before slirp4netns runs.
fn reopen(number: &OsString) -> io::Result<File> {
    File::open(Path::new("/proc/self/fd").join(number))
}
