//! The `keys` command.

use std::fmt::Write as _;

use anyhow::{Context as _, anyhow, bail};
use domain::clock::{Clock, Timestamp};
use domain::error::StoreError;
use domain::id::{ApiKeyId, IdGenerator};
use domain::identity::{ApiKey, ApiKeyRepository, DELETED_USER, NAME_RESTS};
use keyring::ApiKeyText;
use secrecy::ExposeSecret as _;

use crate::cli::{Create, Keys};

/// Does what was asked and returns what standard output gets.
pub(crate) async fn run(
    command: Keys,
    keys: &dyn ApiKeyRepository,
    ids: &dyn IdGenerator,
    clock: &dyn Clock,
) -> anyhow::Result<String> {
    match command {
        Keys::Create(create) => self::create(create, keys, ids, clock.now()).await,
        Keys::List { user } => {
            let found = keys
                .list(user.as_ref())
                .await
                .context("cannot read the API keys")?;
            Ok(table(&found, clock.now()))
        }
        Keys::Revoke { id } => {
            if !keys.revoke(id).await.context("cannot revoke the API key")? {
                bail!("there is no API key with the id {id}: see `agent-workspace keys list`");
            }
            Ok(format!("revoked {id}\n"))
        }
    }
}

async fn create(
    create: Create,
    keys: &dyn ApiKeyRepository,
    ids: &dyn IdGenerator,
    now: Timestamp,
) -> anyhow::Result<String> {
    let text = ApiKeyText::generate();
    let key = ApiKey {
        id: ApiKeyId::new(ids.uuid()),
        user: create.user,
        hash: text.hash(),
        prefix: text.prefix(),
        created_at: now,
        expires_at: create.expires_in.map(|time| now.plus(time)),
        last_used_at: None,
    };
    keys.insert(&key)
        .await
        .map_err(|error| refused(error, &key))?;
    Ok(format!("{}\n", text.secret().expose_secret()))
}

fn refused(error: StoreError, key: &ApiKey) -> anyhow::Error {
    if matches!(error, StoreError::Conflict { entity } if entity == DELETED_USER) {
        return anyhow!(
            "a user {} was deleted: the name can be used again once their sandboxes are gone, and not before {} minutes \
             have passed (see `agent-workspace users list`)",
            key.user,
            NAME_RESTS.as_secs() / 60,
        );
    }
    anyhow::Error::new(error).context("cannot store the API key")
}

fn table(keys: &[ApiKey], now: Timestamp) -> String {
    let width = keys
        .iter()
        .map(|key| key.user.as_str().chars().count())
        .max()
        .unwrap_or(0)
        .max(4);
    let mut text = format!(
        "{:32}  {:width$}  {:12}  {:20}  {:20}  LAST USED\n",
        "ID", "USER", "KEY", "CREATED", "EXPIRES"
    );
    for key in keys {
        let expires = match key.expires_at {
            None => "never".to_owned(),
            Some(_) if key.is_expired(now) => "expired".to_owned(),
            Some(at) => seconds(at),
        };
        let used = key.last_used_at.map_or_else(|| "never".to_owned(), seconds);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:32}  {:width$}  {:12}  {:20}  {expires:20}  {used}",
            key.id.to_string(),
            key.user.as_str(),
            key.prefix,
            seconds(key.created_at),
        );
    }
    text
}

/// `2026-01-31T12:00:00Z`.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.to_utc()
        .to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use domain::id::UserId;

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
        };
        let table = table(&[key], at);
        assert_eq!(table.lines().count(), 2);
        for part in ["alice", &text.prefix(), "2026-11-21T", "expired", "never"] {
            assert!(table.contains(part), "{part} is missing in {table}");
        }
        assert!(!table.contains(&text.hash().0) && !table.contains(text.secret().expose_secret()));
    }
}
