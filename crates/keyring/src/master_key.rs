//! Master keys, which wrap the data keys of all records.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::api_key::hex;
use crate::private_file;
use crate::random::random;

const OPTIONAL_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, OPTIONAL_PADDING);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, OPTIONAL_PADDING);

/// A master key: 32 random bytes, wiped from memory when dropped.
pub struct MasterKey {
    pub(crate) bytes: Zeroizing<[u8; 32]>,
    id: String,
}

/// Error of loading or storing master keys. It never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// The text is not 32 bytes in base64.
    #[error("the master key must be 32 bytes in base64, e.g. from `openssl rand -base64 32`")]
    Malformed,
    /// A line of the file is not 32 bytes in base64, or the file is empty.
    #[error(
        "{} does not hold master keys: each line must be 32 bytes in base64, e.g. from `openssl rand -base64 32`",
        path.display()
    )]
    MalformedFile {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("cannot read or write the master key file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The operating system does not provide random bytes.
    #[error("the operating system does not provide random bytes")]
    Randomness,
}

impl MasterKey {
    /// Generates a random key.
    pub fn generate() -> Result<Self, MasterKeyError> {
        let bytes = random().map_err(|_| MasterKeyError::Randomness)?;
        Ok(Self::new(bytes))
    }

    /// Parses a key in base64, standard or URL-safe, with or without padding.
    pub fn parse(text: &SecretString) -> Result<Self, MasterKeyError> {
        let text = text.expose_secret().trim();
        let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text));
        let decoded = Zeroizing::new(decoded.map_err(|_| MasterKeyError::Malformed)?);
        let bytes =
            <[u8; 32]>::try_from(decoded.as_slice()).map_err(|_| MasterKeyError::Malformed)?;
        Ok(Self::new(Zeroizing::new(bytes)))
    }

    /// Parses keys, one per line. Fails if there is none.
    pub fn parse_all(text: &SecretString) -> Result<Vec<Self>, MasterKeyError> {
        let lines = text.expose_secret().lines().map(str::trim);
        let keys: Vec<Self> = lines
            .filter(|line| !line.is_empty())
            .map(|line| Self::parse(&line.into()))
            .collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(MasterKeyError::Malformed);
        }
        Ok(keys)
    }

    /// Reads the keys of a file, one per line: first the one to seal with, then former ones.
    pub fn all_from_file(path: &Path) -> Result<Vec<Self>, MasterKeyError> {
        let text = private_file::read(path).map_err(|source| file_error(path, source))?;
        Self::parse_all(&text).map_err(|_| MasterKeyError::MalformedFile { path: path.into() })
    }

    /// Replaces the file by one with these keys, atomically.
    pub fn write_all(path: &Path, keys: &[&Self]) -> Result<(), MasterKeyError> {
        let mut text = Zeroizing::new(String::new());
        for key in keys {
            text.push_str(key.to_base64().expose_secret());
            text.push('\n');
        }
        private_file::replace(path, &text).map_err(|source| file_error(path, source))
    }

    /// Reads the keys of a file. If the file does not exist, creates it (mode `0600`) with a new key. Also returns whether it was
    /// created. Processes that start at the same time all get the same key.
    pub fn all_from_file_or_generate(path: &Path) -> Result<(Vec<Self>, bool), MasterKeyError> {
        let fresh = Self::generate()?;
        let (text, created) = private_file::read_or_create(path, || fresh.to_base64())
            .map_err(|source| file_error(path, source))?;
        let keys = Self::parse_all(&text)
            .map_err(|_| MasterKeyError::MalformedFile { path: path.into() })?;
        Ok((keys, created))
    }

    /// The key in base64, as its file holds it.
    pub fn to_base64(&self) -> SecretString {
        STANDARD.encode(self.bytes.as_slice()).into()
    }

    /// Copies the key. An explicit method instead of `Clone` keeps copies visible.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self {
            bytes: self.bytes.clone(),
            id: self.id.clone(),
        }
    }

    /// Public id of the key: the first 16 hex digits of a hash, which does not reveal the key.
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
    fn all_base64_variants_yield_the_same_key() {
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
    fn invalid_keys_are_refused_and_not_quoted() {
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
    fn the_file_is_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        let (generated, created) = MasterKey::all_from_file_or_generate(&path).unwrap();
        assert!(created);
        let [first] = <[MasterKey; 1]>::try_from(generated).unwrap();
        let (second, created) = MasterKey::all_from_file_or_generate(&path).unwrap();
        assert!(!created);
        assert_eq!(ids(&second), [first.id()]);
        assert_eq!(ids(&MasterKey::all_from_file(&path).unwrap()), [first.id()]);
        assert!(!format!("{first:?}").contains(first.to_base64().expose_secret()));
    }

    fn ids(keys: &[MasterKey]) -> Vec<&str> {
        keys.iter().map(MasterKey::id).collect()
    }

    #[test]
    fn a_file_may_contain_former_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        let [new, old] = [(); 2].map(|()| MasterKey::generate().unwrap());
        for keys in [&[&old][..], &[&new, &old]] {
            MasterKey::write_all(&path, keys).unwrap();
            let read = MasterKey::all_from_file(&path).unwrap();
            let written: Vec<_> = keys.iter().map(|key| key.id()).collect();
            assert_eq!(ids(&read), written);
        }
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&path).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        assert!(MasterKey::parse_all(&" \n".into()).is_err());
        assert!(MasterKey::parse_all(&"AAAA\n".into()).is_err());
    }

    #[test]
    fn a_damaged_file_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        std::fs::write(&path, "").unwrap();
        let error = MasterKey::all_from_file_or_generate(&path).unwrap_err();
        assert!(
            matches!(error, MasterKeyError::MalformedFile { .. }),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
