//! What the process backend is told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use domain::id::HostId;
use secrecy::SecretString;

use crate::launcher::Launcher;
use crate::layout;
use crate::provision::Provisioner;

/// Where the agent server comes from.
#[derive(Debug, Clone)]
pub enum AgentServerSource {
    /// The operator's own command, to which `--host` and `--port` are appended. No secrets here: everybody may read it.
    Command(Vec<OsString>),
    /// Installed by the service on first use.
    Provision(Provisioner),
}

/// Configuration of [`ProcessSandboxes`](crate::ProcessSandboxes).
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// The service's data directory; sandboxes live in `sandboxes/<id>` in it.
    pub data_dir: PathBuf,
    /// A short path for sockets (tmux) and temporary files, one folder per sandbox in it. Made with mode 0700; refused
    /// if it exists and is somebody else's.
    pub runtime_dir: PathBuf,
    /// Which installation this is: processes carry it, so that two services on one machine leave each other's alone.
    pub instance: HostId,
    /// What runs in a sandbox.
    pub agent_server: AgentServerSource,
    /// How a sandbox gets a session of its own.
    pub launcher: Launcher,
    /// `PATH` inside sandboxes (the agent server's own folder is put in front).
    pub path: String,
    /// Further variables for every sandbox. They never replace what the service itself sets.
    pub extra_env: BTreeMap<String, SecretString>,
    /// How long a stopped agent server may take to deliver its last events.
    pub grace: Duration,
    /// How long killed processes may take to be gone.
    pub kill_limit: Duration,
    /// How long an operation may wait for others on the same sandbox.
    pub queue_limit: Duration,
    /// How long a start may wait for its turn. Those of a burst wait for each other, and on a busy machine each may take as
    /// long as a boot may take.
    pub turn_limit: Duration,
    /// How long a start counts as one of `parallel_starts` when the agent server does not answer.
    pub boot_limit: Duration,
    /// Starts at the same time. Each costs some seconds of processor time, so more only makes all of them late.
    pub parallel_starts: usize,
    /// A log file that is larger than this is cut to its end.
    pub log_bytes: u64,
    /// How long a sandbox may be RUNNING unused before it is paused.
    pub idle_stop: Option<Duration>,
    /// How long a sandbox may exist before it is deleted.
    pub lifetime: Option<Duration>,
}

impl ProcessConfig {
    /// The defaults for an installation in `data_dir`. Sockets go to `run` in it where that path is short enough, else to
    /// `/tmp/agent-workspace-<uid>`.
    pub fn new(
        data_dir: impl Into<PathBuf>,
        instance: HostId,
        agent_server: AgentServerSource,
    ) -> Self {
        let data_dir = data_dir.into();
        let near = data_dir.join("run");
        let runtime_dir = if layout::fits(&near) {
            near
        } else {
            let uid = rustix::process::geteuid().as_raw();
            PathBuf::from(format!("/tmp/agent-workspace-{uid}"))
        };
        Self {
            data_dir,
            runtime_dir,
            instance,
            agent_server,
            launcher: Launcher::default(),
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            extra_env: BTreeMap::new(),
            grace: Duration::from_secs(10),
            kill_limit: Duration::from_secs(10),
            queue_limit: Duration::from_secs(120),
            turn_limit: Duration::from_secs(60 * 60),
            boot_limit: Duration::from_secs(60),
            parallel_starts: 2,
            log_bytes: 20 * 1024 * 1024,
            idle_stop: None,
            lifetime: None,
        }
    }
}
