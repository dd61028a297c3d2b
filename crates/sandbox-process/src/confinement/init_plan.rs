//! What the launcher tells process 1 of a sandbox.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::confinement::walls::WallPlan;

/// What the launcher hands to init in a memory file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InitPlan {
    /// Whether slirp4netns makes a network.
    pub(crate) has_network: bool,
    /// The machine's addresses.
    pub(crate) own_addresses: Vec<Ipv4Addr>,
    /// Private networks that the sandbox reaches.
    pub(crate) reachable_networks: Vec<Ipv4Net>,
    /// The user and group id on the machine. `None`: the one of the service, as which init already runs.
    pub(crate) account_id: Option<u32>,
    pub(crate) walls: WallPlan,
    /// If the launcher is connected to a fork server.
    pub(crate) fork: Option<ForkPlan>,
    /// Program and arguments of the agent server.
    pub(crate) command: Vec<OsString>,
}

/// What a fork server needs apart from what init knows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ForkPlan {
    /// The working directory of the agent server.
    pub(crate) directory: PathBuf,
    /// The files through which it joins the sandbox's cgroups.
    pub(crate) cgroups: Vec<PathBuf>,
}
