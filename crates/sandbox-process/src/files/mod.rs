//! The files of a sandbox: paths, lock, state and logs.

pub(crate) mod certificates;
pub(crate) mod confine;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod log_file;
mod log_stream;
pub(crate) mod state;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file that the agent can replace: neither blocks on a pipe nor follows a link.
fn untrusted() -> OpenOptions {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = File::options();
    options.custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
    options
}

/// `None` if the file or directory does not exist.
pub(crate) fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
