//! The `keys` command.

use std::fmt::Write as _;

use anyhow::{Context as _, anyhow, bail};
use application::administration::{KeyOptions, new_key, successor_key};
use application::single_user::refuse_second_user;
use domain::audit::AuditActor;
use domain::clock::Timestamp;
use domain::id::ApiKeyId;
use domain::sandbox::SingleUserRule;
use domain::user::administration::AdminChange;
use domain::user::identity::{ApiKey, ApiKeyRepository, Role, UserRepository};
use secrecy::ExposeSecret as _;

use super::{administer, column_width, seconds};
use crate::cli::{Create, Keys, Rotate};
use crate::compose::{self, Store};
use crate::config::Config;
use crate::data_dir::DataDir;

pub(crate) async fn run(command: Keys, config: &Config) -> anyhow::Result<String> {
    let (data_dir, store) = super::open(config).await?;
    let store = store.as_ref();
    let keys: &dyn ApiKeyRepository = store;
    let now = compose::clock().now();
    match command {
        Keys::Create(create) => {
            if let Some(rule) = single_user(config, &data_dir)? {
                refuse_second_user(rule, store, &create.user).await?;
            }
            self::create(create, store, now).await
        }
        Keys::Rotate(rotate) => self::rotate(rotate, store, now).await,
        Keys::List { user } => {
            let listed = keys.list(user.as_ref()).await;
            Ok(table(&listed.context("cannot read the API keys")?, now))
        }
        Keys::Revoke { id } => {
            let user = find(keys, id).await?.user;
            let change = AdminChange::RevokeKey { id, user };
            administer(store, "keys revoke", &change)
                .await
                .context("cannot revoke the API key")?;
            Ok(format!("revoked {id}\n"))
        }
    }
}

/// The rule if nothing isolates the sandboxes of different users. Before the first start the backend is unknown, unless it
/// is configured; `serve` refuses in that case.
pub(super) fn single_user(
    config: &Config,
    data_dir: &DataDir,
) -> anyhow::Result<Option<SingleUserRule>> {
    let name = match config.sandbox.backend {
        Some(name) => Some(name.to_owned()),
        None => compose::previous_backend(data_dir)?,
    };
    let backend = name.and_then(|name| config.backend(&name));
    Ok(backend.and_then(|backend| backend.features().single_user))
}

async fn find(keys: &dyn ApiKeyRepository, id: ApiKeyId) -> anyhow::Result<ApiKey> {
    let all = keys.list(None).await.context("cannot read the API keys")?;
    let key = all.into_iter().find(|key| key.id == id);
    key.ok_or_else(|| {
        anyhow!("there is no API key with the id {id}: `agent-workspace keys list` lists all")
    })
}

async fn create(create: Create, store: &Store, now: Timestamp) -> anyhow::Result<String> {
    let users: &dyn UserRepository = store;
    let existing = users.find(&create.user).await;
    let existing = existing.context("cannot read the users")?;
    let existing = existing.filter(|user| user.deleted_at.is_none());
    if let (Some(user), Some(role)) = (existing, create.role)
        && user.role != role
    {
        bail!(
            "the user {} already has the role {}: change it with `agent-workspace users set-role {0} {}`, or omit --role",
            user.id,
            user.role.as_str(),
            role.as_str(),
        );
    }
    // The user of the first key becomes the administrator even if an operator creates the key; otherwise the installation
    // would have none.
    let first = users.list(None, 1).await.context("cannot read the users")?;
    let first_role = if first.is_empty() {
        Role::Admin
    } else {
        Role::User
    };
    let role = create.role.unwrap_or(first_role);
    let options = KeyOptions {
        organization: None,
        is_automation: false,
        name: create.name,
        expires_in: create.expires_in,
    };
    let created = new_key(
        compose::ids().as_ref(),
        now,
        &create.user,
        &options,
        &AuditActor::Cli,
    );
    let change = AdminChange::CreateKey {
        key: created.key,
        new_user: Some(role),
    };
    administer(store, "keys create", &change)
        .await
        .context("cannot store the API key: check the user with `agent-workspace users list`")?;
    Ok(format!("{}\n", created.text.expose_secret()))
}

async fn rotate(rotate: Rotate, store: &Store, now: Timestamp) -> anyhow::Result<String> {
    let old = find(store, rotate.id).await?;
    if old.is_expired(now) {
        bail!(
            "the key {} has expired: create a new one with `agent-workspace keys create`",
            rotate.id
        );
    }
    let options = KeyOptions {
        organization: None,
        is_automation: false,
        name: None,
        expires_in: rotate.expires_in,
    };
    let created = successor_key(
        compose::ids().as_ref(),
        now,
        &old,
        &options,
        &AuditActor::Cli,
    );
    let change = AdminChange::RotateKey {
        old: old.id,
        new: created.key,
        until: now.plus(rotate.grace),
    };
    administer(store, "keys rotate", &change)
        .await
        .context("cannot rotate the API key")?;
    Ok(format!("{}\n", created.text.expose_secret()))
}

fn table(keys: &[ApiKey], now: Timestamp) -> String {
    let width = column_width(keys.iter().map(|key| key.user.as_str()));
    let mut text = format!(
        "{:32}  {:width$}  {:12}  {:20}  {:20}  {:20}  NAME\n",
        "ID", "USER", "KEY", "CREATED", "EXPIRES", "LAST USED"
    );
    for key in keys {
        let expires = match key.expires_at {
            None => "never".to_owned(),
            Some(_) if key.is_expired(now) => "expired".to_owned(),
            Some(at) => seconds(at),
        };
        let last_used = key.last_used_at.map_or_else(|| "never".to_owned(), seconds);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:32}  {:width$}  {:12}  {:20}  {expires:20}  {last_used:20}  {}",
            key.id.to_string(),
            key.user.as_str(),
            key.prefix,
            seconds(key.created_at),
            key.name.as_deref().unwrap_or_default(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use domain::id::UserId;
    use keyring::ApiKeyText;

    use super::*;

    #[test]
    fn the_table_shows_no_hash() {
        let text = ApiKeyText::generate();
        let at = Timestamp::from_micros(1_795_251_552_215_877);
        let key = ApiKey {
            id: ApiKeyId::new(uuid::Uuid::nil()),
            user: UserId::parse("alice").unwrap(),
            hash: text.hash(),
            prefix: text.prefix(),
            created_at: at,
            expires_at: Some(at),
            last_used_at: None,
            name: Some("laptop".to_owned()),
            made_by: None,
            is_automation: false,
            organization: None,
        };
        let table = table(&[key], at);
        assert_eq!(table.lines().count(), 2);
        for part in [
            "alice",
            &text.prefix(),
            "2026-11-21T",
            "expired",
            "never",
            "laptop",
        ] {
            assert!(table.contains(part), "{part} is missing in {table}");
        }
        assert!(
            !table.contains(&text.hash().to_string())
                && !table.contains(text.secret().expose_secret())
        );
    }
}
