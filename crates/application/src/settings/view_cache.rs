//! A cache of settings as they are shown: opening, decoding and completing a document costs many times its read from
//! the store, and front ends request the same settings on every page.
//!
//! * Every request reads the documents from the store, so changes by another replica, the command line or a restored
//!   backup show at once. A cached view is only used while the stored documents are the same, byte by byte. A sealed
//!   text never repeats (each has its own nonce); a revision may, after a user was deleted and created again.
//! * The cache holds views with secrets hidden, and no opened documents.

use std::sync::Arc;

use domain::id::OwnerId;
use moka::sync::Cache;

use super::model::Settings;
use super::organization::Documents;
use super::service::SettingsService;
use crate::error::AppError;

/// Maximum number of bytes of the cache, sealed documents included.
const MAX_CACHED_BYTES: u64 = 4 * 1024 * 1024;
const MAX_VIEW_BYTES: u32 = 64 * 1024;

/// The view of each user, and the documents that it shows.
pub struct ViewCache<V>(Cache<OwnerId, (Documents, Arc<V>)>);

impl<V: AsRef<[u8]> + Send + Sync + 'static> Default for ViewCache<V> {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(MAX_CACHED_BYTES);
        Self(cache.weigher(|_, view| size(view)).build())
    }
}

fn size<V: AsRef<[u8]>>((documents, shown): &(Documents, Arc<V>)) -> u32 {
    let bytes = documents.bytes() + shown.as_ref().as_ref().len();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl<V: AsRef<[u8]> + Send + Sync + 'static> ViewCache<V> {
    fn find(&self, owner: &OwnerId, documents: &Documents) -> Option<Arc<V>> {
        let (of, shown) = self.0.get(owner)?;
        (of == *documents).then_some(shown)
    }

    fn keep(&self, owner: &OwnerId, documents: Documents, shown: Arc<V>) {
        let view = (documents, shown);
        if size(&view) > MAX_VIEW_BYTES {
            self.0.invalidate(owner);
        } else {
            self.0.insert(owner.clone(), view);
        }
    }
}

impl SettingsService {
    /// A user's settings as rendered by `show` (bytes, without secrets), from the cache if it has this very document;
    /// `None` before the first save. The result of `show` must depend on nothing but the settings.
    pub async fn cached_view<V, E>(
        &self,
        owner: &OwnerId,
        shown: &ViewCache<V>,
        show: impl FnOnce(&Settings) -> Result<V, E>,
    ) -> Result<Option<Arc<V>>, E>
    where
        V: AsRef<[u8]> + Send + Sync + 'static,
        E: From<AppError>,
    {
        let Some(documents) = self.documents(owner).await? else {
            shown.0.invalidate(owner);
            return Ok(None);
        };
        if let Some(known) = shown.find(owner, &documents) {
            return Ok(Some(known));
        }
        let rendered = Arc::new(show(&self.open_all(owner, &documents)?)?);
        shown.keep(owner, documents, Arc::clone(&rendered));
        Ok(Some(rendered))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use domain::clock::SystemClock;
    use domain::encryption::cipher::Sealed;
    use store_memory::{MarkerCipher, MemoryStore};

    use super::*;

    fn user(number: usize) -> OwnerId {
        OwnerId::parse(format!("user-{number}")).unwrap()
    }

    fn sealed(text: &str) -> Documents {
        Documents::own(Sealed::from_text(text))
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
    fn the_bytes_do_not_grow_without_bound() {
        let shown = ViewCache::default();
        for number in 0..500 {
            let view = "x".repeat(MAX_VIEW_BYTES as usize / 2);
            shown.keep(&user(number), sealed("x"), Arc::new(view));
        }
        shown.0.run_pending_tasks();
        assert!(shown.0.entry_count() > 0 && shown.0.weighted_size() <= MAX_CACHED_BYTES);
    }

    #[test]
    fn large_views_are_not_cached_and_replace_the_old_one() {
        let shown = ViewCache::default();
        shown.keep(&user(1), sealed("a"), Arc::new("A".to_owned()));
        let large = Arc::new("x".repeat(MAX_VIEW_BYTES as usize));
        shown.keep(&user(1), sealed("b"), large);
        assert!(!shown.0.contains_key(&user(1)));
    }
}
