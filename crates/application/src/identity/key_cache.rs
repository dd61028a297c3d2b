//! A cache for look-ups of keys. Many requests use the same key, and each would cost a query and a change of threads.
//!
//! * Entries live for [`ENTRY_TTL`], counted from before the query. After that time, a key that another replica or the
//!   command line revoked gives no access. Changes by this process clear the cache at once.
//! * Only hits are cached. A request that waited for a look-up which found nothing or failed runs its own query, because
//!   the key may have been created in between.
//! * The cache is keyed by the hash; it holds no key in plain text.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::error::StoreError;
use domain::user::identity::KeyHash;
use tokio::sync::OnceCell;
use tokio::time::Instant;

pub(crate) const ENTRY_TTL: Duration = Duration::from_secs(1);
/// Entries and running look-ups. Beyond this number requests query the store.
const MAX_ENTRIES: usize = 1_000;

/// Empty while its look-up runs; then the result, which may be none.
type KeyLookUp<T> = Arc<OnceCell<Option<Arc<T>>>>;

/// Look-ups by key hash, with the times when they began. Cheap to clone.
pub(crate) struct KeyCache<T>(Arc<Mutex<KeyLookUps<T>>>);

type KeyLookUps<T> = HashMap<KeyHash, (Instant, KeyLookUp<T>)>;

pub(crate) struct CachedResult<T> {
    /// The owner of the key; never `None` if `is_cached`.
    pub(crate) found: Option<Arc<T>>,
    /// Whether another request ran the query.
    pub(crate) is_cached: bool,
}

impl<T> Default for KeyCache<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for KeyCache<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> KeyCache<T> {
    /// Finds the owner of the key: from an entry younger than [`ENTRY_TTL`], else by `query`.
    pub(crate) async fn find<F>(
        &self,
        hash: &KeyHash,
        query: impl Fn() -> F,
    ) -> Result<CachedResult<T>, StoreError>
    where
        F: Future<Output = Result<Option<T>, StoreError>>,
    {
        let mut own = None;
        let look_up = self.get_or_begin(hash);
        let shared = look_up.get_or_init(|| async {
            let found = query().await.map(|found| found.map(Arc::new));
            let shared = found.as_ref().ok().cloned().flatten();
            own = Some(found);
            shared
        });
        let shared = shared.await.clone();
        let found = match own {
            Some(own) => own?,
            None if shared.is_some() => {
                return Ok(CachedResult {
                    found: shared,
                    is_cached: true,
                });
            }
            None => query().await?.map(Arc::new),
        };
        Ok(CachedResult {
            found,
            is_cached: false,
        })
    }

    /// The cached owner of the key, without a query and without waiting for one.
    pub(crate) fn get_cached(&self, hash: &KeyHash) -> Option<Arc<T>> {
        let cache = self.lock();
        let entry = cache.get(hash).filter(|entry| is_usable(entry))?;
        entry.1.get()?.clone()
    }

    /// Removes all entries, running look-ups included. Called after changes that may affect an entry.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// A usable look-up, or a new one that the caller runs.
    fn get_or_begin(&self, hash: &KeyHash) -> KeyLookUp<T> {
        let mut cache = self.lock();
        if let Some((_, look_up)) = cache.get(hash).filter(|entry| is_usable(entry)) {
            return Arc::clone(look_up);
        }
        if cache.len() >= MAX_ENTRIES {
            cache.retain(|_, entry| is_usable(entry));
        }
        let look_up = KeyLookUp::default();
        if cache.len() < MAX_ENTRIES {
            cache.insert(*hash, (Instant::now(), Arc::clone(&look_up)));
        }
        look_up
    }

    fn lock(&self) -> MutexGuard<'_, KeyLookUps<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the entry is young enough and its look-up did not end without a hit.
fn is_usable<T>((began, look_up): &(Instant, KeyLookUp<T>)) -> bool {
    began.elapsed() < ENTRY_TTL && look_up.get().is_none_or(Option::is_some)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use domain::error::{Entity, StoreError};

    use super::*;

    fn hash(number: usize) -> KeyHash {
        KeyHash::of(&number.to_string())
    }

    /// A query that counts itself and takes a while.
    async fn query(
        queries: &AtomicUsize,
        answer: Result<Option<u32>, StoreError>,
    ) -> Result<Option<u32>, StoreError> {
        queries.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
        answer
    }

    async fn find(
        cache: &KeyCache<u32>,
        queries: &AtomicUsize,
        answer: Option<u32>,
    ) -> Option<u32> {
        let found = cache.find(&hash(1), || query(queries, Ok(answer))).await;
        found.unwrap().found.map(|value| *value)
    }

    #[tokio::test(start_paused = true)]
    async fn parallel_look_ups_share_one_query_and_its_hit_lives_for_a_second() {
        let (cache, queries) = (KeyCache::default(), AtomicUsize::new(0));
        let find_seven = || find(&cache, &queries, Some(7));
        let cached = || cache.get_cached(&hash(1)).map(|value| *value);
        assert_eq!(cached(), None);
        assert_eq!(
            tokio::join!(find_seven(), find_seven(), find_seven()),
            (Some(7), Some(7), Some(7))
        );
        assert_eq!(queries.load(Ordering::Relaxed), 1);
        // The lifetime counts from before the query, which took 100 ms.
        tokio::time::sleep(Duration::from_millis(899)).await;
        assert_eq!(find(&cache, &queries, None).await, Some(7));
        assert_eq!(cached(), Some(7));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(cached(), None);
        assert_eq!(find(&cache, &queries, None).await, None);
        assert_eq!(queries.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn misses_are_not_cached_even_for_waiting_requests() {
        let (cache, queries) = (KeyCache::default(), AtomicUsize::new(0));
        let both = tokio::join!(
            find(&cache, &queries, None),
            find(&cache, &queries, Some(7))
        );
        assert_eq!(both, (None, Some(7)));
        assert_eq!(find(&cache, &queries, Some(8)).await, Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_and_dropped_look_ups_do_not_affect_waiting_requests() {
        let (cache, queries) = (KeyCache::default(), AtomicUsize::new(0));
        let failure = || StoreError::Conflict {
            entity: Entity::Record,
        };
        let key = hash(1);
        let (failed, other) = tokio::join!(
            cache.find(&key, || query(&queries, Err(failure()))),
            find(&cache, &queries, Some(7))
        );
        assert!(failed.is_err());
        assert_eq!(other, Some(7));
        cache.clear();
        let dropped = tokio::time::timeout(
            Duration::from_millis(50),
            cache.find(&key, || query(&queries, Ok(Some(1)))),
        );
        let (dropped, other) = tokio::join!(dropped, find(&cache, &queries, Some(8)));
        assert!(dropped.is_err());
        assert_eq!(other, Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn clearing_the_cache_drops_running_look_ups() {
        let (cache, queries) = (KeyCache::default(), AtomicUsize::new(0));
        let change = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            cache.clear();
            find(&cache, &queries, None).await
        };
        let before = find(&cache, &queries, Some(7));
        assert_eq!(tokio::join!(before, change), (Some(7), None));
        assert_eq!(find(&cache, &queries, None).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded() {
        let (cache, queries) = (KeyCache::default(), AtomicUsize::new(0));
        for number in 0..3 * MAX_ENTRIES {
            let found = cache.find(&hash(number), || async { Ok(Some(1)) }).await;
            assert!(found.unwrap().found.is_some());
        }
        assert_eq!(cache.lock().len(), MAX_ENTRIES);
        tokio::time::sleep(ENTRY_TTL).await;
        assert_eq!(find(&cache, &queries, Some(7)).await, Some(7));
        assert_eq!(cache.lock().len(), 1, "expired entries are removed");
    }
}
