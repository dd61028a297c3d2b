//! The `secrets` command: rotation of the master key.
//!
//! ```text
//!   key file [K1] ──► [K2, K1] ──► services have K2 ──► vault under K2 ──► services seal with K2 ──► records under K2
//! ```
//!
//! The next run after a crash continues where the key file and the vault say. The operator changes configured keys (the
//! environment, or a file that the configuration names) by hand, so the first step is theirs then.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use application::master_key_rotation::{
    MasterKeyRotation, SealedRecordCount, retry_while_unavailable,
};
use domain::clock::Clock;
use domain::crash_point;
use domain::encryption::vault::{KeyHolder, VaultRepository};
use domain::error::StoreError;
use keyring::{InstallationKey, Keyring, MasterKey};

use crate::cli::Secrets;
use crate::compose::{self, Store, Vault};
use crate::config::Config;
use crate::data_dir::{DataDir, lock_file};
use crate::to_stderr;

/// Runs the command. Returns its standard output, and whether all values are sealed with the key in use.
pub(crate) async fn run(command: Secrets, config: &Config) -> anyhow::Result<(String, bool)> {
    let Secrets::RotateKey(options) = command;
    let (data_dir, store) = super::open(config).await?;
    let (data_dir, store) = (&data_dir, store.as_ref());
    let clock = compose::clock();
    // Two concurrent rotations would each write a key of their own. The lock ends with the process.
    let _lock = lock_file(&data_dir.rotation_lock(), |_| {
        "another command is rotating the master key of this data directory: wait until it has ended"
            .to_owned()
    })?;
    let vault = compose::open_vault(config, data_dir, store, clock.as_ref()).await?;
    let present = vault.keyring.key_id();
    let rotation = MasterKeyRotation {
        vault: store,
        records: store,
        cipher: vault.keyring.as_ref(),
        clock: clock.as_ref(),
    };
    let counts = rotation.count().await.context("cannot read the secrets")?;
    let target = target(config, data_dir, &counts, &present)?;
    if options.dry_run {
        return Ok((plan(&counts, &present, &target), true));
    }
    let target = match target {
        RotationTarget::Key(id) => id,
        RotationTarget::New => add_key(data_dir, &vault.keyring)?,
    };
    wait_for_key(&rotation, &target, options.wait).await?;
    vault.keyring.seal_with(&target)?;
    if target != present {
        replace_vault(store, &vault, clock.as_ref(), &target).await?;
        to_stderr(&format!(
            "the master key is {target} from now on (it was {present})"
        ));
    }
    wait_for_use(&rotation, &target, options.wait).await?;
    let write_grace = options
        .write_grace
        .unwrap_or_else(|| store.max_write_duration());
    to_stderr(&format!(
        "sealing all secrets with the new key; after {} s, when earlier writes have ended, the command searches once more",
        write_grace.as_secs()
    ));
    let mut report = |count: SealedRecordCount| {
        let text = format!(
            "{}: sealed {} with the new key",
            count.kind.as_str(),
            count.outdated
        );
        to_stderr(&text);
    };
    let counts = rotation.reseal(write_grace, &mut report).await.context(
        "some secrets are not sealed with the new key yet; no secret is lost, keep both keys and run this command again",
    )?;
    let is_complete = counts.iter().all(|count| count.broken == 0);
    Ok((
        summary(config, data_dir, &counts, &target, &vault.keyring),
        is_complete,
    ))
}

enum RotationTarget {
    Key(String),
    /// A new key in the data directory.
    New,
}

/// Rotates to the first key. If that is the key in use, completes an interrupted run. If there is nothing to complete, the data
/// directory gets a new key.
fn target(
    config: &Config,
    data_dir: &DataDir,
    counts: &[SealedRecordCount],
    present: &str,
) -> anyhow::Result<RotationTarget> {
    let is_resealed = counts.iter().all(|count| count.outdated == count.broken);
    if let Some(configured) = &config.secrets.master_key {
        return Ok(RotationTarget::Key(configured.id().to_owned()));
    }
    let keys = MasterKey::all_from_file(&data_dir.master_key())?;
    Ok(match keys.first() {
        Some(first) if first.id() != present || !is_resealed => {
            RotationTarget::Key(first.id().to_owned())
        }
        _ => RotationTarget::New,
    })
}

/// Inserts a new key before those in the data directory.
fn add_key(data_dir: &DataDir, keyring: &Keyring) -> anyhow::Result<String> {
    let path = data_dir.master_key();
    let former = MasterKey::all_from_file(&path)?;
    let generated = MasterKey::generate()?;
    let all: Vec<&MasterKey> = std::iter::once(&generated).chain(&former).collect();
    crash_point::around("master key file: writing", || {
        MasterKey::write_all(&path, &all)
    })?;
    keyring.reread()?;
    to_stderr(&format!(
        "{} now contains the new master key {} before the former one",
        path.display(),
        generated.id()
    ));
    Ok(generated.id().to_owned())
}

/// Waits until all services have the key, before anything is sealed with it.
async fn wait_for_key(
    rotation: &MasterKeyRotation<'_>,
    key: &str,
    time_limit: Duration,
) -> anyhow::Result<()> {
    let has_key = |holder: &KeyHolder| holder.keys.iter().any(|id| id == key);
    let waiting = format!("waiting for services that do not have the key {key} yet");
    if let Some(missing) = wait_for_services(rotation, has_key, time_limit, &waiting).await? {
        bail!(
            "nothing was changed: these services do not have the key {key} and could not open secrets sealed with it: {missing}. \
             Configure it there (WORKSPACE_SECRETS__MASTER_KEY, with the former key in \
             WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS), restart them, and run this command again"
        );
    }
    Ok(())
}

/// Waits until all services seal with the key. A search for values of former keys would otherwise miss new ones.
async fn wait_for_use(
    rotation: &MasterKeyRotation<'_>,
    key: &str,
    time_limit: Duration,
) -> anyhow::Result<()> {
    let seals_with_key = |holder: &KeyHolder| holder.seals_with.as_deref() == Some(key);
    let waiting = format!("waiting until all services encrypt with the key {key}");
    if let Some(missing) = wait_for_services(rotation, seals_with_key, time_limit, &waiting).await?
    {
        bail!(
            "these services do not seal with the key {key} yet: {missing}. No secret is lost. Keep both keys, read the logs of \
             these services, and run this command again"
        );
    }
    Ok(())
}

/// Waits until all services meet the condition. Returns the names of those that do not within the time limit.
async fn wait_for_services(
    rotation: &MasterKeyRotation<'_>,
    condition: impl Fn(&KeyHolder) -> bool,
    time_limit: Duration,
    waiting: &str,
) -> anyhow::Result<Option<String>> {
    let mut report = |missing: &[KeyHolder]| to_stderr(&format!("{waiting}: {}", names(missing)));
    let missing = rotation.wait_for_services(condition, time_limit, &mut report);
    let missing = missing
        .await
        .context("cannot read which master keys the services have")?;
    Ok((!missing.is_empty()).then(|| names(&missing)))
}

fn names(services: &[KeyHolder]) -> String {
    let names: Vec<_> = services.iter().map(|service| service.id.as_str()).collect();
    names.join(", ")
}

/// From here on all services use the key.
async fn replace_vault(
    store: &Store,
    vault: &Vault,
    clock: &dyn Clock,
    target: &str,
) -> anyhow::Result<()> {
    let former = retry_while_unavailable(async || store.installation().await).await;
    let former = former
        .context("cannot read the installation's secret")?
        .context("the store no longer contains the installation's secret: restore a backup of the database")?;
    if Keyring::key_of(&former) == Some(target) {
        return Ok(());
    }
    let installation = InstallationKey::open(vault.keyring.as_ref(), &former)?;
    let after = installation.seal(vault.keyring.as_ref())?;
    let replaced = retry_while_unavailable(async || {
        store
            .replace_installation(&former, &after, clock.now())
            .await
    })
    .await;
    match replaced {
        // Also true when the response to a commit was lost and the commit was repeated.
        Err(StoreError::Stale { .. }) if store.installation().await? == Some(after) => Ok(()),
        Err(StoreError::Stale { .. }) => {
            bail!(
                "another process is rotating the master key: run this command again when that has finished"
            )
        }
        result => result.context("cannot store the installation's secret"),
    }
}

fn table(counts: &[SealedRecordCount], column: &str) -> String {
    let mut text = String::new();
    for count in counts {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "  {:28}  {:>8}, {column} {:>8}",
            count.kind.as_str(),
            count.total,
            count.outdated - count.broken
        );
        if count.broken > 0 {
            let _ = write!(text, ", and {} that no present key opens", count.broken);
        }
        text.push('\n');
    }
    text
}

fn plan(counts: &[SealedRecordCount], present: &str, target: &RotationTarget) -> String {
    let what = match target {
        RotationTarget::Key(id) if id == present => {
            format!(
                "master key: {present}, which stays; secrets sealed with other keys would be sealed with it"
            )
        }
        RotationTarget::Key(id) => {
            format!("master key: {present}, which would be replaced by {id}")
        }
        RotationTarget::New => {
            format!("master key: {present}, which would be replaced by a new one")
        }
    };
    format!(
        "{what}\n{}nothing was changed\n",
        table(counts, "with another key:")
    )
}

fn summary(
    config: &Config,
    data_dir: &DataDir,
    counts: &[SealedRecordCount],
    target: &str,
    keyring: &Keyring,
) -> String {
    let mut text = format!(
        "master key: {target}\n{}",
        table(counts, "sealed with the new key:")
    );
    let former: Vec<String> = keyring
        .key_ids()
        .into_iter()
        .filter(|id| id != target)
        .collect();
    if counts.iter().any(|count| count.broken > 0) {
        text += "No present key opens some values (the log names them): keep all former keys, find the missing one, add it to \
                 WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS and run this command again.\n";
    } else if former.is_empty() {
        text += "There is no former key. To rotate a configured key (WORKSPACE_SECRETS__MASTER_KEY or …_FILE), first set the \
                 new key there and the present one in WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS; see \
                 docs/how-to/rotate-the-master-key.md.\n";
    } else {
        let instruction = if config.secrets.master_key.is_none() {
            format!(
                "delete its line in {}, and keep the first line, which is the present key",
                data_dir.master_key().display()
            )
        } else {
            "remove it from the configuration, keep the new key as the master key, and restart the services"
                .to_owned()
        };
        let _ = writeln!(
            text,
            "No secret is sealed with {} any more. It may be removed: {instruction}. Keep a copy with older backups, which need it.",
            former.join(", ")
        );
    }
    text
}
