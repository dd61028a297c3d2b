//! The script in an installation that starts its agent server sooner than the agent server's own module does.
//!
//! Knows: how Python collects garbage, and uvicorn's `Server.startup`. See docs/explanation/agent-server.md, "Boot".

use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::Path;

/// In the root of the virtual environment.
const NAME: &str = "boot.py";
const SCRIPT: &str = include_str!("boot.py");

/// Puts the script there: an installation of an earlier release of ours has none, or another one. Blocks.
pub(super) fn put(root: &Path) -> io::Result<()> {
    let file = root.join(NAME);
    if fs::read_to_string(&file).is_ok_and(|text| text == SCRIPT) {
        return Ok(());
    }
    // Sandboxes may be starting: they see the old one or the new one. A number by chance, as others may be at the same, also in
    // containers where each is process 1.
    let number = RandomState::new().build_hasher().finish();
    let unfinished = root.join(format!("{NAME}.{number:x}"));
    fs::write(&unfinished, SCRIPT)?;
    fs::rename(&unfinished, &file)
}

/// What Python is told to run: the script, or the agent server's own module where that could not be written. Without `-P`
/// Python would look for modules beside the script first.
pub(super) fn arguments(root: &Path) -> [OsString; 2] {
    let file = root.join(NAME);
    if file.is_file() {
        ["-P".into(), file.into_os_string()]
    } else {
        ["-m".into(), "openhands.agent_server".into()]
    }
}
