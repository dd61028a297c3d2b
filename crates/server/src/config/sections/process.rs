//! Section `process`.

use crate::config::reader::SettingReader;

/// The section `process`.
#[derive(Debug, Clone)]
pub(crate) struct ProcessSettings {
    /// Whether several users may have sandboxes, although these are not isolated.
    pub(crate) allow_multiple_users: bool,
}

impl ProcessSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            allow_multiple_users: reader.switch("process.allow_multiple_users"),
        }
    }
}
