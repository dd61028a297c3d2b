//! Texts of users' API keys: `aw_`, 43 base62 digits that encode 32 random bytes, and 6 base62 digits of a checksum.

use std::fmt::{self, Write as _};

use domain::user::identity::KeyHash;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::base62;
use crate::random::random_secret;

const TAG: &str = "aw_";
const SECRET_DIGITS: usize = 43;
const CHECKSUM_DIGITS: usize = 6;
/// Characters that may be shown: `aw_` and 6 digits, which reveal about 36 of 256 bits.
const DISPLAY_PREFIX_CHARS: usize = TAG.len() + 6;

/// The text of an API key. Its checksum distinguishes a mistyped or truncated key from a revoked one without a look-up in the
/// store, and lets secret scanners recognise a leaked key.
#[derive(Clone)]
pub struct ApiKeyText(SecretString);

/// The text is not an API key of this service. The error does not quote the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an API key: expected `aw_` and 49 letters or digits, of which the last 6 are a checksum"
)]
pub struct InvalidApiKey;

impl ApiKeyText {
    /// Generates a random key.
    pub fn generate() -> Self {
        let mut text = format!("{TAG}{}", random_secret());
        text.push_str(&checksum(&text));
        Self(text.into())
    }

    /// Parses a key and verifies its checksum.
    pub fn parse(text: &str) -> Result<Self, InvalidApiKey> {
        let digits = text.strip_prefix(TAG).ok_or(InvalidApiKey)?;
        if digits.len() != SECRET_DIGITS + CHECKSUM_DIGITS || !base62::is_base62(digits) {
            return Err(InvalidApiKey);
        }
        // All characters are ASCII, so the split is at a character boundary.
        let (body, given_checksum) = text.split_at(text.len() - CHECKSUM_DIGITS);
        if checksum(body) == given_checksum {
            Ok(Self(text.into()))
        } else {
            Err(InvalidApiKey)
        }
    }

    /// The text, which only its owner may see.
    pub fn secret(&self) -> &SecretString {
        &self.0
    }

    /// The hash, which the store keeps instead of the text.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.0.expose_secret())
    }

    /// The first characters, which identify the key in lists.
    pub fn prefix(&self) -> String {
        self.0.expose_secret()[..DISPLAY_PREFIX_CHARS].to_owned()
    }
}

impl fmt::Debug for ApiKeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeyText({TAG}…)")
    }
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn checksum(body: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"agent-workspace api key checksum\0");
    hash.update(body.as_bytes());
    base62::encode(&hash.finalize()[..4], CHECKSUM_DIGITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_generated_key_parses_and_its_debug_text_hides_it() {
        let key = ApiKeyText::generate();
        let text = key.secret().expose_secret();
        assert_eq!(text.len(), 52);
        let parsed = ApiKeyText::parse(text).unwrap();
        assert_eq!(parsed.hash(), key.hash());
        assert_eq!(key.hash().to_string().len(), 64);
        assert!(text.starts_with(&key.prefix()) && key.prefix().len() == 9);
        assert!(!format!("{key:?}").contains(&text[3..]));
    }

    #[test]
    fn every_changed_character_is_detected() {
        let key = ApiKeyText::generate();
        let text = key.secret().expose_secret();
        for at in 0..text.len() {
            for replacement in ["0", "Z", "_", "é", ""] {
                let mut changed = text.to_owned();
                changed.replace_range(at..=at, replacement);
                if changed != text {
                    assert_eq!(
                        ApiKeyText::parse(&changed).err(),
                        Some(InvalidApiKey),
                        "{at}"
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text: String) {
            let _ = ApiKeyText::parse(&text);
            let _ = ApiKeyText::parse(&format!("aw_{text}"));
        }
    }
}
