//! Processes of sandboxes in `/proc`, found by the marker in their environment or by their container.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memchr::memmem;
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Signal, getrlimit, kill_process, setpriority_process, setrlimit,
};

/// Begins what sandboxes have in place of secrets (docs/explanation/secrets.md).
pub const PLACEHOLDER_PREFIX: &str = "workspace_secret_";

/// Larger areas of memory are not searched.
const MAX_AREA_BYTES: usize = 1 << 30;

/// The variable that marks every process of a sandbox: `<installation>/<sandbox>`.
const MARKER: &str = "AGENT_WORKSPACE_SANDBOX";

/// A living process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// The sandbox.
    pub sandbox: String,
    /// The arguments of its command.
    pub arguments: Vec<String>,
    /// Whether it may be the sandbox's main process: the leader of a session (as is tmux), the first process of a container, or a
    /// child of the first process of a container or of a confined sandbox.
    pub is_main: bool,
    /// Its initial environment, if it can be read.
    pub environment: Vec<(String, String)>,
}

impl Process {
    /// Whether this is the agent server itself, not one of its children.
    #[must_use]
    pub fn is_agent_server(&self) -> bool {
        let has = |word: &str| self.arguments.iter().any(|argument| argument == word);
        self.is_main && has("--port") && has("--host")
    }

    /// Whether its memory, as far as it can be read, contains one of these texts.
    #[must_use]
    pub fn has_in_memory(&self, texts: &[&str]) -> bool {
        let (maps, memory) = (
            format!("/proc/{}/maps", self.pid),
            format!("/proc/{}/mem", self.pid),
        );
        let (Ok(maps), Ok(memory)) = (fs::read_to_string(maps), File::open(memory)) else {
            return false;
        };
        let areas = maps.lines().filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (begin, end) = range.split_once('-')?;
            let begin = u64::from_str_radix(begin, 16).ok()?;
            let end = u64::from_str_radix(end, 16).ok()?;
            rest.starts_with('r').then_some(begin..end)
        });
        areas.into_iter().any(|area| {
            let length = usize::try_from(area.end - area.start).unwrap_or(0);
            // Reserved address space of runtimes, of which little is used, and areas of the kernel.
            if length > MAX_AREA_BYTES || area.start > i64::MAX as u64 {
                return false;
            }
            let mut bytes = vec![0; length];
            let read = memory.read_at(&mut bytes, area.start).unwrap_or(0);
            let found = |text: &&str| memmem::find(&bytes[..read], text.as_bytes()).is_some();
            texts.iter().any(found)
        })
    }

    /// A variable of its environment.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Lowers its priority, and that of its session: with `autogroup`, a nice value counts only within the session. Ignores a
    /// process that has ended.
    pub fn lower_priority(&self, niceness: i32) {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        let _ = setpriority_process(Some(pid), niceness);
        let _ = fs::write(
            format!("/proc/{}/autogroup", self.pid),
            niceness.to_string(),
        );
    }

    /// Sends a signal. Ignores a process that has ended.
    ///
    /// # Panics
    /// Without permission: processes in containers often belong to root.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let sent = kill_process(pid, signal);
            assert_ne!(
                sent,
                Err(Errno::PERM),
                "run the suites as root: {self:?} is another user's"
            );
        }
    }
}

/// All living processes of sandboxes of the service with this data directory, without zombies, which have no environment. A
/// forked agent server shows the marker only.
#[must_use]
pub fn of_sandboxes_in(data: &Path) -> Vec<Process> {
    let Ok(host) = fs::read_to_string(data.join("host.id")) else {
        return Vec::new();
    };
    let host = host.trim();
    pids()
        .into_iter()
        .filter_map(|pid| {
            let environment = environment_of(pid)?;
            let (_, marker) = environment.iter().find(|(name, _)| name == MARKER)?;
            let sandbox = marker.strip_prefix(host)?.strip_prefix('/')?.to_owned();
            Some(Process {
                pid,
                sandbox,
                arguments: nul_separated(&read(pid, "cmdline")?),
                is_main: session(pid) == Some(pid) || has_init_as_parent(pid),
                environment,
            })
        })
        .collect()
}

/// Init programs that engines put into containers.
const INIT_PROGRAMS: [&str; 3] = ["docker-init", "tini", "catatonit"];

/// All living processes in `containers`, which are pairs of a full id and a sandbox.
#[must_use]
pub fn in_containers(containers: &[(String, String)]) -> Vec<Process> {
    let mut found = Vec::new();
    for pid in pids() {
        let Some(cgroups) = read(pid, "cgroup") else {
            continue;
        };
        let cgroups = String::from_utf8_lossy(&cgroups).into_owned();
        let container = containers
            .iter()
            .find(|(id, _)| cgroups.contains(id.as_str()));
        let arguments = read(pid, "cmdline").map(|line| nul_separated(&line));
        // Zombies have no command.
        if let (Some((_, sandbox)), Some(arguments)) = (container, arguments)
            && !arguments.is_empty()
        {
            found.push(Process {
                pid,
                sandbox: sandbox.clone(),
                is_main: is_main_in_container(pid, &arguments),
                arguments,
                environment: environment_of(pid).unwrap_or_default(),
            });
        }
    }
    found
}

/// Whether a process is the first one of its container, except for the init program.
fn is_main_in_container(pid: i32, arguments: &[String]) -> bool {
    let program = arguments
        .first()
        .and_then(|program| program.rsplit('/').next());
    if program.is_some_and(|program| INIT_PROGRAMS.contains(&program)) {
        return false;
    }
    is_pid_one_in_container(pid) || has_init_as_parent(pid)
}

/// Whether its parent is the first process of a container or of a confined sandbox.
fn has_init_as_parent(pid: i32) -> bool {
    let parent = stat(pid).and_then(|fields| fields.get(1)?.parse().ok());
    parent.is_some_and(is_pid_one_in_container)
}

/// Whether its process id in a container or in a confined sandbox is 1.
fn is_pid_one_in_container(pid: i32) -> bool {
    let status = read(pid, "status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_whitespace().rev();
    numbers.next() == Some("1") && numbers.next().is_some()
}

/// Ended children of a process that it has not waited for.
#[must_use]
pub fn zombies_of(parent: u32) -> Vec<i32> {
    let is_zombie = |pid: &i32| {
        let fields = stat(*pid);
        let fields = fields.as_deref().unwrap_or_default();
        fields.first().is_some_and(|state| state == "Z")
            && fields.get(1) == Some(&parent.to_string())
    };
    pids().into_iter().filter(is_zombie).collect()
}

/// The command lines of all processes of the machine.
#[must_use]
pub fn command_lines() -> Vec<String> {
    let lines = pids()
        .into_iter()
        .filter_map(|pid| Some(nul_separated(&read(pid, "cmdline")?).join(" ")));
    lines.collect()
}

/// Commands and environments of git's processes on this machine and of their children.
#[must_use]
pub fn git_and_children() -> Vec<String> {
    let arguments = |pid: i32| nul_separated(&read(pid, "cmdline").unwrap_or_default());
    let is_git = |pid: i32| {
        let arguments = arguments(pid);
        let program = arguments.first().and_then(|it| it.rsplit('/').next());
        program.is_some_and(|program| program.starts_with("git"))
    };
    let parent = |pid: i32| stat(pid)?.get(1)?.parse().ok();
    let pids = pids().into_iter();
    let pids = pids.filter(|pid| is_git(*pid) || parent(*pid).is_some_and(is_git));
    let shown = pids.map(|pid| {
        let environment = nul_separated(&read(pid, "environ").unwrap_or_default());
        [arguments(pid), environment].concat().join(" ")
    });
    shown.collect()
}

/// The processes with an argument that begins with this text, or has it after an equals sign.
#[must_use]
pub fn with_argument(text: &str) -> Vec<i32> {
    let mentions = |pid: &i32| {
        let words = read(*pid, "cmdline")
            .map(|line| nul_separated(&line))
            .unwrap_or_default();
        let mut values = words
            .iter()
            .map(|word| word.rsplit('=').next().unwrap_or(word));
        values.any(|value| value.starts_with(text))
    };
    pids().into_iter().filter(mentions).collect()
}

/// Resident memory of a process in bytes.
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Raises the limit of open files of this process and of the services that it starts.
///
/// # Panics
/// When even the soft limit cannot be raised.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let hard_limit = limit.maximum.map(|maximum| maximum.max(65_536));
    (limit.current, limit.maximum) = (hard_limit, hard_limit);
    if setrlimit(Resource::Nofile, limit).is_err() {
        // Only root may raise the hard one.
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).expect("cannot raise the soft limit of open files");
    }
}

/// The children of a process.
#[must_use]
pub fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    let is_child = |pid: &i32| stat(*pid).is_some_and(|it| it.get(1) == Some(&parent));
    let pids = pids().into_iter().filter(is_child);
    pids.filter_map(|pid| u32::try_from(pid).ok()).collect()
}

/// Processor time that a process has used so far.
#[must_use]
pub fn processor_time(pid: u32) -> Option<Duration> {
    let fields = stat(i32::try_from(pid).ok()?)?;
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // `utime` and `stime`, in hundredths of a second on every Linux.
    Some(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("cannot read /proc");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

fn read(pid: i32, file: &str) -> Option<Vec<u8>> {
    fs::read(PathBuf::from(format!("/proc/{pid}/{file}"))).ok()
}

fn nul_separated(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn environment_of(pid: i32) -> Option<Vec<(String, String)>> {
    let pairs = nul_separated(&read(pid, "environ")?);
    let split = |pair: &String| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Some(pairs.iter().filter_map(split).collect())
}

/// The fields of `/proc/<pid>/stat` after the name: state, parent, group, session, …
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(&read(pid, "stat")?).into_owned();
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn session(pid: i32) -> Option<i32> {
    stat(pid)?.get(3)?.parse().ok()
}
