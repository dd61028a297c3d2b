//! The resource usage of the process, read from `/proc` (kernel memory: it never waits for a disk). Zeros where there is
//! none.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use domain::clock::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// Use of the machine.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Resources {
    /// Processor time of the process since the last look, in percent of one core.
    cpu_percent: f64,
    memory: Memory,
    disk: Disk,
    io: Io,
}

/// Memory of the process, in bytes and in percent of the machine's.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Memory {
    rss: u64,
    vms: u64,
    percent: f64,
}

/// The root file system, in bytes and percent.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Disk {
    total: u64,
    used: u64,
    free: u64,
    percent: f64,
}

/// Bytes that the process made the disks read and write.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Io {
    read_bytes: u64,
    write_bytes: u64,
}

/// The start, the last request and the last sample of processor time.
#[derive(Debug)]
pub(crate) struct ProcessStats {
    started: Timestamp,
    last_request_micros: AtomicI64,
    last_sample: Mutex<Option<ResourceSample>>,
}

#[derive(Debug, Clone)]
struct ResourceSample {
    at: Timestamp,
    cpu: Duration,
    resources: Resources,
}

/// Age up to which a sample is reused, so that frequent probes cost nothing.
const SAMPLE_TTL: Duration = Duration::from_millis(500);
/// The unit of `/proc/self/stat`; the kernel's ABI fixes it for user space.
const CLOCK_TICK: Duration = Duration::from_millis(10);
/// Paths of probes, which do not end idleness.
const PROBES: [&str; 5] = ["/alive", "/health", "/ready", "/server_info", "/metrics"];

impl ProcessStats {
    pub(crate) fn start(now: Timestamp) -> Self {
        let last_request_micros = AtomicI64::new(now.micros());
        Self {
            started: now,
            last_request_micros,
            last_sample: Mutex::new(None),
        }
    }

    pub(crate) fn touch(&self, now: Timestamp, path: &str) {
        if !PROBES.contains(&path) {
            let last = &self.last_request_micros;
            last.store(now.micros(), Ordering::Relaxed);
        }
    }

    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    pub(crate) fn uptime(&self, now: Timestamp) -> Duration {
        now.since(self.started)
    }

    pub(crate) fn idle(&self, now: Timestamp) -> Duration {
        now.since(Timestamp::from_micros(
            self.last_request_micros.load(Ordering::Relaxed),
        ))
    }

    pub(crate) fn resources(&self, now: Timestamp) -> Resources {
        let mut last = self
            .last_sample
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(sample) = last
            .as_ref()
            .filter(|sample| now.since(sample.at) < SAMPLE_TTL)
        {
            return sample.resources.clone();
        }
        let cpu = cpu_time().unwrap_or_default();
        let (since, before) = last
            .as_ref()
            .map_or((self.started, Duration::ZERO), |sample| {
                (sample.at, sample.cpu)
            });
        let wall = now.since(since).as_secs_f64();
        let busy = cpu.saturating_sub(before).as_secs_f64();
        let cpu_percent = if wall > 0.0 {
            (busy / wall * 1000.0).round() / 10.0
        } else {
            0.0
        };
        let resources = Resources {
            cpu_percent,
            memory: memory(),
            disk: disk(),
            io: io(),
        };
        *last = Some(ResourceSample {
            at: now,
            cpu,
            resources: resources.clone(),
        });
        resources
    }
}

/// A sample of the process for the metrics page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessSample {
    pub(crate) started: Timestamp,
    pub(crate) cpu: Duration,
    /// Bytes.
    pub(crate) resident: u64,
    pub(crate) virtual_: u64,
    pub(crate) open_files: u64,
    pub(crate) max_files: u64,
    pub(crate) threads: u64,
}

impl ProcessSample {
    pub(crate) fn take(started: Timestamp) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            started,
            cpu: cpu_time().unwrap_or_default(),
            resident: kibibytes(&status, "VmRSS:"),
            virtual_: kibibytes(&status, "VmSize:"),
            // One of them was opened for this count.
            open_files: (files as u64).saturating_sub(1),
            max_files: most.current.unwrap_or_default(),
            threads: number(&status, "Threads:"),
        }
    }
}

/// Time in user and kernel mode: fields 14 and 15, counted after the name, which may hold anything.
fn cpu_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let kernel: u32 = fields.next()?.parse().ok()?;
    Some(CLOCK_TICK * user + CLOCK_TICK * kernel)
}

fn memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (rss, vms) = (kibibytes(&status, "VmRSS:"), kibibytes(&status, "VmSize:"));
    Memory {
        rss,
        vms,
        percent: percent(rss, kibibytes(&machine, "MemTotal:")),
    }
}

/// Only root may open this file once the process is not dumpable; an open handle stays readable.
static IO_COUNTERS: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/io").ok());

/// Opens the files that this process cannot open any more once it is not dumpable.
pub fn open_io_counters() {
    LazyLock::force(&IO_COUNTERS);
}

fn io() -> Io {
    let mut text = [0; 1024];
    let counters = IO_COUNTERS.as_ref();
    let length = counters.and_then(|file| file.read_at(&mut text, 0).ok());
    let io = String::from_utf8_lossy(&text[..length.unwrap_or_default()]);
    Io {
        read_bytes: number(&io, "read_bytes:"),
        write_bytes: number(&io, "write_bytes:"),
    }
}

fn disk() -> Disk {
    let Ok(root) = rustix::fs::statvfs("/") else {
        return Disk::default();
    };
    let total = root.f_blocks.saturating_mul(root.f_frsize);
    let used = root
        .f_blocks
        .saturating_sub(root.f_bfree)
        .saturating_mul(root.f_frsize);
    let free = root.f_bavail.saturating_mul(root.f_frsize);
    Disk {
        total,
        used,
        free,
        percent: percent(used, used.saturating_add(free)),
    }
}

/// The number after `name` at the start of a line.
fn number(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn kibibytes(text: &str, name: &str) -> u64 {
    number(text, name).saturating_mul(1024)
}

#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        (part as f64 / whole as f64 * 1000.0).round() / 10.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_a_disk() {
        let start = Timestamp::from_micros(0);
        let stats = ProcessStats::start(start);
        let sample = stats.resources(start.plus(Duration::from_secs(1)));
        assert!(
            sample.memory.rss > 0 && sample.memory.vms >= sample.memory.rss,
            "{sample:?}"
        );
        assert!(
            sample.disk.total > 0 && sample.disk.percent > 0.0,
            "{sample:?}"
        );
    }

    #[test]
    fn a_probe_does_not_end_idleness() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let stats = ProcessStats::start(at(0));
        stats.touch(at(10), "/alive");
        assert_eq!(stats.idle(at(20)).as_secs(), 20);
        stats.touch(at(15), "/api/v1/sandboxes/search");
        assert_eq!(stats.idle(at(20)).as_secs(), 5);
    }

    #[test]
    fn lines_are_found_by_their_whole_name() {
        assert_eq!(number("rchar: 5\nread_bytes: 7\n", "read_bytes:"), 7);
        assert_eq!(kibibytes("VmRSS:\t  12 kB\n", "VmRSS:"), 12 * 1024);
        assert_eq!(number("", "x:"), 0);
    }
}
