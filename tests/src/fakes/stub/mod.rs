//! A stub agent server: it implements enough of the protocol for fault tests, starts in milliseconds and needs no Python. Its
//! program is `stub-agent-server --dir DIR --host H --port P`.
//!
//! Faults are words in the file `faults` in its directory. It reads the file at its start and at every request:
//!
//! | word | effect |
//! |---|---|
//! | `exit-at-start` | prints the reason on standard error and exits |
//! | `exit-at-start-N` | only the first N starts |
//! | `boots-slowly` | listens 300 ms after its start |
//! | `silent` | accepts connections and never responds |
//! | `create-hang`, `create-500`, `create-garbage`, `create-huge` | faults of POST /api/conversations |
//! | `create-echo` | POST /api/conversations fails with an error that quotes the request |
//! | `bash-echo` | commands fail, and quote themselves in their output |
//! | `create-slow` | adds the first message one second after creating the conversation |
//! | `read-hang`, `read-garbage`, `read-huge` | faults of reading conversations and events |
//! | `send-hang`, `send-500` | faults of sending a message |
//! | `send-mute` | adds a message, and never responds |
//! | `no-webhooks` | sends no reports |
//!
//! Words anywhere in a message control its run:
//!
//! | word | effect |
//! |---|---|
//! | `DIE` | the process aborts during the run |
//! | `HOG` | the process allocates memory until it is killed; only for sandboxes with a limit |
//! | `HOLD` | the run continues until the file `go` exists in the directory |
//! | `STEPS=N` | N actions before the last one (default 1) |
//!
//! Commands succeed without output, unless it is started with `--run-commands yes`.
//!
//! In containers of its image, which `cargo xtask prepare` builds, the directory is mounted at [`Stub::DIR_IN_CONTAINERS`].
//!
//! Each report is sent once; the service must fetch what it misses. Every request is a line in the file `calls`.

mod commands;
mod conversation;
mod echo;
mod faults;
mod identity;
mod reports;
mod server;
pub mod traffic;
mod workspace_routes;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::agent_server::built_program;

pub use server::{StubOptions, serve};

/// The test's handle: a directory that all processes of the stub share.
pub struct Stub {
    dir: TempDir,
}

impl Stub {
    /// A stub without faults.
    ///
    /// # Panics
    /// When its directory cannot be created.
    #[must_use]
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("aw-stub-").tempdir();
        let dir = dir.expect("cannot create a temporary directory");
        // Confined sandboxes have ids of their own.
        let shared = std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777));
        shared.expect("cannot share the temporary directory");
        Self { dir }
    }

    /// A stub with these faults.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn with_faults(faults: &str) -> Self {
        let stub = Self::new();
        stub.set_faults(faults);
        stub
    }

    /// Replaces the faults.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set_faults(&self, faults: &str) {
        // A rename, so that concurrent readers see the old words or the new ones.
        let unfinished = self.dir.path().join("faults.new");
        std::fs::write(&unfinished, faults).expect("cannot write the faults");
        let file = self.dir.path().join(faults::FAULTS_FILE);
        std::fs::rename(unfinished, file).expect("cannot write the faults");
    }

    /// Lets held runs (`HOLD`) continue.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn continue_runs(&self) {
        std::fs::write(self.dir.path().join(conversation::CONTINUE_FILE), "")
            .expect("cannot write the file");
    }

    /// The mount point of its directory in containers.
    pub const DIR_IN_CONTAINERS: &str = "/stub";

    /// The value of `WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND`.
    #[must_use]
    pub fn command(&self) -> String {
        Self::command_in(self.dir.path())
    }

    pub(crate) fn command_in(dir: &Path) -> String {
        let program = built_program("stub-agent-server");
        format!("'{}' --dir '{}'", program.display(), dir.display())
    }

    /// Requests to all processes so far: `METHOD path?query`.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.lines_of(server::CALLS_FILE)
    }

    /// Bodies of the requests that create conversations, as JSON.
    #[must_use]
    pub fn creates(&self) -> Vec<String> {
        self.lines_of(server::CREATES_FILE)
    }

    /// The number of started processes.
    #[must_use]
    pub fn starts(&self) -> usize {
        self.lines_of(server::STARTS_FILE).len()
    }

    fn lines_of(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The shared directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Default for Stub {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends a line in one write, so that concurrent processes do not mix lines.
fn append(file: PathBuf, line: &str) {
    use std::io::Write as _;
    let opened = std::fs::File::options()
        .create(true)
        .append(true)
        .open(file);
    if let Ok(mut file) = opened {
        // The directory may be gone after its test.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
