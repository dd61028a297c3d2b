//! Profiles as conversations use them.

use domain::agent::spending::NanoUsd;
use domain::agent::{LlmConfig, LlmProfile};
use domain::id::OwnerId;

use super::super::launch::{MissingSettings, language_model};
use super::super::model::Settings;
use super::super::service::SettingsService;
use super::list::Profile;
use crate::error::AppError;

/// Longest name that an error repeats; no profile has a longer one.
const MAX_NAME_CHARS: usize = 64;

impl Settings {
    /// The usable models of all profiles. A profile without a key uses the key in force if that is for the same
    /// destination, and is left out otherwise.
    pub(crate) fn llm_profiles(&self) -> Vec<LlmProfile> {
        let names = self.profiles.iter().map(Profile::name);
        names
            .filter_map(|name| self.llm_profile(name)?.ok())
            .collect()
    }

    /// The model of the settings themselves; `None` if it cannot be called.
    pub(crate) fn own_model(&self) -> Option<LlmConfig> {
        language_model(self, None).ok()
    }

    /// The profile that the user chose for titles. A profile that no longer exists, or that the agent server does not get,
    /// counts as none.
    pub(crate) fn usable_title_profile(&self) -> Option<String> {
        let name = self.title_llm_profile.as_deref()?;
        let profile = self.llm_profile(name)?.ok()?;
        Some(profile.name)
    }

    /// The model of a profile as if it were active; `None` if it does not exist.
    fn llm_profile(&self, name: &str) -> Option<Result<LlmProfile, MissingSettings>> {
        let settings = self.clone().with_active(name)?;
        let llm = language_model(&settings, None);
        Some(llm.map(|llm| LlmProfile {
            name: name.to_owned(),
            llm,
        }))
    }
}

impl SettingsService {
    /// What a conversation of this owner may spend, `max_budget_per_task`.
    pub(crate) async fn conversation_budget(
        &self,
        owner: &OwnerId,
    ) -> Result<Option<NanoUsd>, AppError> {
        let settings = self.load(owner).await?;
        let dollars = settings.and_then(|it| it.max_budget_per_task);
        Ok(dollars.and_then(NanoUsd::from_dollars))
    }

    /// The model of a user's profile. The errors have the texts of the reference; an unusable profile (class
    /// `Invalid`) names the missing setting.
    pub async fn llm_profile(&self, owner: &OwnerId, name: &str) -> Result<LlmProfile, AppError> {
        let settings = self.load(owner).await?;
        let settings = settings.ok_or_else(|| AppError::not_found("Settings not found"))?;
        let Some(profile) = settings.llm_profile(name) else {
            let name: String = name.chars().take(MAX_NAME_CHARS).collect();
            return Err(AppError::not_found(format!("Profile '{name}' not found")));
        };
        profile.map_err(|needs| AppError::invalid(needs.0))
    }
}
