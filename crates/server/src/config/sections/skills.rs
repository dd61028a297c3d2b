//! Section `skills`.

use std::path::PathBuf;

use settings::SettingReader;

#[derive(Debug, Clone)]
pub(crate) struct SkillsSettings {
    pub(crate) directories: Vec<PathBuf>,
}

impl SkillsSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            directories: reader.parsed_list("skills.directories", "paths of directories", |path| {
                std::path::absolute(path).ok()
            }),
        }
    }
}
