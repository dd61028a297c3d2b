//! Section `storage`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use settings::SettingReader;

#[derive(Debug, Clone)]
pub(crate) struct StorageSettings {
    /// `sqlite://PATH` or `postgres://…`; may contain a password.
    pub(crate) url: SecretString,
    /// Whether several machines may share it.
    pub(crate) is_shared: bool,
    /// Connections for reading.
    pub(crate) connections: u32,
    /// Longest wait for a connection.
    pub(crate) wait: Duration,
    /// Free bytes of a disk below which new data is refused; 0: off.
    pub(crate) min_free: u64,
}

impl StorageSettings {
    /// The file of the database, if it is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let url = self.url.expose_secret();
        url.strip_prefix("sqlite://").map(PathBuf::from)
    }

    pub(in crate::config) fn read(reader: &SettingReader<'_>, data_dir: &Path) -> Self {
        let url = reader.secret("storage.url").unwrap_or_else(|| {
            format!("sqlite://{}", data_dir.join("agent-workspace.db").display()).into()
        });
        let text = url.expose_secret();
        let is_shared = ["postgres://", "postgresql://"]
            .iter()
            .any(|s| text.starts_with(s));
        let is_file = text
            .strip_prefix("sqlite://")
            .is_some_and(|path| !path.is_empty());
        if !is_shared && !is_file {
            reader.problem("storage.url", "must be sqlite://PATH or postgres://…");
        }
        Self {
            is_shared,
            connections: reader.number("storage.connections", 1..=1000),
            wait: reader.duration("storage.wait"),
            min_free: reader.size_limit("storage.min_free").unwrap_or(0),
            url,
        }
    }
}
