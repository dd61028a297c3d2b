//! The start script of an installation, which starts the agent server sooner than its own module does.
//!
//! Knows: Python's garbage collection, and uvicorn's `Server.startup`. See docs/explanation/agent-server.md, "Boot".

use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::Path;

/// A file in the root of the virtual environment.
const NAME: &str = "boot.py";
const SCRIPT: &str = include_str!("boot.py");

/// Writes the script: an installation of an earlier release has none, or another one. Blocks.
pub(super) fn write_script(root: &Path) -> io::Result<()> {
    let file = root.join(NAME);
    if fs::read_to_string(&file).is_ok_and(|text| text == SCRIPT) {
        return Ok(());
    }
    // Concurrent starts see the old or the new file. The random number separates concurrent writers, also in containers
    // where each is process 1.
    let number = RandomState::new().build_hasher().finish();
    let unfinished = root.join(format!("{NAME}.{number:x}"));
    fs::write(&unfinished, SCRIPT)?;
    fs::rename(&unfinished, &file)
}

/// The arguments of Python: the script, or the agent server's own module if the script could not be written. Without `-P`,
/// Python would first look for modules beside the script.
pub(super) fn arguments(root: &Path) -> [OsString; 2] {
    let file = root.join(NAME);
    if file.is_file() {
        ["-P".into(), file.into_os_string()]
    } else {
        ["-m".into(), "openhands.agent_server".into()]
    }
}
