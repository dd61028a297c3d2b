//! The first administrator's one-time link, where users sign in.

use anyhow::Context as _;
use application::administration::Origin;
use application::sign_in::{NewLink, new_link};
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::UserId;
use domain::user::administration::AdminChange;
use domain::user::administration::AdministrationRepository as _;
use domain::user::identity::Role;
use domain::user::sign_in::{PasswordRepository, SignInChange};
use secrecy::SecretString;
use url::Url;

use crate::compose::{self, Store};
use crate::config::{AuthModeSetting, AuthSettings};
use crate::password_link::link_text;

/// A link by which its holder sets the password of this administrator.
#[derive(Debug)]
pub(crate) struct FirstLink {
    pub(crate) user: UserId,
    token: SecretString,
}

impl FirstLink {
    /// The text of the link, which only the operator may see.
    pub(crate) fn text(&self, public_url: &Url) -> String {
        link_text(public_url, &self.token)
    }
}

/// Makes a link for the oldest administrator, as long as no administrator has a password. Each start makes a new one: the
/// earlier ones are not stored in plain text.
pub(crate) async fn first_link(
    auth: &AuthSettings,
    store: &Store,
    now: Timestamp,
) -> anyhow::Result<Option<FirstLink>> {
    if auth.mode != AuthModeSetting::Accounts {
        return Ok(None);
    }
    let Some(user) = administrator_without_password(store).await? else {
        return Ok(None);
    };
    let ids = compose::ids();
    let NewLink { link, token } = new_link(ids.as_ref(), now, &user);
    let change = AdminChange::SignIn(SignInChange::CreateLink {
        link,
        new_user: None,
    });
    let entry = Origin::service("first link").entry(ids.as_ref(), now, &change);
    match store.administer(&change, &entry).await {
        Ok(_) => Ok(Some(FirstLink { user, token })),
        // Deleted at the same moment.
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error).context("cannot store a link for the first administrator"),
    }
}

/// The oldest administrator; `None` if an administrator has a password.
pub(crate) async fn administrator_without_password(
    store: &Store,
) -> anyhow::Result<Option<UserId>> {
    let mut users = crate::commands::users::list(store).await?;
    users.retain(|user| user.role == Role::Admin && user.deleted_at.is_none());
    for user in &users {
        let password = PasswordRepository::find(store, &user.id).await;
        if password.context("cannot read the passwords")?.is_some() {
            return Ok(None);
        }
    }
    let oldest = users.into_iter().min_by_key(|user| user.created_at);
    Ok(oldest.map(|user| user.id))
}

#[cfg(test)]
mod tests {
    use domain::clock::{Clock as _, SystemClock};
    use domain::user::identity::KeyHash;
    use domain::user::sign_in::PasswordHash;
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::config::Config;
    use crate::data_dir::DataDir;
    use crate::lifecycle::bootstrap::first_key;

    #[tokio::test]
    async fn the_first_administrator_gets_a_link_until_one_has_a_password() {
        let folder = tempfile::tempdir().unwrap();
        let variables = [
            ("WORKSPACE_DATA_DIR".into(), folder.path().into()),
            ("WORKSPACE_AUTH__MODE".into(), "accounts".into()),
        ];
        let config = Config::load(compose::BACKENDS, None, &variables).unwrap();
        let store = compose::open_store(&config).await.unwrap();
        let now = SystemClock.now();
        let start = async || first_link(&config.auth, &store, now).await.unwrap();
        assert!(start().await.is_none(), "no user yet");
        let data_dir = DataDir::open(folder.path()).unwrap();
        first_key(&config.auth, &data_dir, &store, now)
            .await
            .unwrap();

        let (first, second) = (start().await.unwrap(), start().await.unwrap());
        let text = second.text(&"https://agents.example/x/".parse().unwrap());
        let code = text
            .strip_prefix("https://agents.example/x/password#")
            .unwrap();
        assert_eq!((second.user.as_str(), code.len()), ("admin", 43));
        assert_ne!(first.token.expose_secret(), code);
        // An operator may use the link of an earlier start.
        let link = KeyHash::of(first.token.expose_secret());
        let redeem = AdminChange::SignIn(SignInChange::RedeemLink {
            link,
            user: first.user,
            password: PasswordHash::from_text("hash"),
        });
        let entry = Origin::service("test").entry(compose::ids().as_ref(), now, &redeem);
        store.administer(&redeem, &entry).await.unwrap();
        assert!(start().await.is_none());
    }
}
