//! Programs by their names.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::files::is_executable;

/// Finds the program: behind the launcher, a missing program would only show as an exit. Blocks.
pub(crate) fn find_program(program: &OsStr, search_path: &str) -> io::Result<PathBuf> {
    let path = Path::new(program);
    let found = if path.components().count() > 1 {
        is_executable(path).then(|| path.to_owned())
    } else {
        let mut files = std::env::split_paths(search_path).map(|dir| dir.join(path));
        files.find(|file| is_executable(file))
    };
    found.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{} does not exist or is not executable", path.display()),
        )
    })
}
