//! The port that identifies callers by their keys.

use std::sync::Arc;

use application::App;
use application::authenticate::AuthenticatedUser as Actor;
use async_trait::async_trait;
use domain::id::OrganizationId;
use domain::sandbox::Sandbox;
use secrecy::{ExposeSecret, SecretString};

use crate::problem::Problem;

/// Identifies callers by their keys. The application implements it; tests use fakes.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// The user with this API key. Without a key there is a user only in open mode.
    async fn user(&self, key: Option<&SecretString>) -> Result<Option<Actor>, Problem>;
    /// The user for whom the automations service acts with this key.
    async fn automation_user(&self, _key: &SecretString) -> Result<Option<Actor>, Problem> {
        Ok(None)
    }
    /// The user whose session has this token, where users sign in.
    async fn session(&self, _token: &SecretString) -> Result<Option<Actor>, Problem> {
        Ok(None)
    }
    /// The caller, acting in this organization. `None` if they are no member, or their key is bound to another one.
    async fn act_in(&self, caller: Actor, id: OrganizationId) -> Result<Option<Actor>, Problem> {
        let is_there = caller.owner.organization() == id;
        Ok(is_there.then_some(caller))
    }
    /// The sandbox with this session key, while the key is valid.
    async fn sandbox(&self, key: &SecretString) -> Result<Option<Sandbox>, Problem>;
    /// The sandbox with this callback token or session key, while that is valid.
    async fn callback(&self, key: &SecretString) -> Result<Option<Sandbox>, Problem> {
        self.sandbox(key).await
    }
    /// The sandbox of a webhook report, possibly from the cache.
    async fn reporter(&self, key: &SecretString) -> Result<Option<Arc<Sandbox>>, Problem> {
        Ok(self.sandbox(key).await?.map(Arc::new))
    }
}

#[async_trait]
impl Authenticator for App {
    async fn user(&self, key: Option<&SecretString>) -> Result<Option<Actor>, Problem> {
        let key = key.map(ExposeSecret::expose_secret);
        Ok(self.authenticate.user(key).await?)
    }

    async fn automation_user(&self, key: &SecretString) -> Result<Option<Actor>, Problem> {
        Ok(self.automation_keys.user(key.expose_secret()).await?)
    }

    async fn session(&self, token: &SecretString) -> Result<Option<Actor>, Problem> {
        Ok(self.sign_in.user(token.expose_secret()).await?)
    }

    async fn act_in(&self, caller: Actor, id: OrganizationId) -> Result<Option<Actor>, Problem> {
        Ok(self.organizations.act_in(caller, id).await?)
    }

    async fn sandbox(&self, key: &SecretString) -> Result<Option<Sandbox>, Problem> {
        Ok(self
            .sandbox_keys
            .by_session_key(key.expose_secret())
            .await?)
    }

    async fn callback(&self, key: &SecretString) -> Result<Option<Sandbox>, Problem> {
        Ok(self
            .sandbox_keys
            .by_callback_key(key.expose_secret())
            .await?)
    }

    async fn reporter(&self, key: &SecretString) -> Result<Option<Arc<Sandbox>>, Problem> {
        Ok(self.sandbox_keys.by_report_key(key.expose_secret()).await?)
    }
}
