//! Section `git`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use settings::SettingReader;

/// Largest file of certificate authorities, in bytes.
const MAX_CA_FILE_BYTES: u64 = 1 << 20;

/// Calls to git providers. `compose/git.rs` interprets hosts and certificates.
#[derive(Debug, Clone)]
pub(crate) struct GitSettings {
    /// Private hosts that may be called: names, networks, or `*`.
    pub(crate) private_hosts: Vec<String>,
    /// Additional certificate authorities: the file and its content.
    pub(crate) authorities: Option<(PathBuf, Vec<u8>)>,
    pub(crate) verify_tokens: bool,
    /// Time for an operation, including all its requests.
    pub(crate) timeout: Duration,
}

impl GitSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            private_hosts: reader.list("git.allow_private_hosts"),
            authorities: authorities(reader, "git.ca_file"),
            verify_tokens: reader.switch("git.verify_tokens"),
            timeout: reader.deadline("git.timeout"),
        }
    }
}

/// The file of this setting, and its content.
pub(super) fn authorities(reader: &SettingReader<'_>, key: &str) -> Option<(PathBuf, Vec<u8>)> {
    let path = reader.optional_path(key)?;
    match read_bounded(&path) {
        Ok(text) => Some((path, text)),
        Err(error) => {
            let path = path.display();
            reader.problem(
                key,
                &format!("names a file that cannot be read: {path}: {error}"),
            );
            None
        }
    }
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > MAX_CA_FILE_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    std::fs::read(path)
}
