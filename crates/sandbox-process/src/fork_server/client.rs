//! The client of a fork server: the launcher connects, and init hands over what the agent server needs.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use serde::{Deserialize, Serialize};

/// A fork and the walls take some 0.1 s; many starts at once share the processors.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The server says in a few words what failed.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// What the agent server becomes. It contains keys: never log it.
#[derive(Serialize)]
pub(crate) struct ForkRequest {
    /// The arguments of Python.
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// The working directory.
    pub(crate) directory: PathBuf,
    /// The user and group id in the user namespace of init.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// A variable that `/proc/<pid>/environ` shows instead of the environment.
    pub(crate) marker: String,
    /// Files of the cgroups into which the process enters by writing to them (`cgroup.procs`).
    pub(crate) cgroups: Vec<PathBuf>,
}

/// The walls that init has raised on itself after it has become the sandbox's user, as the new process raises them.
#[derive(Default)]
pub(crate) struct ForkWalls<'fd> {
    pub(crate) landlock: Option<BorrowedFd<'fd>>,
    /// A memory file with the filter's instructions.
    pub(crate) seccomp: Option<BorrowedFd<'fd>>,
}

#[derive(Serialize)]
struct ForkMessage<'request> {
    #[serde(flatten)]
    request: &'request ForkRequest,
    /// The names of the descriptors that come with the message.
    fds: Vec<&'static str>,
}

/// One of both is set.
#[derive(Deserialize)]
struct ForkResponse {
    pid: Option<i32>,
    error: Option<String>,
}

/// Connects to the fork server. The launcher does this, because the socket does not exist in the sandbox.
pub(crate) fn open_connection(socket: &Path) -> io::Result<OwnedFd> {
    let connection = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    connect(&connection, &SocketAddrUnix::new(socket)?)?;
    Ok(connection)
}

/// Makes the fork server create the agent server as a child of this process, the init of its PID namespace, in its other
/// namespaces, with its limits, output and error output. `WouldBlock` (no response in time) and `InvalidData` leave open
/// whether it will exist; after each other error it will not.
pub(crate) fn fork_agent(
    connection: &OwnedFd,
    request: &ForkRequest,
    walls: &ForkWalls<'_>,
) -> io::Result<Pid> {
    let init = pidfd_open(getpid(), PidfdFlags::empty())?;
    let (output, errors) = (io::stdout(), io::stderr());
    let always = [
        ("init", init.as_fd()),
        ("output", output.as_fd()),
        ("errors", errors.as_fd()),
    ];
    let optional = [("landlock", walls.landlock), ("seccomp", walls.seccomp)];
    let optional = optional
        .iter()
        .filter_map(|(name, fd)| Some((*name, (*fd)?)));
    let (names, fds): (Vec<_>, Vec<_>) = always.into_iter().chain(optional).unzip();
    let message = serde_json::to_vec(&ForkMessage {
        request,
        fds: names,
    })?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let parts = [IoSlice::new(&message)];
    sendmsg(connection, &parts, &mut control, SendFlags::NOSIGNAL)?;
    set_socket_timeout(connection, Timeout::Recv, Some(RESPONSE_TIMEOUT))?;
    let mut buffer = vec![0; MAX_RESPONSE_BYTES];
    let (bytes, _) = recv(connection, &mut buffer, RecvFlags::empty())?;
    if bytes == 0 {
        return Err(io::Error::other("the fork server closed the connection"));
    }
    let response: ForkResponse = serde_json::from_slice(buffer.get(..bytes).unwrap_or_default())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    match (response.pid.and_then(Pid::from_raw), response.error) {
        (Some(pid), _) => Ok(pid),
        (None, Some(error)) => Err(io::Error::other(error)),
        (None, None) => Err(io::ErrorKind::InvalidData.into()),
    }
}
