//! Limits of a sandbox: the settings, and those that the kernel enforces for each process (rlimits).

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use settings::{SettingReader, parse_size};

/// Less is not enough for an agent server.
const MIN_MEMORY_BYTES: u64 = 512 << 20;
const MIN_PIDS: u64 = 64;
const MIN_OPEN_FILES: u64 = 256;
const MIN_FILE_BYTES: u64 = 1 << 20;
/// What a sandbox gets of a larger machine.
const DEFAULT_MEMORY_BYTES: u64 = 8 << 30;

/// Limits of one sandbox; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Bytes of memory of the sandbox.
    pub memory: Option<u64>,
    /// Processor cores of the sandbox.
    pub cpus: Option<f64>,
    /// Processes and threads of the sandbox.
    pub pids: Option<u64>,
    /// Open files of a process.
    pub open_files: Option<u64>,
    /// Bytes of one file.
    pub file_size: Option<u64>,
}

/// What the machine has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachineLimits {
    pub(crate) memory: u64,
    pub(crate) cpus: u32,
    pub(crate) pids: u64,
    pub(crate) open_files: u64,
}

impl MachineLimits {
    pub(crate) fn read() -> Self {
        let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
        Self {
            memory: total_memory().unwrap_or(u64::MAX),
            cpus: std::thread::available_parallelism()
                .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            pids: number("/proc/sys/kernel/pid_max").unwrap_or(u64::MAX),
            open_files: number("/proc/sys/fs/nr_open").unwrap_or(u64::MAX),
        }
    }
}

impl ProcessLimits {
    /// Reads the settings.
    pub(crate) fn read(reader: &SettingReader<'_>) -> Self {
        let at_least = |key: &str, limit: Option<u64>, min: u64, text: &str| {
            if limit.is_some_and(|limit| limit < min) {
                reader.problem(key, &format!("must be {text} or more (or 0: no limit)"));
            }
            limit
        };
        let memory = reader.parsed(
            "process.memory",
            "auto, a number and a unit (KiB, MiB, GiB, TiB), or 0",
            |text| match text {
                "auto" => Some(MachineLimits::read().memory.min(DEFAULT_MEMORY_BYTES)),
                text => parse_size(text),
            },
        );
        let memory = Some(memory).filter(|bytes| *bytes > 0);
        let pids = reader.count_limit("process.pids", 4_194_304);
        let open_files = reader.count_limit("process.open_files", 1 << 30);
        let file_size = reader.size_limit("process.file_size");
        Self {
            memory: at_least("process.memory", memory, MIN_MEMORY_BYTES, "512MiB"),
            cpus: cpus(reader),
            pids: at_least("process.pids", pids, MIN_PIDS, "64"),
            open_files: at_least("process.open_files", open_files, MIN_OPEN_FILES, "256"),
            file_size: at_least("process.file_size", file_size, MIN_FILE_BYTES, "1MiB"),
        }
    }

    /// Names the first limit that is more than the machine has.
    pub(crate) fn check(&self, machine: &MachineLimits) -> Result<(), String> {
        if let Some(memory) = self.memory.filter(|memory| *memory > machine.memory) {
            return Err(format!(
                "process.memory is {} MiB, but the machine has {} MiB",
                memory >> 20,
                machine.memory >> 20
            ));
        }
        if let Some(cpus) = self.cpus.filter(|cpus| *cpus > f64::from(machine.cpus)) {
            let cores = machine.cpus;
            return Err(format!(
                "process.cpus is {cpus}, but the service may use {cores} cores"
            ));
        }
        let counts = [
            ("process.pids", self.pids, machine.pids, "kernel.pid_max"),
            (
                "process.open_files",
                self.open_files,
                machine.open_files,
                "fs.nr_open",
            ),
        ];
        for (setting, wanted, available, sysctl) in counts {
            if let Some(wanted) = wanted.filter(|wanted| *wanted > available) {
                return Err(format!(
                    "{setting} is {wanted}, but the machine allows {available} ({sysctl})"
                ));
            }
        }
        Ok(())
    }
}

fn cpus(reader: &SettingReader<'_>) -> Option<f64> {
    let cpus = reader.parsed(
        "process.cpus",
        "a number of cores, e.g. 1.5, or 0",
        |text| {
            let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            let cpus: f64 = text.parse().ok().filter(|_| is_plain)?;
            // The kernel grants no less than a hundredth of a core.
            (cpus == 0.0 || (0.01..=10_000.0).contains(&cpus)).then_some(cpus)
        },
    );
    (cpus > 0.0).then_some(cpus)
}

/// Bytes of memory of the machine.
fn total_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Limits the calling process and all that it creates from now on. `has_memory_cgroup`: the sandbox's memory is limited as a
/// whole; else each process gets the limit for itself, by what it may write to (address space that a program only reserves, as
/// JavaScript engines do, is free).
pub(crate) fn set(limits: &ProcessLimits, has_memory_cgroup: bool) -> io::Result<()> {
    let memory = limits.memory.filter(|_| !has_memory_cgroup);
    let resources = [
        (Resource::Nproc, limits.pids),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_size),
        (Resource::Data, memory),
        // A core dump contains the keys of the environment.
        (Resource::Core, Some(0)),
    ];
    for (resource, limit) in resources {
        let Some(limit) = limit else { continue };
        // Only a privileged process can raise the upper limit, so a lower one stays.
        let maximum = getrlimit(resource).maximum;
        let limit = Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
        setrlimit(
            resource,
            Rlimit {
                current: limit,
                maximum: limit,
            },
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
