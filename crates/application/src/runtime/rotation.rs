//! Rotation of the master key, while services run.
//!
//! ```text
//!   every service has the new key ──► the vault is sealed with it ──► every service seals with it ──► everything else is
//! ```
//!
//! Each arrow is one or more transactions that may be repeated. Whoever dies between them leaves secrets sealed with either
//! key, and all services have both; the next run goes on where this one ended.

use std::collections::HashMap;
use std::time::Duration;

use domain::cipher::Cipher;
use domain::clock::Clock;
use domain::error::{StoreError, chain};
use domain::sealed::{ResealedRecord, SealedKind, SealedRecord, SealedRecordRepository};
use domain::vault::{KeyHolder, VaultRepository};
use tokio::time::Instant;

/// Records of one page and one transaction.
const MAX_BATCH_RECORDS: usize = 100;
/// The same for settings, of which one record may be a megabyte and more.
const MAX_BATCH_SETTINGS: usize = 10;
/// What a process said longer ago is of no interest: it says it again every few seconds.
const KEY_HOLDER_TTL: Duration = Duration::from_secs(60 * 60);
/// A process that says nothing for so long is gone. Watched by our own clock, because clocks of machines differ.
const SILENT_PROCESS_TIMEOUT: Duration = Duration::from_secs(25);
/// Between two looks at what processes say. There is no event for it.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Passes over all records before we give up. Each one but the last found something that was sealed with a former key
/// before a service changed to the new one and stored after the pass before it, or by a process that does not say what it
/// seals with (an older version).
const MAX_PASSES: usize = 12;

/// How long a store that is busy or away is asked again: services that save a lot, a database that is restarted.
const STORE_RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks the store again while it is not available, for a while.
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

/// Records of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedRecordCount {
    /// Of what.
    pub kind: SealedKind,
    /// How many there are.
    pub total: u64,
    /// How many of them were sealed with another key than the present one.
    pub outdated: u64,
    /// How many of those do not open with any key that is here.
    pub broken: u64,
}

/// What the rotation needs.
#[derive(Clone, Copy)]
pub struct MasterKeyRotation<'a> {
    /// Says who has which key.
    pub vault: &'a dyn VaultRepository,
    /// What is sealed.
    pub records: &'a dyn SealedRecordRepository,
    /// Seals with the new key, opens with it and with former ones.
    pub cipher: &'a dyn Cipher,
    /// Time.
    pub clock: &'a dyn Clock,
}

impl MasterKeyRotation<'_> {
    /// What is stored, changing nothing.
    pub async fn count(&self) -> Result<Vec<SealedRecordCount>, StoreError> {
        let mut counts = Vec::new();
        for kind in SealedKind::ALL {
            counts.push(self.pass(kind, false, &mut |_| {}).await?);
        }
        Ok(counts)
    }

    /// Seals everything anew that was sealed with a former key, and looks again until nothing of the kind is left (but what
    /// is broken). `told` gets the counts of the kind under way after each batch. The counts are of the whole.
    ///
    /// All services seal with the new key when this is called, but what one of them sealed a moment before may still wait
    /// for its turn at the database. `under_way` is longer than any write takes: after that long nothing of the kind can
    /// come any more, and what came is sealed anew. Only then may a former key be removed.
    pub async fn reseal(
        &self,
        under_way: Duration,
        told: &mut dyn FnMut(SealedRecordCount),
    ) -> Result<Vec<SealedRecordCount>, StoreError> {
        let over = Instant::now() + under_way;
        let mut is_over = under_way.is_zero();
        let mut counts: Vec<SealedRecordCount> = Vec::new();
        for _ in 0..MAX_PASSES {
            let mut seen = Vec::new();
            for kind in SealedKind::ALL {
                seen.push(self.pass(kind, true, told).await?);
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
            entity: "sealed record",
        })
    }

    /// Waits until every service that says something is as it should be, at most `patience`; answers those that are not.
    /// `told` gets those that are waited for whenever they change.
    pub async fn wait_for_services(
        &self,
        is_ready: impl Fn(&KeyHolder) -> bool,
        patience: Duration,
        told: &mut dyn FnMut(&[KeyHolder]),
    ) -> Result<Vec<KeyHolder>, StoreError> {
        let give_up = Instant::now() + patience;
        let mut heard: HashMap<String, (KeyHolder, Instant)> = HashMap::new();
        let mut waited_for = Vec::new();
        loop {
            let since = self.clock.now().minus(KEY_HOLDER_TTL);
            let mut missing = retry_while_unavailable(async || self.vault.list_holders(since).await).await?;
            missing.retain(|holder| !is_ready(holder));
            missing.retain(|holder| {
                let now = Instant::now();
                let last = heard
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
                told(&missing);
                waited_for = ids;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Looks at all records of a kind, and seals the outdated ones anew if asked to.
    async fn pass(
        &self,
        kind: SealedKind,
        reseal: bool,
        told: &mut dyn FnMut(SealedRecordCount),
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
            let page = retry_while_unavailable(async || self.records.page(kind, after.as_ref(), limit).await);
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
                // What was changed meanwhile is sealed anew by that, or found by the next pass.
                retry_while_unavailable(async || self.records.replace(&batch).await).await?;
                told(count);
            }
            if is_last {
                return Ok(count);
            }
        }
    }

    /// The same secret under the present key; `None` if it does not open.
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
                tracing::warn!(place = ?it.location, error = %chain(&error), "a sealed value does not open; it stays as it is");
                None
            }
        }
    }
}
