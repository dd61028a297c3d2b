//! What the service passes to the launcher and init of a confined sandbox.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::confinement::walls::WallPlan;

/// The address inside a sandbox at which init hands a listening socket to the service: the callbacks of the agent server
/// arrive there. Not 127.0.0.1, whose ports belong to the agent.
pub(crate) const CALLBACK_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The port at [`CALLBACK_ADDRESS`]: below the ephemeral ports, and of no known service. It never changes, so that the
/// agent server's URL stays valid when the service listens on another port.
pub(crate) const CALLBACK_PORT: u16 = 26_229;

/// A confined sandbox. It contains no secret: these are in the environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfinementPlan {
    /// The program `bwrap`.
    pub(crate) bubblewrap: PathBuf,
    /// The program `slirp4netns`. `None`: the sandbox has no network.
    pub(crate) slirp4netns: Option<PathBuf>,
    /// Private networks and addresses of the machine that the sandbox reaches.
    pub(crate) reachable_networks: Vec<Ipv4Net>,
    /// The path of the control socket, which only the service reaches.
    pub(crate) control_socket: PathBuf,
    /// The port of the agent server. It is reserved on the machine as long as the sandbox lives, so that the URLs of
    /// sandboxes differ.
    pub(crate) port: u16,
    /// The user and group id on the machine that own the sandbox's files. `None`: the service's own account.
    pub(crate) account_id: Option<u32>,
    pub(crate) files: FileView,
    pub(crate) walls: WallPlan,
    /// The files through which the sandbox joins its cgroups.
    pub(crate) cgroups: Vec<PathBuf>,
    /// The socket of the fork server, if one may create the agent server.
    pub(crate) fork_server: Option<PathBuf>,
    /// Program and arguments of the agent server.
    pub(crate) command: Vec<OsString>,
}

/// The files that a sandbox sees apart from the system's, under the same paths as outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileView {
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) writable: Vec<PathBuf>,
    /// The directory that is `/tmp` inside.
    pub(crate) tmp: PathBuf,
    /// The working directory of the agent server.
    pub(crate) working_dir: PathBuf,
}

/// What a sandbox reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// Public addresses and listed networks: not this machine, and not private networks.
    #[default]
    Open,
    /// Only itself and the service.
    None,
}
