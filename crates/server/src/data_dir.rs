//! The data directory: private to its owner, and used by one service at a time.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use domain::error::chain;
use domain::id::{HostId, IdGenerator};
use secrecy::ExposeSecret as _;

#[derive(Debug, Clone)]
pub(crate) struct DataDir(PathBuf);

impl DataDir {
    /// Creates the directory (mode `0700`) if it does not exist.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| {
                format!(
                    "cannot create the data directory {}; set WORKSPACE_DATA_DIR to another path",
                    path.display()
                )
            })?;
        let dir = Self(path.to_owned());
        dir.remove_foreign_permissions();
        Ok(dir)
    }

    /// Removes the permissions of other users that an earlier release or a copy left: on the directory, on files directly
    /// in it, and on the directory of sandboxes. Entries of another account stay as they are.
    fn remove_foreign_permissions(&self) {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let entries = entries
            .map(|entry| entry.path())
            .filter(|path| !path.is_dir() || path.ends_with("sandboxes"));
        for path in std::iter::once(self.0.clone()).chain(entries) {
            // Do not follow links.
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            let mode = metadata.permissions().mode() & 0o7777;
            if metadata.is_symlink() || mode & !0o7700 == 0 {
                continue;
            }
            if let Err(error) = fs::set_permissions(&path, Permissions::from_mode(mode & 0o7700)) {
                tracing::warn!(error = %chain(&error), path = %path.display(), "cannot remove the permissions of other users: run `chmod go= {}`", path.display());
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn is_open_to_others(&self) -> anyhow::Result<bool> {
        Ok(std::fs::metadata(&self.0)?.permissions().mode() & 0o077 != 0)
    }

    pub(crate) fn master_key(&self) -> PathBuf {
        self.0.join("master.key")
    }

    /// A constant sealed with the master key, by which earlier releases detected a wrong key; now the store has it.
    pub(crate) fn canary(&self) -> PathBuf {
        self.0.join("master.check")
    }

    pub(crate) fn rotation_lock(&self) -> PathBuf {
        self.0.join("rotation.lock")
    }

    pub(crate) fn bootstrap_key(&self) -> PathBuf {
        self.0.join("bootstrap.key")
    }

    /// Created once the store has the generated key.
    pub(crate) fn bootstrap_done(&self) -> PathBuf {
        self.0.join("bootstrap.done")
    }

    /// Locks the directory for a service, until the file is closed. Two services would adopt and remove each other's sandboxes.
    pub(crate) fn lock(&self) -> anyhow::Result<File> {
        let mut file = lock_file(&self.0.join("service.lock"), |file| {
            let mut holder = String::new();
            // Only for the message: the file may be empty or name a service that has just started.
            let _ = file.take(32).read_to_string(&mut holder);
            let holder = holder.trim();
            let pid = if holder.is_empty() {
                String::new()
            } else {
                format!(" (process {holder})")
            };
            format!(
                "another agent-workspace{pid} is using the data directory {}: stop it, or set WORKSPACE_DATA_DIR \
                 to another directory",
                self.0.display()
            )
        })?;
        // Only for messages: the lock also works on a full disk.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(file)
    }

    /// Opens the directory without creating it; `None` if it does not exist.
    pub(crate) fn existing(path: &Path) -> Option<Self> {
        path.is_dir().then(|| Self(path.to_owned()))
    }

    /// The paths of a directory that may not exist.
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Whether a service uses the directory. The check takes the lock for a moment, which delays a starting service.
    pub(crate) fn is_in_use(&self) -> bool {
        let file = File::open(self.0.join("service.lock"));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    pub(crate) fn recorded_host(&self) -> Option<HostId> {
        let text = keyring::private_file::read(&self.0.join("host.id")).ok()?;
        HostId::parse(text.expose_secret()).ok()
    }

    /// The name of the backend that the last service used.
    pub(crate) fn recorded_backend(&self) -> anyhow::Result<Option<String>> {
        let path = self.backend_file();
        match fs::read_to_string(&path) {
            Ok(name) => Ok(Some(name.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(crate) fn record_backend(&self, name: &str) -> anyhow::Result<()> {
        let path = self.backend_file();
        if self.recorded_backend()?.as_deref() == Some(name) {
            return Ok(());
        }
        fs::write(&path, format!("{name}\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn backend_file(&self) -> PathBuf {
        self.0.join("backend")
    }

    /// The host id of this directory's sandboxes in the store. Chosen once.
    pub(crate) fn host(&self, ids: &dyn IdGenerator) -> anyhow::Result<HostId> {
        let path = self.0.join("host.id");
        let generate = || ids.uuid().simple().to_string().into();
        let (text, _) = keyring::private_file::read_or_create(&path, generate)
            .with_context(|| format!("cannot read or create {}", path.display()))?;
        HostId::parse(text.expose_secret()).with_context(|| {
            format!(
                "invalid host id in {}: restore the file from a backup",
                path.display()
            )
        })
    }
}

/// Creates and locks a file. The kernel releases the lock when the file is closed. `busy` is the error if another process has it.
pub(crate) fn lock_file(path: &Path, busy: impl Fn(&File) -> String) -> anyhow::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path).with_context(|| {
        let path = path.display();
        format!("cannot open {path}: it must be writable by this user")
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(busy(&file)),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use keyring::RandomIds;

    use super::*;

    #[test]
    fn the_directory_is_private_and_keeps_its_host_id() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a").join("b");
        let dir = DataDir::open(&path).unwrap();
        assert!(!dir.is_open_to_others().unwrap());
        let host = dir.host(&RandomIds).unwrap();
        assert_eq!(
            DataDir::open(&path).unwrap().host(&RandomIds).unwrap(),
            host
        );
    }

    #[test]
    fn permissions_of_others_are_removed_and_links_are_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let outside = parent.path().join("outside");
        fs::write(&outside, "").unwrap();
        fs::create_dir_all(path.join("sandboxes")).unwrap();
        fs::write(path.join("master.key"), "").unwrap();
        std::os::unix::fs::symlink(&outside, path.join("link")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for open in [&path, &path.join("sandboxes")] {
            fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
        }
        for open in [&outside, &path.join("master.key")] {
            fs::set_permissions(open, Permissions::from_mode(0o644)).unwrap();
        }
        DataDir::open(&path).unwrap();
        assert_eq!((mode(&path), mode(&path.join("sandboxes"))), (0o700, 0o700));
        assert_eq!(mode(&path.join("master.key")), 0o600);
        assert_eq!(mode(&outside), 0o644);
    }

    #[test]
    fn a_second_service_is_refused_with_the_process_id_of_the_first() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(parent.path()).unwrap();
        let lock = dir.lock().unwrap();
        let error = dir.lock().unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(lock);
        dir.lock().unwrap();
    }

    #[test]
    fn a_file_at_the_path_is_an_error_that_names_the_setting() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = DataDir::open(file.path()).unwrap_err();
        assert!(error.to_string().contains("WORKSPACE_DATA_DIR"), "{error}");
    }
}
