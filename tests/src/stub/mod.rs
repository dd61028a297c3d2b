//! A stub agent server: speaks enough of the agent server's protocol for fault tests, starts in milliseconds, needs no
//! Python. Its program is `stub-agent-server --dir DIR --host H --port P`.
//!
//! Faults are words in the file `faults` in its directory, read at the start and at every request, so that a test can
//! change them at any time:
//!
//! | word | effect |
//! |---|---|
//! | `exit-at-start` | says why on standard error and ends |
//! | `exit-at-start-N` | only the first N starts |
//! | `boots-slowly` | listens some tenths of a second after its start |
//! | `silent` | accepts connections and never answers |
//! | `create-hang`, `create-500`, `create-garbage`, `create-huge` | what becomes of POST /api/conversations |
//! | `create-echo` | making a conversation is refused with an error that quotes the request |
//! | `bash-echo` | commands fail, and quote themselves in what they print |
//! | `create-slow` | says the first message one second after making the conversation |
//! | `read-hang`, `read-garbage`, `read-huge` | what becomes of reading conversations and events |
//! | `send-hang`, `send-500` | what becomes of a message |
//! | `send-mute` | a message is taken, and never answered |
//! | `no-webhooks` | reports nothing |
//!
//! Words in a message steer its run (joined by blanks, anywhere in the text):
//!
//! | word | effect |
//! |---|---|
//! | `DIE` | the process ends while the run is under way |
//! | `HOG` | the process takes memory until it is killed: only where that is limited |
//! | `HOLD` | the run goes on until the file `go` is in the directory |
//! | `STEPS=N` | so many actions before the last one (default 1) |
//!
//! In containers of its image (`cargo xtask prepare` makes it) the directory is mounted at [`Stub::DIR_IN_CONTAINERS`].
//!
//! Reports are posted once and not again: what the service misses it has to fetch. Every request is a line in the file
//! `calls`.

mod conversation;
mod echo;
mod faults;
mod identity;
mod inside;
mod reports;
mod server;
pub mod traffic;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::agent_server::built;

pub use server::{Options, serve};

/// The stub as a test sees it: a directory that all of its processes share.
pub struct Stub {
    dir: TempDir,
}

impl Stub {
    /// Without faults.
    ///
    /// # Panics
    /// When there is no place for its directory.
    #[must_use]
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("aw-stub-").tempdir();
        Self {
            dir: dir.expect("a temporary directory can be made"),
        }
    }

    /// With these faults.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn with(faults: &str) -> Self {
        let stub = Self::new();
        stub.set(faults);
        stub
    }

    /// From now on these faults and no other.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, faults: &str) {
        // In one step: a process that reads meanwhile sees the old words or the new ones.
        let unfinished = self.dir.path().join("faults.new");
        std::fs::write(&unfinished, faults).expect("the stub's directory is writable");
        let file = self.dir.path().join(faults::FILE);
        std::fs::rename(unfinished, file).expect("the stub's directory is writable");
    }

    /// Lets runs that HOLD go on.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn go(&self) {
        std::fs::write(self.dir.path().join(conversation::GO), "").expect("it is writable");
    }

    /// Where its directory is in containers of its image.
    pub const DIR_IN_CONTAINERS: &str = "/stub";

    /// For `WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND`.
    #[must_use]
    pub fn command(&self) -> String {
        Self::command_in(self.dir.path())
    }

    pub(crate) fn command_in(dir: &Path) -> String {
        let program = built("stub-agent-server");
        format!("'{}' --dir '{}'", program.display(), dir.display())
    }

    /// Requests so far, `METHOD path?query`, of all processes.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join(server::CALLS));
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// What it was sent to make conversations: a JSON document each.
    #[must_use]
    pub fn creates(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join(server::CREATES));
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// How often a process of it was started.
    #[must_use]
    pub fn starts(&self) -> usize {
        let text = std::fs::read_to_string(self.dir.path().join(server::STARTS));
        text.unwrap_or_default().lines().count()
    }

    /// The directory.
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

/// Appends a line in one write, so that lines of several processes do not mix.
fn append(file: PathBuf, line: &str) {
    use std::io::Write as _;
    let opened = std::fs::File::options()
        .create(true)
        .append(true)
        .open(file);
    if let Ok(mut file) = opened {
        // The test that owns the directory may be over.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
