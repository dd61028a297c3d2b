//! A fake skill library.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::skill::{
    ListedSkill, Marketplace, MarketplaceContents, MarketplacePlugin, SkillError, SkillLibrary,
};

/// A library that is empty at first. Every marketplace has a skill and a plugin with the name of its repository. The
/// marketplace `broken` cannot be read, and `slow` takes an hour.
#[derive(Debug, Default)]
pub struct FakeSkills(Mutex<Vec<ListedSkill>>);

impl FakeSkills {
    /// Sets the skills.
    pub fn set(&self, skills: Vec<ListedSkill>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = skills;
    }
}

#[async_trait]
impl SkillLibrary for FakeSkills {
    async fn list(&self) -> Result<Vec<ListedSkill>, SkillError> {
        let skills = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(skills.clone())
    }

    async fn read_marketplace(
        &self,
        marketplace: &Marketplace,
    ) -> Result<MarketplaceContents, SkillError> {
        match marketplace.name.as_str() {
            "broken" => {
                return Err(SkillError::Unavailable(
                    "the fake marketplace is broken".to_owned(),
                ));
            }
            "slow" => tokio::time::sleep(Duration::from_secs(3600)).await,
            _ => {}
        }
        let name = marketplace.url.path().trim_start_matches('/').to_owned();
        let skill = ListedSkill {
            name: name.clone(),
            kind: "knowledge".to_owned(),
            source: format!("marketplace:{}", marketplace.name),
            triggers: None,
        };
        let plugin = MarketplacePlugin {
            name,
            description: marketplace.reference.clone(),
        };
        Ok(MarketplaceContents {
            skills: vec![skill],
            plugins: vec![plugin],
        })
    }
}
