//! Process 1 of a sandbox: raises the walls, starts the agent server, and serves the control socket.
//!
//! It starts with the few capabilities that bubblewrap left, and has none when the agent server exists. It stays
//! single-threaded, so that everything it drops is dropped for the whole process.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, kill_process, set_dumpable_behavior,
    set_parent_process_death_signal, wait,
};
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::confinement::agent_start::{self, ForkConnection};
use crate::confinement::control::{self, ControlRequest, Listeners};
use crate::confinement::init_plan::InitPlan;
use crate::confinement::routes;
use crate::confinement::view::INNER_ID;
use crate::confinement::walls;

pub(crate) const SUBCOMMAND: &str = "__init";

/// slirp4netns needs some milliseconds.
const NETWORK_TIMEOUT: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};
/// The service sends its request with the connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The descriptors that the launcher hands to init.
struct Handover {
    control: UnixListener,
    network: Option<NetworkEnds>,
    fork_server: Option<OwnedFd>,
    plan: InitPlan,
}

struct NetworkEnds {
    start: OwnedFd,
    ready: OwnedFd,
    alive: OwnedFd,
    /// Open as long as init lives, see `NetworkPipes`.
    _exit: OwnedFd,
}

/// Returns only on failure.
pub(crate) fn main() -> io::Error {
    match run() {
        Ok(code) => std::process::exit(code),
        Err(error) => error,
    }
}

fn run() -> io::Result<i32> {
    let mut handover = receive()?;
    if let Some(network) = &handover.network {
        await_network(network)?;
        let plan = &handover.plan;
        routes::set(&plan.own_addresses, &plan.reachable_networks)?;
    }
    become_user(handover.plan.account_id)?;
    let walls = &handover.plan.walls;
    let connection = handover.fork_server.take();
    let fork_server = connection.map(|fd| ForkConnection::new(fd, walls));
    let fork_server = fork_server.transpose()?;
    if fork_server.is_some() {
        walls::raise_without_landlock(walls)?;
    } else {
        walls::raise(walls)?;
    }
    // A process of the agent has the same user: it must not take over this one.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // A change of credentials clears this, so it comes last.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let agent = agent_start::start(&handover.plan, fork_server.as_ref())?;
    // The agent must not get the connection from this process.
    drop(fork_server);
    supervise(&handover, agent)
}

fn receive() -> io::Result<Handover> {
    let (_, mut fds) = control::receive(io::stdin())?;
    let mut text = Vec::new();
    let plan = fds.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
    File::from(plan).read_to_end(&mut text)?;
    let plan: InitPlan = serde_json::from_slice(&text)?;
    let mut fds = fds.into_iter();
    let mut next = || {
        fds.next()
            .ok_or_else(|| io::Error::other("a descriptor of the launcher is missing"))
    };
    Ok(Handover {
        control: UnixListener::from(next()?),
        network: if plan.has_network {
            Some(NetworkEnds {
                start: next()?,
                ready: next()?,
                alive: next()?,
                _exit: next()?,
            })
        } else {
            None
        },
        fork_server: if plan.fork.is_some() {
            Some(next()?)
        } else {
            None
        },
        plan,
    })
}

fn await_network(network: &NetworkEnds) -> io::Result<()> {
    rustix::io::write(&network.start, &[1])?;
    let mut ends = [
        PollFd::new(&network.ready, PollFlags::IN),
        PollFd::new(&network.alive, PollFlags::IN),
    ];
    poll(&mut ends, Some(&NETWORK_TIMEOUT))?;
    let mut ready = [0];
    if ends[0].revents().contains(PollFlags::IN)
        && rustix::io::read(&network.ready, &mut ready)? > 0
    {
        return Ok(());
    }
    Err(io::Error::other(
        "slirp4netns did not connect the sandbox to the network; the operator finds its message in the runtime \
         directory (*.network.log)",
    ))
}

/// Becomes the sandbox's user in a user namespace of its own. Its capabilities there last until the walls are raised.
fn become_user(account_id: Option<u32>) -> io::Result<()> {
    let outer = account_id.unwrap_or(0);
    if let Some(id) = account_id {
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        // The change of the user made `/proc/self` root's.
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    }
    #[expect(
        deprecated,
        reason = "the successor is `unsafe` for the sake of descriptor tables, which stay as they are"
    )]
    rustix::thread::unshare(UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{INNER_ID} {outer} 1"))?;
    fs::write("/proc/self/gid_map", format!("{INNER_ID} {outer} 1"))?;
    Ok(())
}

/// Serves the control socket and reaps orphans until the agent server has exited. Returns its exit code.
fn supervise(handover: &Handover, agent: Pid) -> io::Result<i32> {
    let (signals, on_signal) = UnixStream::pair()?;
    signals.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(Signal::CHILD.as_raw(), on_signal)?;
    handover.control.set_nonblocking(true)?;
    let mut listeners = Listeners::new();
    loop {
        // Before the wait: a child may have exited before the handler existed.
        if let Some(code) = reap(agent)? {
            return Ok(code);
        }
        let mut sources = vec![
            PollFd::new(&signals, PollFlags::IN),
            PollFd::new(&handover.control, PollFlags::IN),
        ];
        sources.extend(
            handover
                .network
                .iter()
                .map(|network| PollFd::new(&network.alive, PollFlags::IN)),
        );
        match poll(&mut sources, None) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        let is_ready = |at: usize| sources.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let (is_signalled, is_asked, is_offline) = (is_ready(0), is_ready(1), is_ready(2));
        drop(sources);
        if is_signalled {
            let _ = (&signals).read(&mut [0; 64]);
        }
        if is_asked && let Ok((stream, _)) = handover.control.accept() {
            // The service may have gone away.
            let _ = serve(&stream, agent, &mut listeners);
        }
        if is_offline {
            return Err(io::Error::other(
                "slirp4netns has exited: the sandbox ends, because it has no network any more",
            ));
        }
    }
}

/// Reaps all exited children. The agent server's exit code, if it is among them: 128 + the signal that ended it.
fn reap(agent: Pid) -> io::Result<Option<i32>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == agent => {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                return Ok(status.exit_status().or(signal).or(Some(1)));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

fn serve(stream: &UnixStream, agent: Pid, listeners: &mut Listeners) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut bytes = [0; 3];
    let mut reader = stream;
    reader.read_exact(&mut bytes)?;
    let Some(request) = ControlRequest::decode(bytes) else {
        return Ok(());
    };
    if request == ControlRequest::Terminate {
        // The agent server is not reaped yet, so its pid is its own.
        kill_process(agent, Signal::TERM)?;
        // A stopped process would not handle the signal.
        kill_process(agent, Signal::CONT)?;
    }
    control::respond(stream, request, listeners)
}
