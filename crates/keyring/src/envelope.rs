//! The cipher: one data key per record, wrapped by the master key.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, Key, KeyInit, Nonce, Tag};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::encryption::cipher::{Cipher, CipherError, Sealed};
use secrecy::{ExposeSecret, SecretString};
use zeroize::{Zeroize as _, Zeroizing};

use crate::master_key::{MasterKey, MasterKeyError};
use crate::random::random;

/// First part of the text form. Another layout or algorithm needs another version.
const VERSION: &str = "v1";
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
/// What precedes the encrypted secret: the data key's nonce, the wrapped data key with its tag, the secret's nonce.
const HEADER_BYTES: usize = NONCE_BYTES + KEY_BYTES + TAG_BYTES + NONCE_BYTES;

/// Minimum time between two searches of the key files for an unknown key.
const KEY_SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Plain text of the canary, see [`Keyring::check_canary`].
const CANARY: &str = "agent-workspace canary";
const CANARY_CONTEXT: &str = "installation/canary";

/// The master keys of a process: one of them seals, all of them open.
///
/// Text form: `v1.<key id>.<base64url>` of nonce (12), wrapped data key (32 + tag 16), nonce (12), secret (n + tag 16).
/// All nonces are random. A data key encrypts one message. The master key wraps one data key per write, which stays far below
/// the 2³² messages at which random nonces of 96 bits become a risk.
///
/// [`Keyring::reread`] adds keys while the process runs. Keys are never removed, so a value that opened once always opens.
pub struct Keyring {
    keys: RwLock<KeySet>,
    files: Vec<PathBuf>,
    /// Time at which the files were last searched for an unknown key.
    last_search: Mutex<Option<Instant>>,
}

struct KeySet {
    /// The key that seals.
    current: Arc<KeyEncryptionKey>,
    /// All keys, in the order in which they were added.
    all: Vec<Arc<KeyEncryptionKey>>,
}

struct KeyEncryptionKey {
    id: String,
    cipher: Aes256Gcm,
}

impl KeyEncryptionKey {
    fn new(key: &MasterKey) -> Self {
        Self {
            id: key.id().to_owned(),
            cipher: aes(&key.bytes),
        }
    }
}

impl KeySet {
    fn find(&self, id: &str) -> Option<&Arc<KeyEncryptionKey>> {
        self.all.iter().find(|key| key.id == id)
    }

    /// Adds a key. Returns whether it is new.
    fn add(&mut self, key: &MasterKey) -> bool {
        let is_new = self.find(key.id()).is_none();
        if is_new {
            self.all.push(Arc::new(KeyEncryptionKey::new(key)));
        }
        is_new
    }
}

impl Keyring {
    /// Creates a keyring that seals with `current`, and opens with it and with the `former` keys.
    pub fn new(current: &MasterKey, former: &[MasterKey]) -> Self {
        let current = Arc::new(KeyEncryptionKey::new(current));
        let mut keys = KeySet {
            all: vec![Arc::clone(&current)],
            current,
        };
        for key in former {
            keys.add(key);
        }
        Self {
            keys: RwLock::new(keys),
            files: Vec::new(),
            last_search: Mutex::default(),
        }
    }

    /// Sets the key files that [`Keyring::reread`] reads. They may get new keys while the process runs.
    #[must_use]
    pub fn following(mut self, files: Vec<PathBuf>) -> Self {
        self.files = files;
        self
    }

    /// Public id of the key that seals.
    pub fn key_id(&self) -> String {
        self.keys().current.id.clone()
    }

    /// Public ids of all keys.
    pub fn key_ids(&self) -> Vec<String> {
        let keys = self.keys();
        keys.all.iter().map(|key| key.id.clone()).collect()
    }

    /// Public id of the key that a value was sealed with; `None` if it was not sealed by a keyring.
    pub fn key_of(sealed: &Sealed) -> Option<&str> {
        split(sealed).map(|(id, _)| id)
    }

    /// Seals with this key from now on. Fails if the keyring does not have it.
    pub fn seal_with(&self, id: &str) -> Result<(), CipherError> {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let unknown = || CipherError::UnknownKey {
            key_id: id.to_owned(),
        };
        keys.current = Arc::clone(keys.find(id).ok_or_else(unknown)?);
        Ok(())
    }

    /// Reads the key files again and adds their new keys. Returns whether there were any. The key that seals stays the same. A
    /// file may be damaged or missing while an operator replaces it. Then the keyring keeps its keys, reads the other files and
    /// returns the first error. Blocks for the reads of small files.
    pub fn reread(&self) -> Result<bool, MasterKeyError> {
        let (mut read_keys, mut first_error) = (Vec::new(), None);
        for file in &self.files {
            match MasterKey::all_from_file(file) {
                Ok(keys) => read_keys.extend(keys),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let mut has_new = false;
        for key in &read_keys {
            has_new |= keys.add(key);
        }
        first_error.map_or(Ok(has_new), Err)
    }

    /// Checks a canary: a sealed constant that earlier releases kept in a file. An error means that this keyring cannot open the
    /// secrets of the installation either.
    pub fn check_canary(&self, canary: &Sealed) -> Result<(), CipherError> {
        let text = self.open(CANARY_CONTEXT, canary)?;
        if text.expose_secret() == CANARY {
            Ok(())
        } else {
            Err(CipherError::Damaged)
        }
    }

    fn keys(&self) -> RwLockReadGuard<'_, KeySet> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Option<Arc<KeyEncryptionKey>> {
        self.keys().find(id).cloned()
    }

    /// Searches the files for an unknown key, at most once per interval, so that a value with a lost key does not cause disk
    /// reads each time.
    fn search(&self, id: &str) -> Option<Arc<KeyEncryptionKey>> {
        if self.files.is_empty() {
            return None;
        }
        {
            let mut last_search = self
                .last_search
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if last_search.is_some_and(|at| at.elapsed() < KEY_SEARCH_INTERVAL) {
                drop(last_search);
                // A concurrent search may have found the key.
                return self.find(id);
            }
            *last_search = Some(Instant::now());
        }
        // The task that watches the files reports errors.
        let _ = self.reread();
        self.find(id)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("current", &self.key_id())
            .field("all", &self.key_ids())
            .finish_non_exhaustive()
    }
}

impl Cipher for Keyring {
    fn seal(&self, context: &str, secret: &SecretString) -> Result<Sealed, CipherError> {
        let current = Arc::clone(&self.keys().current);
        let (key, nonces) = (random::<KEY_BYTES>()?, random::<{ 2 * NONCE_BYTES }>()?);
        let (key_nonce, secret_nonce) = nonces.split_at(NONCE_BYTES);
        let secret = secret.expose_secret().as_bytes();

        let mut bytes = Vec::with_capacity(HEADER_BYTES + secret.len() + TAG_BYTES);
        bytes.extend_from_slice(key_nonce);
        let aad = associated_data("key", &current.id, context);
        encrypt(&current.cipher, key_nonce, &aad, key.as_slice(), &mut bytes)?;
        bytes.extend_from_slice(secret_nonce);
        let aad = associated_data("secret", &current.id, context);
        encrypt(&aes(&key), secret_nonce, &aad, secret, &mut bytes)?;
        let text = URL_SAFE_NO_PAD.encode(&bytes);
        Ok(Sealed::from_text(format!(
            "{VERSION}.{}.{text}",
            current.id
        )))
    }

    fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretString, CipherError> {
        let (id, text) = split(sealed).ok_or(CipherError::Damaged)?;
        let master_key = self.find(id).or_else(|| self.search(id));
        let master_key = master_key.ok_or_else(|| CipherError::UnknownKey {
            key_id: id.to_owned(),
        })?;
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| CipherError::Damaged)?;
        if bytes.len() < HEADER_BYTES + TAG_BYTES {
            return Err(CipherError::Damaged);
        }
        let (key_nonce, rest) = bytes.split_at(NONCE_BYTES);
        let (data_key, rest) = rest.split_at(KEY_BYTES + TAG_BYTES);
        let (secret_nonce, secret) = rest.split_at(NONCE_BYTES);

        let key = decrypt(
            &master_key.cipher,
            key_nonce,
            &associated_data("key", id, context),
            data_key,
        )?;
        let key = Zeroizing::new(
            <[u8; KEY_BYTES]>::try_from(key.as_slice()).map_err(|_| CipherError::Damaged)?,
        );
        let mut secret = decrypt(
            &aes(&key),
            secret_nonce,
            &associated_data("secret", id, context),
            secret,
        )?;
        match String::from_utf8(std::mem::take(&mut *secret)) {
            Ok(secret) => Ok(secret.into()),
            Err(error) => {
                error.into_bytes().zeroize();
                Err(CipherError::Damaged)
            }
        }
    }

    fn is_outdated(&self, sealed: &Sealed) -> bool {
        split(sealed).is_none_or(|(id, _)| id != self.keys().current.id)
    }
}

/// Key id and payload of the text form.
fn split(sealed: &Sealed) -> Option<(&str, &str)> {
    let rest = sealed.as_text().strip_prefix(VERSION)?.strip_prefix('.')?;
    let (id, text) = rest.split_once('.')?;
    // An id in another format means a damaged value, not a missing key. Errors must not quote it.
    (id.len() == 16
        && id
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
    .then_some((id, text))
}

/// Associated data that binds both layers to purpose, master key and context. Only the context can contain NUL, so different
/// arguments never yield the same data.
fn associated_data(purpose: &str, key_id: &str, context: &str) -> Vec<u8> {
    format!("agent-workspace {VERSION}\0{purpose}\0{key_id}\0{context}").into_bytes()
}

fn aes(key: &[u8; KEY_BYTES]) -> Aes256Gcm {
    Aes256Gcm::new(<&Key<Aes256Gcm>>::from(key))
}

/// Appends ciphertext and tag to `out`. Its capacity must suffice, because a reallocation would leave a copy of the plain text.
fn encrypt(
    cipher: &Aes256Gcm,
    nonce: &[u8],
    aad: &[u8],
    plain: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CipherError> {
    let start = out.len();
    out.extend_from_slice(plain);
    let tag = cipher
        .encrypt_inout_detached(&nonce_of(nonce)?, aad, InOutBuf::from(&mut out[start..]))
        .map_err(|_| CipherError::Other("the secret is too long to encrypt".into()))?;
    out.extend_from_slice(&tag);
    Ok(())
}

/// Returns the plain text in a buffer of exactly its size, so that its conversion to a `SecretString` does not copy it.
fn decrypt(
    cipher: &Aes256Gcm,
    nonce: &[u8],
    aad: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, CipherError> {
    let (text, tag) = sealed
        .split_last_chunk::<TAG_BYTES>()
        .ok_or(CipherError::Damaged)?;
    let mut plain = Zeroizing::new(text.to_vec());
    cipher
        .decrypt_inout_detached(
            &nonce_of(nonce)?,
            aad,
            InOutBuf::from(plain.as_mut_slice()),
            <&Tag>::from(tag),
        )
        .map_err(|_| CipherError::Damaged)?;
    Ok(plain)
}

fn nonce_of(bytes: &[u8]) -> Result<Nonce<aes_gcm::aead::consts::U12>, CipherError> {
    Nonce::try_from(bytes).map_err(|_| CipherError::Damaged)
}

#[cfg(test)]
mod tests;
