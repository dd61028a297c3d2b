//! Reads information about processes from `/proc`.
//!
//! Knows: the text formats of `/proc`. Must never know: sandboxes, signals or time-outs.
//!
//! All functions block (reading `environ` can wait for a lock of that process), so async code calls them through
//! `spawn_blocking`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// `PF_EXITING` and `PF_KTHREAD` of the kernel's `sched.h`.
const PF_EXITING: u32 = 0x0000_0004;
const PF_KTHREAD: u32 = 0x0020_0000;

/// Arguments and environments are rarely larger.
const READ_CAPACITY_BYTES: usize = 64 * 1024;

/// Open files of a process to inspect. An agent server listens before it opens many files, and `/proc` lists them in
/// numerical order.
const MAX_OPEN_FILES: usize = 4096;

/// Longest time to wait for an `execve`; a process that takes longer hides its arguments on purpose.
const EXEC_TIMEOUT: Duration = Duration::from_secs(2);

/// Identifies a process until the next boot: pids are reused, a pid with its start time is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessKey {
    pub(crate) pid: i32,
    /// Start time in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    pub(crate) started: u64,
}

/// The relevant fields of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) key: ProcessKey,
    /// `R`, `S`, `D`, `T`, `Z`, `X`, …
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// The kernel's flags (`PF_*`).
    flags: u32,
    /// The end address of the environment; 0 before the kernel has laid it out, and for unreadable processes.
    environment_end: u64,
}

impl ProcessStat {
    /// Whether the process is a zombie (or being removed), which runs no code; only its parent can reap it.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads one process; `None` if there is none with this pid.
pub(crate) fn stat(pid: i32) -> Option<ProcessStat> {
    parse_stat(pid, &fs::read_to_string(path(pid, "stat")).ok()?)
}

/// The program name is in brackets and may contain brackets and spaces, so fields are counted from the last bracket.
fn parse_stat(pid: i32, text: &str) -> Option<ProcessStat> {
    let after_name = &text[text.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // Fields 9, 22 and 51; the four fields above are 3 to 6.
    let flags = fields.nth(2)?.parse().ok()?;
    let started = fields.nth(12)?.parse().ok()?;
    let environment_end = fields.nth(28)?.parse().ok()?;
    Some(ProcessStat {
        key: ProcessKey { pid, started },
        state,
        parent,
        group,
        session,
        flags,
        environment_end,
    })
}

/// Whether exactly this process (not a successor with the same pid) still runs code.
pub(crate) fn is_alive(key: ProcessKey) -> bool {
    stat(key.pid).is_some_and(|stat| stat.key == key && !stat.is_dead())
}

pub(crate) fn all() -> Vec<ProcessStat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .collect()
}

/// The value of a variable in the environment at the process's start (later changes are not visible). `None` also for
/// processes of other users, kernel threads and zombies, which cannot be read.
pub(crate) fn initial_variable(pid: i32, name: &str) -> Option<String> {
    let environ = read_program_file(pid, "environ")?;
    environ.split(|byte| *byte == 0).find_map(|pair| {
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}

/// The command line of a process. `None` as above.
pub(crate) fn arguments(pid: i32) -> Option<Vec<String>> {
    let line = read_program_file(pid, "cmdline")?;
    let mut arguments: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    // Each argument ends with a NUL, the last one too.
    arguments.pop();
    Some(arguments)
}

/// Reads a file of `/proc` about a process's program. During an `execve` the kernel shows neither arguments nor
/// environment. This function waits for its end; otherwise a starting sandbox would look like a foreign process.
#[expect(
    clippy::disallowed_methods,
    reason = "callers use blocking threads; no event reports the end of an execve"
)]
fn read_program_file(pid: i32, file: &str) -> Option<Vec<u8>> {
    let started = Instant::now();
    let mut former_end = None;
    loop {
        let text = read_at_once(path(pid, file)).ok()?;
        if !text.is_empty() || started.elapsed() > EXEC_TIMEOUT {
            return Some(text);
        }
        match environment_end(pid) {
            None => return Some(text),
            // The environment was laid out before and after the read, at the same address: the program hides its
            // arguments.
            Some(end) if end != 0 && former_end == Some(end) => return Some(text),
            end => former_end = end,
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads a file with one call if it has the usual size: between two calls the process may execute another program.
fn read_at_once(path: PathBuf) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut text = vec![0; READ_CAPACITY_BYTES];
    let read = file.read(&mut text)?;
    text.truncate(read);
    if read == READ_CAPACITY_BYTES {
        file.read_to_end(&mut text)?;
    }
    Ok(text)
}

/// The end address of a process's environment; 0 during an `execve`. `None` for processes without one: exiting ones and
/// kernel threads.
fn environment_end(pid: i32) -> Option<u64> {
    stat(pid)
        .filter(|stat| !stat.is_dead() && stat.flags & (PF_EXITING | PF_KTHREAD) == 0)
        .map(|stat| stat.environment_end)
}

/// Whether the process holds this socket. Also `false` for unreadable processes. Blocks.
pub(crate) fn has_socket(key: ProcessKey, inode: u32) -> bool {
    let name = format!("socket:[{inode}]");
    let Ok(open) = fs::read_dir(path(key.pid, "fd")) else {
        return false;
    };
    let is_open = open
        .filter_map(Result::ok)
        .take(MAX_OPEN_FILES)
        .any(|entry| {
            fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == name.as_str())
        });
    // Verifies that the files were those of this process, not of a successor with its pid.
    is_open && is_alive(key)
}

/// Identifies the boot of the machine: start times count from boot and mean nothing after the next one.
pub(crate) fn boot_id() -> &'static str {
    static ID: LazyLock<String> = LazyLock::new(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    });
    &ID
}

fn path(pid: i32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_process_is_read() {
        let me = i32::try_from(std::process::id()).unwrap();
        let stat = stat(me).unwrap();
        assert!(!stat.is_dead());
        assert!(stat.key.started > 0);
        assert!(is_alive(stat.key));
        assert!(!is_alive(ProcessKey {
            started: stat.key.started + 1,
            ..stat.key
        }));
        assert!(all().contains(&stat) || all().iter().any(|other| other.key == stat.key));
        assert!(!boot_id().is_empty());
    }

    #[test]
    fn a_socket_is_found_in_the_process_that_has_it_open() {
        let me = i32::try_from(std::process::id()).unwrap();
        let key = stat(me).unwrap().key;
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let inode = endpoint_guard::listener(address).unwrap().unwrap().inode;
        assert!(has_socket(key, inode));
        let successor = ProcessKey {
            started: key.started + 1,
            ..key
        };
        assert!(!has_socket(successor, inode));
        drop(socket);
        assert!(!has_socket(key, inode));
    }

    #[test]
    fn brackets_in_a_program_name_do_not_shift_fields() {
        let text = "7 (a) R 1 (x) S 2 3 4 0 -1 64 0 0 0 0 0 0 0 0 20 0 1 0 9911 0 0";
        let text = format!("{text}{} 51 0", " 0".repeat(26));
        let stat = parse_stat(7, &text).unwrap();
        assert_eq!(
            (stat.state, stat.parent, stat.group, stat.session),
            ('S', 2, 3, 4)
        );
        assert_eq!((stat.flags, stat.environment_end), (64, 51));
        assert_eq!(
            stat.key,
            ProcessKey {
                pid: 7,
                started: 9911
            }
        );
        for broken in ["", "7", "7 (a)", "7 (a) S 2 3", "7 (a) S x 3 4"] {
            assert_eq!(parse_stat(7, broken), None, "{broken:?}");
        }
    }

    /// A shell that executes itself repeatedly is within an `execve` in about every hundredth read.
    #[test]
    fn the_environment_is_read_correctly_during_execve() {
        let mut child = std::process::Command::new("sh")
            .args([
                "-c",
                "[ $0 = 0 ] || exec sh -c \"$1\" $(($0 - 1)) \"$1\"; sleep 60",
                "2000",
            ])
            .arg("[ $0 = 0 ] || exec sh -c \"$1\" $(($0 - 1)) \"$1\"; sleep 60")
            .env("MARKER", "value")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // `spawn` returns when the first program is loaded.
        let values: Vec<_> = (0..5000).map(|_| initial_variable(pid, "MARKER")).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let missing = values.iter().filter(|value| value.is_none()).count();
        assert_eq!(missing, 0, "of {}", values.len());
    }
}
