//! The installation secret, the key of fingerprints.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::encryption::cipher::{Cipher, CipherError, Sealed};
use domain::encryption::vault::{Fingerprints, INSTALLATION_SECRET_CONTEXT};
use hmac::{Hmac, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::api_key::hex;
use crate::envelope::random;

/// Begins every fingerprint, so that none equals a plain SHA-256, which earlier releases stored.
const PREFIX: &str = "hmac:";

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
}
