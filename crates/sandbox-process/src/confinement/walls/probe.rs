//! Shows that each wall holds on this machine, by a child that tries what the wall forbids.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use domain::id::{HostId, SandboxId};
use rustix::fs::{Access, access};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::attempts::{self, AttemptResult, AttemptTargets, Attempts};
use super::namespace_refusal::KernelSettings;
use super::{Cgroup, CgroupParent};
use crate::confinement::plan::{ConfinementPlan, FileView, NetworkPolicy};
use crate::confinement::{Confinement, ids, launcher_arguments};
use crate::errors::blocking;
use crate::processes::programs::find_program;
use crate::processes::spawn::PortReservation;

const DIRECTORY_PREFIX: &str = "agent-workspace-probe-";
/// A start of a sandbox takes a fraction of a second.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
const TUN: &str = "/dev/net/tun";

/// A wall, and whether it holds on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wall {
    pub(crate) name: &'static str,
    /// Sandboxes are refused without it.
    pub(crate) is_required: bool,
    pub(crate) held: bool,
    /// What was tried, and how it ended.
    pub(crate) detail: String,
    /// What makes it hold; empty if it does.
    pub(crate) remedy: String,
}

impl Wall {
    fn held(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            name,
            is_required: true,
            held: true,
            detail: detail.into(),
            remedy: String::new(),
        }
    }

    fn missing(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            held: false,
            remedy: remedy.into(),
            ..Self::held(name, detail)
        }
    }

    fn optional(self) -> Self {
        Self {
            is_required: false,
            ..self
        }
    }
}

/// Probes all walls. `search_path` is the service's `PATH`, where the tools are; `executable` is the service's program. Without
/// a network, sandboxes need neither slirp4netns nor its device.
pub(crate) async fn probe(
    installation: &HostId,
    search_path: &str,
    network: NetworkPolicy,
    executable: &Path,
) -> Vec<Wall> {
    let tool = |name: &str| find_program(name.as_ref(), search_path).ok();
    let bubblewrap = tool("bwrap");
    let mut walls = vec![tool_wall("bubblewrap", bubblewrap.as_deref())];
    let mut slirp4netns = None;
    if network == NetworkPolicy::Open {
        slirp4netns = tool("slirp4netns");
        walls.push(tool_wall("slirp4netns", slirp4netns.as_deref()));
        walls.push(tun_wall());
    }
    if let (Some(bubblewrap), true) = (bubblewrap, walls.iter().all(|wall| wall.held)) {
        walls.extend(sandbox_walls(bubblewrap, slirp4netns, executable).await);
    }
    walls.extend(cgroup_walls(installation, executable).await);
    walls
}

fn tool_wall(name: &'static str, path: Option<&Path>) -> Wall {
    match path {
        Some(path) => Wall::held(name, path.display().to_string()),
        None => Wall::missing(
            name,
            "is not installed",
            format!("install it (apt-get install {name}, dnf install {name})"),
        ),
    }
}

fn tun_wall() -> Wall {
    let name = "network device";
    match access(TUN, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => Wall::held(name, TUN),
        Err(rustix::io::Errno::NOENT) => Wall::missing(
            name,
            format!("{TUN} does not exist"),
            "load the module (modprobe tun); give a container the device (--device /dev/net/tun)",
        ),
        Err(error) => Wall::missing(
            name,
            format!("{TUN} cannot be used ({error})"),
            format!("chmod 0666 {TUN}"),
        ),
    }
}

/// Starts a sandbox as the service does, with the attempts in the place of the agent server.
async fn sandbox_walls(
    bubblewrap: PathBuf,
    slirp4netns: Option<PathBuf>,
    executable: &Path,
) -> Vec<Wall> {
    let output = match run_sandbox(bubblewrap, slirp4netns, executable).await {
        Ok(output) => output,
        Err(error) => {
            let remedy = "free space in the directory for temporary files, or correct TMPDIR";
            return vec![Wall::missing("sandbox", error.to_string(), remedy)];
        }
    };
    let results = results(&output);
    if results.is_empty() {
        let message = String::from_utf8_lossy(&output.stderr);
        let silent = format!("it printed nothing; {}", output.status);
        let message = message.trim().lines().last().unwrap_or(&silent);
        let cause = KernelSettings::read().explain(message);
        let (detail, remedy) = cause.unwrap_or_else(|| {
            let remedy = "the message names the cause; without one, run sandboxes in Docker";
            (
                "the kernel or a security module refuses it".to_owned(),
                remedy.to_owned(),
            )
        });
        let detail = format!("a confined process does not start: {detail} ({message})");
        return vec![Wall::missing("namespaces", detail, remedy)];
    }
    let walls = attempts::SANDBOX.iter().map(|(name, _)| {
        let result = results.get(*name).cloned();
        let result = result.unwrap_or_else(|| Err("was not tried".to_owned()));
        match result {
            Ok(detail) => Wall::held(name, detail),
            Err(detail) => {
                Wall::missing(name, format!("a confined process {detail}"), remedy(name))
            }
        }
    });
    walls
        .map(|wall| match wall.name {
            // The namespaces hold what it holds.
            "Landlock" => wall.optional(),
            _ => wall,
        })
        .collect()
}

fn remedy(wall: &str) -> &'static str {
    match wall {
        "Landlock" => {
            "use Linux 5.13 or newer with `landlock` in the kernel's parameter lsm= (sandboxes work without it)"
        }
        "processes" => "use Linux 5.14 or newer, which counts processes per user namespace",
        _ => "run sandboxes in Docker, and report this: the kernel does not do what it says",
    }
}

async fn run_sandbox(
    bubblewrap: PathBuf,
    slirp4netns: Option<PathBuf>,
    executable: &Path,
) -> io::Result<Output> {
    let executable = executable.to_owned();
    let prepared = blocking(move || ProbeSandbox::new(bubblewrap, slirp4netns, &executable));
    let sandbox = prepared.await.map_err(io::Error::other)??;
    let mut child = Command::new(&sandbox.executable);
    child.args(launcher_arguments(sandbox.reservation.port));
    let output = run(child, &sandbox.plan).await;
    // Removes the directory.
    blocking(move || drop(sandbox))
        .await
        .map_err(io::Error::other)?;
    output
}

/// A sandbox in which the attempts run, and what they must not reach.
struct ProbeSandbox {
    executable: PathBuf,
    plan: Vec<u8>,
    reservation: PortReservation,
    _listener: TcpListener,
    _directory: TempDir,
}

impl ProbeSandbox {
    fn new(
        bubblewrap: PathBuf,
        slirp4netns: Option<PathBuf>,
        executable: &Path,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        remove_former_directories(&std::env::temp_dir());
        let directory = tempfile::Builder::new()
            .prefix(DIRECTORY_PREFIX)
            .tempdir()?;
        let secret = directory.path().join("service");
        std::fs::write(&secret, "a file of the service")?;
        let tmp = directory.path().join("sandbox");
        std::fs::create_dir(&tmp)?;
        std::fs::set_permissions(&tmp, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let account_id = ids::are_own().then(|| ids::choose("probe", &[]));
        if let Some(account_id) = account_id {
            ids::give(&tmp, account_id)?;
        }
        let targets = AttemptTargets {
            port: listener.local_addr()?.port(),
            file: secret,
            namespaces: attempts::namespaces(),
        };
        let attempts = serde_json::to_string(&Attempts::Sandbox(targets))?;
        let executable = executable.canonicalize()?;
        let reservation = PortReservation::new(None)?;
        let mut command = vec![OsString::from(&executable)];
        command.extend([attempts::SUBCOMMAND.into(), attempts.into()]);
        let files = FileView {
            readable: vec![executable.clone()],
            writable: Vec::new(),
            tmp,
            workspace: None,
            working_dir: "/tmp".into(),
        };
        let plan = ConfinementPlan {
            fork_server: None,
            bubblewrap,
            slirp4netns,
            reachable_networks: Vec::new(),
            control_socket: directory.path().join("control"),
            port: reservation.port,
            account_id,
            walls: confinement().walls(&files, true),
            files,
            cgroups: Vec::new(),
            ends_with_service: true,
            command,
        };
        Ok(Self {
            executable,
            plan: serde_json::to_vec(&plan)?,
            reservation,
            _listener: listener,
            _directory: directory,
        })
    }
}

/// The confinement of a probe, which shows nothing beside the system.
fn confinement() -> Confinement {
    Confinement {
        search_path: String::new(),
        readable_paths: Vec::new(),
        writable_paths: Vec::new(),
        limits: attempts::LIMITS,
        network: NetworkPolicy::Open,
        reachable_networks: Vec::new(),
        callbacks: Arc::default(),
        egress: None,
    }
}

/// Removes what services left that were killed while they probed. A probe of now is younger than its timeout.
fn remove_former_directories(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_probe = entry
            .file_name()
            .to_string_lossy()
            .starts_with(DIRECTORY_PREFIX);
        // Not followed: a link is no directory.
        let Some(metadata) = entry.metadata().ok().filter(|it| is_probe && it.is_dir()) else {
            continue;
        };
        let age = metadata.modified().ok().and_then(|it| it.elapsed().ok());
        if metadata.uid() == own && age.is_some_and(|age| age > 2 * PROBE_TIMEOUT) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Runs a child with an empty environment.
async fn run(mut command: Command, input: &[u8]) -> io::Result<Output> {
    command.env_clear().kill_on_drop(true);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let work = async {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input).await?;
        }
        child.wait_with_output().await
    };
    timeout(PROBE_TIMEOUT, work)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn results(output: &Output) -> BTreeMap<String, AttemptResult> {
    let mut lines = output.stdout.split(|byte| *byte == b'\n');
    lines
        .find_map(|line| serde_json::from_slice(line).ok())
        .unwrap_or_default()
}

/// Lets a child use more than its cgroup has.
async fn cgroup_walls(installation: &HostId, executable: &Path) -> Vec<Wall> {
    const MEMORY: &str = "memory";
    let installation = installation.clone();
    let opened = blocking(move || CgroupParent::open(&installation)).await;
    let parent = match opened.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(parent) => parent,
        Err(cause) => {
            let (detail, remedy) = cause.split_once(": ").unwrap_or((&cause, ""));
            let detail = format!(
                "{detail}. Memory is limited for each process instead of the sandbox, and processor time is not limited"
            );
            return vec![Wall::missing(MEMORY, detail, remedy).optional()];
        }
    };
    let id = SandboxId::parse(format!("probe-{}", std::process::id()));
    let Ok(id) = id else { return Vec::new() };
    let cgroup = parent.cgroup(&id);
    let result = exhaust(&cgroup, executable).await;
    let _ = blocking(move || cgroup.remove()).await;
    let wall = match (result, parent.missing().as_slice()) {
        (Ok(detail), []) => Wall::held(
            MEMORY,
            format!("{detail}; cgroups also limit processes and processor time"),
        ),
        (Ok(detail), missing) => Wall::missing(
            MEMORY,
            format!(
                "{detail}, but there is no cgroup controller for {}",
                missing.join(", ")
            ),
            "enable it on the kernel's command line, or delegate it to the service",
        ),
        (Err(detail), _) => Wall::missing(
            MEMORY,
            detail,
            "run the service as root, or as a systemd unit with Delegate=yes; in a container, give it a writable /sys/fs/cgroup",
        ),
    };
    vec![wall.optional()]
}

async fn exhaust(cgroup: &Cgroup, executable: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot use cgroups ({error})");
    let own = cgroup.clone();
    let created = blocking(move || own.create(&attempts::LIMITS)).await;
    created
        .map_err(|error| failed(io::Error::other(error)))?
        .map_err(failed)?;
    if !cgroup.limits_memory() {
        return Err("no cgroup limits the memory of a sandbox".to_owned());
    }
    let attempts = Attempts::Cgroup(cgroup.members());
    let attempts = serde_json::to_string(&attempts).map_err(|error| failed(error.into()))?;
    let mut child = Command::new(executable);
    child.arg(attempts::SUBCOMMAND).arg(attempts);
    let output = run(child, &[]).await.map_err(failed)?;
    if let Some(Err(detail)) = results(&output).remove("processes") {
        return Err(format!("a process in a cgroup {detail}"));
    }
    match cgroup.memory_kills() {
        0 => Err("a process in a cgroup exceeds its memory".to_owned()),
        _ => Ok("the kernel ends what exceeds the limit".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_old_directories_of_probes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, age: Duration| {
            let path = parent.path().join(name);
            std::fs::create_dir_all(path.join("sandbox")).unwrap();
            let times = FileTimes::new().set_modified(SystemTime::now() - age);
            File::open(&path).unwrap().set_times(times).unwrap();
            path
        };
        let hour = Duration::from_secs(3600);
        let former = make("agent-workspace-probe-former", hour);
        let present = make("agent-workspace-probe-present", Duration::ZERO);
        let other = make("other", hour);
        remove_former_directories(parent.path());
        assert_eq!(
            [former, present, other].map(|it| it.exists()),
            [false, true, true]
        );
    }
}
