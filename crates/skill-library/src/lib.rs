//! Skills of the installation: Markdown files in directories, and marketplaces in git repositories.
//!
//! Knows: directories, front matter, git. Must never know: settings, stores, HTTP.

use async_trait::async_trait;
use domain::skill::{ListedSkill, Marketplace, Offer, SkillError, SkillLibrary};

/// Directories of skills.
#[derive(Debug, Default)]
pub struct DirectoryLibrary {}

#[async_trait]
impl SkillLibrary for DirectoryLibrary {
    async fn list(&self) -> Result<Vec<ListedSkill>, SkillError> {
        Ok(Vec::new())
    }

    async fn offer(&self, _: &Marketplace) -> Result<Offer, SkillError> {
        Err(SkillError::Unavailable("not yet".to_owned()))
    }
}
