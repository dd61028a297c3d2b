//! API keys, users, and the audit log.

use futures::Stream;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::model::{
    AdministeredUser, ApiKey, AuditEntry, AuditFilter, AuditOutcome, KeyRotation, NewApiKey,
    NewKey, NewUser, SuccessResponse, UserChange, UserRole,
};
use crate::operations;
use crate::page::{Page, all};

/// API keys of the caller, or for an administrator of a user.
#[derive(Debug, Clone)]
pub struct Keys(pub(crate) Client, pub(crate) Option<String>);

impl Keys {
    /// All valid keys.
    pub async fn list(&self) -> Result<Vec<ApiKey>, Error> {
        let call = self.to(&operations::KEYS, &operations::USER_KEYS);
        Ok(self.0.ask::<Page<ApiKey>>(&call).await?.items)
    }

    /// Creates a key. If the response is lost, the key may exist: see [`Self::list`].
    pub async fn create(&self, key: &NewKey) -> Result<NewApiKey, Error> {
        let call = self.to(&operations::CREATE_KEY, &operations::CREATE_USER_KEY);
        self.0.ask(&call.body(key)?).await
    }

    /// Creates a key that replaces another one, which stays valid for a while.
    pub async fn rotate(&self, id: &str, how: &KeyRotation) -> Result<NewApiKey, Error> {
        let call = self.to(&operations::ROTATE_KEY, &operations::ROTATE_USER_KEY);
        self.0.ask(&call.at(id).body(how)?).await
    }

    /// Revokes a key.
    pub async fn revoke(&self, id: &str) -> Result<(), Error> {
        let call = self.to(&operations::REVOKE_KEY, &operations::REVOKE_USER_KEY);
        self.0.ask::<SuccessResponse>(&call.at(id)).await.map(drop)
    }

    fn to(&self, own: &'static operations::Operation, of: &'static operations::Operation) -> Call {
        match &self.1 {
            None => Call::to(own),
            Some(user) => Call::to(of).at(user),
        }
    }
}

/// Administration of users.
#[derive(Debug, Clone)]
pub struct Administration(pub(crate) Client);

impl Administration {
    /// One page of all users; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(
        &self,
        limit: u16,
        at: Option<&str>,
    ) -> Result<Page<AdministeredUser>, Error> {
        let call = Call::to(&operations::SEARCH_USERS).page(limit, at);
        self.0.ask(&call).await
    }

    /// All users.
    pub fn all(&self) -> impl Stream<Item = Result<AdministeredUser, Error>> + use<> {
        all(self.0.clone(), Call::to(&operations::SEARCH_USERS))
    }

    /// A user; a refusal (404) if there is none.
    pub async fn get(&self, user: &str) -> Result<AdministeredUser, Error> {
        self.0.ask(&Call::to(&operations::USER).at(user)).await
    }

    /// Creates a user.
    pub async fn create(&self, user: &NewUser) -> Result<AdministeredUser, Error> {
        let call = Call::to(&operations::CREATE_USER).body(user)?;
        self.0.ask(&call).await
    }

    /// Changes a user's role.
    pub async fn set_role(&self, user: &str, role: UserRole) -> Result<AdministeredUser, Error> {
        let call = Call::to(&operations::UPDATE_USER).at(user);
        self.0
            .ask(&call.body(&UserChange {
                role: Some(role),
                disabled: None,
            })?)
            .await
    }

    /// Deletes a user with all data.
    pub async fn delete(&self, user: &str) -> Result<(), Error> {
        let call = Call::to(&operations::DELETE_USER).at(user);
        self.0.ask::<SuccessResponse>(&call).await.map(drop)
    }

    /// The API keys of a user.
    pub fn keys(&self, user: &str) -> Keys {
        Keys(self.0.clone(), Some(user.to_owned()))
    }
}

/// The audit log, for administrators.
#[derive(Debug, Clone)]
pub struct Audit(pub(crate) Client);

impl Audit {
    /// One page, newest first; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(
        &self,
        filter: &AuditFilter,
        limit: u16,
        at: Option<&str>,
    ) -> Result<Page<AuditEntry>, Error> {
        self.0.ask(&filtered(filter).page(limit, at)).await
    }

    /// All entries, newest first.
    pub fn all(
        &self,
        filter: &AuditFilter,
    ) -> impl Stream<Item = Result<AuditEntry, Error>> + use<> {
        all(self.0.clone(), filtered(filter))
    }
}

fn filtered(filter: &AuditFilter) -> Call {
    Call::to(&operations::AUDIT)
        .maybe("actor", filter.actor.as_deref())
        .maybe("action", filter.action.as_deref())
        .maybe("object", filter.object.as_deref())
        .maybe("outcome", filter.outcome.as_ref().map(AuditOutcome::as_str))
        .time("since", filter.since)
        .time("until", filter.until)
}
