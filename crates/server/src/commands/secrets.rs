//! The `secrets` command: rotation of the master key.
//!
//! ```text
//!   key file [K1] ──► [K2, K1] ──► services have K2 ──► vault under K2 ──► services seal with K2 ──► records under K2
//! ```
//!
//! Killed anywhere, the next run finds by the key file and the vault where it was. Keys that are given (environment or a
//! file of the operator's) are the operator's to change: then the first step is theirs.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use application::rotation::{MasterKeyRotation, SealedRecordCount, retry_while_unavailable};
use domain::clock::Clock;
use domain::crash_point;
use domain::error::StoreError;
use domain::vault::{KeyHolder, VaultRepository};
use keyring::{InstallationKey, Keyring, MasterKey};

use crate::cli::Secrets;
use crate::compose::{self, Store, Vault};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::to_stderr;

/// Runs the command. Returns its standard output, and whether all values are sealed with the key in use.
pub(crate) async fn run(
    command: Secrets,
    config: &Config,
    data_dir: &DataDir,
    store: &Store,
) -> anyhow::Result<(String, bool)> {
    let Secrets::RotateKey(options) = command;
    let clock = compose::clock();
    // Two concurrent rotations would each write a key of their own. The lock ends with the process.
    let _lock = lock(data_dir)?;
    let vault = compose::open_vault(config, data_dir, store, clock.as_ref()).await?;
    let present = vault.keyring.key_id();
    let rotation = MasterKeyRotation {
        vault: store,
        records: store,
        cipher: vault.keyring.as_ref(),
        clock: clock.as_ref(),
    };
    let before = rotation.count().await.context("cannot read the secrets")?;
    let target = target(config, data_dir, &before, &present)?;
    if options.dry_run {
        return Ok((plan(&before, &present, &target), true));
    }
    let target = match target {
        RotationTarget::Key(id) => id,
        RotationTarget::Fresh => add_key(data_dir, &vault.keyring)?,
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
    let under_way = options.settle.unwrap_or_else(|| store.max_write_duration());
    to_stderr(&format!(
        "sealing everything anew; in {} s it is looked once more for what was being saved meanwhile",
        under_way.as_secs()
    ));
    let mut tell = |count: SealedRecordCount| {
        let text = format!("{}: {} sealed anew", count.kind.title(), count.outdated);
        to_stderr(&text);
    };
    let counts = rotation.reseal(under_way, &mut tell).await.context(
        "not everything is sealed with the new key yet; nothing is lost, and both keys are needed: run this again",
    )?;
    let is_whole = counts.iter().all(|count| count.broken == 0);
    Ok((
        summary(config, data_dir, &counts, &target, &vault.keyring),
        is_whole,
    ))
}

/// The key to rotate to.
enum RotationTarget {
    /// An existing key.
    Key(String),
    /// A new key in the data directory.
    Fresh,
}

/// Rotates to the first key. If that is the key in use, finishes what an interrupted run left. If nothing is left, the data
/// directory gets a new key.
fn target(
    config: &Config,
    data_dir: &DataDir,
    before: &[SealedRecordCount],
    present: &str,
) -> anyhow::Result<RotationTarget> {
    let is_done = before.iter().all(|count| count.outdated == count.broken);
    if let Some(given) = &config.secrets.master_key {
        return Ok(RotationTarget::Key(given.id().to_owned()));
    }
    let keys = MasterKey::all_from_file(&data_dir.master_key())?;
    Ok(match keys.first() {
        Some(first) if first.id() != present || !is_done => {
            RotationTarget::Key(first.id().to_owned())
        }
        _ => RotationTarget::Fresh,
    })
}

/// Inserts a new key before those in the data directory.
fn add_key(data_dir: &DataDir, keyring: &Keyring) -> anyhow::Result<String> {
    let path = data_dir.master_key();
    let former = MasterKey::all_from_file(&path)?;
    let fresh = MasterKey::generate()?;
    let all: Vec<&MasterKey> = std::iter::once(&fresh).chain(&former).collect();
    crash_point::around("master key file: writing", || {
        MasterKey::write_all(&path, &all)
    })?;
    keyring.reread()?;
    to_stderr(&format!(
        "{} has the new master key {}, and the former one",
        path.display(),
        fresh.id()
    ));
    Ok(fresh.id().to_owned())
}

/// Waits until all services have the key, before anything is sealed with it.
async fn wait_for_key(
    rotation: &MasterKeyRotation<'_>,
    key: &str,
    time_limit: Duration,
) -> anyhow::Result<()> {
    let has_it = |holder: &KeyHolder| holder.keys.iter().any(|id| id == key);
    let mut tell = |missing: &[KeyHolder]| {
        to_stderr(&format!(
            "waiting for services that do not have the key {key} yet: {}",
            names(missing)
        ));
    };
    let missing = rotation.wait_for_services(has_it, time_limit, &mut tell);
    let missing = missing
        .await
        .context("cannot read the announcements of services")?;
    if !missing.is_empty() {
        bail!(
            "nothing was changed: these services do not have the key {key}, and could not open what is sealed with it: {}. \
             Give it to them (WORKSPACE_SECRETS__MASTER_KEY, with the former key in \
             WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS), start them again, and run this again",
            names(&missing)
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
    let uses_it = |holder: &KeyHolder| holder.seals_with.as_deref() == Some(key);
    let mut tell = |missing: &[KeyHolder]| {
        to_stderr(&format!(
            "waiting for services to seal with the key {key}: {}",
            names(missing)
        ));
    };
    let missing = rotation.wait_for_services(uses_it, time_limit, &mut tell);
    let missing = missing
        .await
        .context("cannot read the announcements of services")?;
    if !missing.is_empty() {
        bail!(
            "these services do not seal with the key {key} yet: {}. Nothing is lost, and both keys are needed: see their \
             logs, and run this again",
            names(&missing)
        );
    }
    Ok(())
}

fn names(services: &[KeyHolder]) -> String {
    let names: Vec<_> = services.iter().map(|it| it.id.as_str()).collect();
    names.join(", ")
}

/// From here on all services use the key.
async fn replace_vault(
    store: &Store,
    vault: &Vault,
    clock: &dyn Clock,
    target: &str,
) -> anyhow::Result<()> {
    let before = retry_while_unavailable(async || store.installation().await).await;
    let before = before
        .context("cannot read the installation's secret")?
        .context("the installation's secret is gone")?;
    if Keyring::key_of(&before) == Some(target) {
        return Ok(());
    }
    let installation = InstallationKey::open(vault.keyring.as_ref(), &before)?;
    let after = installation.seal(vault.keyring.as_ref())?;
    let replaced = retry_while_unavailable(async || {
        store
            .replace_installation(&before, &after, clock.now())
            .await
    })
    .await;
    match replaced {
        // Also true when the response to a commit was lost and the commit was repeated.
        Err(StoreError::Stale { .. }) if store.installation().await? == Some(after) => Ok(()),
        Err(StoreError::Stale { .. }) => {
            bail!(
                "another process is rotating the master key: run this command again when it has finished"
            )
        }
        done => done.context("cannot store the installation's secret"),
    }
}

fn lock(data_dir: &DataDir) -> anyhow::Result<File> {
    let path = data_dir.rotation_lock();
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("the master key is being rotated by another command already: let it end")
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

fn table(counts: &[SealedRecordCount], column: &str) -> String {
    let mut text = String::new();
    for count in counts {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "  {:28}  {:>8}, {column} {:>8}",
            count.kind.title(),
            count.total,
            count.outdated - count.broken
        );
        if count.broken > 0 {
            let _ = write!(
                text,
                ", and {} that open with no key that is here",
                count.broken
            );
        }
        text.push('\n');
    }
    text
}

fn plan(before: &[SealedRecordCount], present: &str, target: &RotationTarget) -> String {
    let what = match target {
        RotationTarget::Key(id) if id == present => {
            format!(
                "master key: {present}, which stays; what is sealed with another one would be sealed with it"
            )
        }
        RotationTarget::Key(id) => {
            format!("master key: {present}, which would be replaced by {id}")
        }
        RotationTarget::Fresh => {
            format!("master key: {present}, which would be replaced by a new one")
        }
    };
    format!(
        "{what}\n{}nothing was changed\n",
        table(before, "with another key:")
    )
}

fn summary(
    config: &Config,
    data_dir: &DataDir,
    counts: &[SealedRecordCount],
    target: &str,
    keyring: &Keyring,
) -> String {
    let mut text = format!("master key: {target}\n{}", table(counts, "sealed anew:"));
    let former: Vec<String> = keyring
        .key_ids()
        .into_iter()
        .filter(|id| id != target)
        .collect();
    if counts.iter().any(|count| count.broken > 0) {
        text += "Some values open with no key that is here (the log says which): keep all former keys, find the one that is \
                 missing, name it in WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS and run this again.\n";
    } else if former.is_empty() {
        text += "There is no former key. To rotate a key that is given (WORKSPACE_SECRETS__MASTER_KEY or …_FILE), put the \
                 new one in its place and the present one into WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS first; see \
                 docs/how-to/rotate-the-master-key.md.\n";
    } else {
        let place = if config.secrets.master_key.is_none() {
            format!(
                "take its line out of {}, where the first line is the present one",
                data_dir.master_key().display()
            )
        } else {
            "take it out of the configuration, where the new one is the master key, and start the services again"
                .to_owned()
        };
        let _ = writeln!(
            text,
            "Nothing is sealed with {} any more. It may be removed: {place}. Keep a copy with the backups of before.",
            former.join(", ")
        );
    }
    text
}
