//! Small files with mode `0600`, written atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::random::random_secret;

/// Larger files are refused, because the files hold keys or ids.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Creates `path` with mode `0600` and these contents, unless it exists. Returns whether it was created.
///
/// The contents are written and synced under another name in the same directory, and then linked. So a reader of `path` sees all
/// of them, even after a power cut, and exactly one of several concurrent callers creates the file. A crash in between leaves a
/// hidden `.NAME.….tmp` file that no code reads.
pub fn create(path: &Path, contents: &str) -> io::Result<bool> {
    let (directory, temporary) = temporary_path(path)?;
    let written = write_new(&temporary, contents).and_then(|()| fs::hard_link(&temporary, path));
    let removed = fs::remove_file(&temporary);
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.exists() => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    removed?;
    File::open(directory)?.sync_all()?;
    Ok(true)
}

/// Replaces `path` by a file with mode `0600` and these contents. A reader sees either all of the old or all of the new contents,
/// even after a power cut.
pub fn replace(path: &Path, contents: &str) -> io::Result<()> {
    let (directory, temporary) = temporary_path(path)?;
    let written = write_new(&temporary, contents).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The file may not exist. The first error is the cause.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    File::open(directory)?.sync_all()
}

/// The directory of a file, and a unique hidden path in it.
fn temporary_path(path: &Path) -> io::Result<(&Path, PathBuf)> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let name = path
        .file_name()
        .ok_or(io::ErrorKind::InvalidInput)?
        .to_string_lossy();
    let temporary = directory.join(format!(".{name}.{}.tmp", &random_secret()[..16]));
    Ok((directory, temporary))
}

fn write_new(path: &Path, contents: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()
}

/// Reads a small text file, without the white space at its start and end.
pub fn read(path: &Path) -> io::Result<SecretString> {
    let mut text = Zeroizing::new(String::new());
    let file = File::open(path)?;
    if file.metadata()?.len() > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the file is larger than 64 KiB",
        ));
    }
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text.trim().into())
}

/// Reads `path`, or creates it with `fresh()` if it does not exist. Also returns whether it was created. Processes that call this
/// at the same time all get the same contents.
pub fn read_or_create(
    path: &Path,
    fresh: impl FnOnce() -> SecretString,
) -> io::Result<(SecretString, bool)> {
    use secrecy::ExposeSecret as _;
    match read(path) {
        Ok(text) => return Ok((text, false)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let text = Zeroizing::new(format!("{}\n", fresh().expose_secret()));
    let created = create(path, &text)?;
    // Read the file even after writing it, because another process may have created it first.
    Ok((read(path)?, created))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Barrier;

    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn the_first_creation_wins_and_only_the_owner_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        assert!(create(&path, "one\n").unwrap());
        assert!(!create(&path, "two\n").unwrap());
        assert_eq!(read(&path).unwrap().expose_secret(), "one");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn concurrent_callers_get_the_same_contents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let barrier = Barrier::new(8);
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|n| {
                    let (path, barrier) = (&path, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        read_or_create(path, || format!("key {n}").into()).unwrap()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let texts: HashSet<_> = results
            .iter()
            .map(|(text, _)| text.expose_secret())
            .collect();
        assert_eq!(texts.len(), 1);
        assert_eq!(results.iter().filter(|(_, created)| *created).count(), 1);
    }

    #[test]
    fn directories_and_large_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        assert!(create(&dir.path().join("no/such"), "x").is_err());
        assert!(read(dir.path()).is_err());
        let large = dir.path().join("large");
        File::create(&large)
            .unwrap()
            .set_len(MAX_FILE_BYTES + 1)
            .unwrap();
        assert_eq!(
            read(&large).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }
}
