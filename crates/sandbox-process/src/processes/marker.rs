//! Finds and ends the processes of a sandbox.
//!
//! Knows: the marker variable, sessions and descent. A process belongs to a sandbox if it was started with the sandbox's
//! marker in its environment, is in the session of the main process, or descends from such a process. Children inherit the
//! marker; leaving the process group or the session, as tmux does, does not remove it. Only a control group could find a
//! process that escapes all three.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use domain::crash_point;
use domain::id::{HostId, SandboxId};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use tokio::time::{Instant, timeout};

use crate::processes::pidfd::PidHandle;
use crate::processes::proc::{self, ProcessKey, ProcessStat};

pub(crate) const VARIABLE: &str = "AGENT_WORKSPACE_SANDBOX";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker(String);

impl Marker {
    pub(crate) fn new(host: &HostId, id: &SandboxId) -> Self {
        Self(format!("{host}/{id}"))
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }

    pub(crate) fn marks(&self, pid: i32) -> bool {
        proc::initial_variable(pid, VARIABLE).is_some_and(|value| value == self.0)
    }
}

/// The live processes of this host's sandboxes, found by their marker. Blocks.
pub(crate) fn marked(host: &HostId) -> BTreeMap<ProcessKey, SandboxId> {
    let running = proc::all().into_iter().filter(|stat| !stat.is_dead());
    running
        .filter_map(|stat| {
            let value = proc::initial_variable(stat.key.pid, VARIABLE)?;
            let (owner, id) = value.split_once('/')?;
            let id = (owner == host.as_str()).then(|| SandboxId::parse(id).ok());
            Some((stat.key, id.flatten()?))
        })
        .collect()
}

/// The live processes of a sandbox that another service on this machine has started. Blocks.
pub(crate) fn of_other_instances(host: &HostId, id: &SandboxId) -> Vec<ProcessKey> {
    let is_of_other = |stat: &ProcessStat| {
        let value = proc::initial_variable(stat.key.pid, VARIABLE);
        let value = value.as_deref().and_then(|value| value.split_once('/'));
        value.is_some_and(|(owner, sandbox)| owner != host.as_str() && sandbox == id.as_str())
    };
    let running = proc::all().into_iter().filter(|stat| !stat.is_dead());
    running.filter(is_of_other).map(|stat| stat.key).collect()
}

/// Whether a live process belongs to this sandbox. Blocks.
pub(crate) fn has_processes(host: &HostId, id: &SandboxId) -> bool {
    marked(host).values().any(|sandbox| sandbox == id)
}

/// Finds the main process after an interrupted start on `port`: the oldest session leader with the marker whose last
/// argument is the port. Blocks.
pub(crate) fn find_main(marker: &Marker, port: u16) -> Option<ProcessKey> {
    proc::all()
        .into_iter()
        .filter(|stat| {
            !stat.is_dead() && stat.session == stat.key.pid && marker.marks(stat.key.pid)
        })
        .filter(|stat| {
            proc::arguments(stat.key.pid).is_some_and(|a| a.last() == Some(&port.to_string()))
        })
        .min_by_key(|stat| stat.key.started)
        .map(|stat| stat.key)
}

/// All live processes of the sandbox. `main` is its main process if that ran a moment ago (so that its session id cannot
/// have been reused). Blocks.
fn members(
    marker: &Marker,
    main: Option<ProcessKey>,
    known: &BTreeSet<ProcessKey>,
) -> Vec<ProcessStat> {
    let all = proc::all();
    let is_in_session = |stat: &ProcessStat| main.is_some_and(|main| is_in_session(stat, main));
    let is_member = |stat: &&ProcessStat| {
        known.contains(&stat.key) || is_in_session(stat) || marker.marks(stat.key.pid)
    };
    let mut found = all.iter().filter(is_member).copied().collect();
    add_descendants(&mut found, &all);
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    found.retain(|stat| stat.key.pid != own && stat.key.pid != 1);
    found
}

/// The processes in the session of the live `main`, and all their descendants. Blocks.
pub(crate) fn tree(main: ProcessKey) -> Vec<ProcessStat> {
    let all = proc::all();
    let is_member = |stat: &&ProcessStat| is_in_session(stat, main);
    let mut found = all.iter().filter(is_member).copied().collect();
    add_descendants(&mut found, &all);
    found
}

fn is_in_session(stat: &ProcessStat, main: ProcessKey) -> bool {
    stat.session == main.pid && stat.key.started >= main.started
}

/// Adds children, then their children, and so on.
fn add_descendants(found: &mut Vec<ProcessStat>, all: &[ProcessStat]) {
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].key;
        next += 1;
        for stat in all {
            let is_child = stat.parent == parent.pid && stat.key.started >= parent.started;
            // The list is not an atomic snapshot: verify that the pid still belongs to the same process.
            if is_child
                && !found.contains(stat)
                && proc::stat(parent.pid).is_some_and(|s| s.key == parent)
            {
                found.push(*stat);
            }
        }
    }
}

/// The processes of the sandbox. Call it before the main process ends: a descendant without the marker and outside of the
/// session is only found through its parent. Blocks.
pub(crate) fn snapshot(marker: &Marker, main: ProcessKey) -> BTreeSet<ProcessKey> {
    members(marker, Some(main), &BTreeSet::new())
        .into_iter()
        .map(|stat| stat.key)
        .collect()
}

/// Kills all processes of the sandbox until none is left. Zombies do not count. Zombies that were reparented to this
/// process (as process 1 of a container) are reaped, except `main`, whose exit its monitor awaits. `known` are processes
/// that were seen to belong to the sandbox before.
pub(crate) async fn kill_all(
    marker: &Marker,
    main: Option<ProcessKey>,
    mut known: BTreeSet<ProcessKey>,
    limit: Duration,
) -> io::Result<()> {
    let started = Instant::now();
    loop {
        let (marker, seen) = (marker.clone(), known.clone());
        let (running, handles) =
            tokio::task::spawn_blocking(move || kill_round(&marker, main, &seen))
                .await
                .map_err(io::Error::other)??;
        if running.is_empty() {
            return Ok(());
        }
        known.extend(running);
        let remaining = limit.saturating_sub(started.elapsed());
        let ended = async {
            for handle in handles {
                handle.watch()?.exited().await?;
            }
            io::Result::Ok(())
        };
        timeout(remaining, ended).await.map_err(|_| {
            let message = format!("{} processes did not end after SIGKILL", known.len());
            io::Error::new(io::ErrorKind::TimedOut, message)
        })??;
    }
}

/// Finds and kills the processes once. Returns the live ones.
fn kill_round(
    marker: &Marker,
    main: Option<ProcessKey>,
    known: &BTreeSet<ProcessKey>,
) -> io::Result<(Vec<ProcessKey>, Vec<PidHandle>)> {
    let mut running = Vec::new();
    let mut handles = Vec::new();
    for stat in members(marker, main, known) {
        if stat.is_dead() {
            reap_child(&stat, main);
            continue;
        }
        running.push(stat.key);
        if let Some(handle) = PidHandle::open(stat.key)? {
            crash_point::around("process: SIGKILL", || handle.signal(Signal::KILL))?;
            handles.push(handle);
        }
    }
    Ok((running, handles))
}

fn reap_child(stat: &ProcessStat, main: Option<ProcessKey>) {
    let is_child = u32::try_from(stat.parent).is_ok_and(|parent| parent == std::process::id());
    if is_child
        && main != Some(stat.key)
        && let Some(pid) = Pid::from_raw(stat.key.pid)
    {
        // Its parent may have reaped it.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}
