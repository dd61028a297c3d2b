//! The cipher: one data key per record, wrapped by the master key.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, Key, KeyInit, Nonce, Tag};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::cipher::{Cipher, CipherError, Sealed};
use rand::TryRngCore as _;
use secrecy::{ExposeSecret, SecretString};
use zeroize::{Zeroize as _, Zeroizing};

use crate::master_key::{MasterKey, MasterKeyError};

/// First part of the text form. Another layout or algorithm gets another version.
const VERSION: &str = "v1";
const NONCE_BYTES: usize = 12;
const TAG: usize = 16;
const KEY_BYTES: usize = 32;
/// Before the encrypted secret: the data key's nonce, the wrapped data key with its tag, the secret's nonce.
const HEADER_BYTES: usize = NONCE_BYTES + KEY_BYTES + TAG + NONCE_BYTES;

/// Pause between two searches of the files for unknown keys.
const KEY_SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Plain text and context of the canary.
const CANARY: &str = "agent-workspace canary";
const CANARY_CONTEXT: &str = "installation/canary";

/// Master keys: one of them seals, all of them open.
///
/// Text form: `v1.<key id>.<base64url>` of nonce (12), wrapped data key (32 + tag 16), nonce (12), secret (n + tag 16).
/// All nonces are random. A data key encrypts one message; the master key wraps one data key per write, far below the
/// 2³² messages at which random nonces of 96 bits become a risk.
///
/// [`Keyring::reread`] adds keys while the process runs. Keys are never removed, so a value that opened once always opens.
pub struct Keyring {
    keys: RwLock<KeySet>,
    files: Vec<PathBuf>,
    /// When the files were last read because of an unknown key.
    searched: Mutex<Option<Instant>>,
}

struct KeySet {
    /// The key that seals.
    present: Arc<KeyEncryptionKey>,
    /// All keys, in the order in which they were added.
    known: Vec<Arc<KeyEncryptionKey>>,
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
        self.known.iter().find(|wrapper| wrapper.id == id)
    }

    fn add(&mut self, key: &MasterKey) -> bool {
        let is_new = self.find(key.id()).is_none();
        if is_new {
            self.known.push(Arc::new(KeyEncryptionKey::new(key)));
        }
        is_new
    }
}

impl Keyring {
    /// Seals with `current`, opens with it and with `former` keys.
    pub fn new(current: &MasterKey, former: &[MasterKey]) -> Self {
        let present = Arc::new(KeyEncryptionKey::new(current));
        let mut keys = KeySet {
            known: vec![Arc::clone(&present)],
            present,
        };
        for key in former {
            keys.add(key);
        }
        Self {
            keys: RwLock::new(keys),
            files: Vec::new(),
            searched: Mutex::default(),
        }
    }

    /// The same, with files of keys that may get new ones while the process runs.
    #[must_use]
    pub fn following(mut self, files: Vec<PathBuf>) -> Self {
        self.files = files;
        self
    }

    /// Public id of the key that seals.
    pub fn key_id(&self) -> String {
        self.keys().present.id.clone()
    }

    /// Public ids of all keys.
    pub fn key_ids(&self) -> Vec<String> {
        let keys = self.keys();
        keys.known
            .iter()
            .map(|wrapper| wrapper.id.clone())
            .collect()
    }

    /// Public id of the key that a value was sealed with; `None` if it was not sealed by a keyring.
    pub fn key_of(sealed: &Sealed) -> Option<&str> {
        split(sealed).map(|(id, _)| id)
    }

    /// Seals with this key from now on. The error says that it is not here.
    pub fn seal_with(&self, id: &str) -> Result<(), CipherError> {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let unknown = || CipherError::UnknownKey {
            key_id: id.to_owned(),
        };
        keys.present = Arc::clone(keys.find(id).ok_or_else(unknown)?);
        Ok(())
    }

    /// Reads the key files again and adds what is new in them; whether there was anything. The key that seals stays. Files
    /// that are damaged or gone for the moment (an operator may be replacing them) cost no key that is known; the first such
    /// error is returned when all files were tried. Blocking, but no more than a look at a small file.
    pub fn reread(&self) -> Result<bool, MasterKeyError> {
        let (mut found, mut failed) = (Vec::new(), None);
        for file in &self.files {
            match MasterKey::all_from_file(file) {
                Ok(keys) => found.extend(keys),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let mut is_new = false;
        for key in &found {
            is_new |= keys.add(key);
        }
        failed.map_or(Ok(is_new), Err)
    }

    /// A constant that installations of before kept in a file, sealed by their master key. An error means that the secrets
    /// of the installation would not open either.
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

    fn wrapper(&self, id: &str) -> Option<Arc<KeyEncryptionKey>> {
        self.keys().find(id).cloned()
    }

    /// Searches the files for an unknown key, at most once per interval, so that a value with a lost key does not cause disk
    /// reads each time.
    fn search(&self, id: &str) -> Option<Arc<KeyEncryptionKey>> {
        if self.files.is_empty() {
            return None;
        }
        {
            let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
            if searched.is_some_and(|at| at.elapsed() < KEY_SEARCH_INTERVAL) {
                drop(searched);
                // A concurrent search may have found it.
                return self.wrapper(id);
            }
            *searched = Some(Instant::now());
        }
        // The task that watches the files reports errors.
        let _ = self.reread();
        self.wrapper(id)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("present", &self.key_id())
            .field("known", &self.key_ids())
            .finish_non_exhaustive()
    }
}

impl Cipher for Keyring {
    fn seal(&self, context: &str, secret: &SecretString) -> Result<Sealed, CipherError> {
        let present = Arc::clone(&self.keys().present);
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let mut nonces = [0; 2 * NONCE_BYTES];
        random(key.as_mut_slice())?;
        random(&mut nonces)?;
        let (key_nonce, secret_nonce) = nonces.split_at(NONCE_BYTES);
        let secret = secret.expose_secret().as_bytes();

        let mut bytes = Vec::with_capacity(HEADER_BYTES + secret.len() + TAG);
        bytes.extend_from_slice(key_nonce);
        let aad = associated("key", &present.id, context);
        encrypt(&present.cipher, key_nonce, &aad, key.as_slice(), &mut bytes)?;
        bytes.extend_from_slice(secret_nonce);
        let aad = associated("secret", &present.id, context);
        encrypt(&aes(&key), secret_nonce, &aad, secret, &mut bytes)?;
        let text = URL_SAFE_NO_PAD.encode(&bytes);
        Ok(Sealed::from_text(format!(
            "{VERSION}.{}.{text}",
            present.id
        )))
    }

    fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretString, CipherError> {
        let (id, text) = split(sealed).ok_or(CipherError::Damaged)?;
        let wrapper = self.wrapper(id).or_else(|| self.search(id));
        let wrapper = wrapper.ok_or_else(|| CipherError::UnknownKey {
            key_id: id.to_owned(),
        })?;
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| CipherError::Damaged)?;
        if bytes.len() < HEADER_BYTES + TAG {
            return Err(CipherError::Damaged);
        }
        let (key_nonce, rest) = bytes.split_at(NONCE_BYTES);
        let (data_key, rest) = rest.split_at(KEY_BYTES + TAG);
        let (secret_nonce, secret) = rest.split_at(NONCE_BYTES);

        let key = decrypt(
            &wrapper.cipher,
            key_nonce,
            &associated("key", id, context),
            data_key,
        )?;
        let key = Zeroizing::new(
            <[u8; KEY_BYTES]>::try_from(key.as_slice()).map_err(|_| CipherError::Damaged)?,
        );
        let mut secret = decrypt(
            &aes(&key),
            secret_nonce,
            &associated("secret", id, context),
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
        split(sealed).is_none_or(|(id, _)| id != self.keys().present.id)
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

/// Binds both layers to purpose, master key and context. No part but the last can hold NUL, so no two are alike.
fn associated(purpose: &str, key_id: &str, context: &str) -> Vec<u8> {
    format!("agent-workspace {VERSION}\0{purpose}\0{key_id}\0{context}").into_bytes()
}

fn aes(key: &[u8; KEY_BYTES]) -> Aes256Gcm {
    Aes256Gcm::new(<&Key<Aes256Gcm>>::from(key))
}

fn random(bytes: &mut [u8]) -> Result<(), CipherError> {
    rand::rngs::OsRng
        .try_fill_bytes(bytes)
        .map_err(|error| CipherError::Other(error.into()))
}

/// Appends ciphertext and tag to `out`, whose capacity suffices (so that no copy of the plain text is left behind).
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

/// Plain text in a buffer of exactly its size, so that making a `SecretString` of it does not copy it.
fn decrypt(
    cipher: &Aes256Gcm,
    nonce: &[u8],
    aad: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, CipherError> {
    let (text, tag) = sealed
        .split_last_chunk::<TAG>()
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
