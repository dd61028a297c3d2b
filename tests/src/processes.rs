//! Processes of sandboxes, seen through `/proc` by the marker in their environment.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// The variable that every process of a sandbox carries: `<installation>/<sandbox>`.
const MARKER: &str = "AGENT_WORKSPACE_SANDBOX";

/// A living process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// The sandbox that the marker names.
    pub sandbox: String,
    /// The words of its command.
    pub arguments: Vec<String>,
    /// Whether it leads a session: the sandbox's main process does, and so does tmux.
    pub leads_session: bool,
    /// Its environment when it was started.
    pub environment: Vec<(String, String)>,
}

impl Process {
    /// Whether this is the agent server itself, and not something that it started.
    #[must_use]
    pub fn is_agent_server(&self) -> bool {
        let has = |word: &str| self.arguments.iter().any(|argument| argument == word);
        self.leads_session && has("--port") && has("--host")
    }

    /// A variable of its environment.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Sends a signal. A process that has just ended is fine.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// All living processes of sandboxes whose home is below `data`. Zombies have no environment and do not count.
#[must_use]
pub fn of_sandboxes_in(data: &Path) -> Vec<Process> {
    pids()
        .into_iter()
        .filter_map(|pid| {
            let environment = variables(pid)?;
            let value = |key: &str| environment.iter().find(|(name, _)| name == key);
            let (_, marker) = value(MARKER)?;
            if !value("HOME").is_some_and(|(_, home)| Path::new(home).starts_with(data)) {
                return None;
            }
            Some(Process {
                pid,
                sandbox: marker.rsplit('/').next().unwrap_or_default().to_owned(),
                arguments: words(&read(pid, "cmdline")?),
                leads_session: session(pid) == Some(pid),
                environment,
            })
        })
        .collect()
}

/// Children of a process that have ended and that it has not waited for.
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
        .filter_map(|pid| Some(words(&read(pid, "cmdline")?).join(" ")));
    lines.collect()
}

/// Resident memory of a process in bytes.
#[must_use]
pub fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc is there");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

fn read(pid: i32, file: &str) -> Option<Vec<u8>> {
    fs::read(PathBuf::from(format!("/proc/{pid}/{file}"))).ok()
}

fn words(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn variables(pid: i32) -> Option<Vec<(String, String)>> {
    let pairs = words(&read(pid, "environ")?);
    let split = |pair: &String| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Some(pairs.iter().filter_map(split).collect())
}

/// The fields after the name: state, parent, group, session, …
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(&read(pid, "stat")?).into_owned();
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn session(pid: i32) -> Option<i32> {
    stat(pid)?.get(3)?.parse().ok()
}
