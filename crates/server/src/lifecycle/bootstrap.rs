//! The first API key: configured by the operator, or generated on the first start.
//!
//! ```text
//!   bootstrap.key ──► row in the store ──► bootstrap.done        each step is repeated until the next one exists
//! ```

use std::path::PathBuf;

use anyhow::Context as _;
use application::administration::Origin;
use domain::audit::AuditActor;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::ApiKeyId;
use domain::user::administration::AdminChange;
use domain::user::administration::AdministrationRepository as _;
use domain::user::identity::{ApiKey, ApiKeyRepository, BOOTSTRAP_KEY_ID, KeyHash, Role};
use keyring::{ApiKeyText, private_file};
use secrecy::{ExposeSecret as _, SecretString};

use crate::compose::{self, Store};
use crate::config::{AuthModeSetting, AuthSettings, FIRST_USER, first_user};
use crate::data_dir::DataDir;

/// The state of the first user's key, for the banner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FirstKey {
    /// Open mode: requests need no key.
    NotNeeded,
    Configured,
    /// It was generated into this file.
    Generated(PathBuf),
    /// It was generated on an earlier start, and the file was removed since.
    Earlier,
    /// There is no valid key: no request can be authenticated.
    Missing,
}

/// Ensures that the service has a valid key, and warns if it has no administrator. The next call repairs what a crash left
/// unfinished.
pub(crate) async fn first_key(
    auth: &AuthSettings,
    data_dir: &DataDir,
    store: &Store,
    now: Timestamp,
) -> anyhow::Result<FirstKey> {
    let key = ensure_key(auth, data_dir, store, now).await?;
    if auth.mode != AuthModeSetting::Open && !has_administrator(store).await? {
        tracing::warn!(
            "no user is an administrator: appoint one with `agent-workspace users set-role NAME admin`"
        );
    }
    Ok(key)
}

async fn has_administrator(store: &Store) -> anyhow::Result<bool> {
    let all = crate::commands::users::list(store).await?;
    let mut active = all.iter().filter(|user| user.deleted_at.is_none());
    Ok(active.any(|user| user.role == Role::Admin))
}

async fn ensure_key(
    auth: &AuthSettings,
    data_dir: &DataDir,
    store: &Store,
    now: Timestamp,
) -> anyhow::Result<FirstKey> {
    let keys: &dyn ApiKeyRepository = store;
    if let Some(text) = &auth.bootstrap_key {
        store_configured_key(text, store, now).await?;
        return Ok(FirstKey::Configured);
    }
    if auth.mode == AuthModeSetting::Open {
        return Ok(FirstKey::NotNeeded);
    }
    // A key that is no longer configured is revoked. Open mode needs no key and leaves it alone.
    revoke_configured_key(store, "first key withdrawn", now).await?;
    let done = data_dir.bootstrap_done();
    let file = data_dir.bootstrap_key();
    if !done.exists() {
        store_generated_key(&file, store, now).await?;
        private_file::create(&done, "")
            .with_context(|| format!("cannot write {}", done.display()))?;
    }
    let all = keys.list(None).await.context("cannot read the API keys")?;
    Ok(if all.iter().all(|key| key.is_expired(now)) {
        FirstKey::Missing
    } else if file.exists() {
        FirstKey::Generated(file)
    } else {
        FirstKey::Earlier
    })
}

/// Stores the configured key and revokes the previously configured one.
async fn store_configured_key(
    text: &SecretString,
    store: &Store,
    now: Timestamp,
) -> anyhow::Result<()> {
    let keys: &dyn ApiKeyRepository = store;
    let hash = KeyHash::of(text.expose_secret());
    let present = keys.find_by_hash(&hash).await;
    let present = present.context("cannot read the API keys")?;
    if present.is_some_and(|found| !found.key.is_expired(now)) {
        return Ok(());
    }
    revoke_configured_key(store, "first key replaced", now).await?;
    // Too short to help a reader of `keys list` guess the key, long enough to recognise it.
    let first = text.expose_secret().chars().take(4);
    let prefix = first.chain(['…']).collect();
    insert(store, BOOTSTRAP_KEY_ID, (hash, prefix), now).await
}

/// Revokes the previously configured key, if there is one, with an entry in the audit log.
async fn revoke_configured_key(store: &Store, action: &str, now: Timestamp) -> anyhow::Result<()> {
    let change = AdminChange::RevokeKey {
        id: BOOTSTRAP_KEY_ID,
        user: first_user(),
    };
    let entry = Origin::service(action).entry(compose::ids().as_ref(), now, &change);
    match store.administer(&change, &entry).await {
        Ok(_) | Err(StoreError::NotFound { .. }) => Ok(()),
        Err(error) => {
            Err(error).context("cannot revoke the API key that auth.bootstrap_key held before")
        }
    }
}

/// Generates a key unless the store has one already (another data directory, the same store).
async fn store_generated_key(
    file: &std::path::Path,
    store: &Store,
    now: Timestamp,
) -> anyhow::Result<()> {
    let keys: &dyn ApiKeyRepository = store;
    let present = keys.list(None).await.context("cannot read the API keys")?;
    if !present.is_empty() && !file.exists() {
        return Ok(());
    }
    let (text, _) = private_file::read_or_create(file, || ApiKeyText::generate().secret().clone())
        .with_context(|| format!("cannot read or create {}", file.display()))?;
    let text = ApiKeyText::parse(text.expose_secret()).with_context(|| {
        format!(
            "{} is damaged: delete it, and the next start generates a new key",
            file.display()
        )
    })?;
    insert(store, id_of(&text), (text.hash(), text.prefix()), now).await
}

async fn insert(
    store: &Store,
    id: ApiKeyId,
    (hash, prefix): (KeyHash, String),
    now: Timestamp,
) -> anyhow::Result<()> {
    let key = ApiKey {
        id,
        user: first_user(),
        hash,
        prefix,
        created_at: now,
        expires_at: None,
        last_used_at: None,
        name: Some("first key".to_owned()),
        made_by: Some(AuditActor::Service.to_string()),
        is_automation: false,
        organization: None,
    };
    let change = AdminChange::CreateKey {
        key,
        new_user: Some(Role::Admin),
    };
    let entry = Origin::service("first key").entry(compose::ids().as_ref(), now, &change);
    match store.administer(&change, &entry).await {
        Err(StoreError::UserNameReserved) => {
            tracing::warn!(user = %FIRST_USER, "user {FIRST_USER} was deleted recently, so the first API key is not stored: restart the service once the user's sandboxes are gone, after ten minutes at the earliest");
            Ok(())
        }
        // Another replica, or an earlier start that was interrupted, has inserted it.
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error).context("cannot store the first API key"),
    }
}

/// Derived from the key, so that storing it again adds no second row. Version and variant are those of a random UUID.
fn id_of(text: &ApiKeyText) -> ApiKeyId {
    let hash = text.hash().to_string();
    let number = u128::from_str_radix(&hash[..32], 16).unwrap_or_default();
    let id = uuid::Builder::from_random_bytes(number.to_be_bytes());
    ApiKeyId::new(id.into_uuid())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::clock::{Clock as _, SystemClock};

    use super::*;
    use crate::compose;
    use crate::config::Config;

    struct BootstrapFixture {
        folder: tempfile::TempDir,
        keys: Arc<Store>,
    }

    impl BootstrapFixture {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let variables = [("WORKSPACE_DATA_DIR".into(), folder.path().into())];
            let config = Config::load(compose::BACKENDS, None, &variables).unwrap();
            Self {
                folder,
                keys: compose::open_store(&config).await.unwrap(),
            }
        }

        fn data_dir(&self) -> DataDir {
            DataDir::open(self.folder.path()).unwrap()
        }

        async fn start(&self, configured: Option<&str>) -> FirstKey {
            let auth = AuthSettings {
                without_sign_in: None,
                mode: AuthModeSetting::ApiKey,
                bootstrap_key: configured.map(Into::into),
                oidc: Vec::new(),
                sessions: application::SessionLifetimes::default(),
            };
            first_key(&auth, &self.data_dir(), &self.keys, SystemClock.now())
                .await
                .unwrap()
        }

        async fn accepts(&self, text: &str) -> bool {
            self.keys
                .find_by_hash(&KeyHash::of(text))
                .await
                .unwrap()
                .is_some()
        }

        fn generated(&self) -> String {
            let text = private_file::read(&self.data_dir().bootstrap_key()).unwrap();
            text.expose_secret().to_owned()
        }

        async fn count(&self) -> usize {
            self.keys.list(None).await.unwrap().len()
        }
    }

    #[tokio::test]
    async fn the_first_start_generates_a_key_and_later_starts_keep_it() {
        let fixture = BootstrapFixture::new().await;
        let path = fixture.data_dir().bootstrap_key();
        assert_eq!(fixture.start(None).await, FirstKey::Generated(path.clone()));
        let text = fixture.generated();
        assert!(fixture.accepts(&text).await);
        let found = fixture.keys.find_by_hash(&KeyHash::of(&text)).await;
        assert_eq!(found.unwrap().unwrap().role, Role::Admin);
        assert_eq!(fixture.start(None).await, FirstKey::Generated(path.clone()));
        assert_eq!(
            (fixture.generated(), fixture.count().await),
            (text.clone(), 1)
        );

        std::fs::remove_file(path).unwrap();
        assert_eq!(fixture.start(None).await, FirstKey::Earlier);
        assert!(fixture.accepts(&text).await);
    }

    #[tokio::test]
    async fn the_next_start_completes_an_interrupted_one() {
        let fixture = BootstrapFixture::new().await;
        let file = fixture.data_dir().bootstrap_key();
        // Crashed after the file.
        let text = ApiKeyText::generate();
        private_file::create(&file, text.secret().expose_secret()).unwrap();
        fixture.start(None).await;
        assert!(fixture.accepts(text.secret().expose_secret()).await);
        // Crashed after the row.
        std::fs::remove_file(fixture.data_dir().bootstrap_done()).unwrap();
        fixture.start(None).await;
        assert_eq!(fixture.count().await, 1);
    }

    #[tokio::test]
    async fn a_revoked_key_stays_revoked() {
        let fixture = BootstrapFixture::new().await;
        fixture.start(None).await;
        let [key] = fixture.keys.list(None).await.unwrap().try_into().unwrap();
        fixture.keys.revoke(key.id).await.unwrap();
        assert_eq!(fixture.start(None).await, FirstKey::Missing);
        assert_eq!(fixture.count().await, 0);
    }

    #[tokio::test]
    async fn another_configured_key_replaces_the_former_one() {
        let fixture = BootstrapFixture::new().await;
        assert_eq!(
            fixture.start(Some("first-configured")).await,
            FirstKey::Configured
        );
        fixture.start(Some("first-configured")).await;
        assert!(fixture.accepts("first-configured").await);
        fixture.start(Some("second-configured")).await;
        assert!(!fixture.accepts("first-configured").await);
        assert!(fixture.accepts("second-configured").await);
        assert!(!fixture.data_dir().bootstrap_key().exists());
    }

    #[tokio::test]
    async fn a_key_that_is_no_longer_configured_is_revoked() {
        let fixture = BootstrapFixture::new().await;
        fixture.start(Some("once-configured")).await;
        let path = fixture.data_dir().bootstrap_key();
        assert_eq!(fixture.start(None).await, FirstKey::Generated(path));
        assert!(!fixture.accepts("once-configured").await);
        assert!(fixture.accepts(&fixture.generated()).await);
        // Back to the generated key, which is a separate key.
        fixture.start(Some("configured-again")).await;
        assert!(fixture.accepts("configured-again").await);
        assert!(fixture.accepts(&fixture.generated()).await);
    }
}
