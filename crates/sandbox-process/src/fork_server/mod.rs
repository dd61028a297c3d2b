//! Forks agent servers from a process that has already imported their libraries, which takes a tenth of the time of a boot.
//!
//! Knows: Python, and what an agent server reads at import. Must never know: a sandbox's life cycle.
//!
//! ```text
//! <runtime>/<hash of instance>/   of the fork server, mode 0700
//!   fork_server.py self_test.py   this release's scripts
//!   modules.json                  what an earlier rehearsal loaded, if that holds
//!   socket                        one connection per start
//!   log                           of the fork server
//!   server/                       the directories that its environment names
//!   self-test-0/ self-test-1/     the directories of the agent servers of a self-test
//! ```
//!
//! * `process` runs one server: starts it, tests it, waits for its end, and starts the next one.
//! * `record` keeps the results of a rehearsal and a self-test with the installation, for the next server.
//! * `client` is the side of a sandbox's launcher and init.
//!
//! A child is the child of its sandbox's init, not of the server. So the server may end at any time, and ends with the service.

pub(crate) mod client;
mod process;
mod record;
mod template;

use std::path::PathBuf;

use sandbox_provider::BackendTasks;
use tokio::sync::watch;

pub(crate) use template::ForkServerTemplate;

/// Whether agent servers are forked from a process that has imported their libraries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForkServerMode {
    /// Where the fork server runs and has passed its self-test; the others boot the usual way.
    #[default]
    Auto,
    /// Always: a start waits for the fork server.
    On,
    /// Never.
    Off,
}

/// The fork server of an installation.
#[derive(Debug)]
pub(crate) struct ForkServer {
    socket: watch::Receiver<Option<PathBuf>>,
}

impl ForkServer {
    /// Starts it in the background, and again when it ends.
    pub(crate) fn start(tasks: &BackendTasks, template: ForkServerTemplate) -> Self {
        let (sender, socket) = watch::channel(None);
        tasks.spawn(process::supervise(template, sender));
        Self { socket }
    }

    /// The socket, if the server runs and has passed its self-test.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        self.socket.borrow().clone()
    }

    /// Waits for it. Never returns if the server fails its self-test.
    pub(crate) async fn ready_socket(&self) -> Option<PathBuf> {
        let mut socket = self.socket.clone();
        let ready = socket.wait_for(Option::is_some).await;
        ready.ok()?.clone()
    }
}
