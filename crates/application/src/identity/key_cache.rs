//! Look-ups of keys, remembered for a moment: one request after the other comes with the same key, and each would be a query
//! and a change of threads for the same answer.
//!
//! * Nothing is older than [`ENTRY_TTL`], counted from before the query was sent: what was revoked elsewhere (another replica, the
//!   command line) opens nothing after that. What this process changes itself it forgets at once.
//! * Only a find is remembered. Whoever waited for another's look-up that found nothing, or failed, asks on their own: the
//!   key may have been made in between.
//! * What is kept is found by the key's hash; no key is in memory here.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::error::StoreError;
use domain::identity::KeyHash;
use tokio::sync::watch;
use tokio::time::Instant;

/// For how long a find is believed.
pub(crate) const ENTRY_TTL: Duration = Duration::from_secs(1);
/// Finds and look-ups under way that are remembered. With more, requests ask as if there were none.
const MAX_ENTRIES: usize = 1_000;

/// A look-up under way (nothing yet), or what it found. When it finds nothing, its sender goes without having sent.
struct CacheEntry<T> {
    began: Instant,
    found: ResultReceiver<T>,
}

/// Gets what is found, if anything is.
type ResultReceiver<T> = watch::Receiver<Option<Arc<T>>>;
/// Tells them.
type ResultSender<T> = watch::Sender<Option<Arc<T>>>;

/// What is known of a key.
enum CacheLookup<T> {
    /// What it was found to be a moment ago.
    Hit(Arc<T>),
    /// Another request's look-up is under way.
    Pending(ResultReceiver<T>),
    /// Nothing: the caller looks it up and tells the others.
    Miss(ResultSender<T>),
}

/// What keys were found to be, by their hashes.
pub(crate) struct KeyCache<T>(Mutex<HashMap<KeyHash, CacheEntry<T>>>);

/// How an answer was come by.
pub(crate) struct CachedResult<T> {
    /// What has this key; never `None` if `is_cached`.
    pub(crate) found: Option<Arc<T>>,
    /// It is the find of another request's look-up.
    pub(crate) is_cached: bool,
}

impl<T> CachedResult<T> {
    fn remembered(found: Arc<T>) -> Self {
        Self {
            found: Some(found),
            is_cached: true,
        }
    }
}

impl<T> Default for KeyCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> KeyCache<T> {
    /// What has the key of this hash: as another request was told within [`ENTRY_TTL`], else by `query`.
    pub(crate) async fn find<F>(
        &self,
        hash: &KeyHash,
        query: impl FnOnce() -> F,
    ) -> Result<CachedResult<T>, StoreError>
    where
        F: Future<Output = Result<Option<T>, StoreError>>,
    {
        let tell = match self.get_or_begin(hash) {
            CacheLookup::Hit(found) => return Ok(CachedResult::remembered(found)),
            CacheLookup::Pending(mut known) => {
                // A find that was sent is seen, also when its sender is gone.
                if let Ok(found) = known.wait_for(Option::is_some).await
                    && let Some(found) = &*found
                {
                    return Ok(CachedResult::remembered(Arc::clone(found)));
                }
                None
            }
            CacheLookup::Miss(tell) => Some(tell),
        };
        let found = query().await?.map(Arc::new);
        if let (Some(tell), Some(_)) = (tell, &found) {
            tell.send_replace(found.clone());
        }
        Ok(CachedResult {
            found,
            is_cached: false,
        })
    }

    /// What has the key of this hash, as far as that is known without a query and without waiting for another's.
    pub(crate) fn remembered(&self, hash: &KeyHash) -> Option<Arc<T>> {
        let look_ups = self.lock();
        let known = look_ups.get(hash).filter(|it| it.is_usable())?;
        known.found.borrow().clone()
    }

    /// Forgets all: something was changed that a find may have been about. Look-ups under way are forgotten, too.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// A look-up that may be relied on. If there is none, the caller's own is put in its place, should there be room.
    fn get_or_begin(&self, hash: &KeyHash) -> CacheLookup<T> {
        let mut look_ups = self.lock();
        if let Some(known) = look_ups.get(hash).filter(|it| it.is_usable()) {
            let found = known.found.borrow().clone();
            return found.map_or_else(|| CacheLookup::Pending(known.found.clone()), CacheLookup::Hit);
        }
        if look_ups.len() >= MAX_ENTRIES {
            look_ups.retain(|_, it| it.is_usable());
        }
        let (tell, found) = watch::channel(None);
        if look_ups.len() < MAX_ENTRIES {
            let began = Instant::now();
            look_ups.insert(*hash, CacheEntry { began, found });
        }
        CacheLookup::Miss(tell)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyHash, CacheEntry<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> CacheEntry<T> {
    /// Young enough, and not one that found nothing, failed or was given up.
    fn is_usable(&self) -> bool {
        let is_over = self.found.has_changed().is_err();
        self.began.elapsed() < ENTRY_TTL && (!is_over || self.found.borrow().is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use domain::error::StoreError;

    use super::*;

    fn hash(number: usize) -> KeyHash {
        KeyHash::of(&number.to_string())
    }

    /// A query that counts itself and takes a while.
    async fn query(
        asked: &AtomicUsize,
        answer: Result<Option<u32>, StoreError>,
    ) -> Result<Option<u32>, StoreError> {
        asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
        answer
    }

    async fn found(
        look_ups: &KeyCache<u32>,
        asked: &AtomicUsize,
        answer: Option<u32>,
    ) -> Option<u32> {
        let found = look_ups.find(&hash(1), || query(asked, Ok(answer))).await;
        found.unwrap().found.map(|it| *it)
    }

    #[tokio::test(start_paused = true)]
    async fn simultaneous_look_ups_are_one_query_whose_find_lives_for_a_second() {
        let (look_ups, asked) = (KeyCache::default(), AtomicUsize::new(0));
        let ask = || found(&look_ups, &asked, Some(7));
        let remembered = || look_ups.remembered(&hash(1)).map(|it| *it);
        assert_eq!(remembered(), None);
        assert_eq!(
            tokio::join!(ask(), ask(), ask()),
            (Some(7), Some(7), Some(7))
        );
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // The query took 100 ms of its life.
        tokio::time::sleep(Duration::from_millis(899)).await;
        assert_eq!(found(&look_ups, &asked, None).await, Some(7));
        assert_eq!(remembered(), Some(7));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(remembered(), None);
        assert_eq!(found(&look_ups, &asked, None).await, None);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_found_is_asked_again_also_by_those_who_waited() {
        let (look_ups, asked) = (KeyCache::default(), AtomicUsize::new(0));
        let both = tokio::join!(
            found(&look_ups, &asked, None),
            found(&look_ups, &asked, Some(7))
        );
        assert_eq!(both, (None, Some(7)));
        assert_eq!(found(&look_ups, &asked, Some(8)).await, Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_and_a_request_that_went_away_are_nobody_elses() {
        let (look_ups, asked) = (KeyCache::default(), AtomicUsize::new(0));
        let failure = || StoreError::Conflict { entity: "test" };
        let key = hash(1);
        let (failed, other) = tokio::join!(
            look_ups.find(&key, || query(&asked, Err(failure()))),
            found(&look_ups, &asked, Some(7))
        );
        assert!(failed.is_err());
        assert_eq!(other, Some(7));
        look_ups.clear();
        let gone = tokio::time::timeout(
            Duration::from_millis(50),
            look_ups.find(&key, || query(&asked, Ok(Some(1)))),
        );
        let (gone, other) = tokio::join!(gone, found(&look_ups, &asked, Some(8)));
        assert!(gone.is_err());
        assert_eq!(other, Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_under_way_is_forgotten_with_the_rest() {
        let (look_ups, asked) = (KeyCache::default(), AtomicUsize::new(0));
        let change = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            look_ups.clear();
            found(&look_ups, &asked, None).await
        };
        let before = found(&look_ups, &asked, Some(7));
        assert_eq!(tokio::join!(before, change), (Some(7), None));
        assert_eq!(found(&look_ups, &asked, None).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_grow() {
        let (look_ups, asked) = (KeyCache::default(), AtomicUsize::new(0));
        for number in 0..3 * MAX_ENTRIES {
            let found = look_ups.find(&hash(number), || async { Ok(Some(1)) }).await;
            assert!(found.unwrap().found.is_some());
        }
        assert_eq!(look_ups.lock().len(), MAX_ENTRIES);
        tokio::time::sleep(ENTRY_TTL).await;
        assert_eq!(found(&look_ups, &asked, Some(7)).await, Some(7));
        assert_eq!(look_ups.lock().len(), 1, "what is old makes room");
    }
}
