//! The user, the user's settings and secrets, and the service's health.

use futures::Stream;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::model::{
    ActionResponse, AliveStatus, NewSecret, SecretChange, SecretName, ServerInfo, SettingsChange,
    UserInfo, UserSettings,
};
use crate::operations;
use crate::page::{Page, all};

/// The user's settings.
#[derive(Debug, Clone)]
pub struct Settings(pub(crate) Client);

impl Settings {
    /// The current settings.
    pub async fn get(&self) -> Result<UserSettings, Error> {
        self.0.ask(&Call::to(&operations::SETTINGS)).await
    }

    /// Changes settings.
    pub async fn update(&self, change: &SettingsChange) -> Result<(), Error> {
        let call = Call::to(&operations::UPDATE_SETTINGS).body(change)?;
        self.0.ask::<ActionResponse>(&call).await.map(drop)
    }
}

/// The user's secrets.
#[derive(Debug, Clone)]
pub struct Secrets(pub(crate) Client);

impl Secrets {
    /// One page of the secrets whose names contain this text; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(
        &self,
        name: Option<&str>,
        limit: u16,
        at: Option<&str>,
    ) -> Result<Page<SecretName>, Error> {
        let call = Call::to(&operations::SEARCH_SECRETS).maybe("name__contains", name);
        self.0.ask(&call.page(limit, at)).await
    }

    /// All secrets.
    pub fn all(&self) -> impl Stream<Item = Result<SecretName, Error>> + use<> {
        all(self.0.clone(), Call::to(&operations::SEARCH_SECRETS))
    }

    /// Saves a secret, replacing one of the same name.
    pub async fn save(&self, secret: &NewSecret) -> Result<(), Error> {
        let call = Call::to(&operations::CREATE_SECRET).body(secret)?;
        self.0.ask::<ActionResponse>(&call).await.map(drop)
    }

    /// Renames, describes or replaces a secret.
    pub async fn update(&self, name: &str, change: &SecretChange) -> Result<(), Error> {
        let call = Call::to(&operations::UPDATE_SECRET).at(name);
        let call = call.body(change)?;
        self.0.ask::<ActionResponse>(&call).await.map(drop)
    }

    /// Deletes a secret.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let call = Call::to(&operations::DELETE_SECRET).at(name);
        self.0.ask::<ActionResponse>(&call).await.map(drop)
    }
}

/// The user.
#[derive(Debug, Clone)]
pub struct Users(pub(crate) Client);

impl Users {
    /// The key's user.
    pub async fn me(&self) -> Result<UserInfo, Error> {
        self.0.ask(&Call::to(&operations::ME)).await
    }
}

/// Health of the service. These requests need no key.
#[derive(Debug, Clone)]
pub struct Health(pub(crate) Client);

impl Health {
    /// The process runs.
    pub async fn alive(&self) -> Result<AliveStatus, Error> {
        self.0.ask(&Call::to(&operations::ALIVE)).await
    }

    /// The process runs; `OK`.
    pub async fn health(&self) -> Result<String, Error> {
        self.0.ask(&Call::to(&operations::HEALTH)).await
    }

    /// Succeeds with `OK` if the store and the sandbox backend are usable; otherwise the refusal says why.
    pub async fn ready(&self) -> Result<String, Error> {
        self.0.ask(&Call::to(&operations::READY)).await
    }

    /// Resource usage of the process.
    pub async fn server_info(&self) -> Result<ServerInfo, Error> {
        self.0.ask(&Call::to(&operations::SERVER_INFO)).await
    }
}
