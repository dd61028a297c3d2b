//! Rotation of the master key while services run.
//!
//! ```text
//!   every service has the new key ──► the vault is sealed with it ──► every service seals with it ──► everything else is
//! ```
//!
//! Each arrow is one or more transactions that may be repeated. After a crash in between, secrets are sealed with
//! either key and all services have both; the next run continues.

use std::collections::HashMap;
use std::time::Duration;

use domain::clock::Clock;
use domain::encryption::cipher::Cipher;
use domain::encryption::sealed::{
    ResealedRecord, SealedKind, SealedRecord, SealedRecordRepository,
};
use domain::encryption::vault::{KeyHolder, VaultRepository};
use domain::error::{Entity, StoreError, chain};
use tokio::time::Instant;

/// Records of one page and transaction.
const MAX_BATCH_RECORDS: usize = 100;
/// The same for settings, where one record may exceed a megabyte.
const MAX_BATCH_SETTINGS: usize = 10;
/// Reports of key holders older than this are ignored: processes report every few seconds.
const KEY_HOLDER_TTL: Duration = Duration::from_secs(60 * 60);
/// A process that does not report for this long is gone. Measured by the local clock, because clocks of machines
/// differ.
const SILENT_PROCESS_TIMEOUT: Duration = Duration::from_secs(25);
/// Interval of polls for key holders and the store. There is no event for it.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Passes over all records before the rotation fails. A pass may find records that a service sealed with the former
/// key and stored after the pass before, or that an older version sealed, which does not report its key.
const MAX_PASSES: usize = 12;

/// How long calls are retried while the store is busy or restarts.
const STORE_RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Retries a call while the store is unavailable, up to `STORE_RETRY_TIMEOUT`.
pub async fn retry_while_unavailable<T>(
    mut ask: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let give_up = Instant::now() + STORE_RETRY_TIMEOUT;
    loop {
        match ask().await {
            Err(StoreError::Unavailable { .. }) if Instant::now() < give_up => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            answer => return answer,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedRecordCount {
    pub kind: SealedKind,
    pub total: u64,
    /// Records that were sealed with a former key.
    pub outdated: u64,
    /// Outdated records that no available key opens.
    pub broken: u64,
}

#[derive(Clone, Copy)]
pub struct MasterKeyRotation<'a> {
    pub vault: &'a dyn VaultRepository,
    pub records: &'a dyn SealedRecordRepository,
    /// Seals with the new key; opens with it and former ones.
    pub cipher: &'a dyn Cipher,
    pub clock: &'a dyn Clock,
}

impl MasterKeyRotation<'_> {
    pub async fn count(&self) -> Result<Vec<SealedRecordCount>, StoreError> {
        let mut counts = Vec::new();
        for (_, kind) in SealedKind::ALL {
            counts.push(self.pass(*kind, false, &mut |_| {}).await?);
        }
        Ok(counts)
    }

    /// Reseals all outdated records, and repeats until only broken ones are left. `on_progress` gets the counts of the
    /// current kind after each batch. Returns the counts of all passes.
    ///
    /// All services seal with the new key when this is called. A write that one of them sealed before may still wait
    /// for the database. `under_way` is longer than any write takes; a last pass after that time reseals such records.
    /// Only then may a former key be removed.
    pub async fn reseal(
        &self,
        under_way: Duration,
        on_progress: &mut dyn FnMut(SealedRecordCount),
    ) -> Result<Vec<SealedRecordCount>, StoreError> {
        let over = Instant::now() + under_way;
        let mut is_over = under_way.is_zero();
        let mut counts: Vec<SealedRecordCount> = Vec::new();
        for _ in 0..MAX_PASSES {
            let mut seen = Vec::new();
            for (_, kind) in SealedKind::ALL {
                seen.push(self.pass(*kind, true, on_progress).await?);
            }
            let left: u64 = seen.iter().map(|it| it.outdated - it.broken).sum();
            if counts.is_empty() {
                counts = seen;
            } else {
                for (count, again) in counts.iter_mut().zip(seen) {
                    count.total = again.total;
                    count.outdated = (count.outdated - count.broken) + again.outdated;
                    count.broken = again.broken;
                }
            }
            if left > 0 {
                continue;
            }
            if is_over {
                return Ok(counts);
            }
            tokio::time::sleep_until(over).await;
            is_over = true;
        }
        Err(StoreError::Stale {
            entity: Entity::SealedRecord,
        })
    }

    /// Waits at most `timeout` until all reporting services are ready; returns those that are not. `on_waiting` gets
    /// the awaited services whenever they change.
    pub async fn wait_for_services(
        &self,
        is_ready: impl Fn(&KeyHolder) -> bool,
        timeout: Duration,
        on_waiting: &mut dyn FnMut(&[KeyHolder]),
    ) -> Result<Vec<KeyHolder>, StoreError> {
        let give_up = Instant::now() + timeout;
        let mut last_reports: HashMap<String, (KeyHolder, Instant)> = HashMap::new();
        let mut waited_for = Vec::new();
        loop {
            let since = self.clock.now().minus(KEY_HOLDER_TTL);
            let mut missing =
                retry_while_unavailable(async || self.vault.list_holders(since).await).await?;
            missing.retain(|holder| !is_ready(holder));
            missing.retain(|holder| {
                let now = Instant::now();
                let last = last_reports
                    .entry(holder.id.clone())
                    .or_insert_with(|| (holder.clone(), now));
                if last.0 != *holder {
                    *last = (holder.clone(), now);
                }
                last.1.elapsed() < SILENT_PROCESS_TIMEOUT
            });
            if missing.is_empty() || Instant::now() >= give_up {
                return Ok(missing);
            }
            let ids: Vec<_> = missing.iter().map(|it| it.id.clone()).collect();
            if ids != waited_for {
                on_waiting(&missing);
                waited_for = ids;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads all records of a kind, and reseals the outdated ones if `reseal` is set.
    async fn pass(
        &self,
        kind: SealedKind,
        reseal: bool,
        on_progress: &mut dyn FnMut(SealedRecordCount),
    ) -> Result<SealedRecordCount, StoreError> {
        let mut count = SealedRecordCount {
            kind,
            total: 0,
            outdated: 0,
            broken: 0,
        };
        let mut after = None;
        let limit = match kind {
            SealedKind::Settings => MAX_BATCH_SETTINGS,
            _ => MAX_BATCH_RECORDS,
        };
        loop {
            let page = retry_while_unavailable(async || {
                self.records.page(kind, after.as_ref(), limit).await
            });
            let page = page.await?;
            let is_last = page.len() < limit;
            count.total += page.len() as u64;
            after = page.last().map(|it| it.location.clone());
            let outdated: Vec<_> = page
                .into_iter()
                .filter(|it| self.cipher.is_outdated(&it.sealed))
                .collect();
            count.outdated += outdated.len() as u64;
            let mut batch = Vec::new();
            for it in outdated {
                match self.reseal_record(it) {
                    Some(it) => batch.push(it),
                    None => count.broken += 1,
                }
            }
            if reseal && !batch.is_empty() {
                // A record that changed in between was resealed by that change, or the next pass finds it.
                retry_while_unavailable(async || self.records.replace(&batch).await).await?;
                on_progress(count);
            }
            if is_last {
                return Ok(count);
            }
        }
    }

    /// The same secret under the new key; `None` if no key opens it.
    fn reseal_record(&self, it: SealedRecord) -> Option<ResealedRecord> {
        let context = it.location.context();
        let after = self
            .cipher
            .open(&context, &it.sealed)
            .and_then(|secret| self.cipher.seal(&context, &secret));
        match after {
            Ok(after) => Some(ResealedRecord {
                location: it.location,
                before: it.sealed,
                after,
            }),
            Err(error) => {
                tracing::warn!(place = ?it.location, error = %chain(&error), "no configured master key decrypts a sealed record; it stays unchanged. Add its key to WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS");
                None
            }
        }
    }
}
