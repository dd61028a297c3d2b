//! Remembers keys that were valid before, so that their callers are not taken for attackers.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use secrecy::{ExposeSecret as _, SecretString};

const KNOWN_KEY_SLOTS: usize = 4096;

/// Hashes of keys by a secret of this process, each in its slot; a later key replaces an earlier one. A remembered key gives
/// no access; it is still looked up.
#[derive(Debug)]
pub(super) struct KnownKeys {
    secret: RandomState,
    slots: Box<[AtomicU64]>,
}

impl Default for KnownKeys {
    fn default() -> Self {
        Self {
            secret: RandomState::new(),
            slots: (0..KNOWN_KEY_SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl KnownKeys {
    pub(super) fn add(&self, key: &str) {
        let (slot, hash) = self.slot(key);
        // Most keys are present already, and a cache line without writes stays in the cache of every core.
        if slot.load(Ordering::Relaxed) != hash {
            slot.store(hash, Ordering::Relaxed);
        }
    }

    pub(super) fn forget(&self, key: &SecretString) {
        let (slot, hash) = self.slot(key.expose_secret());
        // Another key in the slot stays.
        let _ = slot.compare_exchange(hash, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        let (slot, hash) = self.slot(key);
        slot.load(Ordering::Relaxed) == hash
    }

    fn slot(&self, key: &str) -> (&AtomicU64, u64) {
        let hash = self.secret.hash_one(key);
        // A power of two, which divides the range of `u64` evenly.
        let index = usize::try_from(hash % KNOWN_KEY_SLOTS as u64).unwrap_or(0);
        (&self.slots[index], hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_until_another_replaces_it() {
        let known = KnownKeys::default();
        let keys: Vec<SecretString> = (0..100).map(|n| format!("k{n}").into()).collect();
        assert!(!keys.iter().any(|key| known.contains(key.expose_secret())));
        for key in &keys {
            known.add(key.expose_secret());
            assert!(known.contains(key.expose_secret()));
        }
        let left = keys
            .iter()
            .filter(|key| known.contains(key.expose_secret()))
            .count();
        assert!(left > 80, "{left}");
        for key in &keys {
            known.forget(key);
        }
        assert!(!keys.iter().any(|key| known.contains(key.expose_secret())));
    }
}
