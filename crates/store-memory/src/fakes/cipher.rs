//! A fake cipher whose sealed texts tests can read.

use domain::encryption::cipher::{Cipher, CipherError, Sealed};
use domain::encryption::vault::Fingerprints;
use domain::user::identity::KeyHash;
use secrecy::{ExposeSecret, SecretString};

/// Seals by prepending the context, so that tests can inspect and damage sealed values. A value that was sealed for one
/// context does not open in another.
#[derive(Debug, Clone, Copy, Default)]
pub struct MarkerCipher;

impl Cipher for MarkerCipher {
    fn seal(&self, context: &str, secret: &SecretString) -> Result<Sealed, CipherError> {
        let plain = secret.expose_secret();
        Ok(Sealed::from_text(format!("{context}|{plain}")))
    }

    fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretString, CipherError> {
        let text = sealed.as_text().strip_prefix(context);
        let text = text.and_then(|text| text.strip_prefix('|'));
        text.map(SecretString::from).ok_or(CipherError::Damaged)
    }

    fn is_outdated(&self, _: &Sealed) -> bool {
        false
    }
}

/// Hashes without a key, and tokens that are merely written in hexadecimal digits.
impl Fingerprints for MarkerCipher {
    fn fingerprint(&self, purpose: &str, text: &[u8]) -> String {
        KeyHash::of(&format!("{purpose}\n{}", String::from_utf8_lossy(text))).to_string()
    }

    fn seal_token(&self, context: &str, secret: &SecretString) -> Result<String, CipherError> {
        let plain = format!("{context}\n{}", secret.expose_secret());
        let digits: Vec<String> = plain.bytes().map(|byte| format!("{byte:02x}")).collect();
        Ok(digits.concat())
    }

    fn open_token(&self, context: &str, token: &str) -> Result<SecretString, CipherError> {
        let digits: Vec<char> = token.chars().collect();
        let bytes = digits.chunks(2).map(|pair| {
            let pair: String = pair.iter().collect();
            u8::from_str_radix(&pair, 16).map_err(|_| CipherError::Damaged)
        });
        let plain = String::from_utf8(bytes.collect::<Result<_, _>>()?);
        let plain = plain.map_err(|_| CipherError::Damaged)?;
        let (found, secret) = plain.split_once('\n').ok_or(CipherError::Damaged)?;
        if found == context {
            Ok(secret.into())
        } else {
            Err(CipherError::Damaged)
        }
    }
}
