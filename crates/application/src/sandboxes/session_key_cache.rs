//! A cache of opened session keys. Lists show the key of each running sandbox, front ends poll lists, and opening a
//! key costs more than reading its row.
//!
//! * Every request reads the row. A cached key is only used while the sealed text in the row is the same, byte by byte
//!   (each seal has its own nonce). So a key that any replica changed or resealed is opened again. Entries belong to a
//!   sandbox, as the seal does.
//! * An entry lives for [`KEY_TTL`]. Old entries are wiped when a key is added, at most once in [`SWEEP_INTERVAL`].
//! * Keys that do not open are not cached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::encryption::cipher::{CipherError, Sealed};
use domain::id::SandboxId;
use domain::sandbox::SealedSessionKey;
use secrecy::SecretString;
use tokio::time::Instant;

const KEY_TTL: Duration = Duration::from_secs(10 * 60);
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of keys in the cache. Further keys are opened on each request.
const MAX_KEYS: usize = 1_000;
/// Longest sealed key in bytes; those of this service have about 200.
const MAX_SEALED_BYTES: usize = 1024;

struct CachedKey {
    of: Sealed,
    at: Instant,
    key: Arc<SecretString>,
}

impl CachedKey {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.at) < KEY_TTL
    }
}

#[derive(Default)]
pub(crate) struct SessionKeyCache(Mutex<CachedKeys>);

#[derive(Default)]
struct CachedKeys {
    keys: HashMap<SandboxId, CachedKey>,
    swept: Option<Instant>,
}

impl SessionKeyCache {
    /// The key of this sandbox, from the cache or by `open`.
    pub(super) fn get_or_open(
        &self,
        sandbox: SealedSessionKey<'_>,
        open: impl FnOnce() -> Result<SecretString, CipherError>,
    ) -> Result<Arc<SecretString>, CipherError> {
        if let Some(key) = self.find(sandbox) {
            return Ok(key);
        }
        let key = Arc::new(open()?);
        if sandbox.sealed.as_text().len() <= MAX_SEALED_BYTES {
            self.keep(sandbox, Arc::clone(&key));
        }
        Ok(key)
    }

    fn find(&self, sandbox: SealedSessionKey<'_>) -> Option<Arc<SecretString>> {
        let known = self.lock();
        let opened = known.keys.get(sandbox.id)?;
        let is_it = opened.of == *sandbox.sealed && opened.is_fresh(Instant::now());
        is_it.then(|| Arc::clone(&opened.key))
    }

    fn keep(&self, sandbox: SealedSessionKey<'_>, key: Arc<SecretString>) {
        let (of, at) = (sandbox.sealed.clone(), Instant::now());
        let mut known = self.lock();
        if known.swept.is_none_or(|swept| at >= swept + SWEEP_INTERVAL) {
            known.swept = Some(at);
            known.keys.retain(|_, opened| opened.is_fresh(at));
        }
        known.keys.remove(sandbox.id);
        if known.keys.len() < MAX_KEYS {
            let opened = CachedKey { of, at, key };
            known.keys.insert(sandbox.id.clone(), opened);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CachedKeys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use domain::clock::Timestamp;
    use domain::id::{HostId, SpecId, UserId};
    use domain::sandbox::{DesiredState, Sandbox, SandboxStatus};
    use domain::user::identity::KeyHash;
    use secrecy::ExposeSecret as _;

    use super::*;

    fn sandbox(number: usize, sealed: &str) -> Sandbox {
        Sandbox {
            id: SandboxId::parse(format!("box-{number}")).unwrap(),
            owner: UserId::parse("ada").unwrap(),
            spec_id: SpecId::parse("spec").unwrap(),
            host: HostId::parse("host").unwrap(),
            desired: DesiredState::Running,
            status: SandboxStatus::Running,
            status_detail: None,
            key_hash: KeyHash::of("key"),
            session_key: Sealed::from_text(sealed),
            secret_key: Sealed::from_text("s"),
            agent_url: None,
            exposed_urls: Arc::default(),
            workspace: None,
            created_at: Timestamp::from_micros(1),
            updated_at: Timestamp::from_micros(1),
            paused_at: None,
            callback_token_hash: None,
        }
    }

    /// The key, which is the sealed text, and whether it was opened for this call.
    fn ask(known: &SessionKeyCache, sandbox: &Sandbox) -> (String, bool) {
        let opened = Cell::new(false);
        let key = known.get_or_open(sandbox.into(), || {
            opened.set(true);
            Ok(format!("{}-{}", sandbox.id, sandbox.session_key.as_text()).into())
        });
        (key.unwrap().expose_secret().to_owned(), opened.get())
    }

    #[test]
    fn a_key_is_opened_once_and_anew_when_the_row_has_another() {
        let known = SessionKeyCache::default();
        for sealed in ["a", "b", "a"] {
            let (row, key) = (sandbox(1, sealed), format!("box-1-{sealed}"));
            assert_eq!(ask(&known, &row), (key.clone(), true));
            assert_eq!(ask(&known, &row), (key, false));
        }
        let other = sandbox(2, "a");
        assert_eq!(
            ask(&known, &other),
            ("box-2-a".to_owned(), true),
            "copied into another's row"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn entries_expire() {
        let known = SessionKeyCache::default();
        assert!(ask(&known, &sandbox(1, "a")).1);
        tokio::time::advance(KEY_TTL).await;
        assert!(ask(&known, &sandbox(2, "a")).1);
        assert_eq!(known.lock().keys.len(), 1, "what is too old is wiped");
        assert!(ask(&known, &sandbox(1, "a")).1);
    }

    #[test]
    fn keys_that_do_not_open_are_not_cached() {
        let (known, row) = (SessionKeyCache::default(), sandbox(1, "a"));
        assert!(
            known
                .get_or_open((&row).into(), || Err(CipherError::Damaged))
                .is_err()
        );
        assert!(ask(&known, &row).1);
    }

    #[test]
    fn the_cache_is_bounded() {
        let known = SessionKeyCache::default();
        for number in 0..MAX_KEYS + 2 {
            assert!(ask(&known, &sandbox(number, "a")).1);
        }
        assert_eq!(known.lock().keys.len(), MAX_KEYS);
        assert!(!ask(&known, &sandbox(0, "a")).1);
        assert!(ask(&known, &sandbox(MAX_KEYS, "a")).1);
        let long = "x".repeat(MAX_SEALED_BYTES + 1);
        let known = SessionKeyCache::default();
        assert!(ask(&known, &sandbox(1, &long)).1 && ask(&known, &sandbox(1, &long)).1);
    }
}
