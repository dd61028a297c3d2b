//! A cache of settings as they are shown: opening, decoding and completing a document costs many times its read from
//! the store, and front ends request the same settings on every page.
//!
//! * Every request reads the document from the store, so changes by another replica, the command line or a restored
//!   backup show at once. A cached view is only used while the stored document is the same, byte by byte. A sealed
//!   text never repeats (each has its own nonce); a revision may, after a user was deleted and created again.
//! * The cache holds views with secrets hidden, and no opened documents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::encryption::cipher::Sealed;
use domain::id::UserId;

use super::model::Settings;
use super::service::SettingsService;
use crate::error::AppError;

/// Maximum number of users in the cache.
const MAX_USERS: usize = 1_000;
/// Maximum number of bytes of the cache, sealed documents included.
const MAX_CACHED_BYTES: usize = 4 * 1024 * 1024;
/// Longest cached view in bytes.
const MAX_VIEW_BYTES: usize = 64 * 1024;

/// Views of one kind by user. Above the limits the cache is cleared.
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
        let views = self.lock();
        let (of, shown) = views.by_user.get(owner)?;
        (of == document).then(|| Arc::clone(shown))
    }

    fn keep(&self, owner: &UserId, document: Sealed, shown: Arc<V>) {
        let new = (document, shown);
        let added = size(&new);
        let mut views = self.lock();
        views.forget(owner);
        if added > MAX_VIEW_BYTES {
            return;
        }
        if views.by_user.len() >= MAX_USERS || views.bytes + added > MAX_CACHED_BYTES {
            views.by_user.clear();
            views.bytes = 0;
        }
        views.bytes += added;
        views.by_user.insert(owner.clone(), new);
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
    /// A user's settings as rendered by `show` (bytes, without secrets), from the cache if it has this very document;
    /// `None` before the first save. The result of `show` must depend on nothing but the settings.
    pub async fn cached_view<V, E>(
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
        let rendered = Arc::new(show(&self.open(owner, &stored.document)?)?);
        shown.keep(owner, stored.document, Arc::clone(&rendered));
        Ok(Some(rendered))
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

    /// The shown language.
    async fn ask(
        service: &SettingsService,
        memory: &ViewCache<String>,
        rendered: &Cell<u32>,
    ) -> String {
        let show = |settings: &Settings| {
            rendered.set(rendered.get() + 1);
            Ok::<_, AppError>(settings.language.clone().unwrap_or_default())
        };
        let shown = service.cached_view(&user(1), memory, show).await.unwrap();
        shown.map_or_else(|| "nothing".to_owned(), |shown| shown.to_string())
    }

    #[tokio::test]
    async fn changes_of_other_replicas_show_at_once_and_render_once() {
        let store = MemoryStore::new();
        let replica = || {
            let cipher = Arc::new(MarkerCipher);
            SettingsService::new(store.clone(), cipher, Arc::new(SystemClock))
        };
        let (ours, other) = (replica(), replica());
        let (memory, rendered) = (ViewCache::default(), Cell::new(0));
        assert_eq!(ask(&ours, &memory, &rendered).await, "nothing");
        for (count, language) in (1..).zip(["de", "fr"]) {
            let change = |mut settings: Settings| {
                settings.language = Some(language.to_owned());
                Ok::<_, Infallible>(settings)
            };
            other.update(&user(1), change).await.unwrap();
            assert_eq!(ask(&ours, &memory, &rendered).await, language);
            assert_eq!(ask(&ours, &memory, &rendered).await, language);
            assert_eq!(rendered.get(), count);
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
                let views = shown.lock();
                assert!(views.by_user.len() <= MAX_USERS && views.bytes <= MAX_CACHED_BYTES);
                assert_eq!(views.bytes, views.by_user.values().map(size).sum::<usize>());
            }
            assert!(shown.find(&user(3 * MAX_USERS - 1), &sealed("x")).is_some());
        }
    }

    #[test]
    fn large_views_are_not_cached_and_replace_the_old_one() {
        let shown = ViewCache::default();
        shown.keep(&user(1), sealed("a"), Arc::new("A".to_owned()));
        let large = Arc::new("x".repeat(MAX_VIEW_BYTES));
        shown.keep(&user(1), sealed("b"), large);
        assert_eq!(shown.find(&user(1), &sealed("b")), None);
        let views = shown.lock();
        assert_eq!((views.by_user.len(), views.bytes), (0, 0));
    }
}
