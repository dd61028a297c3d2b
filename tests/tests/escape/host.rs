//! Files and sockets of the host that no sandbox may see.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use acceptance::Service;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::network::is_root;

/// What the host keeps beside the service's data.
pub(crate) struct HostFiles {
    /// Beside the data directory.
    pub(crate) file: PathBuf,
    home_file: PathBuf,
    /// Below `/tmp`, as other programs' files.
    temporary: TempDir,
    run_socket: Option<PathBuf>,
    pub(crate) secret: String,
    pub(crate) neighbour_secret: String,
}

impl HostFiles {
    pub(crate) fn create(service: &Service, secret: &str) -> Self {
        let folder = service.root().join("host");
        std::fs::create_dir(&folder).expect("cannot write to the directory");
        let temporary = tempfile::Builder::new()
            .prefix("escape-")
            .tempdir_in("/tmp");
        let temporary = temporary.expect("cannot write to /tmp");
        let files = Self {
            file: folder.join("secret.txt"),
            home_file: service.root().join("home/secret.txt"),
            run_socket: is_root().then(|| format!("/run/escape-{secret}.sock").into()),
            temporary,
            secret: format!("file-{secret}"),
            neighbour_secret: format!("neighbour-{secret}"),
        };
        for path in [&files.file, &files.home_file, &files.temporary_file()] {
            std::fs::write(path, &files.secret).expect("cannot write a file of the host");
        }
        files
    }

    /// Without walls all programs share files in memory.
    pub(crate) fn memory_file(&self) -> PathBuf {
        Path::new("/dev/shm").join(&self.neighbour_secret)
    }

    fn temporary_file(&self) -> PathBuf {
        self.temporary.path().join("secret.txt")
    }

    fn temporary_socket(&self) -> PathBuf {
        self.temporary.path().join("host.sock")
    }

    fn data_socket(service: &Service) -> PathBuf {
        service.data_dir().join("escape.sock")
    }

    fn abstract_socket(&self) -> String {
        format!("escape-{}", self.secret)
    }

    /// The sockets that a listener of the host serves.
    pub(crate) fn sockets(&self, service: &Service) -> Vec<String> {
        let paths = [
            Some(self.temporary_socket()),
            Some(Self::data_socket(service)),
        ];
        let paths = paths.into_iter().chain([self.run_socket.clone()]).flatten();
        let mut all: Vec<String> = paths.map(|it| it.to_string_lossy().into_owned()).collect();
        all.push(format!("@{}", self.abstract_socket()));
        all
    }

    /// What attempts know of these.
    pub(crate) fn aims(&self, service: &Service, runner: &Path) -> Value {
        json!({
            "host_file": self.file,
            "host_file_handle": handle_of(&self.file, runner),
            "home_file": self.home_file,
            "temporary_file": self.temporary_file(),
            "temporary_socket": self.temporary_socket(),
            "data_socket": Self::data_socket(service),
            "abstract_socket": self.abstract_socket(),
            "run_socket": self.run_socket,
            "block_device": block_device_of(&service.data_dir()),
        })
    }

    pub(crate) fn assert_unchanged(&self) {
        let owner = rustix::process::geteuid().as_raw();
        for path in [&self.file, &self.home_file, &self.temporary_file()] {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            assert_eq!(text, self.secret, "{} was changed", path.display());
            let meta = path.metadata().expect("the file exists");
            assert_eq!(meta.uid(), owner, "{} was given away", path.display());
        }
    }
}

impl Drop for HostFiles {
    fn drop(&mut self) {
        for path in self.run_socket.iter().chain([&self.memory_file()]) {
            // With walls the neighbour's file is not of this machine.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A handle for `open_by_handle_at`, as hexadecimal digits; only some file systems have them.
fn handle_of(path: &Path, runner: &Path) -> Option<String> {
    let output = Command::new("python3")
        .arg("-B")
        .arg(runner)
        .arg("--handle")
        .arg(path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The number of the device of a path; `None` for a file system without one.
fn block_device_of(path: &Path) -> Option<u64> {
    let device = path.metadata().ok()?.dev();
    (rustix::fs::major(device) != 0).then_some(device)
}
