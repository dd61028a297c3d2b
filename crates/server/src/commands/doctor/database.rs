//! Checks of `doctor`: the store, its clock, the master key and API keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::clock::{Clock, Timestamp};
use domain::encryption::vault::VaultRepository as _;
use domain::id::UserId;
use domain::user::identity::ApiKeyRepository as _;
use keyring::Keyring;
use secrecy::ExposeSecret as _;

use super::{DoctorReport, hosts, model};
use crate::compose::{self, SchemaStatus, Store, StoreInspection};
use crate::config::{AuthModeSetting, Config, without_password};
use crate::data_dir::DataDir;
use crate::lifecycle::first_link::administrator_without_password;

pub(super) async fn examine(
    config: &Config,
    data_dir: Option<&DataDir>,
    clock: &dyn Clock,
    report: &mut DoctorReport,
) {
    let url = without_password(config.storage.url.expose_secret());
    let inspection = match compose::inspect_store(config).await {
        Ok(inspection) => inspection,
        Err(error) => {
            let text = format!("{error:#}: start the database, or correct WORKSPACE_STORAGE__URL");
            return report.problem("store", text);
        }
    };
    schema(&url, &inspection, report);
    if let Some(now) = inspection.now {
        report.skew("clock of the database", now, clock.now());
    }
    match (&inspection.store, inspection.schema) {
        (Some(store), _) => {
            let keyring = master_key(config, data_dir, store, report).await;
            let users = api_keys(config, store, clock.now(), report).await;
            if config.auth.mode == AuthModeSetting::Accounts {
                sign_in(store, report).await;
            }
            let shared = config.sandbox.shared_host.clone();
            let own = shared.or_else(|| data_dir?.recorded_host());
            hosts::examine(&**store, own.as_ref(), clock.now(), report).await;
            if let Some(keyring) = keyring {
                let settings = Arc::clone(store) as _;
                model::examine(settings, keyring, compose::clock(), &users, report).await;
            }
        }
        (None, SchemaStatus::Missing) => master_key_before_first_use(config, data_dir, report),
        (None, _) => report.ok("keys", "checked once the schema is up to date"),
    }
}

fn schema(url: &str, inspection: &StoreInspection, report: &mut DoctorReport) {
    match &inspection.schema {
        SchemaStatus::Current => report.ok("store", format!("{url}, with the schema of this version")),
        SchemaStatus::Missing => {
            report.ok("store", format!("{url} is empty; the first start creates the schema"));
        }
        SchemaStatus::Older(count) => report.warn(
            "store",
            format!(
                "{url} has the schema of an older version ({count} migrations behind). `agent-workspace migrate`, or \
                     the next start, migrates it; make a backup first"
            ),
        ),
        SchemaStatus::Newer(version) => report.problem(
            "store",
            format!(
                "{url} has schema version {version}, which this version of the program does not know: start the newer \
                     version, or restore a backup from before the upgrade"
            ),
        ),
    }
}

/// The master key while the store is empty.
fn master_key_before_first_use(
    config: &Config,
    data_dir: Option<&DataDir>,
    report: &mut DoctorReport,
) {
    let what = "master key";
    let file = data_dir
        .map(DataDir::master_key)
        .filter(|file| file.exists());
    match (&config.secrets.master_key, file) {
        (Some(key), _) => report.ok(
            what,
            format!("{}, configured; nothing is sealed with it yet", key.id()),
        ),
        (None, Some(file)) => report.ok(
            what,
            format!(
                "in {}; nothing in this store is sealed with it yet",
                file.display()
            ),
        ),
        (None, None) => report.ok(what, "the first start creates one in the data directory"),
    }
}

/// Whether the key opens the installation's secret.
async fn master_key(
    config: &Config,
    data_dir: Option<&DataDir>,
    store: &Store,
    report: &mut DoctorReport,
) -> Option<Arc<Keyring>> {
    let what = "master key";
    let keyring = match open(config, data_dir, store).await {
        Ok(Some(keyring)) => keyring,
        Ok(None) => {
            master_key_before_first_use(config, data_dir, report);
            return None;
        }
        Err(error) => {
            report.problem(what, format!("{error:#}"));
            return None;
        }
    };
    let used = keyring.key_id();
    let configured = config.secrets.master_key.as_ref();
    if configured.is_some_and(|configured| configured.id() != used) {
        report.warn(
            what,
            format!("{used} is in use, and another one is configured: run `agent-workspace secrets rotate-key` to \
                 rotate to it"),
        );
    } else {
        report.ok(
            what,
            format!("{used}, which opens this installation's secrets"),
        );
    }
    Some(keyring)
}

/// The keys, if they open the stored secrets; `None` if nothing is stored.
async fn open(
    config: &Config,
    data_dir: Option<&DataDir>,
    store: &Store,
) -> anyhow::Result<Option<Arc<Keyring>>> {
    // Without a data directory there is no key file; the error says so.
    let data_dir = data_dir.cloned();
    let data_dir = data_dir.unwrap_or_else(|| DataDir::at(&config.data_dir));
    let keys = || compose::master_keys(config, &data_dir);
    if let Some(sealed) = store.installation().await? {
        let vault = compose::unlock(keys()?, &sealed, &data_dir)?;
        return Ok(Some(vault.keyring));
    }
    // A store of an earlier release has sealed records, or a canary file, but no installation secret.
    if !compose::is_sealed(store, &data_dir).await? {
        return Ok(None);
    }
    let keyring = keys()?;
    compose::check_legacy(store, &data_dir, &keyring).await?;
    Ok(Some(Arc::new(keyring)))
}

/// Whether a person can sign in.
async fn sign_in(store: &Store, report: &mut DoctorReport) {
    let what = "sign-in";
    match administrator_without_password(store).await {
        Ok(None) => report.ok(what, "people sign in with a password"),
        Ok(Some(user)) => report.warn(
            what,
            format!(
                "no administrator has a password: open the link that the start prints, or make one with \
                 `agent-workspace users link {user}`"
            ),
        ),
        Err(error) => report.problem(what, format!("{error:#}")),
    }
}

async fn api_keys(
    config: &Config,
    store: &Store,
    now: Timestamp,
    report: &mut DoctorReport,
) -> BTreeSet<UserId> {
    let what = "API keys";
    let keys = match store.list(None).await {
        Ok(keys) => keys,
        Err(error) => {
            report.problem(what, format!("cannot read the API keys: {error}"));
            return BTreeSet::new();
        }
    };
    let expired = keys.iter().filter(|key| key.is_expired(now)).count();
    let valid = keys.len() - expired;
    let advice = "create one with `agent-workspace keys create --user NAME`";
    match (config.auth.mode, valid) {
        (AuthModeSetting::Open, _) => report.ok(what, "not needed (auth.mode = \"open\")"),
        (_, 0) if config.auth.bootstrap_key.is_some() => {
            report.ok(what, "none yet; the next start adds the configured one");
        }
        (_, 0) if keys.is_empty() => report.warn(
            what,
            format!("none: the first start creates one for `admin`; otherwise {advice}"),
        ),
        (_, 0) => {
            report.warn(what, format!("all {expired} have expired: {advice}"));
        }
        (_, _) => {
            report.ok(what, format!("{valid} valid, {expired} expired"));
        }
    }
    let owners = keys.into_iter().map(|key| key.user);
    owners.chain(config.auth.local_user()).collect()
}
