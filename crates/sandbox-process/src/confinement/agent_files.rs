//! The files of the agent server's program that a sandbox must see.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Links between the name of a program and the program.
const MAX_LINKS: usize = 8;

/// The program, all links to it, and what belongs to it: a Python needs its prefix, and a virtual environment that of the
/// Python it is based on. Absolute paths only; others are in the system's directories. Blocks.
pub(crate) fn of(command: &[OsString]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for word in command
        .iter()
        .map(Path::new)
        .filter(|word| word.is_absolute())
    {
        let mut next = Some(word.to_owned());
        for _ in 0..MAX_LINKS {
            let Some(path) = next.filter(|path| path.exists()) else {
                break;
            };
            next = fs::read_link(&path)
                .ok()
                .and_then(|target| Some(path.parent()?.join(target)));
            files.push(prefix(&path).map_or(path.clone(), Path::to_owned));
        }
    }
    files
}

/// The directory above the program's, if it is the prefix of a Python or a virtual environment.
fn prefix(program: &Path) -> Option<&Path> {
    let prefix = program.parent()?.parent()?;
    let has_library = || {
        let mut entries = fs::read_dir(prefix.join("lib")).ok()?;
        entries.find_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.starts_with("python3").then_some(())
        })
    };
    (prefix.join("pyvenv.cfg").exists() || has_library().is_some()).then_some(prefix)
}

/// Lets other accounts read an installation of this account, which it made with a umask that hides it. The directory
/// above it may stay closed. Blocks.
pub(crate) fn make_readable(path: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    let mode = meta.permissions().mode();
    // The root comes last, so an interrupted change is repeated.
    let is_done = mode & 0o004 != 0;
    if meta.is_symlink() || meta.uid() != own || (meta.is_dir() && is_done) {
        return;
    }
    let executable = if meta.is_dir() || mode & 0o100 != 0 {
        0o555
    } else {
        0o444
    };
    if meta.is_dir() {
        let entries = fs::read_dir(path)
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        entries.for_each(|entry| make_readable(&entry.path()));
    }
    // A file that stays unreadable shows when the agent server starts.
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode | executable));
}
