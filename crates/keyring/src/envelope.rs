//! The cipher: one data key per record, wrapped by the master key.

use std::fmt;

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, Key, KeyInit, Nonce, Tag};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::cipher::{Cipher, CipherError, Sealed};
use rand::TryRngCore as _;
use secrecy::{ExposeSecret, SecretString};
use zeroize::{Zeroize as _, Zeroizing};

use crate::master_key::MasterKey;

/// First part of the text form. Another layout or algorithm gets another version.
const VERSION: &str = "v1";
const NONCE: usize = 12;
const TAG: usize = 16;
const KEY: usize = 32;
/// Before the encrypted secret: the data key's nonce, the wrapped data key with its tag, the secret's nonce.
const HEADER: usize = NONCE + KEY + TAG + NONCE;

/// What the canary seals, and for which context.
const CANARY: &str = "agent-workspace canary";
const CANARY_CONTEXT: &str = "installation/canary";

/// The present master key, which seals, and former ones, which only open.
///
/// Text form: `v1.<key id>.<base64url>` of nonce (12), wrapped data key (32 + tag 16), nonce (12), secret (n + tag 16).
/// All nonces are random. A data key encrypts one message; the master key wraps one data key per write, far below the
/// 2³² messages at which random nonces of 96 bits become a risk.
pub struct Keyring {
    current: Wrapper,
    former: Vec<Wrapper>,
}

struct Wrapper {
    id: String,
    cipher: Aes256Gcm,
}

impl Wrapper {
    fn new(key: &MasterKey) -> Self {
        Self {
            id: key.id().to_owned(),
            cipher: aes(&key.bytes),
        }
    }
}

impl Keyring {
    /// Seals with `current`, opens with it and with `former` keys.
    pub fn new(current: &MasterKey, former: &[MasterKey]) -> Self {
        Self {
            current: Wrapper::new(current),
            former: former.iter().map(Wrapper::new).collect(),
        }
    }

    /// Public id of the present master key.
    pub fn key_id(&self) -> &str {
        &self.current.id
    }

    /// A sealed constant, to be stored beside the first secret.
    pub fn canary(&self) -> Result<Sealed, CipherError> {
        self.seal(CANARY_CONTEXT, &CANARY.into())
    }

    /// Whether a stored canary opens. An error means that the secrets of this installation would not open either: a
    /// service that started anyway would fail one user at a time, and seal new secrets with the wrong key.
    pub fn check_canary(&self, canary: &Sealed) -> Result<(), CipherError> {
        let text = self.open(CANARY_CONTEXT, canary)?;
        if text.expose_secret() == CANARY {
            Ok(())
        } else {
            Err(CipherError::Damaged)
        }
    }

    fn wrapper(&self, id: &str) -> Option<&Wrapper> {
        std::iter::once(&self.current)
            .chain(&self.former)
            .find(|wrapper| wrapper.id == id)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("current", &self.current.id)
            .field(
                "former",
                &self
                    .former
                    .iter()
                    .map(|wrapper| &wrapper.id)
                    .collect::<Vec<_>>(),
            )
            .finish()
    }
}

impl Cipher for Keyring {
    fn seal(&self, context: &str, secret: &SecretString) -> Result<Sealed, CipherError> {
        let mut key = Zeroizing::new([0; KEY]);
        let mut nonces = [0; 2 * NONCE];
        random(key.as_mut_slice())?;
        random(&mut nonces)?;
        let (key_nonce, secret_nonce) = nonces.split_at(NONCE);
        let secret = secret.expose_secret().as_bytes();

        let mut bytes = Vec::with_capacity(HEADER + secret.len() + TAG);
        bytes.extend_from_slice(key_nonce);
        let aad = associated("key", &self.current.id, context);
        encrypt(
            &self.current.cipher,
            key_nonce,
            &aad,
            key.as_slice(),
            &mut bytes,
        )?;
        bytes.extend_from_slice(secret_nonce);
        let aad = associated("secret", &self.current.id, context);
        encrypt(&aes(&key), secret_nonce, &aad, secret, &mut bytes)?;
        let text = URL_SAFE_NO_PAD.encode(&bytes);
        Ok(Sealed::from_text(format!(
            "{VERSION}.{}.{text}",
            self.current.id
        )))
    }

    fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretString, CipherError> {
        let (id, text) = split(sealed).ok_or(CipherError::Damaged)?;
        let wrapper = self.wrapper(id).ok_or_else(|| CipherError::UnknownKey {
            key_id: id.to_owned(),
        })?;
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| CipherError::Damaged)?;
        if bytes.len() < HEADER + TAG {
            return Err(CipherError::Damaged);
        }
        let (key_nonce, rest) = bytes.split_at(NONCE);
        let (data_key, rest) = rest.split_at(KEY + TAG);
        let (secret_nonce, secret) = rest.split_at(NONCE);

        let key = decrypt(
            &wrapper.cipher,
            key_nonce,
            &associated("key", id, context),
            data_key,
        )?;
        let key = Zeroizing::new(
            <[u8; KEY]>::try_from(key.as_slice()).map_err(|_| CipherError::Damaged)?,
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
        split(sealed).is_none_or(|(id, _)| id != self.current.id)
    }
}

/// Key id and payload of the text form.
fn split(sealed: &Sealed) -> Option<(&str, &str)> {
    let rest = sealed.as_text().strip_prefix(VERSION)?.strip_prefix('.')?;
    let (id, text) = rest.split_once('.')?;
    // A key id that could not be ours is damage, not a missing key: it must not be echoed as one.
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

fn aes(key: &[u8; KEY]) -> Aes256Gcm {
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keyring() -> Keyring {
        Keyring::new(&MasterKey::generate().unwrap(), &[])
    }

    fn open(keyring: &Keyring, context: &str, text: &str) -> Result<String, CipherError> {
        keyring
            .open(context, &Sealed::from_text(text))
            .map(|secret| secret.expose_secret().to_owned())
    }

    #[test]
    fn no_two_sealed_values_are_alike_and_none_holds_the_secret() {
        let keyring = keyring();
        let one = keyring.seal("a/b", &"hunter2".into()).unwrap();
        let two = keyring.seal("a/b", &"hunter2".into()).unwrap();
        assert_ne!(one.as_text(), two.as_text());
        assert!(
            one.as_text()
                .starts_with(&format!("v1.{}.", keyring.key_id()))
        );
        assert!(!format!("{one:?} {keyring:?}").contains("hunter2"));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let keyring = keyring();
        let sealed = keyring.seal("a/b", &"some secret".into()).unwrap();
        let prefix = format!("v1.{}.", keyring.key_id());
        let bytes = URL_SAFE_NO_PAD
            .decode(&sealed.as_text()[prefix.len()..])
            .unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let text = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(changed));
                let error = open(&keyring, "a/b", &text).unwrap_err();
                assert!(matches!(error, CipherError::Damaged), "{at}.{bit}: {error}");
            }
        }
    }

    #[test]
    fn any_changed_character_is_noticed() {
        let keyring = keyring();
        let sealed = keyring.seal("a/b", &"some secret".into()).unwrap();
        let text = sealed.as_text();
        for at in 0..text.len() {
            for replacement in ["A", "b", "0", ".", "=", "é", ""] {
                let mut changed = text.to_owned();
                changed.replace_range(at..=at, replacement);
                if changed != text {
                    let error = open(&keyring, "a/b", &changed).unwrap_err();
                    // Only the key id may turn into the id of another key.
                    let in_id = (3..19).contains(&at);
                    match error {
                        CipherError::Damaged => {}
                        CipherError::UnknownKey { .. } if in_id => {}
                        other => panic!("{at}: {other}"),
                    }
                }
            }
        }
    }

    #[test]
    fn truncated_and_extended_values_do_not_open() {
        let keyring = keyring();
        let sealed = keyring.seal("a/b", &"some secret".into()).unwrap();
        let text = sealed.as_text();
        for end in 0..text.len() {
            assert!(open(&keyring, "a/b", &text[..end]).is_err(), "{end}");
        }
        assert!(open(&keyring, "a/b", &format!("{text}A")).is_err());
    }

    #[test]
    fn a_value_of_another_record_does_not_open() {
        let keyring = keyring();
        let sealed = keyring.seal("alice/settings", &"x".into()).unwrap();
        for context in ["bob/settings", "alice/settings ", "", "alice/settings\0"] {
            let error = open(&keyring, context, sealed.as_text()).unwrap_err();
            assert!(matches!(error, CipherError::Damaged), "{context:?}");
        }
    }

    #[test]
    fn the_halves_of_two_values_do_not_fit_together() {
        let keyring = keyring();
        let prefix = format!("v1.{}.", keyring.key_id());
        let [one, two] = ["first", "other"].map(|secret| {
            let sealed = keyring.seal("a/b", &secret.into()).unwrap();
            URL_SAFE_NO_PAD
                .decode(&sealed.as_text()[prefix.len()..])
                .unwrap()
        });
        let mixed = [&one[..HEADER - NONCE], &two[HEADER - NONCE..]].concat();
        let text = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(mixed));
        assert!(matches!(
            open(&keyring, "a/b", &text),
            Err(CipherError::Damaged)
        ));
    }

    #[test]
    fn rotation_opens_old_values_and_says_that_they_are_old() {
        let [old_key, new_key] = [(); 2].map(|()| MasterKey::generate().unwrap());
        let old = Keyring::new(&old_key, &[]);
        let sealed = old.seal("a/b", &"x".into()).unwrap();
        assert!(!old.is_outdated(&sealed));

        let new = Keyring::new(&new_key, std::slice::from_ref(&old_key));
        assert!(new.is_outdated(&sealed));
        assert_eq!(new.open("a/b", &sealed).unwrap().expose_secret(), "x");
        let resealed = new.seal("a/b", &"x".into()).unwrap();
        assert!(!new.is_outdated(&resealed));

        let without = Keyring::new(&new_key, &[]);
        let error = without.open("a/b", &sealed).unwrap_err();
        assert!(matches!(error, CipherError::UnknownKey { key_id } if key_id == old_key.id()));
    }

    #[test]
    fn a_canary_tells_the_right_key_from_a_wrong_one() {
        let keyring = keyring();
        let canary = keyring.canary().unwrap();
        keyring.check_canary(&canary).unwrap();
        let other = Keyring::new(&MasterKey::generate().unwrap(), &[]);
        assert!(matches!(
            other.check_canary(&canary),
            Err(CipherError::UnknownKey { .. })
        ));
        let not_a_canary = keyring.seal("installation/other", &CANARY.into()).unwrap();
        assert!(keyring.check_canary(&not_a_canary).is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_sealed_opens(context: String, secret: String) {
            let keyring = keyring();
            let sealed = keyring.seal(&context, &secret.clone().into()).unwrap();
            prop_assert_eq!(open(&keyring, &context, sealed.as_text()).unwrap(), secret);
        }

        #[test]
        fn no_text_panics(text: String) {
            let keyring = keyring();
            prop_assert!(open(&keyring, "c", &text).is_err());
            let with_id = format!("v1.{}.{text}", keyring.key_id());
            prop_assert!(open(&keyring, "c", &with_id).is_err());
        }
    }
}
