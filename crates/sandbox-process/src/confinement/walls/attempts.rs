//! What the child of a probe tries: each attempt must fail, and names how it failed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::landlock::{self, LandlockLevel};
use super::{ProcessLimits, WallPlan};

pub(crate) const SUBCOMMAND: &str = "__attempt";

/// Limits of the sandbox in which the attempts run: small, so that they are reached quickly. The memory is enough for the
/// threads of the attempts in a program without optimizations.
pub(super) const LIMITS: ProcessLimits = ProcessLimits {
    memory: Some(96 << 20),
    cpus: Some(1.0),
    pids: Some(200),
    open_files: Some(200),
    file_size: Some(4 << 20),
};

/// The host as slirp4netns shows it, if it does.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// What to try, as the only argument.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Attempts {
    /// All that a sandbox must not do.
    Sandbox(AttemptTargets),
    /// Writes a file above the limit, and is killed.
    FileSize,
    /// Joins a cgroup by these files, and uses more processes and memory than it has.
    Cgroup(Vec<PathBuf>),
}

/// What the service has, and a sandbox must not reach.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AttemptTargets {
    /// A port on the machine's loopback address.
    pub(super) port: u16,
    /// A file of the service.
    pub(super) file: PathBuf,
    pub(super) namespaces: BTreeMap<String, PathBuf>,
}

/// How an attempt failed, or what it achieved.
pub(super) type AttemptResult = Result<String, String>;

/// The namespaces of the calling process.
pub(super) fn namespaces() -> BTreeMap<String, PathBuf> {
    let link = |name: &str| fs::read_link(Path::new("/proc/self/ns").join(name)).ok();
    let links = NAMESPACES.iter();
    links
        .filter_map(|name| Some(((*name).to_owned(), link(name)?)))
        .collect()
}

/// Tries, and prints the results as JSON. Returns only on failure.
pub(crate) fn main(arguments: &[OsString]) -> io::Error {
    match run(arguments) {
        Ok(()) => std::process::exit(0),
        Err(error) => error,
    }
}

fn run(arguments: &[OsString]) -> io::Result<()> {
    let text = arguments.first().and_then(|argument| argument.to_str());
    match serde_json::from_str(text.unwrap_or_default())? {
        Attempts::Sandbox(targets) => report(&leave_sandbox(&targets)),
        Attempts::FileSize => Ok(ftruncate(
            memfd_create("large", MemfdFlags::CLOEXEC)?,
            LIMITS.file_size.unwrap_or_default() + 1,
        )?),
        Attempts::Cgroup(files) => exhaust(&files),
    }
}

fn report(results: &BTreeMap<&str, AttemptResult>) -> io::Result<()> {
    let mut line = serde_json::to_vec(results)?;
    line.push(b'\n');
    io::stdout().write_all(&line)
}

/// The names of the walls in the order of [`probe`](super::probe).
type Attempt = fn(&AttemptTargets) -> AttemptResult;
pub(super) const SANDBOX: [(&str, Attempt); 9] = [
    ("namespaces", share_namespaces),
    ("files", reach_files),
    ("network", connect),
    ("privileges", use_privileges),
    ("system calls", make_forbidden_calls),
    ("Landlock", open_against_landlock),
    ("open files", open_too_many_files),
    ("processes", start_too_many_threads),
    ("file size", write_a_large_file),
];

fn leave_sandbox(targets: &AttemptTargets) -> BTreeMap<&'static str, AttemptResult> {
    let results = SANDBOX.iter();
    results
        .map(|(name, attempt)| (*name, attempt(targets)))
        .collect()
}

fn share_namespaces(targets: &AttemptTargets) -> AttemptResult {
    let own = namespaces();
    let is_shared = |name: &&String| own.get(*name) == targets.namespaces.get(*name);
    let shared: Vec<_> = targets.namespaces.keys().filter(is_shared).collect();
    if !shared.is_empty() {
        return Err(format!("shares with the service: {shared:?}"));
    }
    let entries = fs::read_dir("/proc").map_err(|error| error.to_string())?;
    let pids = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    match pids.count() {
        0..=3 => Ok(format!(
            "own {}",
            own.into_keys().collect::<Vec<_>>().join(", ")
        )),
        count => Err(format!("sees {count} processes")),
    }
}

fn reach_files(targets: &AttemptTargets) -> AttemptResult {
    if File::open(&targets.file).is_ok() {
        return Err("reads a file of the service".to_owned());
    }
    for directory in ["/usr", "/etc", "/"] {
        let path = Path::new(directory).join(".agent-workspace-attempt");
        if File::create(&path).is_ok() {
            return Err(format!("writes to {directory}"));
        }
    }
    Ok("the service's files do not exist, the system is read-only".to_owned())
}

fn connect(targets: &AttemptTargets) -> AttemptResult {
    for address in [Ipv4Addr::LOCALHOST, GATEWAY] {
        let address = SocketAddr::from((address, targets.port));
        if TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok() {
            return Err(format!(
                "reaches the machine's loopback address as {address}"
            ));
        }
    }
    Ok("the machine's loopback address is not reachable".to_owned())
}

fn use_privileges(_: &AttemptTargets) -> AttemptResult {
    if rustix::system::sethostname(b"attempt") != Err(Errno::PERM) {
        return Err("changes the host name".to_owned());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let fields = status.lines().filter_map(|line| line.split_once(":\t"));
    let mut present = fields.filter(|(name, value)| match *name {
        "CapInh" | "CapPrm" | "CapEff" | "CapBnd" | "CapAmb" => value.bytes().any(|b| b != b'0'),
        "NoNewPrivs" => *value != "1",
        _ => false,
    });
    match present.next() {
        Some((name, value)) => Err(format!("{name} is {value}")),
        None => Ok("no capability in any set, and none by executing a file".to_owned()),
    }
}

/// Both calls need no privilege, so only the filter refuses them.
fn make_forbidden_calls(_: &AttemptTargets) -> AttemptResult {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| error.to_string())?;
    let copied = pidfd_getfd(&own, 0, PidfdGetfdFlags::empty());
    if !matches!(copied, Err(Errno::PERM)) {
        return Err("takes a descriptor of a process".to_owned());
    }
    #[expect(
        deprecated,
        reason = "the successor is `unsafe` for the sake of descriptor tables, which stay as they are"
    )]
    let created = rustix::thread::unshare(UnshareFlags::NEWUSER);
    if created != Err(Errno::PERM) {
        return Err("creates a user namespace".to_owned());
    }
    Ok("the filter refuses new namespaces and others' descriptors".to_owned())
}

/// The sandbox's mounts allow this, so only Landlock refuses it.
fn open_against_landlock(_: &AttemptTargets) -> AttemptResult {
    let attempt = || {
        let nothing = WallPlan {
            readable: Vec::new(),
            writable: Vec::new(),
            limits: ProcessLimits::default(),
            has_memory_cgroup: false,
        };
        let level = landlock::restrict(&nothing).map_err(|error| error.to_string())?;
        match File::open("/etc/passwd").map_err(|error| error.kind()) {
            Err(io::ErrorKind::PermissionDenied) => Ok(level),
            _ => Err("opens a file that no rule allows".to_owned()),
        }
    };
    // Another thread, because the other attempts need files.
    let level = std::thread::spawn(attempt).join();
    let level = level.map_err(|_| "the attempt failed".to_owned())??;
    Ok(match level {
        LandlockLevel::Partial(version) if version < 6 => format!(
            "version {version} of the kernel; abstract sockets and signals are left to namespaces"
        ),
        _ => "files, devices, abstract sockets and signals".to_owned(),
    })
}

fn open_too_many_files(_: &AttemptTargets) -> AttemptResult {
    let limit = usize::try_from(LIMITS.open_files.unwrap_or_default()).unwrap_or_default();
    let mut files = Vec::new();
    while files.len() <= limit {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(_) => return Ok(format!("refused at the limit of {limit}")),
        }
    }
    Err(format!(
        "opens {} files with a limit of {limit}",
        files.len()
    ))
}

fn start_too_many_threads(_: &AttemptTargets) -> AttemptResult {
    let limit = LIMITS.pids.unwrap_or_default();
    match threads(limit + 1) {
        count if count <= limit => Ok(format!("refused at the limit of {limit}")),
        count => Err(format!("starts {count} threads with a limit of {limit}")),
    }
}

/// Starts threads until the kernel refuses one, and ends them.
fn threads(max: u64) -> u64 {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let mut running = Vec::new();
    for _ in 0..max {
        let wait = Arc::clone(&wait);
        // An allocator without optimizations needs more than 64 KiB.
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        // The channel's end is the signal.
        match thread.spawn(move || wait.lock().is_ok_and(|wait| wait.recv().is_ok())) {
            Ok(thread) => running.push(thread),
            Err(_) => break,
        }
    }
    drop(release);
    let count = running.len();
    for thread in running {
        let _ = thread.join();
    }
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// In another process, because the kernel answers with a signal that kills.
fn write_a_large_file(_: &AttemptTargets) -> AttemptResult {
    let argument = serde_json::to_string(&Attempts::FileSize).unwrap_or_default();
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let child = Command::new(program).arg(SUBCOMMAND).arg(argument).output();
    let status = child.map_err(|error| error.to_string())?.status;
    if status.signal() == Some(libc::SIGXFSZ) {
        Ok("refused at the limit".to_owned())
    } else {
        Err(format!("writes a file above the limit ({status})"))
    }
}

/// Ends with the kernel killing this process for lack of memory.
fn exhaust(files: &[PathBuf]) -> io::Result<()> {
    for file in files {
        fs::write(file, "0")?;
    }
    let limit = LIMITS.pids.unwrap_or_default();
    let count = threads(limit + 1);
    let is_refused = count <= limit;
    let result = if is_refused {
        Ok(format!("refused at the limit of {limit}"))
    } else {
        Err(format!("starts {count} threads with a limit of {limit}"))
    };
    report(&BTreeMap::from([("processes", result)]))?;
    let bytes = usize::try_from(2 * LIMITS.memory.unwrap_or_default()).unwrap_or_default();
    std::hint::black_box(vec![1_u8; bytes]);
    Ok(())
}
