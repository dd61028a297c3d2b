//! Profiles: named configurations of the model (`/api/v1/settings/profiles`), stored in the user's document, or in that of
//! the shared organization.
//!
//! A profile is the `llm` part of an agent document: sparse values over the same defaults, and separate secrets.
//! Activation copies it into the agent document; starts only use the agent document. `active` is cleared as soon as
//! the agent document differs from the profile.

mod connection;
mod connections;
pub(super) mod list;
mod llm_profiles;
mod save;
#[cfg(test)]
mod tests;

use domain::id::OwnerId;

use super::issues::Issue;
use super::model::Settings;
use super::service::{SettingsService, UpdateError};
use crate::error::AppError;

pub use connection::ProviderConnection;
pub use connections::{MAX_PROVIDER_CONNECTIONS, ProviderConnectionChange};
pub use list::{Profile, Profiles};
pub use save::SaveProfile;

pub const MAX_PROFILES_PER_USER: usize = 10;

#[derive(Debug, Clone, PartialEq)]
pub enum ProfileRefusal {
    /// The user has stored no settings yet, which would have the model to copy, or the profile to rename.
    NoSettings,
    NotFound(String),
    NameTaken(String),
    /// The user has [`MAX_PROFILES_PER_USER`] profiles.
    Full,
    /// The configuration in the request is invalid; paths begin with `llm`.
    Invalid(Vec<Issue>),
}

impl SettingsService {
    /// The profiles that the user has in their organization; none before anything was stored.
    pub async fn profiles(&self, owner: &OwnerId) -> Result<Profiles, AppError> {
        let settings = self.load(owner).await?;
        Ok(settings.unwrap_or_default().profiles)
    }

    /// Saves a profile. One with a configuration of its own may be the first thing that a user stores.
    pub async fn save_profile(
        &self,
        owner: &OwnerId,
        name: &str,
        input: &SaveProfile,
    ) -> Result<(), UpdateError<ProfileRefusal>> {
        let in_force = match owner.shared_organization() {
            Some(_) if input.llm.is_none() => self.load(owner).await?,
            _ => None,
        };
        let saved = self.update_shared_if(owner, |found| {
            let mut settings = match found {
                None if input.llm.is_none() => return Err(ProfileRefusal::NoSettings),
                found => found.unwrap_or_default(),
            };
            if let Some(in_force) = &in_force {
                settings.agent = in_force.agent.llm_part();
            }
            save::save(settings, name, input).map(Some)
        });
        saved.await.map(|_| ())
    }

    /// Deletes a profile if it exists. After the active one the first of the others becomes active.
    pub async fn delete_profile(&self, owner: &OwnerId, name: &str) -> Result<(), AppError> {
        let deleted = self.update_shared_if(owner, |found| {
            Ok::<_, std::convert::Infallible>(found.and_then(|settings| delete(settings, name)))
        });
        deleted.await?;
        Ok(())
    }

    /// Activates a profile; returns its model. In a shared organization it becomes the model of all members who have set none of
    /// their own, and of the caller.
    pub async fn activate_profile(
        &self,
        owner: &OwnerId,
        name: &str,
    ) -> Result<String, UpdateError<ProfileRefusal>> {
        let activated = self.update_shared_if(owner, |found| {
            let missing = || ProfileRefusal::NotFound(name.to_owned());
            let settings = found.ok_or_else(missing)?;
            settings.with_active(name).map(Some).ok_or_else(missing)
        });
        let settings = activated.await?.unwrap_or_default();
        if owner.shared_organization().is_some() {
            self.follow_organization(owner).await?;
        }
        let profile = settings.profiles.find(name);
        Ok(profile.map(Profile::model).unwrap_or_default())
    }

    /// Removes a member's own model.
    async fn follow_organization(&self, owner: &OwnerId) -> Result<(), AppError> {
        let cleared = self.update_if(owner, |found| {
            let own = found.filter(|settings| settings.agent.has_llm());
            Ok::<_, std::convert::Infallible>(own.map(|mut settings| {
                settings.agent.clear_llm();
                settings
            }))
        });
        cleared.await?;
        Ok(())
    }

    /// Renames a profile in place. Its own name changes nothing.
    pub async fn rename_profile(
        &self,
        owner: &OwnerId,
        name: &str,
        new_name: &str,
    ) -> Result<(), UpdateError<ProfileRefusal>> {
        let renamed = self.update_shared_if(owner, |found| {
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
    pub(super) fn with_active(mut self, name: &str) -> Option<Self> {
        let profile = self.profiles.find(name)?.clone();
        self.agent.use_llm_of(&profile.agent);
        self.profiles.active = Some(profile.name);
        Some(self)
    }

    /// Clears `active` after a change of the model's configuration away from the profile.
    pub(super) fn reconcile_profiles(&mut self) {
        let profiles = &self.profiles;
        let active = profiles.active().and_then(|name| profiles.find(name));
        if active.is_none_or(|profile| !self.agent.has_llm_of(&profile.agent)) {
            self.profiles.active = None;
        }
    }
}
