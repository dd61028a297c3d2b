//! Commands that work directly on the configuration and the store, without a running service.

pub(crate) mod doctor;
pub(crate) mod healthcheck;
pub(crate) mod hosts;
pub(crate) mod keys;
pub(crate) mod manual;
pub(crate) mod secrets;
pub(crate) mod users;

use std::sync::Arc;

use application::administration::Origin;
use application::error::AppError;
use domain::clock::Timestamp;
use domain::user::administration::AdminChange;
use domain::user::identity::PurgeCounts;

use crate::compose::{self, Store};
use crate::config::Config;
use crate::data_dir::DataDir;

pub(crate) async fn open(config: &Config) -> anyhow::Result<(DataDir, Arc<Store>)> {
    let data_dir = DataDir::open(&config.data_dir)?;
    Ok((data_dir, compose::open_store(config).await?))
}

/// Applies a change of keys or users, with an entry in the audit log that names the command.
async fn administer(
    store: &Store,
    command: &str,
    change: &AdminChange,
) -> Result<PurgeCounts, AppError> {
    let (origin, ids) = (Origin::command(command), compose::ids());
    let now = compose::clock().now();
    application::administration::administer(store, &origin, ids.as_ref(), now, change).await
}

/// The width of a column with these texts, below a title of four characters.
fn column_width<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts
        .map(|text| text.chars().count())
        .max()
        .unwrap_or(0)
        .max(4)
}

/// Formats a time as `2026-01-31T12:00:00Z`.
fn seconds(at: Timestamp) -> String {
    at.to_utc()
        .to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}
