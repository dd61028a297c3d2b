//! What the kernel says about processes, read from `/proc`.
//!
//! Knows: the text formats of `/proc`. Must never know: sandboxes, signals or time-outs.
//!
//! Everything here blocks (reading `environ` can wait for a lock of the process that is being read), so async code calls
//! it through `spawn_blocking`.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A process for as long as the machine is up: pids are reused, a pid with its start time is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessKey {
    /// The process id.
    pub(crate) pid: i32,
    /// Start time in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    pub(crate) started: u64,
}

/// The part of `/proc/<pid>/stat` that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Which process.
    pub(crate) key: ProcessKey,
    /// `R`, `S`, `D`, `T`, `Z`, `X`, …
    pub(crate) state: char,
    /// Parent process id.
    pub(crate) parent: i32,
    /// Process group id.
    pub(crate) group: i32,
    /// Session id.
    pub(crate) session: i32,
}

impl Stat {
    /// A zombie (or a process being removed) runs no code any more; only its parent can make it go away.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads one process; `None` when there is none with this pid.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(pid, &fs::read_to_string(path(pid, "stat")).ok()?)
}

/// The program name is in brackets and may itself contain brackets and spaces, so fields are counted after the last one.
fn parse_stat(pid: i32, text: &str) -> Option<Stat> {
    let after_name = &text[text.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // Field 22; the four fields above are 3 to 6.
    let started = fields.nth(15)?.parse().ok()?;
    Some(Stat {
        key: ProcessKey { pid, started },
        state,
        parent,
        group,
        session,
    })
}

/// Whether this very process (not a successor with the same pid) still runs code.
pub(crate) fn is_alive(key: ProcessKey) -> bool {
    stat(key.pid).is_some_and(|stat| stat.key == key && !stat.is_dead())
}

/// Every process that can be seen.
pub(crate) fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .collect()
}

/// The value of a variable in the environment that the process was *started* with (later changes are not visible).
/// `None` also for processes of other users, kernel threads and zombies: they cannot be read.
pub(crate) fn initial_variable(pid: i32, name: &str) -> Option<String> {
    let environ = fs::read(path(pid, "environ")).ok()?;
    environ.split(|byte| *byte == 0).find_map(|pair| {
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}

/// The command line of a process. `None` as above.
pub(crate) fn arguments(pid: i32) -> Option<Vec<String>> {
    let line = fs::read(path(pid, "cmdline")).ok()?;
    let mut arguments: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    // Each argument ends with a NUL, the last one too.
    arguments.pop();
    Some(arguments)
}

/// Identifies this boot of the machine: start times count from boot, so they mean nothing after the next one.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

fn path(pid: i32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_is_read() {
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
    fn a_program_name_cannot_shift_the_fields() {
        let text = "7 (a) R 1 (x) S 2 3 4 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9911 0 0";
        let stat = parse_stat(7, text).unwrap();
        assert_eq!(
            (stat.state, stat.parent, stat.group, stat.session),
            ('S', 2, 3, 4)
        );
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
}
