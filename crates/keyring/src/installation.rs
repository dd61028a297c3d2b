//! The installation secret, the key of fingerprints.

use std::fmt;

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut as _, Aes256Gcm, Key, KeyInit as _, Nonce, Tag};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::encryption::cipher::{Cipher, CipherError, Sealed};
use domain::encryption::vault::{Fingerprints, INSTALLATION_SECRET_CONTEXT};
use hmac::{Hmac, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::api_key::hex;
use crate::random::random;

/// Begins every fingerprint, so that none equals a plain SHA-256, which earlier releases stored.
const PREFIX: &str = "hmac:";
/// Purposes of derived keys. They differ from those of fingerprints.
const TOKEN_KEY: &str = "token key";
const TOKEN_NONCE: &str = "token nonce";
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// 32 random bytes that an installation keeps for ever, also when its master key changes. Wiped from memory when dropped.
pub struct InstallationKey(Zeroizing<[u8; 32]>);

impl InstallationKey {
    /// Generates a random key.
    pub fn generate() -> Result<Self, CipherError> {
        Ok(Self(random()?))
    }

    /// Seals the key for the store.
    pub fn seal(&self, cipher: &dyn Cipher) -> Result<Sealed, CipherError> {
        let text: SecretString = URL_SAFE_NO_PAD.encode(self.0.as_slice()).into();
        cipher.seal(INSTALLATION_SECRET_CONTEXT, &text)
    }

    /// Opens a key that [`InstallationKey::seal`] sealed. An error means that the cipher lacks this installation's master key.
    pub fn open(cipher: &dyn Cipher, sealed: &Sealed) -> Result<Self, CipherError> {
        let text = cipher.open(INSTALLATION_SECRET_CONTEXT, sealed)?;
        let bytes = URL_SAFE_NO_PAD.decode(text.expose_secret());
        let bytes = Zeroizing::new(bytes.map_err(|_| CipherError::Damaged)?);
        let bytes = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| CipherError::Damaged)?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

impl Fingerprints for InstallationKey {
    fn fingerprint(&self, purpose: &str, text: &[u8]) -> String {
        let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(self.0.as_slice())
            .expect("HMAC accepts keys of any length");
        // Purposes are constants without NUL, so different pairs never yield the same input.
        mac.update(purpose.as_bytes());
        mac.update(b"\0");
        mac.update(text);
        format!("{PREFIX}{}", hex(&mac.finalize().into_bytes()))
    }

    /// The nonce is derived from context and secret, so it repeats only with them, and reveals only that they are equal.
    fn seal_token(&self, context: &str, secret: &SecretString) -> Result<String, CipherError> {
        let plain = secret.expose_secret().as_bytes();
        let nonce = self.derived(TOKEN_NONCE, &[context.as_bytes(), plain]);
        let mut bytes = nonce[..NONCE_BYTES].to_vec();
        let nonce = Nonce::try_from(&nonce[..NONCE_BYTES]).map_err(|_| CipherError::Damaged)?;
        let mut sealed = Zeroizing::new(plain.to_vec());
        let tag = self
            .token_cipher()
            .encrypt_inout_detached(
                &nonce,
                context.as_bytes(),
                InOutBuf::from(sealed.as_mut_slice()),
            )
            .map_err(|_| CipherError::Damaged)?;
        bytes.extend_from_slice(&sealed);
        bytes.extend_from_slice(&tag);
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    fn open_token(&self, context: &str, token: &str) -> Result<SecretString, CipherError> {
        let bytes = URL_SAFE_NO_PAD
            .decode(token)
            .map_err(|_| CipherError::Damaged)?;
        let (nonce, rest) = bytes
            .split_at_checked(NONCE_BYTES)
            .ok_or(CipherError::Damaged)?;
        let at = rest.len().checked_sub(TAG_BYTES);
        let (sealed, tag) = rest.split_at(at.ok_or(CipherError::Damaged)?);
        let nonce = Nonce::try_from(nonce).map_err(|_| CipherError::Damaged)?;
        let tag = Tag::try_from(tag).map_err(|_| CipherError::Damaged)?;
        let mut plain = Zeroizing::new(sealed.to_vec());
        self.token_cipher()
            .decrypt_inout_detached(
                &nonce,
                context.as_bytes(),
                InOutBuf::from(plain.as_mut_slice()),
                &tag,
            )
            .map_err(|_| CipherError::Damaged)?;
        let text = std::str::from_utf8(&plain).map_err(|_| CipherError::Damaged)?;
        Ok(text.into())
    }
}

impl InstallationKey {
    /// A key for one purpose, derived from the installation secret.
    fn derived(&self, purpose: &str, text: &[&[u8]]) -> Zeroizing<[u8; 32]> {
        let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(self.0.as_slice())
            .expect("HMAC accepts keys of any length");
        mac.update(purpose.as_bytes());
        for part in text {
            mac.update(b"\0");
            mac.update(part);
        }
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    fn token_cipher(&self) -> Aes256Gcm {
        Aes256Gcm::new(&Key::<Aes256Gcm>::from(*self.derived(TOKEN_KEY, &[])))
    }
}

impl fmt::Debug for InstallationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstallationKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keyring, MasterKey};

    #[test]
    fn fingerprints_are_hmac_sha256() {
        // RFC 4231 has no test with a key of 32 bytes. This value is from `printf 'p\0text' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0b…`.
        let key = InstallationKey(Zeroizing::new([0x0b; 32]));
        let expected = "hmac:901eac8d7c2b79bd833431d0b9254748bf8b17c60a2d15f6a6111c45e7bbea05";
        assert_eq!(key.fingerprint("p", b"text"), expected);
    }

    #[test]
    fn fingerprints_depend_on_installation_purpose_and_text_only() {
        let [one, two] = [(); 2].map(|()| InstallationKey::generate().unwrap());
        let fingerprint = one.fingerprint("p", b"x");
        assert!(fingerprint.is_ascii() && fingerprint.len() <= 100);
        for other in [
            two.fingerprint("p", b"x"),
            one.fingerprint("q", b"x"),
            one.fingerprint("p", b"y"),
        ] {
            assert_ne!(fingerprint, other);
        }
        let [old, new] = [(); 2].map(|()| MasterKey::generate().unwrap());
        let keyring = Keyring::new(&old, std::slice::from_ref(&new));
        keyring.seal_with(new.id()).unwrap();
        let sealed = one.seal(&keyring).unwrap();
        let opened = InstallationKey::open(&Keyring::new(&new, &[]), &sealed).unwrap();
        assert_eq!(opened.fingerprint("p", b"x"), fingerprint);
        assert!(InstallationKey::open(&Keyring::new(&old, &[]), &sealed).is_err());
        assert!(!format!("{one:?}").contains(&fingerprint[5..]));
    }

    #[test]
    fn a_token_opens_for_its_context_and_installation_only() {
        let [one, two] = [(); 2].map(|()| InstallationKey::generate().unwrap());
        let secret = SecretString::from("sk-secret");
        let token = one.seal_token("sandbox/a", &secret).unwrap();
        assert_eq!(token, one.seal_token("sandbox/a", &secret).unwrap());
        let opened = one.open_token("sandbox/a", &token).unwrap();
        assert_eq!(opened.expose_secret(), "sk-secret");
        assert_ne!(token, one.seal_token("sandbox/b", &secret).unwrap());
        let mut changed = token.clone().into_bytes();
        changed[20] = if changed[20] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        for (key, context, text) in [
            (&one, "sandbox/b", token.as_str()),
            (&two, "sandbox/a", &token),
            (&one, "sandbox/a", &changed),
            (&one, "sandbox/a", &token[..token.len() - 4]),
            (&one, "sandbox/a", "AAAA"),
            (&one, "sandbox/a", ""),
            (&one, "sandbox/a", "?"),
        ] {
            let refused = key.open_token(context, text);
            assert!(matches!(refused, Err(CipherError::Damaged)), "{text}");
        }
    }
}
