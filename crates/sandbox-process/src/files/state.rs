//! The persistent state of a sandbox: its process, and whether it was stopped on request.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use domain::error::chain;
use serde::{Deserialize, Serialize};

use crate::files::untrusted;
use crate::processes::marker::{self, Marker};
use crate::processes::proc::{self, ProcessKey};

const MAX_STATE_BYTES: u64 = 64 * 1024;

/// Content of `process.json`. Written before and after every change, so that each gap between two writes has one meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessState {
    pub(crate) phase: LifecyclePhase,
    /// The port of the agent server. The next start tries it first, so that direct URLs stay valid.
    pub(crate) port: u16,
    /// The main process. `None` in [`LifecyclePhase::Starting`]: it may or may not exist.
    pub(crate) process: Option<ProcessKey>,
    pub(crate) boot: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LifecyclePhase {
    Starting,
    Running,
    Stopping,
    Stopped,
    Exited {
        /// The cause, for a person.
        detail: String,
    },
}

impl LifecyclePhase {
    /// The name of the crash point around the write. Tests know these names.
    pub(crate) const fn crash_point_name(&self) -> &'static str {
        match self {
            Self::Starting => "process: writing that it starts",
            Self::Running => "process: writing that it runs",
            Self::Stopping => "process: writing that it is being stopped",
            Self::Stopped => "process: writing that it is stopped",
            Self::Exited { .. } => "process: writing that it ended",
        }
    }
}

impl ProcessState {
    /// Reads the file; `None` without a readable one. The sandbox is then found by its marker, or started on the same
    /// directory. Blocks.
    pub(crate) fn load(path: &Path) -> Option<Self> {
        let mut text = Vec::new();
        // The agent can write here: neither a pipe nor a huge file may block the service.
        let file = untrusted().read(true).open(path).ok()?;
        file.take(MAX_STATE_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text)
            .inspect_err(
                |error| tracing::warn!(error = %chain(&error), file = %path.display(), "invalid state file; the sandbox is found by the variable in its processes' environment, or started again"),
            )
            .ok()
    }

    /// Replaces the file atomically and durably. Blocks.
    pub(crate) fn store(&self, file: &Path) -> io::Result<()> {
        let unfinished = file.with_extension("json.tmp");
        let mut out = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        out.write_all(&serde_json::to_vec(self)?)?;
        out.sync_all()?;
        fs::rename(&unfinished, file)?;
        file.parent()
            .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }

    /// The main process, if it is known, runs, and has the sandbox's marker (the agent can write the file). Blocks.
    pub(crate) fn running_process(&self, marker: &Marker) -> Option<ProcessKey> {
        self.main()
            .filter(|key| proc::is_alive(*key) && marker.marks(key.pid))
    }

    /// The running main process, also when its start was interrupted before it was recorded. Blocks.
    pub(crate) fn find_process(&self, marker: &Marker) -> Option<ProcessKey> {
        match self.phase {
            LifecyclePhase::Starting if self.boot == proc::boot_id() => {
                marker::find_main(marker, self.port)
            }
            _ => self.running_process(marker),
        }
    }

    /// The main process recorded in this boot of the machine.
    pub(crate) fn main(&self) -> Option<ProcessKey> {
        self.process.filter(|_| self.boot == proc::boot_id())
    }
}
