//! Prepares what bubblewrap inherits, and becomes bubblewrap.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::Mode;
use rustix::process::umask;

use crate::confinement::descriptors::{inherit, memory_file, number};
use crate::confinement::init;
use crate::confinement::init_plan::{ForkPlan, InitPlan};
use crate::confinement::network::NetworkPipes;
use crate::confinement::plan::ConfinementPlan;
use crate::confinement::{control, routes, view};
use crate::fork_server::client;
use crate::processes::launcher::enter_session;

pub(crate) const SUBCOMMAND: &str = "__confine";

/// Reads the plan from standard input. Returns only on failure.
pub(crate) fn main() -> io::Error {
    match run() {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn run() -> io::Result<Infallible> {
    let plan: ConfinementPlan = serde_json::from_reader(io::stdin().lock())?;
    let control = listen(&plan.control_socket)?;
    enter_session()?;
    let (mut arguments, files) = view::arguments(&plan)?;
    let executable = File::open("/proc/self/exe")?;
    for fd in files.iter().map(AsFd::as_fd).chain([executable.as_fd()]) {
        inherit(fd)?;
    }
    let mut handover = vec![control.into()];
    let mut info = None;
    if let Some(slirp4netns) = &plan.slirp4netns {
        let pipes = NetworkPipes::spawn(slirp4netns, &plan)?;
        inherit(pipes.info.as_fd())?;
        arguments.extend(["--info-fd".into(), number(&pipes.info)]);
        info = Some(pipes.info);
        handover.extend([pipes.start, pipes.ready, pipes.alive, pipes.exit]);
    }
    let fork_server = plan.fork_server.as_deref().and_then(connect);
    let fork = fork_server.as_ref().map(|_| ForkPlan {
        directory: plan.files.working_dir,
        cgroups: plan.cgroups.clone(),
    });
    handover.extend(fork_server);
    // slirp4netns stays outside: the sandbox shall not run out of memory there.
    for members in &plan.cgroups {
        fs::write(members, "0").map_err(|error| cannot("join", members, &error))?;
    }
    let init_plan = InitPlan {
        has_network: plan.slirp4netns.is_some(),
        own_addresses: routes::own_addresses()?,
        reachable_networks: plan.reachable_networks,
        account_id: plan.account_id,
        walls: plan.walls,
        fork,
        command: plan.command,
    };
    let init_plan = memory_file("plan", &serde_json::to_vec(&init_plan)?)?;
    handover.push(init_plan);
    let stdin = hand_over(&handover)?;
    let program = format!("/proc/self/fd/{}", executable.as_raw_fd());
    arguments.extend(["--".into(), program.into(), init::SUBCOMMAND.into()]);
    // The port is the last argument: the service finds the main process by it.
    arguments.push(plan.port.to_string().into());
    let error = Command::new(&plan.bubblewrap)
        .args(arguments)
        .stdin(stdin)
        .exec();
    drop((files, executable, info));
    Err(error)
}

/// Without the fork server, init starts the agent server by its command.
fn connect(socket: &Path) -> Option<OwnedFd> {
    match client::open_connection(socket) {
        Ok(connection) => Some(connection),
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot connect to the fork server: {error}");
            None
        }
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot {what} {}: {error}", path.display()),
    )
}

/// Puts descriptors into a socket from which init receives them, so that they are open in no other program.
fn hand_over(fds: &[OwnedFd]) -> io::Result<OwnedFd> {
    let (sender, receiver) = UnixStream::pair()?;
    control::send(
        &sender,
        0,
        fds.iter().map(AsFd::as_fd).collect::<Vec<_>>().as_slice(),
    )?;
    Ok(receiver.into())
}

/// Replaces the control socket of an earlier run.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let former = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(path);
    umask(former);
    listener
}
