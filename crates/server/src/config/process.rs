//! Section `process`.

use super::reader::Reader;

/// Sandboxes as processes.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    /// Whether several users may have them, though nothing isolates one user from another.
    pub(crate) allow_multiple_users: bool,
}

impl Process {
    pub(super) fn read(reader: &Reader<'_>) -> Self {
        Self {
            allow_multiple_users: reader.switch("process.allow_multiple_users"),
        }
    }
}
