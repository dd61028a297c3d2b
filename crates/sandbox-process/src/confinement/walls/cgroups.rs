//! Cgroups: limits of a whole sandbox, of version 2 or 1.
//!
//! A sandbox has one cgroup (with version 1, one for each controller), named after the installation and the sandbox. So a
//! service that was killed finds it again. Its processes join before they start anything.
//!
//! ```text
//!   version 2, delegated to the service      <own cgroup>/agent-workspace-<installation>-<sandbox>
//!   version 2, as root                       <root>/agent-workspace-<installation>-<sandbox>
//!   version 1, as root                       <root of the controller>/agent-workspace-<installation>-<sandbox>
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use domain::id::{HostId, SandboxId};
use rustix::fs::{Access, access, getxattr};
use rustix::io::Errno;

use super::ProcessLimits;

/// Killed processes leave their cgroup a moment after their end.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);
const REMOVE_INTERVAL: Duration = Duration::from_millis(10);
/// The period in which a sandbox may use its processor time, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// The cgroup of the service itself below a delegated one, which may have either processes or children with controllers.
const SERVICE: &str = "service";

const REMEDY: &str = "run the service as root, or as a systemd unit with Delegate=yes and DelegateSubgroup=service \
                      (systemd 254 or newer)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

/// The cgroups below which the service creates those of sandboxes.
#[derive(Debug, Clone)]
pub(crate) struct CgroupParent {
    version: CgroupVersion,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    prefix: String,
}

impl CgroupParent {
    /// Finds where this process may create cgroups, and enables the controllers there. The error names the cause and the
    /// remedy. Blocks.
    pub(crate) fn open(installation: &HostId) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts")
            .map_err(|error| format!("cannot read /proc/self/mounts ({error})"))?;
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let prefix = format!("agent-workspace-{installation}-");
        let found = Self::version_1(&mounts, &prefix);
        let found = match found {
            Some(found) => found,
            None => Self::version_2(&mounts, &own, &prefix)?,
        };
        if found.memory.is_none() && found.pids.is_none() && found.cpu.is_none() {
            return Err(format!(
                "cgroups are not delegated to this process: {REMEDY}"
            ));
        }
        Ok(found)
    }

    fn version_1(mounts: &str, prefix: &str) -> Option<Self> {
        let root = |controller: &str| mount_point(mounts, "cgroup", Some(controller));
        let writable = |controller: &str| root(controller).filter(|path| is_writable(path));
        // With mixed hierarchies, version 2 has the controllers that version 1 lacks; memory decides.
        root("memory")?;
        Some(Self {
            version: CgroupVersion::V1,
            memory: writable("memory"),
            pids: writable("pids"),
            cpu: writable("cpu"),
            prefix: prefix.to_owned(),
        })
    }

    fn version_2(mounts: &str, own: &str, prefix: &str) -> Result<Self, String> {
        let root = mount_point(mounts, "cgroup2", None)
            .ok_or("no cgroup file system is mounted: mount cgroup2 on /sys/fs/cgroup")?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let own = own.map(|path| root.join(path));
        let delegated = own.and_then(|own| delegated(&own));
        let is_root = rustix::process::geteuid().is_root();
        let parent = delegated.or_else(|| (is_root && is_writable(&root)).then_some(root));
        let parent =
            parent.ok_or_else(|| format!("cgroups are not delegated to this process: {REMEDY}"))?;
        let enabled = enable_controllers(&parent).map_err(|error| {
            format!(
                "cannot use the cgroup {} ({error}): {REMEDY}",
                parent.display()
            )
        })?;
        let controller = |name: &str| enabled.contains(name).then(|| parent.clone());
        Ok(Self {
            version: CgroupVersion::V2,
            memory: controller("memory"),
            pids: controller("pids"),
            cpu: controller("cpu"),
            prefix: prefix.to_owned(),
        })
    }

    /// The cgroup of a sandbox, whether it exists or not.
    pub(crate) fn cgroup(&self, id: &SandboxId) -> Cgroup {
        let name = format!("{}{id}", self.prefix);
        let below = |parent: &Option<PathBuf>| parent.as_ref().map(|parent| parent.join(&name));
        Cgroup {
            version: self.version,
            memory: below(&self.memory),
            pids: below(&self.pids),
            cpu: below(&self.cpu),
        }
    }

    /// The limits that cgroups cannot hold here.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let controllers = [
            ("memory", &self.memory),
            ("pids", &self.pids),
            ("cpu", &self.cpu),
        ];
        let missing = controllers.into_iter().filter(|(_, path)| path.is_none());
        missing.map(|(name, _)| name).collect()
    }
}

/// The cgroup of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Cgroup {
    version: CgroupVersion,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
}

impl Cgroup {
    /// Creates the cgroup with its limits, or gives the existing one these limits. An empty one of an earlier run, and its count
    /// of kills, is replaced. Blocks.
    pub(crate) fn create(&self, limits: &ProcessLimits) -> io::Result<()> {
        for directory in self.directories() {
            // Processes that are still in it keep it.
            let _ = fs::remove_dir(directory);
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(named(directory, &error));
                }
                _ => {}
            }
        }
        self.limit_memory(limits.memory)?;
        let number = |limit: Option<u64>| limit.map_or("max".to_owned(), |limit| limit.to_string());
        if let Some(pids) = &self.pids {
            write(pids, "pids.max", &number(limits.pids))?;
        }
        self.limit_cpu(limits.cpus)
    }

    fn limit_memory(&self, bytes: Option<u64>) -> io::Result<()> {
        let Some(memory) = &self.memory else {
            return Ok(());
        };
        match self.version {
            CgroupVersion::V2 => {
                let limit = bytes.map_or("max".to_owned(), |bytes| bytes.to_string());
                write(memory, "memory.max", &limit)?;
                // No swap on top; a kernel without swap has no such file.
                let swap = if bytes.is_some() { "0" } else { "max" };
                write_optional(memory, "memory.swap.max", swap)
            }
            CgroupVersion::V1 => {
                // Memory with swap must never be less than memory alone.
                write_optional(memory, "memory.memsw.limit_in_bytes", "-1")?;
                let limit = bytes.map_or("-1".to_owned(), |bytes| bytes.to_string());
                write(memory, "memory.limit_in_bytes", &limit)?;
                write_optional(memory, "memory.memsw.limit_in_bytes", &limit)
            }
        }
    }

    /// A sandbox has a quarter of the usual weight: where processors are scarce, the service answers in time.
    fn limit_cpu(&self, cpus: Option<f64>) -> io::Result<()> {
        let Some(cpu) = &self.cpu else { return Ok(()) };
        let quota = cpus.map(|cpus| {
            let cores = Duration::from_micros(CPU_PERIOD_US).mul_f64(cpus);
            // The kernel accepts no less.
            cores.as_micros().max(1_000).to_string()
        });
        match self.version {
            CgroupVersion::V2 => {
                let quota = quota.unwrap_or_else(|| "max".to_owned());
                write(cpu, "cpu.max", &format!("{quota} {CPU_PERIOD_US}"))?;
                write(cpu, "cpu.weight", "25")
            }
            CgroupVersion::V1 => {
                write(cpu, "cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
                let quota = quota.unwrap_or_else(|| "-1".to_owned());
                write(cpu, "cpu.cfs_quota_us", &quota)?;
                write(cpu, "cpu.shares", "256")
            }
        }
    }

    /// The files through which a process joins: by writing its pid, or 0 for itself, to each.
    pub(crate) fn members(&self) -> Vec<PathBuf> {
        let directories = self.directories().into_iter();
        directories.map(|path| path.join("cgroup.procs")).collect()
    }

    /// Whether memory of the whole sandbox is limited.
    pub(crate) fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// How many processes the kernel has killed because the sandbox ran out of memory.
    pub(crate) fn memory_kills(&self) -> u64 {
        let file = match self.version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        let read = |memory: &PathBuf| {
            let text = fs::read_to_string(memory.join(file)).ok()?;
            let count = text
                .lines()
                .find_map(|line| line.strip_prefix("oom_kill "))?;
            count.trim().parse().ok()
        };
        self.memory.as_ref().and_then(read).unwrap_or_default()
    }

    /// Removes the cgroup, once its processes have ended. Blocks for a moment.
    #[expect(
        clippy::disallowed_methods,
        reason = "callers use a thread that may block; the kernel reports the end of all processes only in version 2"
    )]
    pub(crate) fn remove(&self) -> io::Result<()> {
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        for directory in self.directories() {
            loop {
                match fs::remove_dir(directory) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) if is_busy(&error) && Instant::now() < deadline => {
                        std::thread::sleep(REMOVE_INTERVAL);
                    }
                    Err(error) => return Err(named(directory, &error)),
                }
            }
        }
        Ok(())
    }

    fn directories(&self) -> BTreeSet<&PathBuf> {
        let all = [&self.memory, &self.pids, &self.cpu];
        all.into_iter().flatten().collect()
    }
}

/// The mount point of a cgroup hierarchy.
fn mount_point(mounts: &str, kind: &str, controller: Option<&str>) -> Option<PathBuf> {
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, is_kind) = (words.next()?, words.next()? == kind);
        let mut options = words.next()?.split(',');
        let matches = controller.is_none_or(|name| options.any(|option| option == name));
        (is_kind && matches).then_some(path)
    });
    found.map(PathBuf::from)
}

/// The cgroup that this process was given to manage: its own, or the one around it if it is in the part for the service.
fn delegated(own: &Path) -> Option<PathBuf> {
    let parent = own.parent().filter(|_| own.ends_with(SERVICE));
    let mut candidates = parent.into_iter().chain([own]);
    let is_root = rustix::process::geteuid().is_root();
    // Root can write to any; the service manager marks what it leaves alone.
    let found = candidates.find(|path| is_writable(path) && (!is_root || is_marked(path)));
    found.map(Path::to_owned)
}

fn is_marked(path: &Path) -> bool {
    ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let mut value = [0; 8];
        let length = getxattr(path, *name, &mut value[..]).unwrap_or_default();
        value.get(..length) == Some(b"1")
    })
}

fn is_writable(path: &Path) -> bool {
    access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        && access(path.join("cgroup.procs"), Access::WRITE_OK).is_ok()
}

/// Enables the controllers for children, and returns those that are enabled.
fn enable_controllers(parent: &Path) -> io::Result<BTreeSet<String>> {
    let available = words(&parent.join("cgroup.controllers"))?;
    let control = parent.join("cgroup.subtree_control");
    let enabled = words(&control)?;
    for controller in ["memory", "pids", "cpu"] {
        if enabled.contains(controller) || !available.contains(controller) {
            continue;
        }
        let request = format!("+{controller}");
        match fs::write(&control, &request) {
            // Only the root may have processes beside children with controllers.
            Err(error) if is_busy(&error) => {
                move_processes(parent)?;
                fs::write(&control, &request)?;
            }
            other => other?,
        }
    }
    words(&control)
}

/// Moves the service, and what runs beside it, into a cgroup of its own.
fn move_processes(parent: &Path) -> io::Result<()> {
    let service = parent.join(SERVICE);
    match fs::create_dir(&service) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for pid in words(&parent.join("cgroup.procs"))? {
        // A process may have ended meanwhile; the next step fails if one is left.
        let _ = fs::write(service.join("cgroup.procs"), pid);
    }
    Ok(())
}

fn words(file: &Path) -> io::Result<BTreeSet<String>> {
    let text = fs::read_to_string(file)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

fn write(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = directory.join(file);
    fs::write(&path, value).map_err(|error| named(&path, &error))
}

fn write_optional(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    if directory.join(file).exists() {
        write(directory, file, value)
    } else {
        Ok(())
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
