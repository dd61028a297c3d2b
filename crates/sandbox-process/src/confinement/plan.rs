//! What the service passes to the launcher and init of a confined sandbox.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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

/// Where a process without any other network reaches the service ([`Confinement::callbacks`](crate::Confinement::callbacks)).
pub const SERVICE_ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(CALLBACK_ADDRESS), CALLBACK_PORT);

/// The port at [`CALLBACK_ADDRESS`] of the service's forward proxy. It never changes, because it is in the environment of
/// programs that outlive the service.
pub(crate) const PROXY_PORT: u16 = 26_228;

/// Where programs find the workspace, as in containers. Each sandbox has it at a path of its own as well.
pub(crate) const WORKSPACE: &str = "/workspace";

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
    /// Whether it ends when the service does. Sandboxes outlive the service; probes do not.
    pub(crate) ends_with_service: bool,
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
    /// The directory that is also [`WORKSPACE`] inside, if the sandbox has one.
    pub(crate) workspace: Option<PathBuf>,
    /// The working directory of the agent server.
    pub(crate) working_dir: PathBuf,
}

/// What a sandbox reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// Public addresses and listed networks: not this machine, and not private networks.
    #[default]
    Open,
    /// Only itself, the service, and what the service's forward proxy allows.
    Proxy,
    /// Only itself and the service.
    None,
}

impl NetworkPolicy {
    /// The variable in the environment of a sandbox's main process that records its network. The sandbox cannot change it.
    pub(crate) const VARIABLE: &str = "AGENT_WORKSPACE_NETWORK";

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Proxy => "proxy",
            Self::None => "none",
        }
    }

    /// The network that the variable records. Earlier releases recorded none.
    pub(crate) fn recorded(value: Option<&str>) -> Self {
        let all = [Self::Proxy, Self::None];
        let found = all.into_iter().find(|policy| value == Some(policy.name()));
        found.unwrap_or(Self::Open)
    }
}
