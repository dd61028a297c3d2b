//! Connections to model providers: an endpoint and its key, which several profiles share.
//!
//! A profile refers to a connection by id. Activation copies the reference into the agent document, and a start reads
//! endpoint and key from the connection, so a changed key applies to all profiles at once.

use std::borrow::Cow;

use domain::clock::Timestamp;
use domain::id::{OwnerId, ProviderConnectionId};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::super::agent_document::{AgentDocument, LLM_API_KEY};
use super::super::fields::put;
use super::super::launch::MissingSettings;
use super::super::model::Settings;
use super::super::secret::SecretInput;
use super::super::service::SettingsService;
use super::connection::ProviderConnection;
use crate::error::AppError;

pub const MAX_PROVIDER_CONNECTIONS: usize = 50;

/// A change of a connection; `None` keeps a field.
#[derive(Debug, Clone, Default)]
pub struct ProviderConnectionChange {
    pub display_name: Option<String>,
    pub provider: Option<String>,
    /// Blank: none.
    pub base_url: Option<String>,
    /// Blank clears the key, the mask keeps it.
    pub api_key: Option<SecretString>,
}

impl SettingsService {
    /// Stores a connection; fields that the change does not name are blank.
    pub async fn add_provider_connection(
        &self,
        owner: &OwnerId,
        id: ProviderConnectionId,
        input: &ProviderConnectionChange,
    ) -> Result<ProviderConnection, AppError> {
        let at = self.clock.now();
        let stored = self.update_shared(owner, |mut settings| {
            let connections = &mut settings.profiles.connections;
            if connections.len() >= MAX_PROVIDER_CONNECTIONS {
                return Err(AppError::conflict(format!(
                    "Provider connection limit reached ({MAX_PROVIDER_CONNECTIONS}). Delete one before adding another."
                )));
            }
            let mut connection = ProviderConnection {
                id,
                display_name: String::new(),
                provider: String::new(),
                base_url: None,
                api_key: None,
                created_at: at,
                updated_at: at,
            };
            connection.apply(input, at)?;
            connections.push(connection);
            Ok::<_, AppError>(settings)
        });
        found(&stored.await?, id)
    }

    pub async fn change_provider_connection(
        &self,
        owner: &OwnerId,
        id: ProviderConnectionId,
        change: &ProviderConnectionChange,
    ) -> Result<ProviderConnection, AppError> {
        let at = self.clock.now();
        let stored = self.update_shared(owner, |mut settings| {
            let mut connections = settings.profiles.connections.iter_mut();
            let connection = connections.find(|it| it.id == id);
            let connection = connection.ok_or_else(not_found)?;
            connection.apply(change, at)?;
            Ok::<_, AppError>(settings)
        });
        found(&stored.await?, id)
    }

    /// Deletes a connection that nothing uses; returns it.
    pub async fn delete_provider_connection(
        &self,
        owner: &OwnerId,
        id: ProviderConnectionId,
    ) -> Result<ProviderConnection, AppError> {
        let mut deleted = None;
        let stored = self.update_shared(owner, |mut settings| {
            let profiles = &mut settings.profiles;
            let place = profiles.connections.iter().position(|it| it.id == id);
            let place = place.ok_or_else(not_found)?;
            let agents = profiles.list.iter().map(|profile| &profile.agent);
            let is_used = agents
                .chain([&settings.agent])
                .any(|agent| agent.connection == Some(id));
            if is_used {
                return Err(AppError::conflict(
                    "A profile or the current model uses this provider connection. Change it there first.",
                ));
            }
            deleted = Some(profiles.connections.remove(place));
            Ok::<_, AppError>(settings)
        });
        stored.await?;
        deleted.ok_or_else(not_found)
    }
}

fn found(settings: &Settings, id: ProviderConnectionId) -> Result<ProviderConnection, AppError> {
    let connection = settings.profiles.connection(id).cloned();
    connection.ok_or_else(not_found)
}

fn not_found() -> AppError {
    AppError::not_found("Provider connection not found")
}

impl ProviderConnection {
    fn apply(&mut self, change: &ProviderConnectionChange, at: Timestamp) -> Result<(), AppError> {
        if let Some(name) = &change.display_name {
            self.display_name.clone_from(name);
        }
        if let Some(provider) = &change.provider {
            self.provider.clone_from(provider);
        }
        if let Some(url) = &change.base_url {
            self.base_url = checked_url(url)?;
        }
        match change
            .api_key
            .as_ref()
            .map(|key| SecretInput::from_text(key.expose_secret()))
        {
            Some(SecretInput::Set(key)) => self.api_key = Some(key),
            Some(SecretInput::Clear) => self.api_key = None,
            Some(SecretInput::Keep) | None => {}
        }
        self.updated_at = at;
        Ok(())
    }
}

fn checked_url(text: &str) -> Result<Option<String>, AppError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let is_usable = Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    });
    if is_usable {
        return Ok(Some(text.to_owned()));
    }
    Err(AppError::invalid(
        "base_url must be an http or https URL without user name and password",
    ))
}

impl Settings {
    /// The agent document with the endpoint and the key of its connection.
    pub(in crate::settings) fn connected_agent(
        &self,
    ) -> Result<Cow<'_, AgentDocument>, MissingSettings> {
        let Some(id) = self.agent.connection else {
            return Ok(Cow::Borrowed(&self.agent));
        };
        let Some(connection) = self.profiles.connection(id) else {
            return Err(MissingSettings(
                "The provider connection of the model no longer exists. Choose another one in the profile, or set \
                 llm_api_key in the settings."
                    .to_owned(),
            ));
        };
        let mut agent = self.agent.clone();
        if let Some(url) = &connection.base_url {
            put(
                &mut agent.overlay,
                "llm.base_url",
                Some(url.as_str().into()),
            );
        }
        agent.secrets.remove(LLM_API_KEY);
        if let Some(key) = &connection.api_key {
            agent.secrets.insert(LLM_API_KEY.to_owned(), key.clone());
        }
        Ok(Cow::Owned(agent))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::clock::SystemClock;
    use domain::error::{Classify as _, ErrorClass};
    use store_memory::{MarkerCipher, MemoryStore};
    use uuid::Uuid;

    use super::super::{ProfileRefusal, SaveProfile};
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::UpdateError;

    const ID: ProviderConnectionId = ProviderConnectionId::new(Uuid::from_u128(7));

    fn service() -> (SettingsService, OwnerId) {
        let store = Arc::new(MemoryStore::default());
        let service = SettingsService::new(store, Arc::new(MarkerCipher), Arc::new(SystemClock));
        (service, OwnerId::parse("ada").unwrap())
    }

    fn change(url: Option<&str>, key: Option<&str>) -> ProviderConnectionChange {
        ProviderConnectionChange {
            display_name: Some("Team".to_owned()),
            provider: Some("openai".to_owned()),
            base_url: url.map(str::to_owned),
            api_key: key.map(SecretString::from),
        }
    }

    fn linked(model: &str, id: &Value) -> SaveProfile {
        let Value::Object(llm) = json!({"model": model, "provider_connection_id": id}) else {
            unreachable!()
        };
        SaveProfile {
            llm: Some(llm),
            ..SaveProfile::default()
        }
    }

    async fn used(service: &SettingsService, user: &OwnerId) -> (Option<String>, Option<String>) {
        let llm = service.launch_profile(user, None).await.unwrap().llm;
        let key = llm.api_key.map(|key| key.expose_secret().to_owned());
        (llm.base_url, key)
    }

    fn pair(url: &str, key: &str) -> (Option<String>, Option<String>) {
        (Some(url.to_owned()), Some(key.to_owned()))
    }

    #[tokio::test]
    async fn a_start_uses_the_endpoint_and_the_key_that_the_connection_has_now() {
        let (service, user) = service();
        let first = change(Some("https://one.example/v1"), Some("k1"));
        let added = service
            .add_provider_connection(&user, ID, &first)
            .await
            .unwrap();
        assert_eq!((added.id, added.display_name.as_str()), (ID, "Team"));
        let input = linked("openai/fast", &json!(ID));
        service.save_profile(&user, "fast", &input).await.unwrap();
        service.activate_profile(&user, "fast").await.unwrap();
        assert_eq!(
            used(&service, &user).await,
            pair("https://one.example/v1", "k1")
        );
        let profiles = service.profiles(&user).await.unwrap();
        let profile = profiles.find("fast").unwrap();
        assert!(profiles.has_key(profile) && !profiles.is_broken(profile));
        assert_eq!(profiles.active(), Some("fast"));

        let second = change(Some("https://two.example/v1"), Some("k2"));
        service
            .change_provider_connection(&user, ID, &second)
            .await
            .unwrap();
        assert_eq!(
            used(&service, &user).await,
            pair("https://two.example/v1", "k2")
        );
        // What is not named, and a mask, stay.
        let mask = ProviderConnectionChange {
            api_key: Some(crate::settings::MASK.into()),
            ..ProviderConnectionChange::default()
        };
        service
            .change_provider_connection(&user, ID, &mask)
            .await
            .unwrap();
        assert_eq!(
            used(&service, &user).await,
            pair("https://two.example/v1", "k2")
        );
        // A key of the user's own replaces the connection.
        let own = service.update(&user, |mut settings| {
            settings.agent.change_llm(None, None, Some(&"own".into()));
            Ok::<_, AppError>(settings)
        });
        own.await.unwrap();
        assert_eq!(used(&service, &user).await, (None, Some("own".to_owned())));
    }

    #[tokio::test]
    async fn a_key_without_an_endpoint_goes_to_the_vendor_of_the_profile_only() {
        let (service, user) = service();
        service
            .add_provider_connection(&user, ID, &change(None, Some("k")))
            .await
            .unwrap();
        let input = linked("openai/fast", &json!(ID));
        service.save_profile(&user, "fast", &input).await.unwrap();
        service.activate_profile(&user, "fast").await.unwrap();
        assert_eq!(used(&service, &user).await, (None, Some("k".to_owned())));
        let other = service
            .launch_profile(&user, Some("anthropic/claude"))
            .await;
        assert_eq!(other.unwrap_err().class(), ErrorClass::Invalid);
    }

    #[tokio::test]
    async fn a_connection_in_use_stays_and_an_unknown_one_is_refused() {
        let (service, user) = service();
        service
            .add_provider_connection(&user, ID, &change(None, Some("k")))
            .await
            .unwrap();
        for unknown in [json!("x"), json!(5), json!(Uuid::from_u128(8).to_string())] {
            let saved = service
                .save_profile(&user, "p", &linked("openai/fast", &unknown))
                .await;
            let Err(UpdateError::Refused(ProfileRefusal::Invalid(issues))) = saved else {
                panic!("{unknown}");
            };
            assert_eq!(issues[0].at, ["llm", "provider_connection_id"]);
        }
        // The model in force has none.
        let input = linked("openai/own", &Value::Null);
        service.save_profile(&user, "own", &input).await.unwrap();
        let input = linked("openai/fast", &json!(ID));
        service.save_profile(&user, "fast", &input).await.unwrap();
        let class = |error: AppError| error.class();
        let delete = || service.delete_provider_connection(&user, ID);
        assert_eq!(
            delete().await.map_err(class).unwrap_err(),
            ErrorClass::Conflict
        );
        let input = linked("openai/fast", &Value::Null);
        service.save_profile(&user, "fast", &input).await.unwrap();
        delete().await.unwrap();
        assert_eq!(
            delete().await.map_err(class).unwrap_err(),
            ErrorClass::NotFound
        );
        let changed = service
            .change_provider_connection(&user, ID, &change(None, None))
            .await;
        assert_eq!(changed.map_err(class).unwrap_err(), ErrorClass::NotFound);
    }

    #[tokio::test]
    async fn wrong_endpoints_and_too_many_connections_are_refused() {
        let (service, user) = service();
        for url in [
            "ftp://x",
            "x",
            "https://",
            "https://a:b@x.example",
            "http://a@x",
        ] {
            let added = service
                .add_provider_connection(&user, ID, &change(Some(url), None))
                .await;
            assert_eq!(added.unwrap_err().class(), ErrorClass::Invalid, "{url}");
        }
        for number in 0..MAX_PROVIDER_CONNECTIONS {
            let id = ProviderConnectionId::new(Uuid::from_u128(number as u128));
            service
                .add_provider_connection(&user, id, &change(Some(" "), None))
                .await
                .unwrap();
        }
        let full = service
            .add_provider_connection(&user, ID, &change(None, None))
            .await;
        assert_eq!(full.unwrap_err().class(), ErrorClass::Conflict);
    }
}
