//! Section `skills`.

use std::path::PathBuf;

use settings::SettingReader;

/// The section `skills`.
#[derive(Debug, Clone)]
pub(crate) struct SkillsSettings {
    /// Absolute paths of skill directories.
    pub(crate) directories: Vec<PathBuf>,
}

impl SkillsSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
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
