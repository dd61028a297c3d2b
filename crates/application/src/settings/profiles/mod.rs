//! Profiles: named configurations of the model (`/api/v1/settings/profiles`), stored in the user's document.
//!
//! A profile is the `llm` part of an agent document: sparse values over the same defaults, and separate secrets.
//! Activation copies it into the agent document; starts only use the agent document. `active` is cleared as soon as
//! the agent document differs from the profile.

mod llm_part;
mod llm_profiles;
mod save;
mod storage;
#[cfg(test)]
mod tests;

use std::fmt;

use domain::id::UserId;
use serde_json::Value;

use super::issues::Issue;
use super::model::{AgentDocument, LLM_API_KEY, Settings};
use super::{SettingsService, UpdateError};
use crate::error::AppError;

pub use save::SaveProfile;

/// Profiles of one user.
pub const MAX_PROFILES_PER_USER: usize = 10;

/// A named configuration of the model.
#[derive(Clone)]
pub struct Profile {
    pub(super) name: String,
    /// Only the `llm` part is set.
    pub(super) agent: AgentDocument,
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Profile {
    /// Its name: `[A-Za-z0-9._-]{1,64}`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its model, or the default one.
    pub fn model(&self) -> String {
        self.agent.effective_model()
    }

    /// Its endpoint; `None` is the vendor's own.
    pub fn base_url(&self) -> Option<&str> {
        self.agent.llm_base_url()
    }

    /// Whether it has a key of its own.
    pub fn has_key(&self) -> bool {
        self.agent.secrets.contains_key(LLM_API_KEY)
    }
}

/// A user's profiles in the order of creation.
#[derive(Clone, Default)]
pub struct Profiles {
    list: Vec<Profile>,
    active: Option<String>,
    /// Entries that this version cannot read: kept, never shown.
    unread: Vec<Value>,
}

impl fmt::Debug for Profiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiles")
            .field("list", &self.list)
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}

impl Profiles {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.list.iter()
    }

    /// The profile with this name.
    pub fn find(&self, name: &str) -> Option<&Profile> {
        self.list.iter().find(|profile| profile.name == name)
    }

    /// Name of the active profile.
    pub fn active(&self) -> Option<&str> {
        self.active.as_deref()
    }
}

/// Why an operation on a profile was refused.
#[derive(Debug, Clone, PartialEq)]
pub enum ProfileRefusal {
    /// The user has stored no settings yet.
    NoSettings,
    /// No profile has this name.
    NotFound(String),
    /// Another profile has this name.
    NameTaken(String),
    /// The user has [`MAX_PROFILES_PER_USER`] profiles.
    Full,
    /// The configuration in the request is invalid; paths begin with `llm`.
    Invalid(Vec<Issue>),
}

impl SettingsService {
    /// The user's profiles; none before anything was stored.
    pub async fn profiles(&self, owner: &UserId) -> Result<Profiles, AppError> {
        let settings = self.load(owner).await?;
        Ok(settings.unwrap_or_default().profiles)
    }

    /// Creates or replaces a profile.
    pub async fn save_profile(
        &self,
        owner: &UserId,
        name: &str,
        input: &SaveProfile,
    ) -> Result<(), UpdateError<ProfileRefusal>> {
        let saved = self.update_if(owner, |found| {
            let settings = found.ok_or(ProfileRefusal::NoSettings)?;
            save::save(settings, name, input).map(Some)
        });
        saved.await.map(|_| ())
    }

    /// Deletes a profile if it exists. After the active one the first of the others becomes active.
    pub async fn delete_profile(&self, owner: &UserId, name: &str) -> Result<(), AppError> {
        let deleted = self.update_if(owner, |found| {
            Ok::<_, std::convert::Infallible>(found.and_then(|settings| delete(settings, name)))
        });
        match deleted.await {
            Ok(_) => Ok(()),
            Err(UpdateError::Failed(error)) => Err(error),
            Err(UpdateError::Refused(never)) => match never {},
        }
    }

    /// Activates a profile; returns its model.
    pub async fn activate_profile(
        &self,
        owner: &UserId,
        name: &str,
    ) -> Result<String, UpdateError<ProfileRefusal>> {
        let activated = self.update_if(owner, |found| {
            let missing = || ProfileRefusal::NotFound(name.to_owned());
            let settings = found.ok_or_else(missing)?;
            settings.with_active(name).map(Some).ok_or_else(missing)
        });
        let settings = activated.await?.unwrap_or_default();
        Ok(settings.agent.effective_model())
    }

    /// Renames a profile in place. Its own name is no change.
    pub async fn rename_profile(
        &self,
        owner: &UserId,
        name: &str,
        new_name: &str,
    ) -> Result<(), UpdateError<ProfileRefusal>> {
        let renamed = self.update_if(owner, |found| {
            rename(found.ok_or(ProfileRefusal::NoSettings)?, name, new_name)
        });
        renamed.await.map(|_| ())
    }
}

fn delete(mut settings: Settings, name: &str) -> Option<Settings> {
    settings.profiles.find(name)?;
    let profiles = &mut settings.profiles;
    profiles.list.retain(|profile| profile.name != name);
    if profiles.active.take_if(|active| *active == name).is_some()
        && let Some(first) = profiles.list.first().map(|profile| profile.name.clone())
    {
        return settings.with_active(&first);
    }
    Some(settings)
}

fn rename(
    mut settings: Settings,
    name: &str,
    new_name: &str,
) -> Result<Option<Settings>, ProfileRefusal> {
    let profiles = &mut settings.profiles;
    if profiles.find(name).is_none() {
        return Err(ProfileRefusal::NotFound(name.to_owned()));
    }
    if name == new_name {
        return Ok(None);
    }
    if profiles.find(new_name).is_some() {
        return Err(ProfileRefusal::NameTaken(new_name.to_owned()));
    }
    let mut list = profiles.list.iter_mut();
    if let Some(profile) = list.find(|profile| profile.name == name) {
        new_name.clone_into(&mut profile.name);
    }
    if let Some(active) = profiles.active.as_mut().filter(|active| *active == name) {
        new_name.clone_into(active);
    }
    Ok(Some(settings))
}

impl Settings {
    /// The settings with this profile active; `None` if it does not exist.
    fn with_active(mut self, name: &str) -> Option<Self> {
        let profile = self.profiles.find(name)?.clone();
        self.agent.use_llm_of(&profile.agent);
        self.profiles.active = Some(profile.name);
        Some(self)
    }

    /// Clears `active` after a change of the model's configuration away from the profile.
    pub(super) fn settle_profiles(&mut self) {
        let profiles = &self.profiles;
        let active = profiles.active().and_then(|name| profiles.find(name));
        if active.is_none_or(|profile| !self.agent.has_llm_of(&profile.agent)) {
            self.profiles.active = None;
        }
    }
}
