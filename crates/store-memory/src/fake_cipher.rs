//! Sealing that a test can read, and a catalogue with one spec.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::cipher::{Cipher, CipherError, Sealed};
use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::{SandboxError, SandboxSpec, SandboxSpecCatalog};
use secrecy::{ExposeSecret, SecretString};

/// Seals by writing the context in front, so that tests can look inside and damage what is stored. Keeps the promise
/// that matters: what was sealed for one context does not open in another.
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

/// A catalogue with the spec `fake`.
#[derive(Debug, Clone, Copy, Default)]
pub struct OneSpec;

#[async_trait]
impl SandboxSpecCatalog for OneSpec {
    async fn list(&self) -> Result<Vec<SandboxSpec>, SandboxError> {
        Ok(vec![SandboxSpec {
            id: SpecId::parse("fake").expect("a word is a spec id"),
            command: None,
            created_at: Timestamp::from_micros(0),
            initial_env: BTreeMap::new(),
            working_dir: "/workspace".to_owned(),
            idle_stop: None,
            lifetime: None,
        }])
    }
}
