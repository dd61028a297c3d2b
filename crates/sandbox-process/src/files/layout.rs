//! The files of a sandbox: their paths, creation and deletion.
//!
//! ```text
//! <data>/sandboxes/
//!   <id>.lock              flock: one operation at a time, also between two services
//!   <id>/
//!     process.json         process, port, and whether the sandbox was stopped on request
//!     agent-server.log     and .log.1
//!     certificates.pem     of a confined sandbox: what its programs trust; certificates.jks for Java
//!     home/ workspace/ conversations/ bash_events/ persist/
//! <runtime>/<hash of instance and id>/
//!   tmux-<uid>/ tmp/       short paths, because socket paths are limited to 107 bytes
//! <runtime>/<hash of instance and id>.sock         of a confined sandbox: the control socket, which does not exist inside
//! <runtime>/<hash of instance and id>.network.log  and the output of its network process
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use domain::crash_point;
use domain::id::{HostId, SandboxId};

use crate::files::if_exists;

/// The longest path of a Unix socket on Linux, without its NUL.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The length of the longest suffix of a socket's path in the runtime directory: `/<12 hex digits>/tmux-<uid>/openhands-<32 hex digits>`.
fn max_suffix_bytes() -> usize {
    let uid = rustix::process::geteuid().as_raw().to_string();
    "/".len() + 12 + "/tmux-".len() + uid.len() + "/openhands-".len() + 32
}

/// Whether the paths of sockets in this runtime directory are short enough.
pub(crate) fn fits(runtime: &Path) -> bool {
    runtime.as_os_str().len() + max_suffix_bytes() <= MAX_SOCKET_PATH_BYTES
}

#[derive(Debug, Clone)]
pub(crate) struct DataLayout {
    sandboxes: PathBuf,
    runtime: PathBuf,
    instance: HostId,
}

#[derive(Debug, Clone)]
pub(crate) struct SandboxPaths {
    pub(crate) root: PathBuf,
    pub(crate) short: PathBuf,
    pub(crate) lock: PathBuf,
    /// Exists if the sandbox was last started confined.
    pub(crate) control: PathBuf,
}

impl DataLayout {
    /// Fails if the runtime directory is too long for sockets.
    pub(crate) fn new(data: &Path, runtime: &Path, instance: HostId) -> Result<Self, String> {
        if !data.is_absolute() || data.to_str().is_none() {
            return Err("the data directory must be an absolute path in UTF-8".into());
        }
        let layout = Self {
            sandboxes: data.join("sandboxes"),
            runtime: runtime.into(),
            instance,
        };
        if !runtime.is_absolute() || runtime.to_str().is_none() || !fits(runtime) {
            let max_bytes = MAX_SOCKET_PATH_BYTES - max_suffix_bytes();
            return Err(format!(
                "the runtime directory must be an absolute path of at most {max_bytes} bytes"
            ));
        }
        Ok(layout)
    }

    pub(crate) fn paths(&self, id: &SandboxId) -> SandboxPaths {
        let short = sandbox_provider::short_digest(&[
            self.instance.as_str().as_bytes(),
            id.as_str().as_bytes(),
        ]);
        SandboxPaths {
            root: self.sandboxes.join(id.as_str()),
            control: self.runtime.join(format!("{short}.sock")),
            short: self.runtime.join(short),
            lock: self.sandboxes.join(format!("{id}.lock")),
        }
    }

    /// Creates both roots. Blocks.
    pub(crate) fn create(&self) -> io::Result<()> {
        private_dir(&self.sandboxes)?;
        private_dir(&self.runtime)?;
        // The parent of the runtime directory may be writable by all users: another user may have created it before.
        let meta = fs::symlink_metadata(&self.runtime)?;
        let is_own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
        if !is_own || meta.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the runtime directory must be a directory of this user with mode 0700",
            ));
        }
        Ok(())
    }

    /// The ids of all sandbox directories. Blocks.
    pub(crate) fn ids(&self) -> io::Result<Vec<SandboxId>> {
        let entries = if_exists(fs::read_dir(&self.sandboxes))?;
        let entries = entries.into_iter().flatten().filter_map(Result::ok);
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        Ok(directories
            .filter_map(|entry| SandboxId::parse(entry.file_name().into_string().ok()?).ok())
            .collect())
    }
}

impl SandboxPaths {
    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    pub(crate) fn bash_events(&self) -> PathBuf {
        self.root.join("bash_events")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.root.join("agent-server.log")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("process.json")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.short.join("tmp")
    }

    /// The directories below the root in which the agent server writes.
    pub(crate) fn writable(&self) -> [PathBuf; 5] {
        [
            self.workspace(),
            self.root.join("conversations"),
            self.bash_events(),
            self.home(),
            // The agent server's own settings.
            self.root.join("persist"),
        ]
    }

    /// The certificates that programs of a confined sandbox trust.
    pub(crate) fn certificates(&self) -> PathBuf {
        self.root.join("certificates.pem")
    }

    /// The output of the network process of a confined sandbox.
    pub(crate) fn network_log(&self) -> PathBuf {
        self.control.with_extension("network.log")
    }

    /// Creates all missing directories. Blocks.
    pub(crate) fn create(&self) -> io::Result<()> {
        private_dir(&self.root)?;
        let all = self.writable();
        all.iter().try_for_each(|dir| private_dir(dir))?;
        private_dir(&self.tmp())
    }

    /// Deletes all but the lock. The state file is deleted last, so that a sandbox with undeletable files is still listed.
    /// Blocks.
    pub(crate) fn delete(&self) -> io::Result<()> {
        let delete =
            |path: &Path| crash_point::around("process: deleting files", || delete_tree(path));
        delete(&self.short)?;
        delete(&self.control)?;
        delete(&self.network_log())?;
        let mut entries = entries(&self.root)?;
        entries.retain(|entry| *entry != self.state());
        entries.iter().try_for_each(|entry| delete(entry))?;
        delete(&self.root)
    }
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = if_exists(fs::read_dir(dir))?.into_iter().flatten();
    entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect()
}

fn private_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// Deletes a file or a tree, if it exists. Never follows a symbolic link.
fn delete_tree(path: &Path) -> io::Result<()> {
    let remove = || match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    let removed = remove().or_else(|error| match error.kind() {
        // Caches of some tools (Go modules) have read-only directories.
        io::ErrorKind::PermissionDenied => {
            make_deletable(path);
            remove()
        }
        _ => Err(error),
    });
    if_exists(removed).map(drop)
}

/// Gives the owner all permissions on the directories of a tree, as far as possible.
fn make_deletable(path: &Path) {
    let mut open = vec![path.to_owned()];
    while let Some(dir) = open.pop() {
        if !fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        open.extend(entries(&dir).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_socket_path_fits() {
        let instance = HostId::parse("i").unwrap();
        let data = Path::new("/data");
        let max_bytes = MAX_SOCKET_PATH_BYTES - max_suffix_bytes();
        let runtime = PathBuf::from(format!("/{}", "r".repeat(max_bytes - 1)));
        let layout = DataLayout::new(data, &runtime, instance.clone()).unwrap();
        let paths = layout.paths(&SandboxId::parse("x".repeat(64)).unwrap());
        let uid = rustix::process::geteuid().as_raw();
        let socket = format!(
            "{}/tmux-{uid}/openhands-{}",
            paths.short.display(),
            "f".repeat(32)
        );
        assert_eq!(socket.len(), MAX_SOCKET_PATH_BYTES, "{socket}");
        for bad in ["relative".to_owned(), format!("/{}", "r".repeat(max_bytes))] {
            assert!(DataLayout::new(data, Path::new(&bad), instance.clone()).is_err());
        }
    }

    #[test]
    fn deleting_a_tree_includes_read_only_directories_and_follows_no_links() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, "kept").unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("locked/deep")).unwrap();
        fs::write(tree.join("locked/deep/file"), "").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("locked/link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), tree.join("up")).unwrap();
        fs::set_permissions(tree.join("locked/deep"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(tree.join("locked"), fs::Permissions::from_mode(0o500)).unwrap();
        delete_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(outside).unwrap(), "kept");
        delete_tree(&tree).unwrap();
    }
}
