//! Puts a sandbox behind walls: namespaces, a file system and a network of its own, and no privileges.
//!
//! Knows: bubblewrap, slirp4netns, and the processes between them and the agent server. Must never know: the life cycle of a
//! sandbox.
//!
//! ```text
//! service ── <this binary> __confine PORT   (`launcher`; reads the plan from standard input)
//!              │  spawns <this binary> __network, which becomes slirp4netns
//!              └ becomes bwrap, the main process of the sandbox: it exits with the code of init
//!                  └ <this binary> __init   (`init`; process 1 of the sandbox)
//!                       └ agent server
//! ```

pub(crate) mod agent_files;
mod agent_start;
pub(crate) mod callbacks;
pub(crate) mod control;
mod descriptors;
pub(crate) mod egress;
pub(crate) mod ids;
mod init;
pub(crate) mod init_plan;
mod launcher;
mod network;
pub(crate) mod plan;
mod routes;
mod view;
pub(crate) mod walls;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ipnet::Ipv4Net;
use rustix::fd::OwnedFd;
use sandbox_provider::EgressSlot;

use crate::files::layout::SandboxPaths;
use crate::processes::programs::find_program;
use plan::{ConfinementPlan, FileView, NetworkPolicy, WORKSPACE};
use walls::{Cgroup, ProcessLimits, WallPlan};

/// How the sandboxes of a backend are confined.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The service's `PATH`, where bubblewrap and slirp4netns are.
    pub search_path: String,
    /// Further files and directories that all sandboxes may read.
    pub readable_paths: Vec<PathBuf>,
    /// Directories that all sandboxes may change, as far as their permissions let other users.
    pub writable_paths: Vec<PathBuf>,
    /// Limits of one sandbox.
    pub limits: ProcessLimits,
    /// What sandboxes reach.
    pub network: NetworkPolicy,
    /// Private networks and addresses of the machine that they reach with [`NetworkPolicy::Open`].
    pub reachable_networks: Vec<Ipv4Net>,
    /// The address of the listener for callbacks. Until it is set, callbacks wait.
    pub callbacks: Arc<OnceLock<SocketAddr>>,
    /// The forward proxy. With [`NetworkPolicy::Open`] it is not the only way out.
    pub egress: Option<EgressSlot>,
}

/// What differs between sandboxes.
pub(crate) struct ConfinedLaunch<'a> {
    pub(crate) paths: &'a SandboxPaths,
    pub(crate) port: u16,
    pub(crate) account_id: Option<u32>,
    pub(crate) cgroup: Option<&'a Cgroup>,
    pub(crate) command: Vec<OsString>,
    pub(crate) fork_server: Option<PathBuf>,
    /// The files of trusted certificates.
    pub(crate) certificates: Vec<PathBuf>,
}

impl Confinement {
    /// The standard input of the launcher of a sandbox. Blocks.
    pub(crate) fn plan(&self, launch: ConfinedLaunch<'_>) -> io::Result<OwnedFd> {
        let slirp4netns = match self.network {
            NetworkPolicy::Open => Some(find_program("slirp4netns".as_ref(), &self.search_path)?),
            NetworkPolicy::Proxy | NetworkPolicy::None => None,
        };
        let files = self.files(&launch);
        let cgroup = launch.cgroup;
        let plan = ConfinementPlan {
            bubblewrap: find_program("bwrap".as_ref(), &self.search_path)?,
            slirp4netns,
            reachable_networks: self.reachable_networks.clone(),
            control_socket: launch.paths.control.clone(),
            port: launch.port,
            account_id: launch.account_id,
            walls: self.walls(&files, cgroup.is_some_and(Cgroup::limits_memory)),
            cgroups: cgroup.map(Cgroup::members).unwrap_or_default(),
            files,
            fork_server: launch.fork_server,
            ends_with_service: false,
            command: launch.command,
        };
        descriptors::memory_file("plan", &serde_json::to_vec(&plan)?)
    }

    /// The path that shows all sandboxes this directory of the service. `command` is the agent server's, if the operator
    /// chose it. Blocks.
    pub(crate) fn shown_ancestor(&self, dir: &Path, command: &[OsString]) -> Option<PathBuf> {
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let configured = self.readable_paths.iter().chain(&self.writable_paths);
        let mut shown = view::SYSTEM
            .iter()
            .map(PathBuf::from)
            .chain(configured.cloned())
            .chain(agent_files::of(command));
        shown.find(|path| path.canonicalize().is_ok_and(|path| dir.starts_with(path)))
    }

    fn files(&self, launch: &ConfinedLaunch<'_>) -> FileView {
        let mut readable = self.readable_paths.clone();
        let agent = agent_files::of(&launch.command);
        if launch.account_id.is_some() {
            for path in &agent {
                agent_files::make_readable(path);
            }
        }
        readable.extend(agent);
        readable.extend(launch.certificates.clone());
        let own = launch.paths.writable().into_iter();
        FileView {
            readable,
            writable: own.chain(self.writable_paths.iter().cloned()).collect(),
            tmp: launch.paths.tmp(),
            workspace: Some(launch.paths.workspace()).filter(|_| !self.shows_workspace()),
            working_dir: launch.paths.root.clone(),
        }
    }

    /// Whether the operator's paths are where the workspace would be.
    pub(crate) fn shows_workspace(&self) -> bool {
        let mut configured = self.readable_paths.iter().chain(&self.writable_paths);
        configured.any(|path| path.starts_with(WORKSPACE))
    }

    fn walls(&self, files: &FileView, has_memory_cgroup: bool) -> WallPlan {
        let system = view::SYSTEM
            .iter()
            .chain(&["/etc", "/var"])
            .map(PathBuf::from);
        let dynamic = ["/tmp", "/dev", "/proc", "/run"].map(PathBuf::from);
        let root = [files.working_dir.clone()];
        let workspace = files.workspace.as_ref().map(|_| PathBuf::from(WORKSPACE));
        WallPlan {
            readable: system
                .chain(files.readable.iter().cloned())
                .chain(root)
                .collect(),
            writable: files
                .writable
                .iter()
                .cloned()
                .chain(dynamic)
                .chain(workspace)
                .collect(),
            limits: self.limits,
            has_memory_cgroup,
        }
    }
}

/// The arguments that make the service's binary the launcher of a sandbox. The port identifies the start.
pub(crate) fn launcher_arguments(port: u16) -> [OsString; 2] {
    [launcher::SUBCOMMAND.into(), port.to_string().into()]
}

/// Acts as one of the processes of a confined sandbox if the arguments say so. Returns only on failure.
pub(crate) fn run_helper(arguments: &[OsString]) -> Option<io::Error> {
    let (name, rest) = arguments.split_first()?;
    match name.to_str()? {
        launcher::SUBCOMMAND => Some(launcher::main()),
        network::SUBCOMMAND => Some(network::main(rest)),
        init::SUBCOMMAND => Some(init::main()),
        walls::attempts::SUBCOMMAND => Some(walls::attempts::main(rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_that_sandboxes_would_see_is_found() {
        let readable = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let confinement = Confinement {
            search_path: String::new(),
            readable_paths: vec![readable.path().to_owned()],
            writable_paths: Vec::new(),
            limits: ProcessLimits::default(),
            network: NetworkPolicy::Open,
            reachable_networks: Vec::new(),
            callbacks: Arc::default(),
            egress: None,
        };
        let shown = |dir: &Path| confinement.shown_ancestor(dir, &[]);
        assert_eq!(shown(Path::new("/usr/share")), Some("/usr".into()));
        let inside = readable.path().join("data");
        std::fs::create_dir(&inside).unwrap();
        assert_eq!(shown(&inside), Some(readable.path().to_owned()));
        assert_eq!(shown(outside.path()), None);
        let command = ["/bin/sh".into(), outside.path().into()];
        let data = outside.path().join("data");
        std::fs::create_dir(&data).unwrap();
        assert_eq!(
            confinement.shown_ancestor(&data, &command),
            Some(outside.path().to_owned())
        );
    }
}
