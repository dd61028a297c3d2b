//! The key that wraps all other keys.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rand::TryRngCore as _;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::api_key::hex;
use crate::private_file;

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// 32 random bytes, wiped from memory when dropped.
pub struct MasterKey {
    pub(crate) bytes: Zeroizing<[u8; 32]>,
    id: String,
}

/// Why there is no master key. Never says anything about the key.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// Not 32 bytes in base64.
    #[error("the master key must be 32 bytes in base64, e.g. from `openssl rand -base64 32`")]
    Malformed,
    /// The key's file does not hold 32 bytes in base64.
    #[error("{} does not hold a master key: it must be 32 bytes in base64", path.display())]
    MalformedFile {
        /// The file.
        path: PathBuf,
    },
    /// The key's file cannot be read or made.
    #[error("cannot use the master key file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The operating system gives no randomness.
    #[error("the operating system gives no random bytes")]
    Randomness,
}

impl MasterKey {
    /// A new random key.
    pub fn generate() -> Result<Self, MasterKeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        rand::rngs::OsRng
            .try_fill_bytes(bytes.as_mut_slice())
            .map_err(|_| MasterKeyError::Randomness)?;
        Ok(Self::new(bytes))
    }

    /// Reads base64, standard or URL-safe, with or without padding.
    pub fn parse(text: &SecretString) -> Result<Self, MasterKeyError> {
        let text = text.expose_secret().trim();
        let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text));
        let decoded = Zeroizing::new(decoded.map_err(|_| MasterKeyError::Malformed)?);
        let bytes =
            <[u8; 32]>::try_from(decoded.as_slice()).map_err(|_| MasterKeyError::Malformed)?;
        Ok(Self::new(Zeroizing::new(bytes)))
    }

    /// Reads the key from a file.
    pub fn from_file(path: &Path) -> Result<Self, MasterKeyError> {
        let text = private_file::read(path).map_err(|source| file_error(path, source))?;
        Self::parse(&text).map_err(|_| MasterKeyError::MalformedFile { path: path.into() })
    }

    /// Reads the key from a file, which is made with a new key (mode `0600`) when it does not exist; also says whether
    /// it was. Of several processes that start at once, all get the same key.
    pub fn from_file_or_generate(path: &Path) -> Result<(Self, bool), MasterKeyError> {
        let fresh = Self::generate()?;
        let (text, created) = private_file::read_or_create(path, || fresh.to_base64())
            .map_err(|source| file_error(path, source))?;
        let key =
            Self::parse(&text).map_err(|_| MasterKeyError::MalformedFile { path: path.into() })?;
        Ok((key, created))
    }

    /// The key as it is written to a file.
    pub fn to_base64(&self) -> SecretString {
        STANDARD.encode(self.bytes.as_slice()).into()
    }

    /// Public name of the key: 16 hex digits of a hash of it, from which the key cannot be found.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"agent-workspace master key id\0");
        hash.update(bytes.as_slice());
        Self {
            id: hex(&hash.finalize()[..8]),
            bytes,
        }
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

fn file_error(path: &Path, source: io::Error) -> MasterKeyError {
    MasterKeyError::File {
        path: path.into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_base64_is_the_same_key() {
        let bytes = Zeroizing::new([0xfb; 32]);
        let id = MasterKey::new(bytes).id().to_owned();
        let standard = "+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/s=";
        for text in [
            standard.to_owned(),
            format!(" {standard}\n"),
            standard.trim_end_matches('=').to_owned(),
            standard.replace('+', "-").replace('/', "_"),
        ] {
            assert_eq!(MasterKey::parse(&text.into()).unwrap().id(), id);
        }
    }

    #[test]
    fn other_lengths_and_texts_are_refused_without_echo() {
        for text in [
            "",
            "canary",
            "AAAA",
            &"A".repeat(44),
            &"A".repeat(4000),
            "é",
        ] {
            let error = MasterKey::parse(&text.into()).unwrap_err();
            assert!(matches!(error, MasterKeyError::Malformed), "{text}");
            assert!(!format!("{error} {error:?}").contains("canary"));
        }
    }

    #[test]
    fn a_file_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        let (first, created) = MasterKey::from_file_or_generate(&path).unwrap();
        assert!(created);
        let (second, created) = MasterKey::from_file_or_generate(&path).unwrap();
        assert!(!created);
        assert_eq!(first.id(), second.id());
        assert_eq!(MasterKey::from_file(&path).unwrap().id(), first.id());
        assert!(!format!("{first:?}").contains(first.to_base64().expose_secret()));
    }

    #[test]
    fn a_damaged_file_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        std::fs::write(&path, "").unwrap();
        let error = MasterKey::from_file_or_generate(&path).unwrap_err();
        assert!(
            matches!(error, MasterKeyError::MalformedFile { .. }),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
