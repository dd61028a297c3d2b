//! The master keys of this process: checked against the installation's secret in the store, and updated while the process
//! runs.
//!
//! The key in use is the one that seals the installation's secret. All processes therefore seal with the same key, whatever
//! the order of their configured keys.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use application::BackgroundTasks;
use domain::clock::Clock;
use domain::encryption::cipher::{Cipher as _, CipherError, Sealed};
use domain::encryption::sealed::{SealedKind, SealedRecord, SealedRecordRepository};
use domain::encryption::vault::{KeyHolder, VaultRepository};
use domain::error::chain;
use keyring::{InstallationKey, Keyring, MasterKey, MasterKeyError, private_file};
use store_sql::SqlStore;

use crate::config::Config;
use crate::data_dir::DataDir;

const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of announcements without a change: short enough that a rotation does not treat the service as gone.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(10);
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Vault {
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) installation: Arc<InstallationKey>,
}

/// The configured master keys, or those in the data directory.
pub(crate) fn master_keys(config: &Config, data_dir: &DataDir) -> anyhow::Result<Keyring> {
    if let Some(first) = &config.secrets.master_key {
        let keyring = Keyring::new(first, &config.secrets.previous);
        return Ok(keyring.following(config.secrets.files.clone()));
    }
    let path = data_dir.master_key();
    let keys = MasterKey::all_from_file(&path);
    let mut keys = keys.map_err(|error| key_file_error(error, &path))?;
    // `all_from_file` returns at least one key.
    let first = keys.remove(0);
    keys.extend(config.secrets.previous.iter().map(MasterKey::duplicate));
    let mut files = vec![path];
    files.extend(config.secrets.files.iter().cloned());
    Ok(Keyring::new(&first, &keys).following(files))
}

fn key_file_error(error: MasterKeyError, path: &Path) -> anyhow::Error {
    match error {
        MasterKeyError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            anyhow!(
                "the master key of this installation is missing: {} does not exist, and stored secrets cannot be \
                     opened without it. Restore the file from a backup, or set the key in \
                     WORKSPACE_SECRETS__MASTER_KEY",
                path.display()
            )
        }
        other => other.into(),
    }
}

/// Opens the installation's secret, which the first start creates. Refuses a master key that does not open it: the service
/// would fail for one user after the other, and seal new secrets with the wrong key.
pub(crate) async fn open(
    config: &Config,
    data_dir: &DataDir,
    store: &SqlStore,
    clock: &dyn Clock,
) -> anyhow::Result<Vault> {
    let stored = store.installation().await;
    let mut sealed = stored.context("cannot read the installation's secret")?;
    let canary = data_dir.canary();
    if sealed.is_none() {
        if !is_sealed(store, data_dir).await? && config.secrets.master_key.is_none() {
            MasterKey::all_from_file_or_generate(&data_dir.master_key())?;
        }
        let keyring = master_keys(config, data_dir)?;
        check_legacy(store, data_dir, &keyring).await?;
        let generated = InstallationKey::generate().and_then(|key| key.seal(&keyring));
        let generated = generated.context("cannot generate the installation's secret")?;
        let stored = store.create_installation(&generated, clock.now()).await;
        sealed = Some(stored.context("cannot store the installation's secret")?);
    }
    let sealed = sealed.context(
        "the store does not contain the installation's secret: restore a backup of the database",
    )?;
    let vault = unlock(master_keys(config, data_dir)?, &sealed, data_dir)?;
    // From here on the record in the store does the check, also for other machines. A remaining file would refuse a data
    // directory that is used with another database.
    match std::fs::remove_file(&canary) {
        Ok(()) => tracing::info!(
            "the store now verifies the master key; removed the obsolete file master.check"
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            let path = canary.display();
            tracing::warn!(error = %chain(&error), "cannot remove the unused check file {path} of the master key; delete it");
        }
    }
    Ok(vault)
}

/// Opens the installation's secret, and selects its key for sealing.
pub(crate) fn unlock(
    keyring: Keyring,
    sealed: &Sealed,
    data_dir: &DataDir,
) -> anyhow::Result<Vault> {
    let opened = InstallationKey::open(&keyring, sealed);
    let installation =
        opened.map_err(|error| refusal(error, &keyring, data_dir, "its secret in the store"))?;
    if let Some(id) = Keyring::key_of(sealed) {
        keyring.seal_with(id)?;
    }
    Ok(Vault {
        keyring: Arc::new(keyring),
        installation: Arc::new(installation),
    })
}

/// Whether an earlier release sealed anything: it left a canary file, and no secret in the store.
pub(crate) async fn is_sealed(store: &SqlStore, data_dir: &DataDir) -> anyhow::Result<bool> {
    let has_canary = read_canary(&data_dir.canary())?.is_some();
    Ok(has_canary || any_sealed(store).await?.is_some())
}

/// Checks that these keys open what an earlier release sealed: the canary file, which exists in one data directory only,
/// and any stored secret.
pub(crate) async fn check_legacy(
    store: &SqlStore,
    data_dir: &DataDir,
    keyring: &Keyring,
) -> anyhow::Result<()> {
    if let Some(canary) = read_canary(&data_dir.canary())? {
        let checked = keyring.check_canary(&canary);
        checked
            .map_err(|error| refusal(error, keyring, data_dir, "the obsolete file master.check"))?;
    }
    if let Some(sample) = any_sealed(store).await? {
        let opened = keyring.open(&sample.location.context(), &sample.sealed);
        opened.map_err(|error| refusal(error, keyring, data_dir, "a stored secret"))?;
    }
    Ok(())
}

fn read_canary(path: &Path) -> anyhow::Result<Option<Sealed>> {
    use secrecy::ExposeSecret as _;
    match private_file::read(path) {
        Ok(text) => Ok(Some(Sealed::from_text(text.expose_secret()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

async fn any_sealed(store: &SqlStore) -> anyhow::Result<Option<SealedRecord>> {
    for (_, kind) in SealedKind::ALL {
        let page = store.page(*kind, None, 1).await;
        let page = page.context("cannot read sealed values")?;
        if let Some(record) = page.into_iter().next() {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// The error for a wrong key: what was sealed with another key, and what to do.
fn refusal(
    error: CipherError,
    keyring: &Keyring,
    data_dir: &DataDir,
    record: &str,
) -> anyhow::Error {
    let CipherError::UnknownKey { key_id } = error else {
        return anyhow::Error::new(error).context(format!(
            "this installation cannot be opened: {record} is damaged. Restore a backup of the database"
        ));
    };
    anyhow!(
        "this is not the master key of this installation: {record} was sealed with the key {key_id}, and this process has {}. \
         Restore the key (WORKSPACE_SECRETS__MASTER_KEY or …_FILE, else {}), or name it in \
         WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS and then run `agent-workspace secrets rotate-key`",
        keyring.key_ids().join(", "),
        data_dir.master_key().display()
    )
}

/// Keeps the keys of a service and its announcement in the store up to date.
#[derive(Clone)]
pub(crate) struct KeyFollower {
    id: String,
    store: Arc<SqlStore>,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
}

impl KeyFollower {
    /// Opens the vault for a service. The service announces itself before it reads the key in use, so that a rotation that
    /// starts in between waits for it.
    pub(crate) async fn start(
        config: &Config,
        data_dir: &DataDir,
        (store, clock): (&Arc<SqlStore>, Arc<dyn Clock>),
        id: String,
    ) -> anyhow::Result<(Vault, Self)> {
        let announcement = KeyHolder {
            id: id.clone(),
            keys: Vec::new(),
            seals_with: None,
            seen_at: clock.now(),
        };
        let announced = store.announce(&announcement).await;
        announced.context("cannot register this service in the store")?;
        let vault = open(config, data_dir, store, clock.as_ref()).await;
        if vault.is_err() {
            // Otherwise a rotation would wait for a service that never started. The first error says more.
            let _ = store.withdraw(&id).await;
        }
        let vault = vault?;
        let follower = Self {
            id,
            store: Arc::clone(store),
            keyring: Arc::clone(&vault.keyring),
            clock,
        };
        follower.announce().await?;
        let (configured, used) = (config.secrets.master_key.as_ref(), vault.keyring.key_id());
        if configured.is_some_and(|configured| configured.id() != used) {
            tracing::warn!(
                key = used,
                "the configured master key is not in use yet: run `agent-workspace secrets rotate-key` to rotate to it"
            );
        }
        Ok((vault, follower))
    }

    pub(crate) fn spawn(&self, tasks: &BackgroundTasks) {
        let follower = self.clone();
        tasks.spawn(async move {
            let mut tick = tokio::time::interval(POLL_INTERVAL);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut last_text = String::new();
            let mut announced = (follower.state(), Instant::now());
            loop {
                tick.tick().await;
                let polled = follower.poll(&mut announced).await;
                let text = polled.map_or_else(|error| format!("{error:#}"), |()| String::new());
                // Report the same problem once, not at every poll.
                if text != last_text && !text.is_empty() {
                    tracing::warn!("{text}");
                }
                last_text = text;
            }
        });
    }

    /// Withdraws the announcement. If that fails, a rotation waits some seconds for the service.
    pub(crate) async fn withdraw(&self) {
        let withdrawn = tokio::time::timeout(WITHDRAW_TIMEOUT, self.store.withdraw(&self.id));
        let _ = withdrawn.await;
    }

    fn state(&self) -> (Vec<String>, String) {
        (self.keyring.key_ids(), self.keyring.key_id())
    }

    async fn poll(&self, announced: &mut ((Vec<String>, String), Instant)) -> anyhow::Result<()> {
        let keyring = Arc::clone(&self.keyring);
        let reread = tokio::runtime::Handle::current().spawn_blocking(move || keyring.reread());
        let reread = reread.await.context("cannot read the key files")?;
        let sealed = self.store.installation().await;
        let sealed = sealed.context("cannot read which master key is in use")?;
        let used = sealed.as_ref().and_then(Keyring::key_of);
        let used = used.filter(|used| *used != self.keyring.key_id());
        let followed = used.map_or(Ok(()), |used| self.follow_rotation(used));
        let state = self.state();
        if announced.0 != state || announced.1.elapsed() >= ANNOUNCE_INTERVAL {
            self.announce().await?;
            *announced = (state, Instant::now());
        }
        followed?;
        reread.context("cannot reread a master key file; the keys read before stay in use")?;
        Ok(())
    }

    fn follow_rotation(&self, used: &str) -> anyhow::Result<()> {
        self.keyring.seal_with(used).with_context(|| {
            format!(
                "the master key was rotated to {used}, which this service does not have: secrets sealed with it cannot be \
                 opened here. Set the key (WORKSPACE_SECRETS__MASTER_KEY) and restart the service"
            )
        })?;
        tracing::info!(
            key = used,
            "the master key was rotated; new secrets are sealed with the new key"
        );
        Ok(())
    }

    async fn announce(&self) -> anyhow::Result<()> {
        let announcement = KeyHolder {
            id: self.id.clone(),
            keys: self.keyring.key_ids(),
            seals_with: Some(self.keyring.key_id()),
            seen_at: self.clock.now(),
        };
        let announced = self.store.announce(&announcement).await;
        announced.context("cannot register this service's master keys in the database")
    }
}
