//! Section `skills`.

use std::path::PathBuf;

use super::reader::Reader;

/// Skills that every user may choose from.
#[derive(Debug, Clone)]
pub(crate) struct Skills {
    /// Directories of them; absolute.
    pub(crate) directories: Vec<PathBuf>,
}

impl Skills {
    pub(super) fn read(reader: &Reader<'_>) -> Self {
        let key = "skills.directories";
        let listed = reader.list(key);
        let absolute = |path: &String| std::path::absolute(path).ok();
        let directories: Vec<PathBuf> = listed.iter().filter_map(absolute).collect();
        if directories.len() < listed.len() {
            reader.problem(key, "must hold paths of directories");
        }
        Self { directories }
    }
}
