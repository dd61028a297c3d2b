//! A cache of opened session keys. Lists show the key of each running sandbox, front ends poll lists, and opening a
//! key costs more than reading its row.
//!
//! Every request reads the row. A cached key is only used while the sealed text in the row is the same, byte by byte
//! (each seal has its own nonce). So a key that any replica changed or resealed is opened again. Entries belong to a
//! sandbox, as the seal does. Keys that do not open are not cached.

use std::sync::Arc;
use std::time::Duration;

use domain::encryption::cipher::{CipherError, Sealed};
use domain::id::SandboxId;
use domain::sandbox::SealedSessionKey;
use moka::sync::Cache;
use secrecy::SecretString;

const KEY_TTL: Duration = Duration::from_secs(10 * 60);
const MAX_KEYS: u64 = 1_000;

struct CachedKey {
    sealed: Sealed,
    key: Arc<SecretString>,
}

#[derive(Clone)]
pub(super) struct SessionKeyCache(Cache<SandboxId, Arc<CachedKey>>);

impl Default for SessionKeyCache {
    fn default() -> Self {
        let cache = Cache::builder()
            .max_capacity(MAX_KEYS)
            .time_to_live(KEY_TTL);
        Self(cache.build())
    }
}

impl SessionKeyCache {
    /// The key of this sandbox, from the cache or by `open`.
    pub(super) fn get_or_open(
        &self,
        sandbox: SealedSessionKey<'_>,
        open: impl FnOnce() -> Result<SecretString, CipherError>,
    ) -> Result<Arc<SecretString>, CipherError> {
        let cached = self.0.get(sandbox.id);
        if let Some(cached) = cached.filter(|it| it.sealed == *sandbox.sealed) {
            return Ok(Arc::clone(&cached.key));
        }
        let (sealed, key) = (sandbox.sealed.clone(), Arc::new(open()?));
        let opened = CachedKey {
            sealed,
            key: Arc::clone(&key),
        };
        self.0.insert(sandbox.id.clone(), Arc::new(opened));
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use domain::sandbox::SandboxStatus;
    use secrecy::ExposeSecret;

    use super::*;

    /// The key, and whether it was opened for this call.
    fn ask(known: &SessionKeyCache, id: &str, sealed: &str) -> (String, bool) {
        let opened = Cell::new(false);
        let sandbox = SealedSessionKey {
            id: &SandboxId::parse(id).unwrap(),
            status: SandboxStatus::Running,
            sealed: &Sealed::from_text(sealed),
        };
        let key = known.get_or_open(sandbox, || {
            opened.set(true);
            if sealed == "damaged" {
                return Err(CipherError::Damaged);
            }
            Ok(format!("{id}-{sealed}").into())
        });
        let text = key.map_or_else(|_| String::new(), |key| key.expose_secret().to_owned());
        (text, opened.get())
    }

    #[test]
    fn a_key_is_opened_once_and_anew_when_the_row_has_another() {
        let known = SessionKeyCache::default();
        for sealed in ["a", "b", "a"] {
            let key = format!("box-{sealed}");
            assert_eq!(ask(&known, "box", sealed), (key.clone(), true));
            assert_eq!(ask(&known, "box", sealed), (key, false));
        }
        // Copied into another sandbox's row.
        assert_eq!(ask(&known, "other", "a"), ("other-a".to_owned(), true));
    }

    #[test]
    fn keys_that_do_not_open_are_not_cached() {
        let known = SessionKeyCache::default();
        assert!(ask(&known, "box", "damaged").1 && ask(&known, "box", "damaged").1);
    }
}
