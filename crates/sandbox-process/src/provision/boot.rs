//! The start script of an installation. The agent server's starts it sooner than its own module does (see
//! docs/explanation/agent-server.md, "Boot"); the automations service's puts interrupted runs back.

use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::Path;

/// A file in the root of the virtual environment.
const NAME: &str = "boot.py";

/// Writes the script: an installation of an earlier release has none, or another one. Blocks.
pub(super) fn write_script(root: &Path, script: &str) -> io::Result<()> {
    let file = root.join(NAME);
    if fs::read_to_string(&file).is_ok_and(|text| text == script) {
        return Ok(());
    }
    // Concurrent starts see the old or the new file. The random number separates concurrent writers, also in containers
    // where each is process 1.
    let number = RandomState::new().build_hasher().finish();
    let unfinished = root.join(format!("{NAME}.{number:x}"));
    fs::write(&unfinished, script)?;
    fs::rename(&unfinished, &file)
}

/// The arguments of Python: the script, or `otherwise` if the script could not be written. Without `-P`, Python would first
/// look for modules beside the script.
pub(super) fn arguments(root: &Path, otherwise: &[&str]) -> Vec<OsString> {
    let file = root.join(NAME);
    if file.is_file() {
        vec!["-P".into(), file.into_os_string()]
    } else {
        otherwise.iter().map(OsString::from).collect()
    }
}
