//! Section `process`.

use super::reader::SettingReader;

/// Sandboxes as processes.
#[derive(Debug, Clone)]
pub(crate) struct ProcessSettings {
    /// Whether several users may have them, though nothing isolates one user from another.
    pub(crate) allow_multiple_users: bool,
}

impl ProcessSettings {
    pub(super) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            allow_multiple_users: reader.switch("process.allow_multiple_users"),
        }
    }
}
