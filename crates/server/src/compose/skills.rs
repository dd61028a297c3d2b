//! The skills of this installation.

use skill_library::DirectoryLibrary;

use crate::config::Config;

pub(super) fn open(config: &Config) -> DirectoryLibrary {
    let authorities = config.git.authorities.as_ref();
    DirectoryLibrary::new(skill_library::Config {
        global: config.skills.directories.clone(),
        user: config.data_dir.join("skills"),
        scratch: config.data_dir.join("marketplaces"),
        authorities: authorities.map(|(path, _)| path.clone()),
    })
}
