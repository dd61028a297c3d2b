//! Small files with mode `0600`, written atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::ids::random_secret;

/// Longer files are rejected: the files hold a key or an id.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Creates `path` with mode `0600` and these contents, unless it exists. `false` if it did.
///
/// The contents are written and synced under another name in the same folder and then linked: a reader of `path`,
/// even after a power cut, sees all of it, and of any number of racing starters exactly one wins. A crash in between
/// leaves a hidden `.NAME.….tmp` file that no code reads.
pub fn create(path: &Path, contents: &str) -> io::Result<bool> {
    let (folder, temporary) = beside(path)?;
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
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// Puts these contents (mode `0600`) in place of what `path` holds: a reader, even after a power cut, sees all of
/// the one or all of the other.
pub fn replace(path: &Path, contents: &str) -> io::Result<()> {
    let (folder, temporary) = beside(path)?;
    let written = write_new(&temporary, contents).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // It may not be there at all; the first error says more.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    File::open(folder)?.sync_all()
}

/// The folder of a file, and a unique hidden name in it.
fn beside(path: &Path) -> io::Result<(&Path, PathBuf)> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let name = path
        .file_name()
        .ok_or(io::ErrorKind::InvalidInput)?
        .to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.tmp", &random_secret()[..16]));
    Ok((folder, temporary))
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

/// Reads a small text file, without white space at its ends.
pub fn read(path: &Path) -> io::Result<SecretString> {
    let mut text = Zeroizing::new(String::new());
    let file = File::open(path)?;
    if file.metadata()?.len() > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "larger than 64 KiB",
        ));
    }
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text.trim().into())
}

/// The contents of `path`, which is created with `fresh()` when it does not exist, and whether it was. Safe to call
/// from several processes at once: all get the same.
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
    // Read the file even after writing: another process may have won the race.
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
    fn the_first_one_wins_and_only_the_owner_reads() {
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
    fn racing_starters_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let barrier = Barrier::new(8);
        let results: Vec<_> = std::thread::scope(|scope| {
            let starters: Vec<_> = (0..8)
                .map(|n| {
                    let (path, barrier) = (&path, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        read_or_create(path, || format!("key {n}").into()).unwrap()
                    })
                })
                .collect();
            starters
                .into_iter()
                .map(|starter| starter.join().unwrap())
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
    fn a_missing_folder_a_folder_and_a_huge_file_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        assert!(create(&dir.path().join("no/such"), "x").is_err());
        assert!(read(dir.path()).is_err());
        let huge = dir.path().join("huge");
        File::create(&huge)
            .unwrap()
            .set_len(MAX_FILE_BYTES + 1)
            .unwrap();
        assert_eq!(read(&huge).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
