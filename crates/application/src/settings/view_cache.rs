//! What is shown of settings, remembered: opening, decoding and completing a document costs many times what reading it from
//! the store does, and front ends ask for the same settings on every page.
//!
//! * The document is read from the store for every request, so what another replica, the command line or a restored backup
//!   has changed is seen at once. What is remembered is shown only while the stored document is the very same, byte by byte:
//!   a sealed text never comes twice (each has a nonce of its own), where a revision does, after a user was deleted and made
//!   again.
//! * What is remembered is what an answer shows, with secrets hidden. No opened document stays in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::cipher::Sealed;
use domain::id::UserId;

use super::{Settings, SettingsService};
use crate::error::AppError;

/// Users of whom something is remembered.
const MAX_USERS: usize = 1_000;
/// Bytes that are remembered in all, sealed documents included.
const MAX_CACHED_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one user: larger ones are made anew each time.
const MAX_VIEW_BYTES: usize = 64 * 1024;

/// One kind of answer, by user. With too many of them all are forgotten, and remembered again as they are asked for.
pub struct ViewCache<V>(Mutex<CachedViews<V>>);

struct CachedViews<V> {
    by_user: HashMap<UserId, (Sealed, Arc<V>)>,
    bytes: usize,
}

impl<V> Default for ViewCache<V> {
    fn default() -> Self {
        Self(Mutex::new(CachedViews {
            by_user: HashMap::new(),
            bytes: 0,
        }))
    }
}

fn size<V: AsRef<[u8]>>((document, shown): &(Sealed, Arc<V>)) -> usize {
    document.as_text().len() + shown.as_ref().as_ref().len()
}

impl<V: AsRef<[u8]>> ViewCache<V> {
    fn find(&self, owner: &UserId, document: &Sealed) -> Option<Arc<V>> {
        let kept = self.lock();
        let (of, shown) = kept.by_user.get(owner)?;
        (of == document).then(|| Arc::clone(shown))
    }

    fn keep(&self, owner: &UserId, document: Sealed, shown: Arc<V>) {
        let new = (document, shown);
        let added = size(&new);
        let mut kept = self.lock();
        kept.forget(owner);
        if added > MAX_VIEW_BYTES {
            return;
        }
        if kept.by_user.len() >= MAX_USERS || kept.bytes + added > MAX_CACHED_BYTES {
            kept.by_user.clear();
            kept.bytes = 0;
        }
        kept.bytes += added;
        kept.by_user.insert(owner.clone(), new);
    }

    fn lock(&self) -> MutexGuard<'_, CachedViews<V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: AsRef<[u8]>> CachedViews<V> {
    fn forget(&mut self, owner: &UserId) {
        if let Some(old) = self.by_user.remove(owner) {
            self.bytes -= size(&old);
        }
    }
}

impl SettingsService {
    /// The settings of a user as `show` makes them (bytes, without secrets), from `shown` if it knows this very document;
    /// `None` before anything was stored. Whatever else than the settings is in what `show` makes must not change.
    pub async fn shown<V, E>(
        &self,
        owner: &UserId,
        shown: &ViewCache<V>,
        show: impl FnOnce(&Settings) -> Result<V, E>,
    ) -> Result<Option<Arc<V>>, E>
    where
        V: AsRef<[u8]>,
        E: From<AppError>,
    {
        let stored = self.store.load(owner).await.map_err(AppError::from)?;
        let Some(stored) = stored else {
            shown.lock().forget(owner);
            return Ok(None);
        };
        if let Some(known) = shown.find(owner, &stored.document) {
            return Ok(Some(known));
        }
        let made = Arc::new(show(&self.open(owner, &stored.document)?)?);
        shown.keep(owner, stored.document, Arc::clone(&made));
        Ok(Some(made))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use domain::clock::SystemClock;
    use store_memory::{MarkerCipher, MemoryStore};

    use super::*;

    fn user(number: usize) -> UserId {
        UserId::parse(format!("user-{number}")).unwrap()
    }

    fn sealed(text: &str) -> Sealed {
        Sealed::from_text(text)
    }

    /// The language that is shown, and how often it was made.
    async fn ask(service: &SettingsService, memory: &ViewCache<String>, made: &Cell<u32>) -> String {
        let show = |settings: &Settings| {
            made.set(made.get() + 1);
            Ok::<_, AppError>(settings.language.clone().unwrap_or_default())
        };
        let shown = service.shown(&user(1), memory, show).await.unwrap();
        shown.map_or_else(|| "nothing".to_owned(), |shown| shown.to_string())
    }

    #[tokio::test]
    async fn what_another_replica_saved_is_shown_at_once_and_made_once() {
        let store = MemoryStore::new();
        let replica = || {
            let cipher = Arc::new(MarkerCipher);
            SettingsService::new(store.clone(), cipher, Arc::new(SystemClock))
        };
        let (ours, other) = (replica(), replica());
        let (memory, made) = (ViewCache::default(), Cell::new(0));
        assert_eq!(ask(&ours, &memory, &made).await, "nothing");
        for (count, language) in (1..).zip(["de", "fr"]) {
            let change = |mut settings: Settings| {
                settings.language = Some(language.to_owned());
                Ok::<_, Infallible>(settings)
            };
            other.update(&user(1), change).await.unwrap();
            assert_eq!(ask(&ours, &memory, &made).await, language);
            assert_eq!(ask(&ours, &memory, &made).await, language);
            assert_eq!(made.get(), count);
        }
    }

    #[test]
    fn only_the_very_same_document_is_known() {
        let shown = ViewCache::default();
        shown.keep(&user(1), sealed("a"), Arc::new("A"));
        assert_eq!(shown.find(&user(1), &sealed("a")).as_deref(), Some(&"A"));
        assert_eq!(shown.find(&user(1), &sealed("b")), None);
        assert_eq!(shown.find(&user(2), &sealed("a")), None);
        shown.keep(&user(1), sealed("b"), Arc::new("B"));
        assert_eq!(shown.find(&user(1), &sealed("a")), None);
        assert_eq!(shown.find(&user(1), &sealed("b")).as_deref(), Some(&"B"));
    }

    #[test]
    fn neither_users_nor_bytes_grow_without_bound() {
        let large = "x".repeat(MAX_VIEW_BYTES / 2);
        for text in ["x", large.as_str()] {
            let shown = ViewCache::default();
            for number in 0..3 * MAX_USERS {
                shown.keep(&user(number), sealed("x"), Arc::new(text.to_owned()));
                let kept = shown.lock();
                assert!(kept.by_user.len() <= MAX_USERS && kept.bytes <= MAX_CACHED_BYTES);
                assert_eq!(kept.bytes, kept.by_user.values().map(size).sum::<usize>());
            }
            assert!(shown.find(&user(3 * MAX_USERS - 1), &sealed("x")).is_some());
        }
    }

    #[test]
    fn what_is_too_large_is_not_kept_nor_is_what_was_before_it() {
        let shown = ViewCache::default();
        shown.keep(&user(1), sealed("a"), Arc::new("A".to_owned()));
        let large = Arc::new("x".repeat(MAX_VIEW_BYTES));
        shown.keep(&user(1), sealed("b"), large);
        assert_eq!(shown.find(&user(1), &sealed("b")), None);
        let kept = shown.lock();
        assert_eq!((kept.by_user.len(), kept.bytes), (0, 0));
    }
}
