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

/// The prefix of a Python or of a virtual environment, if the program is in its folder `bin`. Never `/`, which the system's
/// `/lib/python3` would make one.
fn prefix(program: &Path) -> Option<&Path> {
    let folder = program.parent().filter(|folder| folder.ends_with("bin"))?;
    let prefix = folder.parent().filter(|prefix| prefix.parent().is_some())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&Path]) -> Vec<PathBuf> {
        of(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_python_is_shown_with_its_prefix_and_other_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for folder in ["venv/bin", "venv/lib/python3.12", "tools/bin", "tools/lib"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        for file in ["venv/bin/python", "venv/script", "tools/bin/agent"] {
            fs::write(path(file), "").unwrap();
        }
        assert_eq!(shown(&[&path("venv/bin/python")]), [path("venv")]);
        for alone in ["venv/script", "tools/bin/agent"] {
            assert_eq!(shown(&[&path(alone)]), [path(alone)]);
        }
    }

    #[test]
    fn the_root_of_the_machine_is_never_shown() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        for word in [Path::new("/bin/sh"), Path::new("/etc/passwd"), dir.path()] {
            let files = shown(&[word]);
            assert!(
                !files.is_empty() && !files.contains(&"/".into()),
                "{files:?}"
            );
        }
    }
}
