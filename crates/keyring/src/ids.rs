//! Random ids and secrets.

use domain::id::{IdGenerator, NewApiKey, SandboxId};
use rand::Rng;
use secrecy::SecretString;
use uuid::Uuid;

use crate::api_key::ApiKeyText;
use crate::base62;
use crate::random::random_secret;

/// Generates ids and secrets with a cryptographically secure generator that the operating system seeds.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl IdGenerator for RandomIds {
    fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(rand::rng().random()).into_uuid()
    }

    fn secret(&self) -> SecretString {
        random_secret().into()
    }

    fn sandbox_id(&self) -> SandboxId {
        let bytes: [u8; 16] = rand::rng().random();
        SandboxId::parse(base62::encode(&bytes, 22))
            .expect("22 base62 digits are a valid sandbox id")
    }

    fn api_key(&self) -> NewApiKey {
        let key = ApiKeyText::generate();
        NewApiKey {
            text: key.secret().clone(),
            prefix: key.prefix(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn ids_are_unique_and_have_fixed_lengths() {
        let ids = RandomIds;
        let mut seen = HashSet::new();
        for _ in 0..100 {
            assert_eq!(ids.uuid().get_version_num(), 4);
            let secret = ids.secret();
            assert_eq!(secret.expose_secret().len(), 43);
            assert!(base62::is_base62(secret.expose_secret()));
            assert_eq!(ids.sandbox_id().as_str().len(), 22);
            assert!(seen.insert(ids.uuid().to_string()));
            assert!(seen.insert(secret.expose_secret().to_owned()));
            assert!(seen.insert(ids.sandbox_id().to_string()));
        }
    }
}
